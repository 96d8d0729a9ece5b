//! The files of a recorded machine, packed into the trace's own Parquet file, so that a recording
//! is one file.
//!
//! ```text
//!  key "pagetrace-files" = hexadecimal of zlib of {"zoneinfo.before.txt": "Node 0, ...", ...}
//! ```
//!
//! A reader in Python takes one line:
//! `json.loads(zlib.decompress(bytes.fromhex(metadata[b"pagetrace-files"].decode())))`. The names
//! are those that the files have beside a trace, without `NAME.`. zlib has a checksum of its own;
//! the file's description lists the names, so that a lost key shows.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use super::source::Source;

/// The key under which the files stand.
pub(super) const FILES_KEY: &str = "pagetrace-files";
/// The field of the description that lists their names.
pub(super) const NAMES: &str = "files";

/// What may lie beside a trace, in the order in which messages name it.
const KINDS: [&str; 8] =
    ["zoneinfo", "buddyinfo", "pagetypeinfo", "pages", "meminfo", "uname", "version", "ticks"];
/// How a copy of a kind may end, the best first: from before a recording, then of no known moment.
pub(super) const ENDS: [&str; 3] = [".before.txt", ".txt", ""];
/// More text than any machine's files have: 4,096 CPUs in 64 zones are some 40 MB of zoneinfo.
const MOST: u64 = 256 << 20;

/// Files of the machine that a trace was recorded on, by their names: `zoneinfo.before.txt`,
/// `ticks.txt` and so on. A trace that has any needs none beside it, and none there is heeded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Packed(BTreeMap<String, String>);

impl Packed {
    /// Puts a file in, in place of one of that name.
    pub fn insert(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.0.insert(name.into(), text.into());
    }

    /// Whether there is no file at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The file of that kind, `zoneinfo` for example, from before the recording where there are
    /// several: its name and its text.
    #[must_use]
    pub fn get(&self, kind: &str) -> Option<(&str, &str)> {
        ENDS.iter().find_map(|end| {
            let (name, text) = self.0.get_key_value(&format!("{kind}{end}"))?;
            Some((name.as_str(), text.as_str()))
        })
    }

    /// What lies beside a trace, of every kind that a replay reads, and what `record` once copied
    /// after a recording.
    ///
    /// # Errors
    ///
    /// Where a file that is there cannot be read.
    pub fn beside(trace: &Path) -> io::Result<Self> {
        let stem = Source::Path(trace.to_owned()).name();
        let mut files = Self::default();
        for kind in KINDS {
            for end in ENDS.into_iter().chain([".after.txt"]) {
                let path = trace.with_file_name(format!("{stem}.{kind}{end}"));
                if path.is_file() {
                    let text = std::fs::read(&path).map_err(|e| {
                        io::Error::new(e.kind(), format!("{}: {e}", path.display()))
                    })?;
                    files.insert(format!("{kind}{end}"), String::from_utf8_lossy(&text));
                }
            }
        }
        Ok(files)
    }

    /// As it stands in a file.
    pub(super) fn encoded(&self) -> String {
        let text = serde_json::to_vec(&self.0).unwrap_or_default();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail.
        let packed = zlib.write_all(&text).and_then(|()| zlib.finish()).unwrap_or_default();
        packed.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Out of a file. `names` is the list of the description, where there is one.
    pub(super) fn decoded(
        value: Option<&str>,
        names: Option<&serde_json::Value>,
    ) -> Result<Self, String> {
        let files = match value {
            Some(value) => {
                unpacked(value).ok_or("the machine's files that are packed into it are damaged")?
            }
            None => Self::default(),
        };
        let listed = names.map_or_else(Vec::new, |names| {
            let names = names.as_array().into_iter().flatten();
            names.filter_map(serde_json::Value::as_str).collect()
        });
        // One that another program added is no damage, one that is listed and missing is.
        match listed.iter().find(|name| !files.0.contains_key(**name)) {
            Some(name) => {
                Err(format!("{name}, which its description lists, is not packed into it"))
            }
            None => Ok(files),
        }
    }
}

fn unpacked(value: &str) -> Option<Packed> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = value.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    let mut text = String::new();
    ZlibDecoder::new(&bytes[..]).take(MOST).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok().map(Packed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_come_back_and_damage_shows() {
        let mut files = Packed::default();
        files.insert("zoneinfo.before.txt", "Node 0, zone Normal\n".repeat(500));
        files.insert("zoneinfo.after.txt", "later");
        files.insert("ticks.txt", "");
        let packed = files.encoded();
        assert!(packed.len() < 500, "{}", packed.len());
        let names = json!(["ticks.txt", "zoneinfo.after.txt", "zoneinfo.before.txt"]);
        assert_eq!(Packed::decoded(Some(&packed), Some(&names)), Ok(files.clone()));
        assert_eq!(Packed::decoded(Some(&packed), None), Ok(files.clone()));
        assert_eq!(files.get("zoneinfo").unwrap().0, "zoneinfo.before.txt");
        assert_eq!(files.get("ticks"), Some(("ticks.txt", "")));
        assert_eq!(files.get("meminfo"), None);
        let said = Packed::decoded(None, Some(&names)).unwrap_err();
        assert!(said.starts_with("ticks.txt, which its description lists"), "{said}");
        for at in 0..packed.len() {
            let mut damaged = packed.clone().into_bytes();
            damaged[at] = if damaged[at] == b'0' { b'1' } else { b'0' };
            let damaged = String::from_utf8(damaged).unwrap();
            let found = Packed::decoded(Some(&damaged), Some(&names));
            assert!(found.is_err() || found == Ok(files.clone()), "{at}");
        }
        assert!(Packed::decoded(Some("0g"), None).is_err());
        assert!(Packed::decoded(Some("0"), None).is_err());
    }

    #[test]
    fn what_lies_beside_a_trace_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &&str| std::fs::write(folder.path().join(name), name).unwrap();
        let names = ["t.zoneinfo.before.txt", "t.zoneinfo.after.txt", "t.ticks.txt"];
        names.iter().chain(&["u.buddyinfo.txt"]).for_each(write);
        let files = Packed::beside(&folder.path().join("t.parquet")).unwrap();
        assert_eq!(
            files.names().collect::<Vec<_>>(),
            ["ticks.txt", "zoneinfo.after.txt", "zoneinfo.before.txt"]
        );
        assert_eq!(files.get("zoneinfo"), Some(("zoneinfo.before.txt", "t.zoneinfo.before.txt")));
    }
}
