//! SHA-256 of every file, as `sha256sum` writes and checks them.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// What is summed up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// The files of the folder itself.
    Files,
    /// All files below it, too.
    Folders,
}

/// Writes `SHA256SUMS` of the files of a folder.
///
/// # Errors
///
/// What could not be read or written.
pub(super) fn write(folder: &Path, of: Of) -> Result<(), String> {
    let mut files = Vec::new();
    collect(folder, of, &mut files).map_err(|error| format!("{}: {error}", folder.display()))?;
    files.sort();
    let mut lines = String::new();
    for path in files {
        let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let name = path.strip_prefix(folder).unwrap_or(&path);
        lines.push_str(&format!("{sum}  {}\n", name.display()));
    }
    let path = folder.join("SHA256SUMS");
    std::fs::write(&path, lines).map_err(|error| format!("{}: {error}", path.display()))
}

fn collect(folder: &Path, of: Of, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.is_dir() {
            files.push(path);
        } else if of == Of::Folders {
            collect(&path, of, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_those_of_the_files() {
        let folder = std::env::temp_dir().join(format!("freehold-sums-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("below")).unwrap();
        std::fs::write(folder.join("below/abc"), "abc").unwrap();
        std::fs::write(folder.join("empty"), "").unwrap();
        let sums = |of| {
            write(&folder, of).unwrap();
            let sums = std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
            std::fs::remove_file(folder.join("SHA256SUMS")).unwrap();
            sums
        };
        let (files, sums) = (sums(Of::Files), sums(Of::Folders));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(!files.contains("below") && files.contains("empty"), "{files}");
        // FIPS 180-2's example, and of nothing.
        assert_eq!(
            sums,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  below/abc\n\
             e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty\n"
        );
    }
}
