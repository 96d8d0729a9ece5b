//! Machines of random shape: what their files say is what a replay builds and what `look` shows, or
//! an error.
//!
//! A machine is made block by block, so that its files are of one machine as a kernel's are:
//!
//! ```text
//!  zone     regions of the largest order ─> pageblocks, each of a type ─> chunks, free or in use
//!              no two free buddies of one type       counted by type and order ─> the three files
//! ```
//!
//! A case is a seed; a failure prints it. `PROPTEST_CASES=1000` looks at more.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::common::machine_files::{Files, Folder, buddyinfo, pagetypeinfo, trace_of};
use freehold_lab::trials::random::Random;
use freehold_trace::machine::{self, Look, Machine, Parts, Told};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::Value;

use crate::replay::command::replay;

/// What architectures and configurations have: bytes of a page, order of a pageblock, largest
/// order.
const SHAPES: [(u64, u8, u8); 8] = [
    (4096, 9, 10),
    (4096, 9, 10),
    (4096, 10, 10),
    (4096, 5, 10),
    (16384, 11, 11),
    (65536, 13, 13),
    (65536, 8, 8),
    (65536, 5, 8),
];

const SINCE_4_4: [&str; 6] =
    ["Unmovable", "Movable", "Reclaimable", "HighAtomic", "CMA", "Isolate"];
const BEFORE_4_4: [&str; 6] = ["Unmovable", "Reclaimable", "Movable", "Reserve", "CMA", "Isolate"];

/// One zone and what is free in it.
struct Zone {
    node: u32,
    name: &'static str,
    start: u64,
    pages: u64,
    managed: u64,
    held: u64,
    blocks: BTreeMap<&'static str, u64>,
    /// Free chunks by type and order.
    free: BTreeMap<&'static str, Vec<u64>>,
}

struct Shape {
    page_size: u64,
    block: u8,
    largest: u8,
    types: [&'static str; 6],
    zones: Vec<Zone>,
    /// The zone that the trace is in.
    traced: usize,
    says_cma: bool,
    has_types: bool,
    has_buddyinfo: bool,
}

fn frames(chunks: &[u64]) -> u64 {
    chunks.iter().enumerate().map(|(order, n)| n << order).sum()
}

impl Zone {
    fn free(&self) -> u64 {
        self.free.values().map(|chunks| frames(chunks)).sum()
    }

    fn free_of(&self, of: &str) -> u64 {
        self.free.get(of).map_or(0, |chunks| frames(chunks))
    }

    /// Free chunks of all types together.
    fn chunks(&self, largest: u8) -> Vec<u64> {
        let of = |order: usize| self.free.values().map(|chunks| chunks[order]).sum();
        (0..=usize::from(largest)).map(of).collect()
    }

    /// Fills a chunk of that order, whose blocks have these types; whether all of it is free.
    fn fill(
        &mut self,
        random: &mut Random,
        order: u8,
        types: &[&'static str],
        emptiness: u64,
    ) -> bool {
        let one_type = types.iter().all(|of| *of == types[0]);
        let roll = random.below(100);
        if one_type && roll < emptiness {
            return true;
        }
        if order == 0 || one_type && roll < emptiness + 45 {
            return false;
        }
        let (low, high) =
            if types.len() > 1 { types.split_at(types.len() / 2) } else { (types, types) };
        let both = [low, high].map(|half| (self.fill(random, order - 1, half, emptiness), half[0]));
        if both[0].0 && both[1].0 && one_type {
            return true;
        }
        for (is_free, of) in both {
            if is_free {
                self.free.get_mut(of).unwrap()[usize::from(order - 1)] += 1;
            }
        }
        false
    }
}

impl Shape {
    fn new(seed: u64) -> Self {
        let mut random = Random::split(seed, 0);
        let (page_size, block, largest) = SHAPES[random.below(SHAPES.len() as u64) as usize];
        let types = if random.below(4) == 0 { BEFORE_4_4 } else { SINCE_4_4 };
        let mut shape = Self {
            page_size,
            block,
            largest,
            types,
            zones: Vec::new(),
            traced: 0,
            says_cma: types == SINCE_4_4 && random.below(2) == 0,
            has_types: random.below(5) > 0,
            has_buddyinfo: random.below(5) > 0,
        };
        let mut start = [1, 3, 4096, 65536][random.below(4) as usize] << largest;
        let names = ["DMA32", "Normal", "HighMem", "Movable"];
        let nodes = [0, 0, 1, 300, 1023];
        for name in names.into_iter().take(1 + random.below(3) as usize) {
            let node = nodes[random.below(5) as usize]
                .max(shape.zones.last().map_or(0, |z: &Zone| z.node));
            let zone = shape.zone(&mut random, node, name, start);
            start += zone.pages + (random.below(3) << largest);
            shape.zones.push(zone);
        }
        shape.traced = random.below(shape.zones.len() as u64) as usize;
        shape
    }

    fn zone(&self, random: &mut Random, node: u32, name: &'static str, start: u64) -> Zone {
        let regions = if self.largest > 11 { 2 + random.below(6) } else { 8 + random.below(56) };
        let pages = regions << self.largest;
        let empty = vec![0; usize::from(self.largest) + 1];
        let mut zone = Zone {
            node,
            name,
            start,
            pages,
            managed: 0,
            held: random.below(4000).min(pages / 50),
            blocks: self.types.iter().map(|of| (*of, 0)).collect(),
            free: self.types.iter().map(|of| (*of, empty.clone())).collect(),
        };
        // As on machines: most of it movable; CMA in one piece at the end, of whole regions.
        let cma = if self.has_types || self.says_cma {
            random.below(3) * random.below(regions / 4 + 1)
        } else {
            0
        };
        let emptiness = random.below(50);
        for region in 0..regions {
            let of_region: Vec<&'static str> = (0..1u64 << (self.largest - self.block))
                .map(|_| match random.below(100) {
                    _ if region >= regions - cma => "CMA",
                    0..65 => "Movable",
                    65..83 => "Unmovable",
                    83..96 => "Reclaimable",
                    96..98 => self.types[3],
                    _ => "Isolate",
                })
                .collect();
            for of in &of_region {
                *zone.blocks.get_mut(of).unwrap() += 1;
            }
            if zone.fill(random, self.largest, &of_region, emptiness) {
                zone.free.get_mut(of_region[0]).unwrap()[usize::from(self.largest)] += 1;
            }
        }
        let used = pages - zone.free();
        zone.held = zone.held.min(used / 2);
        zone.managed = pages - random.below(pages / 25).min(used / 4);
        zone
    }

    /// What is free in isolated blocks, which zoneinfo does not count; without types nobody could
    /// tell.
    fn isolated(&self, zone: &Zone) -> u64 {
        if self.has_types { zone.free_of("Isolate") } else { 0 }
    }

    fn zoneinfo(&self) -> String {
        let of = |zone: &Zone| {
            let Zone { node, name, start, pages, managed, held, .. } = zone;
            let cma = format!("        cma      {}\n", zone.blocks["CMA"] << self.block);
            let cma = if self.says_cma { cma } else { String::new() };
            let (one, other) = (held / 3, held - held / 3);
            format!(
                "Node {node}, zone {name:>8}\n  pages free     {}\n        min      20\n        \
                 low      25\n        high     30\n        spanned  {pages}\n        present  \
                 {pages}\n        managed  {managed}\n{cma}        protection: (0, 0)\n  \
                 pagesets\n    cpu: 0\n              count: {one}\n              high:  \
                 186\n              batch: 31\n    cpu: 1\n              count: \
                 {other}\n              high:  186\n              batch: 31\n  \
                 start_pfn:           {start}\n",
                zone.free() - self.isolated(zone)
            )
        };
        self.zones.iter().map(of).collect()
    }

    /// The report that its kernel would print when memory runs out, each line with a log's mark.
    fn mem_info(&self, random: &mut Random) -> String {
        let mark = ["", "[    1.5] ", "Jan  2 03:04:05 h kernel: "][random.below(3) as usize];
        let kib = self.page_size >> 10;
        let mut lines = vec!["Mem-Info:".to_owned()];
        for zone in &self.zones {
            let (node, name) = (zone.node, zone.name);
            let [free, managed, held, present] =
                [zone.free(), zone.managed, zone.held, zone.pages].map(|pages| pages * kib);
            lines.push(format!(
                "Node {node} {name} free:{free}kB boost:0kB min:{}kB low:{}kB high:{}kB \
                 present:{present}kB managed:{managed}kB free_pcp:{held}kB free_cma:{}kB",
                20 * kib,
                25 * kib,
                30 * kib,
                zone.free_of("CMA") * kib,
            ));
            lines.push("lowmem_reserve[]: 0 0 0".to_owned());
        }
        for zone in &self.zones {
            let chunks = zone.chunks(self.largest);
            let of = |(order, n): (usize, &u64)| format!("{n}*{}kB ", kib << order);
            let all: String = chunks.iter().enumerate().map(of).collect();
            let (node, name, free) = (zone.node, zone.name, zone.free() * kib);
            lines.push(format!("Node {node} {name}: {all}= {free}kB"));
        }
        lines.iter().map(|line| format!("{mark}{line}\n")).collect()
    }

    /// Page size, order of a pageblock and largest order, as far as the files that there are tell
    /// them.
    fn told(&self) -> [u64; 3] {
        match (self.has_types, self.has_buddyinfo) {
            (true, _) => [self.page_size, self.block.into(), self.largest.into()],
            // Of a pageblock, what machines with so many orders have.
            (false, true) if matches!(self.largest, 10 | 11) => [4096, 9, self.largest.into()],
            (false, true) => [self.page_size, self.largest.into(), self.largest.into()],
            (false, false) => [4096, 9, 10],
        }
    }

    /// Pages of CMA; `None` where the files do not say.
    fn cma(&self, zone: &Zone) -> Option<u64> {
        (self.says_cma || self.has_types)
            .then_some((zone.blocks["CMA"] << self.block).min(zone.managed))
    }

    fn files(&self) -> Files {
        let chunks: Vec<_> = self.zones.iter().map(|zone| zone.chunks(self.largest)).collect();
        let zones = self.zones.iter().zip(&chunks);
        let buddies: Vec<(u32, &str, &[u64])> =
            zones.map(|(zone, chunks)| (zone.node, zone.name, &chunks[..])).collect();
        let of_zone = |zone: &'_ Zone| -> Vec<(&'static str, u64, Vec<u64>)> {
            self.types.iter().map(|of| (*of, zone.blocks[of], zone.free[of].clone())).collect()
        };
        let types: Vec<_> = self.zones.iter().map(of_zone).collect();
        let types: Vec<Vec<(&str, u64, &[u64])>> = types
            .iter()
            .map(|zone| zone.iter().map(|(of, blocks, free)| (*of, *blocks, &free[..])).collect())
            .collect();
        let zones = self.zones.iter().zip(&types);
        let typed: Vec<_> = zones.map(|(zone, types)| (zone.node, zone.name, &types[..])).collect();
        let movable = if self.types == BEFORE_4_4 { 2 } else { 1 };
        Files {
            zoneinfo: self.zoneinfo(),
            buddyinfo: if self.has_buddyinfo { buddyinfo(&buddies) } else { None },
            pagetypeinfo: if self.has_types { pagetypeinfo(self.block, &typed) } else { None },
            trace: trace_of(self.zones[self.traced].start, 0, movable, "GFP_HIGHUSER_MOVABLE"),
        }
    }
}

/// The figures that `look` shows of a machine's files.
fn looked(shape: &Shape, folder: &Folder) {
    let files = machine::Files::in_directory(folder.path()).expect("a zoneinfo");
    let machine = Parts::read(&files).and_then(|parts| Machine::new(parts, None));
    let machine = machine.unwrap_or_else(|error| panic!("{error}"));
    let look = Look::new(&machine);
    assert!(look.doubts.is_empty(), "{:?}", look.doubts);
    let document = serde_json::to_value(look).unwrap();
    let told =
        ["page_size", "pageblock_order", "max_order"].map(|key| document[key].as_u64().unwrap());
    assert_eq!(told, shape.told());
    let found = document["zones"].as_array().unwrap();
    assert_eq!(found.len(), shape.zones.len());
    let known = shape.has_types || shape.has_buddyinfo;
    for (zone, found) in shape.zones.iter().zip(found) {
        let of = |key: &str| found[key].as_u64();
        assert_eq!((of("node"), found["zone"].as_str()), (Some(zone.node.into()), Some(zone.name)));
        assert_eq!((of("managed"), of("free")), (Some(zone.managed), Some(zone.free())));
        assert_eq!((of("held"), of("cma")), (Some(zone.held), shape.cma(zone)));
        let chunks = zone.chunks(shape.largest);
        let [_, block, _] = shape.told();
        let whole = chunks.iter().enumerate().skip(block as usize);
        let whole: u64 = whole.map(|(order, n)| n << (order as u64 - block)).sum();
        assert_eq!(of("whole_free_blocks"), known.then_some(whole));
        let blocks: u64 = zone.blocks.values().sum();
        assert_eq!(of("blocks"), shape.has_types.then_some(blocks));
        for (order, n) in chunks.iter().enumerate().filter(|_| known) {
            assert_eq!(found["orders"][order]["chunks"].as_u64(), Some(*n), "order {order}");
        }
        for (at, of) in shape.types.iter().enumerate().filter(|_| shape.has_types) {
            let (found, free) = (&found["types"][at], zone.free_of(of));
            assert_eq!((found["type"].as_str(), found["free"].as_u64()), (Some(*of), Some(free)));
            assert_eq!(found["blocks"].as_u64(), Some(zone.blocks[of]));
        }
    }
}

/// A report of the same machine says the same, as far as it says anything.
fn reported(shape: &Shape, seed: u64) {
    let text = shape.mem_info(&mut Random::split(seed, 1));
    let parts = Parts::of_text("log", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let machine = Machine::new(parts, None).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!((machine.page_size.bytes, machine.page_size.told), (shape.page_size, Told::Said));
    assert_eq!(machine.max_order.get(), shape.largest);
    assert_eq!(machine.zones.len(), shape.zones.len(), "{text}");
    for (zone, found) in shape.zones.iter().zip(&machine.zones) {
        let info = &found.info;
        assert_eq!((info.node, info.name.as_str()), (zone.node, zone.name));
        assert_eq!((info.managed, info.free, found.held()), (zone.managed, zone.free(), zone.held));
        assert_eq!((info.min, info.low, info.high), (20, 25, 30));
        assert_eq!(info.free_cma, Some(zone.free_of("CMA")));
        assert_eq!(found.chunks, zone.chunks(shape.largest));
        assert!(found.types.is_empty() && info.start_pfn.is_none(), "no report says them");
        assert!(found.doubts.is_empty(), "{:?}", found.doubts);
    }
}

/// What a replay builds of them; whether it gave figures.
fn built(shape: &Shape, trace: &std::path::Path) -> bool {
    let output = replay(trace, &[]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        assert!(output.stdout.is_empty(), "figures and an error: {errors}");
        let said = ["cannot be built as recorded", "hint:"];
        assert!(said.iter().all(|part| errors.contains(part)), "{errors}");
        return false;
    }
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let machine = &document["machine"];
    let of = |key: &str| machine[key].as_u64().unwrap_or_else(|| panic!("{key}: {machine}"));
    let zone = &shape.zones[shape.traced];
    let [page_size, block, _] = shape.told();
    assert_eq!((of("page_size"), of("pageblock_order")), (page_size, block));
    assert_eq!(of("free_frames_recorded"), zone.free());
    // What is isolated is in use; what CPUs held is beside it.
    let expected = zone.free() - shape.isolated(zone);
    assert_eq!(of("list_frames_begin"), zone.held);
    assert_eq!(of("free_frames_begin") + of("free_frames_left_out"), expected);
    assert!(of("free_frames_left_out") <= expected / 100, "more than 1 % and no error: {machine}");
    assert_eq!(of("cma_frames"), shape.cma(zone).unwrap_or(0).next_multiple_of(1024));
    assert_eq!(document["trace"]["ignored"], 0);
    true
}

#[test]
fn what_files_of_any_shape_say_is_what_is_built_or_an_error() {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let cases = asked.map_or(24, |cases| cases.parse().unwrap());
    let config = ProptestConfig { cases, max_shrink_iters: 0, ..ProptestConfig::default() };
    let figures = Cell::new(0);
    let outcome = TestRunner::new(config).run(&any::<u64>(), |seed| {
        let shape = Shape::new(seed);
        let folder = Folder::new();
        let trace = folder.write(&shape.files());
        looked(&shape, &folder);
        reported(&shape, seed);
        figures.set(figures.get() + u32::from(built(&shape, &trace)));
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("the number is the seed of a machine: {failure}"));
    // Errors alone would show nothing.
    assert!(figures.get() >= cases / 2, "{} of {cases} give figures", figures.get());
}
