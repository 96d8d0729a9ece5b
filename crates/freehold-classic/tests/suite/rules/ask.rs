//! What a table asks a machine.
//!
//! ```text
//!   zone.F  pcp.F  lock.F  failed  kept  pcp_busy  drain_all  range_visits  cpus_asked
//!                                    counts since `count`; F is a field's name, `holds` of a lock
//!   nothing_counted                  `true` where all of them are 0
//!   map.F  map.F.N                   of the memory map, and one of several
//!   held.CPU                         frames on a CPU's lists
//!   tuning.CPU  tuning.CPU.F         all of a CPU's tuning, and one field
//!   type.TYPE  owned  bytes          pageblocks of a type, with an owner; metadata of all
//!   drained.ORDER                    frames drained: unmovable/movable/reclaimable
//!   frames(a)  len(a)  in(a,0+512)   chunks of a list; how many; how many in a range
//!   blocks(a)  different(a)  rows(a) pageblocks; different chunks; rows of neighbours
//!   owner(a)  free(a)                the first one's block: its owner, its free frames
//! ```
//!
//! A value is compared as text: a list's name stands for its frames, a note's for what it was.

use std::collections::BTreeSet;

use freehold_classic::Stats;

use super::lists::{BASE, Chunk, number};
use super::play::{Player, cpu, kind};

/// The value of a field in what `{:?}` prints of a struct; of an array the element `n`.
fn field(debug: &str, name: &str, n: Option<&str>) -> String {
    let found = debug.find(&format!(" {name}: ")).unwrap_or_else(|| panic!("no field {name}"));
    let value = &debug[found + name.len() + 3..];
    let list = value.strip_prefix('[').map(|list| &list[..list.find(']').unwrap()]);
    match (list, n) {
        (Some(list), Some(n)) => list.split(", ").nth(number(n) as usize).unwrap().to_owned(),
        (Some(list), None) => list.replace(", ", ","),
        (None, _) => value[..value.find([',', ' ']).unwrap()].to_owned(),
    }
}

fn frames(chunks: &[Chunk]) -> String {
    let frames = chunks.iter().map(|(pfn, _)| format!("@{}", pfn.get().wrapping_sub(BASE)));
    frames.collect::<Vec<_>>().join(",")
}

impl Player {
    /// A value as a table writes it.
    pub(super) fn value(&self, text: &str) -> String {
        if let Some(noted) = self.notes.get(text) {
            return noted.clone();
        }
        let name = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let is_list = text.starts_with('@') || self.lists.0.contains_key(name);
        if is_list { frames(&self.lists.get(text)) } else { text.to_owned() }
    }

    /// What is the case.
    pub(super) fn ask(&self, what: &str) -> String {
        if let Some((what, list)) = what.split_once('(') {
            return self.ask_list(what, list.strip_suffix(')').unwrap());
        }
        let (classic, stats) = (self.machine(), self.stats());
        let words: Vec<&str> = what.split('.').collect();
        let map = || classic.memory_map();
        match words[..] {
            ["zone", name] => field(&format!("{:?}", stats.zone), name, None),
            ["pcp", name] => field(&format!("{:?}", stats.pcp), name, None),
            ["lock", name] => field(&format!("{:?}", stats.zone_lock), name, None),
            ["nothing_counted"] => {
                let fresh = format!("{:?}", Stats::default());
                (format!("{stats:?}") == fresh).to_string()
            }
            ["failed" | "kept" | "pcp_busy" | "drain_all" | "range_visits" | "cpus_asked"] => {
                field(&format!("{stats:?}"), what, None)
            }
            ["map", name] => field(&format!("{:?}", map()), name, None),
            ["map", name, n] => field(&format!("{:?}", map()), name, Some(n)),
            ["held", of] => classic.pcp_count(cpu(of)).to_string(),
            ["tuning", of] => format!("{:?}", classic.tuning(cpu(of))).replace(' ', ""),
            ["tuning", of, name] => {
                field(&format!("{:?}", classic.tuning(cpu(of)).unwrap()), name, None)
            }
            ["type", name] => map().blocks_by_type[kind(name).index()].to_string(),
            ["owned"] => map().blocks_by_owner[1..].iter().sum::<u64>().to_string(),
            ["drained", of] => {
                stats.flow.drained[number(of) as usize].map(|n| n.to_string()).join("/")
            }
            _ => panic!("nobody knows {what}"),
        }
    }

    fn ask_list(&self, what: &str, list: &str) -> String {
        let (list, range) = match what {
            "in" => list.rsplit_once(',').unwrap(),
            _ => (list, ""),
        };
        let chunks = self.lists.get(list);
        let first = || chunks[0].0;
        match what {
            "frames" => frames(&chunks),
            "len" => chunks.len().to_string(),
            "in" => {
                let range = self.lists.range(range);
                chunks.iter().filter(|(pfn, _)| range.contains(*pfn)).count().to_string()
            }
            "blocks" => {
                let blocks: BTreeSet<_> = chunks.iter().map(|(pfn, _)| pfn.pageblock()).collect();
                blocks.len().to_string()
            }
            "different" => chunks.iter().collect::<BTreeSet<_>>().len().to_string(),
            "rows" => {
                let ends = chunks.windows(2).filter(|two| two[1].0.get() != two[0].0.get() + 1);
                (ends.count() + 1).to_string()
            }
            "owner" => {
                let owner = self.machine().owner(first());
                owner.map_or("none".to_owned(), |cpu| cpu.get().to_string())
            }
            "free" => {
                let block = first().pageblock();
                let blocks = self.machine().pageblocks().into_iter();
                let free = blocks.filter(|found| found.start == block).map(|found| found.free);
                free.sum::<u16>().to_string()
            }
            _ => panic!("nobody knows {what} of a list"),
        }
    }
}
