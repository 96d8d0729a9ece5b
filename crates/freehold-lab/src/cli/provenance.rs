//! What made a result, so that a stranger can make it again: the program and its commit, the
//! command line, and the SHA-256 of what was read.

use std::io::{self, Read};

use serde::Serialize;

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

/// The first bits of the fractional parts of the cube roots of the first 64 primes.
const ROUNDS: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

/// The SHA-256 of a stream, in hexadecimal (FIPS 180-4). Complexity: its length, in 64 KiB of
/// memory.
pub fn sha256(mut from: impl Read) -> io::Result<String> {
    let mut state: [u32; 8] = [
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
        0x5be0cd19,
    ];
    let (mut rest, mut length, mut buffer) = (Vec::new(), 0u64, vec![0; 1 << 16]);
    loop {
        let got = match from.read(&mut buffer) {
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        length += got as u64;
        rest.extend_from_slice(&buffer[..got]);
        if got == 0 {
            rest.push(0x80);
            rest.resize((rest.len() + 8).next_multiple_of(64), 0);
            let end = rest.len() - 8;
            rest[end..].copy_from_slice(&(length * 8).to_be_bytes());
        }
        let whole = rest.len() / 64 * 64;
        rest[..whole].chunks_exact(64).for_each(|block| mix(&mut state, block));
        if got == 0 {
            return Ok(state.map(|word| format!("{word:08x}")).concat());
        }
        rest.drain(..whole);
    }
}

fn mix(state: &mut [u32; 8], block: &[u8]) {
    let mut words = [0u32; 64];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    for at in 16..64 {
        let (a, b) = (words[at - 15], words[at - 2]);
        let a = a.rotate_right(7) ^ a.rotate_right(18) ^ a >> 3;
        let b = b.rotate_right(17) ^ b.rotate_right(19) ^ b >> 10;
        words[at] = words[at - 16].wrapping_add(a).wrapping_add(words[at - 7]).wrapping_add(b);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, round) in words.iter().zip(ROUNDS) {
        let mixed = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let chosen = e & f ^ !e & g;
        let first =
            h.wrapping_add(mixed).wrapping_add(chosen).wrapping_add(round).wrapping_add(*word);
        let mixed = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let second = mixed.wrapping_add(a & b ^ a & c ^ b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    for (sum, word) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *sum = sum.wrapping_add(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standard() {
        let of = |bytes: &[u8]| sha256(bytes).unwrap();
        assert_eq!(of(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(of(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        let two = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(of(two), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        // With the mark there is no room for the length in the last block.
        let full = "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb";
        assert_eq!(of(&[b'a'; 64]), full);
        let one_less = "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34";
        assert_eq!(of(&[b'a'; 63]), one_less);
        let million = vec![b'a'; 1_000_000];
        assert_eq!(
            of(&million),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        );
    }

    #[test]
    fn a_shell_takes_the_line_again() {
        for (word, line) in [("a.parquet", "a.parquet"), ("", "''"), ("a b", "'a b'")] {
            assert_eq!(quoted(word), line);
        }
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
