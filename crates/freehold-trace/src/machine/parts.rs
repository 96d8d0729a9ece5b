//! What is known of a machine's memory, from files as a kernel has them and from what people paste.
//!
//! A text may hold any of zoneinfo, buddyinfo, pagetypeinfo and `Mem-Info` reports, with prompts
//! and commands before, between and behind. Which lines are whose is told by how they begin; each
//! kind's lines go to its own parser at their own line numbers, so that what is damaged is still an
//! error.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::super::buddyinfo::{PageTypeInfo, ZoneFree, parse_buddyinfo, parse_pagetypeinfo};
use super::super::error::{StateError, TraceError};
use super::super::reader::{OpenOptions, TraceReader, packed_files};
use super::super::source::{Source, compression_of, decoder};
use super::super::zoneinfo::{self, Zone, zone_header};
use super::mem_info;
use super::page_size::{PageSize, Told};
use super::pages::Pages;

/// The kinds of file, each called by its name in `/proc`.
const KINDS: [&str; 3] = ["zoneinfo", "buddyinfo", "pagetypeinfo"];
/// What pages are, as it is or packed: it is the large file of a machine.
const PAGES: [&str; 4] = ["kpageflags", "pages", "kpageflags.gz", "kpageflags.zst"];

/// Parts of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parts {
    /// The zones that zoneinfo or a `Mem-Info` report lists.
    pub zones: Option<Vec<Zone>>,
    /// Free chunks by order.
    pub buddies: Option<Vec<ZoneFree>>,
    /// For each of `buddies` the letters of the types that have chunks of an order; empty where
    /// there is no such report.
    pub letters: Vec<Vec<String>>,
    /// Free chunks and blocks by type.
    pub types: Option<PageTypeInfo>,
    /// How large a page is, where that is said.
    pub page_size: Option<PageSize>,
    /// All memory in KiB, by `MemTotal` of a meminfo.
    pub mem_total_kib: Option<u64>,
    /// What `uname -a` or `/proc/version` says of the machine.
    pub about: String,
    /// What each page was, as a recording has it packed.
    pub pages: Option<String>,
    /// What in them cannot be right.
    pub doubts: Vec<String>,
    /// What to say of how it was read.
    pub notes: Vec<String>,
}

impl Parts {
    /// What a text holds.
    ///
    /// # Errors
    ///
    /// Those of each kind's parser, and [`StateError::BadLine`] where nothing of the kind is in it.
    pub fn of_text(name: &str, text: &str) -> Result<Self, StateError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut parts = Self::default();
        let report = mem_info::find(text)?;
        let [zones, buddies, types] = sections(text, report.is_some());
        let named = |error: StateError| error.of(name);
        if let Some(text) = zones {
            parts.zones = Some(zoneinfo::parse(&text).map_err(named)?);
        }
        if let Some(text) = buddies {
            parts.buddies = Some(parse_buddyinfo(&text).map_err(named)?);
        }
        if let Some(text) = types {
            parts.types = Some(parse_pagetypeinfo(&text).map_err(named)?);
        }
        if let (Some((report, count)), None) = (report, &parts.zones) {
            parts.page_size = Some(PageSize { bytes: report.page_size, told: Told::Said });
            parts.zones = Some(report.zones);
            (parts.buddies, parts.letters) = (Some(report.chunks), report.letters);
            parts.doubts = report.doubts;
            if count > 1 {
                parts.notes.push(format!("{count} reports in {name}: the last whole one is taken"));
            }
        }
        if parts.is_empty() {
            let why = "no zoneinfo, buddyinfo, pagetypeinfo or Mem-Info report in it";
            return Err(StateError::bad_line(name, 1, why));
        }
        Ok(parts)
    }

    fn is_empty(&self) -> bool {
        self.zones.is_none() && self.buddies.is_none() && self.types.is_none()
    }

    /// Takes what is not known yet from others.
    fn take(&mut self, other: Self) {
        self.zones = self.zones.take().or(other.zones);
        if self.buddies.is_none() {
            (self.buddies, self.letters) = (other.buddies, other.letters);
        }
        self.types = self.types.take().or(other.types);
        self.page_size = self.page_size.or(other.page_size);
        self.mem_total_kib = self.mem_total_kib.or(other.mem_total_kib);
        self.about += &other.about;
        self.pages = self.pages.take().or(other.pages);
        self.doubts.extend(other.doubts);
        self.notes.extend(other.notes);
    }

    /// What `MemTotal` of a meminfo says.
    pub fn add_meminfo(&mut self, text: &str) {
        let total = text.lines().find_map(|line| line.trim().strip_prefix("MemTotal:"));
        let total = total.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        self.mem_total_kib = self.mem_total_kib.or(total);
    }

    /// Reads files, plain, gzip or zstd; `-` is standard input.
    ///
    /// # Errors
    ///
    /// As [`of_text`](Self::of_text), and [`StateError::Io`].
    pub fn read(files: &Files) -> Result<Self, StateError> {
        let mut parts = Self::default();
        for path in &files.states {
            let (text, more) = read(path)?;
            parts.take(Self::of_text(&path.display().to_string(), &text)?);
            parts.take(more);
        }
        if let Some(path) = &files.meminfo {
            parts.add_meminfo(&read(path)?.0);
        }
        for path in &files.about {
            parts.about += &read(path)?.0;
        }
        Ok(parts)
    }

    /// What each page is, by the recording that was read or by a file of its own; `None` where
    /// neither says.
    ///
    /// # Errors
    ///
    /// As [`Pages::open`].
    pub fn pages(&self, files: &Files) -> Result<Option<Pages>, StateError> {
        match (&self.pages, &files.pages) {
            (Some(text), _) => {
                StateError::in_text("the packed pages", text, Pages::parse).map(Some)
            }
            (None, path) => path.as_deref().map(Pages::open).transpose(),
        }
    }
}

/// A file's text; of a recording, that of the machine's files in it, and what else it says of the
/// machine.
fn read(path: &Path) -> Result<(String, Parts), StateError> {
    let fail = |source| StateError::Io { path: path.to_owned(), source };
    let source = Source::from_arg(path).reopenable().map_err(state_error)?;
    let at = match &source {
        Source::Spooled(copy) => copy.path(),
        _ => path,
    };
    let (mut file, mut bytes) = (File::open(at).map_err(fail)?, Vec::new());
    file.by_ref().take(4).read_to_end(&mut bytes).map_err(fail)?;
    if bytes == b"PAR1" {
        return packed(&source);
    }
    file.read_to_end(&mut bytes).map_err(fail)?;
    let mut plain = Vec::new();
    let read =
        decoder(&bytes[..], compression_of(&bytes)).and_then(|mut of| of.read_to_end(&mut plain));
    read.map_err(fail)?;
    Ok((String::from_utf8_lossy(&plain).into_owned(), Parts::default()))
}

/// What is packed into a recording.
fn packed(source: &Source) -> Result<(String, Parts), StateError> {
    let files = packed_files(source).map_err(state_error)?;
    let texts: String = KINDS.iter().filter_map(|kind| Some(files.get(kind)?.1)).collect();
    if texts.is_empty() {
        let what = format!(
            "{}: no file of a machine is packed into it\nhint: name the zoneinfo beside it, or put \
             both into one file: freehold pack",
            source.shown().display()
        );
        return Err(StateError::Contradiction { what });
    }
    let text = |kind| files.get(kind).map_or("", |(_, text)| text);
    let mut more = Parts { about: text("uname").to_owned() + text("version"), ..Parts::default() };
    more.add_meminfo(text("meminfo"));
    more.pages = files.get("pages").map(|(_, text)| text.to_owned());
    let trace = TraceReader::open(source, OpenOptions::default());
    let said = trace.ok().and_then(|trace| trace.info().page_size);
    more.page_size = said.map(|bytes| PageSize { bytes, told: Told::Said });
    Ok((texts, more))
}

fn state_error(error: TraceError) -> StateError {
    match error {
        TraceError::Io { path, source } => StateError::Io { path, source },
        error => StateError::Contradiction { what: error.to_string() },
    }
}

/// The lines of each kind at their own line numbers; `None` where there are none. `is_log`: there
/// are indented lines that are no zoneinfo's.
fn sections(text: &str, is_log: bool) -> [Option<String>; 3] {
    let mut found = [const { Section { text: String::new(), lines: 0 } }; 3];
    let mut current = None;
    // Lines without a kind, which may be a damaged beginning of what follows.
    let mut stray: Vec<(usize, &str)> = Vec::new();
    let mut in_types = false;
    for (number, line) in text.lines().enumerate() {
        let kind = kind_of(line, &mut in_types);
        if line.trim().is_empty() {
            continue;
        }
        let indented = line.starts_with([' ', '\t']);
        if kind.is_none() && indented && !is_log && (current == Some(0) || !stray.is_empty()) {
            let missing = stray.drain(..).filter(|_| current != Some(0));
            missing.for_each(|(at, line)| found[0].put(at, line));
            found[0].put(number, line);
            current = Some(0);
            continue;
        }
        match kind {
            Some(kind) => {
                found[kind].put(number, line);
                stray.clear();
            }
            None => stray.push((number, line)),
        }
        current = kind;
    }
    found.map(|section| (section.lines > 0).then_some(section.text))
}

/// The lines of one kind, with empty ones for the others.
struct Section {
    text: String,
    lines: usize,
}

impl Section {
    fn put(&mut self, number: usize, line: &str) {
        self.text.extend(std::iter::repeat_n('\n', number - self.lines));
        self.text.push_str(line);
        self.text.push('\n');
        self.lines = number + 1;
    }
}

/// Which file a line is of; `in_types`: whether counts without a type are blocks of pagetypeinfo.
fn kind_of(line: &str, in_types: &mut bool) -> Option<usize> {
    const TYPES: [&str; 4] =
        ["Page block order:", "Pages per block:", "Free pages count per migrate", "Number of "];
    let line = line.trim();
    if TYPES.iter().any(|begin| line.starts_with(begin)) {
        *in_types = true;
        return Some(2);
    }
    let (_, rest) = zone_header(line).filter(|_| line.contains(", zone"))?;
    let counts = rest.split_once(char::is_whitespace).map(|(_, counts)| counts);
    match counts {
        _ if rest.contains(", type") => Some(2),
        Some(_) if *in_types => Some(2),
        Some(_) => Some(1),
        None => {
            *in_types = false;
            Some(0)
        }
    }
}

/// Where the parts of a machine are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// What holds zones, chunks and types; the first is what the machine is called by.
    pub states: Vec<PathBuf>,
    /// All memory.
    pub meminfo: Option<PathBuf>,
    /// What says what machine it is.
    pub about: Vec<PathBuf>,
    /// What each page is: a kpageflags, or what a recording keeps of one.
    pub pages: Option<PathBuf>,
}

impl Files {
    /// Those of a directory: as in `/proc`, copies called `zoneinfo.txt` or
    /// `NAME.zoneinfo.before.txt`, or the root of a sosreport; `None` where there are none. Of
    /// several copies the first by name is taken, and its neighbours.
    #[must_use]
    pub fn in_directory(directory: &Path) -> Option<Self> {
        let rooms = [directory.to_owned(), directory.join("proc")];
        rooms.iter().find_map(|room| {
            let plain = KINDS.iter().find(|kind| room.join(kind).is_file());
            if let Some(kind) = plain {
                return Some(Self::beside(&room.join(kind), kind));
            }
            KINDS.iter().find_map(|kind| {
                let mut found: Vec<_> = std::fs::read_dir(room)
                    .ok()?
                    .filter_map(|entry| Some(entry.ok()?.path()))
                    .filter(|path| name_of(path).contains(kind) && path.is_file())
                    .collect();
                // Copies from before a recording come before those from after it.
                found.sort_by_key(|path| (name_of(path).contains(".after."), path.clone()));
                found.first().map(|path| Self::beside(path, kind))
            })
        })
    }

    /// A file by itself, and where its name has that of a kind, what is called like it.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        // `pagetypeinfo` has no other's name in it.
        match KINDS.iter().find(|kind| name_of(path).contains(*kind)) {
            Some(kind) => Self::beside(path, kind),
            None => Self { states: vec![path.to_owned()], ..Self::default() },
        }
    }

    /// A file of that kind, and what is called like it.
    fn beside(path: &Path, kind: &str) -> Self {
        let name = name_of(path);
        // A pagetypeinfo is root's alone: one that may not be read is none.
        let like = |other: &str| {
            let path = path.with_file_name(name.replace(kind, other));
            std::fs::File::open(&path)
                .is_ok_and(|file| file.metadata().is_ok_and(|m| m.is_file()))
                .then_some(path)
        };
        let sos = path.ancestors().nth(2).map(|root| root.join("sos_commands/kernel/uname_-a"));
        let about = ["uname", "version"].into_iter().filter_map(like);
        Self {
            states: KINDS.into_iter().filter_map(like).collect(),
            meminfo: like("meminfo"),
            about: about.chain(sos.filter(|path| path.is_file())).collect(),
            pages: PAGES.into_iter().find_map(like),
        }
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: &str = "Node 0, zone   Normal\n  pages free     9\n        min      1\n        \
                        low      2\n        high     3\n        spanned  400\n        present  \
                        300\n        managed  200\n  start_pfn:           256\n";
    const CHUNKS: &str = "Node 0, zone   Normal 1 0 2\n";
    const TYPES: &str = "Page block order: 2\nPages per block:  4\n\n\
                         Node    0, zone   Normal, type    Movable 1 0 2\n\n\
                         Number of blocks type    Movable\nNode 0, zone   Normal 50\n";

    #[test]
    fn prompts_before_between_and_behind() {
        let pasted = format!(
            "$ uname\nroot@host:~# cat /proc/zoneinfo\n{ZONE}root@host:~# cat /proc/buddyinfo\n\
             {CHUNKS}[root@host ~]# cat /proc/pagetypeinfo\n{TYPES}[root@host ~]# exit\n"
        );
        for text in [pasted.clone(), pasted.replace('\n', "\r\n")] {
            let parts = Parts::of_text("t", &text).unwrap();
            assert_eq!(parts.zones, Some(zoneinfo::parse(ZONE).unwrap()));
            assert_eq!(parts.buddies, Some(parse_buddyinfo(CHUNKS).unwrap()));
            assert_eq!(parts.types, Some(parse_pagetypeinfo(TYPES).unwrap()));
        }
        let alone = Parts::of_text("t", &format!("# cat buddyinfo\n{CHUNKS}")).unwrap();
        assert!(alone.zones.is_none() && alone.types.is_none() && alone.buddies.is_some());
    }

    #[test]
    fn packed_files_and_their_neighbours() {
        use std::io::Write;
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(ZONE.as_bytes()).unwrap();
        let zones = write("a.zoneinfo.before.txt", &gz.finish().unwrap());
        write("a.buddyinfo.before.txt", &zstd::encode_all(CHUNKS.as_bytes(), 1).unwrap());
        write("a.uname.before.txt", b"Linux a 6.1.0 #1 SMP s390x\n");
        write("b.zoneinfo.before.txt", b"");
        for files in [Files::at(&zones), Files::in_directory(folder.path()).unwrap()] {
            let parts = Parts::read(&files).unwrap();
            assert_eq!(parts.zones, Some(zoneinfo::parse(ZONE).unwrap()));
            assert_eq!(parts.buddies, Some(parse_buddyinfo(CHUNKS).unwrap()));
            assert!(parts.types.is_none() && parts.about.contains("s390x"));
        }
        let (plain, pages) = (write("zoneinfo", ZONE.as_bytes()), write("kpageflags.gz", b""));
        assert_eq!(Files::at(&plain).pages, Some(pages));
    }

    #[test]
    fn damage_is_no_prompt() {
        let message = |text: &str| Parts::of_text("t", text).unwrap_err().to_string();
        let two = format!("{ZONE}{}", ZONE.replace("Normal", "Movable"));
        let damaged = two.replacen("Node 0, zone   Movable", "Mode 0, zone   Movable", 1);
        assert!(message(&damaged).contains("twice"));
        let first = two.replacen("Node", "Mode", 1);
        assert!(message(&first).starts_with("t: line 1: a zone was expected"), "{first}");
        assert_eq!(
            message(&ZONE.replace("min      1", "min      x")),
            "t: line 3: min is `x`, not a number of frames"
        );
        assert!(message("hello\n").contains("no zoneinfo, buddyinfo"));
    }
}
