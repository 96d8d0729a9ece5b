//! What made a result, so that a stranger can make it again: the program and its commit, the
//! command line, and the SHA-256 of what was read.

use std::io::{self, Read};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::output;

/// The program's name and version, and the commit that it was built from where that is known. A
/// `+` behind it: files of the sources had been changed.
pub const PROGRAM: &str =
    concat!("freehold ", env!("CARGO_PKG_VERSION"), env!("FREEHOLD_BUILT_FROM"));

/// Where a result comes from: `about` in the JSON of a replay.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct About {
    /// Program, version and commit.
    pub program: String,
    /// The command line, as a shell would take it.
    pub command: String,
    /// The trace as the command line named it; `-` for standard input.
    pub path: String,
    /// Of the trace's bytes, in hexadecimal.
    pub sha256: String,
    /// The host that recorded it, where the trace says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The command line, as a shell would take it: of this process, or of a command that it calls.
pub fn command_line() -> String {
    let own = || std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut words = output::words().unwrap_or_else(own);
    if let Some(first) = words.first_mut() {
        "freehold".clone_into(first);
    }
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The SHA-256 of a stream, in hexadecimal. Complexity: its length, in 64 KiB of memory.
pub fn sha256(mut from: impl Read) -> io::Result<String> {
    let (mut sum, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            Ok(got) => sum.update(&buffer[..got]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standard() {
        let of = |bytes: &[u8]| sha256(bytes).unwrap();
        assert_eq!(of(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let million = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
        assert_eq!(of(&vec![b'a'; 1_000_000]), million);
    }

    #[test]
    fn a_shell_takes_the_line_again() {
        for (word, line) in [("a.parquet", "a.parquet"), ("", "''"), ("a b", "'a b'")] {
            assert_eq!(quoted(word), line);
        }
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
