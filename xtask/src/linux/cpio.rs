//! The archive that Linux unpacks as its first file system: cpio, "newc".

/// An archive in the making.
#[derive(Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    files: u32,
}

impl Archive {
    /// A folder.
    pub(crate) fn folder(&mut self, name: &str) {
        self.put(name, 0o040_755, &[]);
    }

    /// A program.
    pub(crate) fn program(&mut self, name: &str, bytes: &[u8]) {
        self.put(name, 0o100_755, bytes);
    }

    /// The archive.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.put("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn put(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        self.files += 1;
        let (size, named) = (bytes.len() as u32, name.len() as u32 + 1);
        // Number, mode, user, group, links, time, size, four device numbers, the name's length,
        // checksum.
        let fields = [self.files, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, named, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn everything_starts_at_a_multiple_of_four() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.program("init", b"#!sh\n");
        let bytes = archive.end();
        let heads: Vec<usize> =
            (0..bytes.len()).filter(|&at| bytes[at..].starts_with(b"070701")).collect();
        // 110 bytes of head, the name with its zero, and what the file holds, each rounded up.
        assert_eq!(heads, [0, 116, 116 + 116 + 8]);
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[116 + 110..116 + 115], b"init\0");
        assert_eq!(&bytes[232..237], b"#!sh\n");
    }
}
