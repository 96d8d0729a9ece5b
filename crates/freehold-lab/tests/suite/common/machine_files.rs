//! Machines as their files describe them, written for tests: zoneinfo, buddyinfo and pagetypeinfo
//! of any shape, and a trace.

use std::fs;
use std::path::{Path, PathBuf};

/// The three files of a machine and a trace of it.
#[derive(Clone, Default)]
pub struct Files {
    pub zoneinfo: String,
    pub buddyinfo: Option<String>,
    pub pagetypeinfo: Option<String>,
    pub trace: String,
}

pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file; where it is.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, content).expect("a file in a temporary folder");
        path
    }

    /// Writes a machine's files; where its trace is.
    pub fn write(&self, files: &Files) -> PathBuf {
        let write = |kind: &str, text: &Option<String>| {
            let path = self.path().join(format!("m.{kind}.before.txt"));
            match text {
                Some(text) => fs::write(path, text).unwrap(),
                None => drop(fs::remove_file(path)),
            }
        };
        write("zoneinfo", &Some(files.zoneinfo.clone()));
        write("buddyinfo", &files.buddyinfo);
        write("pagetypeinfo", &files.pagetypeinfo);
        let trace = self.path().join("m.trace");
        fs::write(&trace, &files.trace).unwrap();
        trace
    }
}

/// One zone as zoneinfo prints it.
pub fn zone(node: u32, name: &str, free: u64, pages: u64, start: u64, more: &str) -> String {
    format!(
        "Node {node}, zone {name:>8}\n  pages free     {free}\n        min      20\n        \
         low      25\n        high     30\n        spanned  {pages}\n        present  \
         {pages}\n        managed  {pages}\n{more}        protection: (0, 0)\n  pagesets\n    cpu: \
         0\n              count: 9\n              high:  186\n              batch: 31\n  \
         start_pfn:           {start}\n"
    )
}

pub fn words(numbers: &[u64]) -> String {
    numbers.iter().map(|n| format!("{n:>6} ")).collect()
}

pub fn buddyinfo(zones: &[(u32, &str, &[u64])]) -> Option<String> {
    let line = |(node, name, chunks): &(u32, &str, &[u64])| {
        format!("Node {node}, zone {name:>8} {}\n", words(chunks))
    };
    Some(zones.iter().map(line).collect())
}

/// A zone's types: name, blocks, free chunks.
pub type Types<'a> = &'a [(&'a str, u64, &'a [u64])];

pub fn pagetypeinfo(order: u8, zones: &[(u32, &str, Types<'_>)]) -> Option<String> {
    let mut text = format!("Page block order: {order}\nPages per block:  {}\n\n", 1u64 << order);
    text += "Free pages count per migrate type at order\n";
    for (node, name, types) in zones {
        for (of, _, chunks) in *types {
            text += &format!("Node {node:>4}, zone {name:>8}, type {of:>12} {}\n", words(chunks));
        }
    }
    let names: String = zones[0].2.iter().map(|(of, ..)| format!("{of:>12} ")).collect();
    text += &format!("\nNumber of blocks type {names}\n");
    for (node, name, types) in zones {
        let blocks: Vec<u64> = types.iter().map(|(_, blocks, _)| *blocks).collect();
        text += &format!("Node {node}, zone {name:>8} {}\n", words(&blocks));
    }
    Some(text)
}

/// Allocations and frees of one order in a zone that starts there.
pub fn trace_of(start: u64, order: u8, migratetype: u8, flags: &str) -> String {
    let mut text = "# tracer: nop\n#\n".to_owned();
    let pfn = |n: u64| start + (n << order);
    for (bits, at, event, more) in [
        (".....", 1, "mm_page_alloc", format!(" migratetype={migratetype} gfp_flags={flags}")),
        ("d..1.", 2, "mm_page_free", String::new()),
    ] {
        text.extend((0..6).map(|n| {
            let of = format!("{event}: page=x pfn={:#x} order={order}{more}", pfn(n));
            format!("           cat-400     [000] {bits}    70.000{at}{n}1: {of}\n")
        }));
    }
    text
}

pub const FLAGS: &str = "GFP_HIGHUSER_MOVABLE";
pub const NONE: [u64; 11] = [0; 11];

/// Zone Normal from page 65,536 on with these free chunks, what is known of it by type behind the
/// order of its pageblocks, and a trace of movable requests.
pub fn one_zone(pages: u64, chunks: &[u64], types: Option<(u8, Types<'_>)>) -> Files {
    let free = (0..).zip(chunks).map(|(order, n)| n << order).sum();
    Files {
        zoneinfo: zone(0, "Normal", free, pages, 65536, ""),
        buddyinfo: buddyinfo(&[(0, "Normal", chunks)]),
        pagetypeinfo: types.and_then(|(order, of)| pagetypeinfo(order, &[(0, "Normal", of)])),
        trace: trace_of(65536, 0, 1, FLAGS),
    }
}

/// 64 MiB of pages of 4 KiB: 256 + 3 * 1024 + 2 free.
pub fn plain() -> Files {
    let movable = [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 3];
    let all = [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 3];
    let unmovable = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let types: Types<'_> = &[
        ("Unmovable", 6, &unmovable),
        ("Movable", 24, &movable),
        ("Reclaimable", 2, &NONE),
        ("HighAtomic", 0, &NONE),
        ("Isolate", 0, &NONE),
    ];
    one_zone(16384, &all, Some((9, types)))
}

/// 64 MiB with 4 CMA blocks, of which 1 + 512 frames are free, of a kernel before 5.12.
pub fn with_cma() -> Files {
    let (movable, cma) = ([3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2], [1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    let all = [4, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2];
    let types: Types<'_> = &[
        ("Unmovable", 4, &NONE),
        ("Movable", 24, &movable),
        ("Reclaimable", 0, &NONE),
        ("HighAtomic", 0, &NONE),
        ("CMA", 4, &cma),
    ];
    Files {
        zoneinfo: zone(0, "Normal", 2564, 16384, 65536, "      nr_free_cma  513\n"),
        ..one_zone(16384, &all, Some((9, types)))
    }
}

/// 64 MiB of a kernel before 4.4: types in another order, and Reserve with 8 free frames.
pub fn before_4_4() -> Files {
    let (movable, reserve) = ([3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    let types: Types<'_> = &[
        ("Unmovable", 6, &NONE),
        ("Reclaimable", 4, &NONE),
        ("Movable", 20, &movable),
        ("Reserve", 2, &reserve),
        ("Isolate", 0, &NONE),
    ];
    Files {
        trace: trace_of(65536, 0, 2, "GFP_HIGHUSER_MOVABLE|GFP_ZERO"),
        ..one_zone(16384, &[3, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2], Some((9, types)))
    }
}
