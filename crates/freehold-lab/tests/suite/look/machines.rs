//! `freehold look` on the files of every kind of machine: each figure stands beside the text that
//! it is read from, and every way of showing it has it.

use std::fs;

use crate::common::machine_files::{
    CMA_FREE, CMA_SIZE, DEVICE, Files, Folder, Types, before_4_4, buddyinfo, one_zone,
    pagetypeinfo, with_cma, with_mixed, zone,
};
use freehold_lab::tables::number::{counted, memory_of};
use serde_json::Value;

/// A machine and the right figures of its last zone, in pages.
struct Kind {
    name: &'static str,
    files: Files,
    page_size: u64,
    pageblock_order: u64,
    max_order: u64,
    managed: u64,
    free: u64,
    /// `None`: no file says.
    cma: Option<u64>,
    cma_free: Option<u64>,
    blocks: Option<u64>,
    whole: u64,
    mixed: Option<u64>,
    /// An order, and the pages in smaller chunks.
    smaller: (usize, u64),
    /// A type, its blocks and its free pages.
    of_type: Option<(&'static str, u64, u64)>,
}

/// 64 MiB of pages of 4 KiB with blocks of order 9, nothing of it known by type.
fn plain(name: &'static str) -> Kind {
    let free = [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 3];
    Kind {
        name,
        files: Files {
            zoneinfo: zone(0, "Normal", 3330, 16384, 65536, "        cma      0\n"),
            ..one_zone(16384, &free, None)
        },
        page_size: 4096,
        pageblock_order: 9,
        max_order: 10,
        managed: 16384,
        free: 3330,
        cma: Some(0),
        cma_free: None,
        blocks: None,
        whole: 6,
        mixed: None,
        smaller: (9, 258),
        of_type: None,
    }
}

/// One zone with all that is free among the movable, in so many blocks.
fn typed(order: u8, blocks: [u64; 2], chunks: &[u64]) -> Option<String> {
    let none = vec![0; chunks.len()];
    let types: Types<'_> =
        &[("Unmovable", blocks[0], &none), ("Movable", blocks[1], chunks), ("Isolate", 0, &none)];
    pagetypeinfo(order, &[(0, "Normal", types)])
}

/// Pages of 64 KiB, and blocks of order 5. random_machines.rs has every other size, in JSON.
fn of_other_sizes() -> Vec<Kind> {
    let chunks = [9, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3];
    let large = Kind {
        files: Files {
            zoneinfo: zone(0, "Normal", 28_721, 65536, 65536, "        cma      0\n"),
            pagetypeinfo: typed(13, [2, 6], &chunks),
            ..one_zone(65536, &chunks, None)
        },
        page_size: 65536,
        pageblock_order: 13,
        max_order: 13,
        managed: 65536,
        free: 28_721,
        blocks: Some(8),
        whole: 3,
        smaller: (13, 4145),
        of_type: Some(("Movable", 6, 28_721)),
        ..plain("64 KiB, arm64")
    };
    let small = Kind {
        files: Files {
            pagetypeinfo: typed(5, [112, 400], &[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 3]),
            ..plain("").files
        },
        pageblock_order: 5,
        blocks: Some(512),
        whole: 3 * 32 + 8,
        smaller: (5, 2),
        of_type: Some(("Movable", 400, 3330)),
        ..plain("blocks of order 5")
    };
    vec![large, small]
}

fn of_other_kernels() -> Vec<Kind> {
    let kind = |name, files| Kind {
        files,
        free: 2564,
        cma: Some(2048),
        cma_free: Some(513),
        blocks: Some(32),
        whole: 5,
        smaller: (10, 516),
        of_type: Some(("CMA", 4, 513)),
        ..plain(name)
    };
    let old = with_cma(CMA_FREE, true);
    let mixed = with_mixed(old.pagetypeinfo.as_deref(), &[(0, "Normal", &[3, 5, 0, 1, 0])]);
    let mixed = Files { pagetypeinfo: mixed, ..with_cma(CMA_SIZE, true) };
    let untyped = Files { pagetypeinfo: None, ..old.clone() };
    vec![
        kind("CMA before 5.12, Android's order of types", old),
        Kind { mixed: Some(9), ..kind("mixed blocks, as page_owner counts them", mixed) },
        Kind {
            cma: None,
            blocks: None,
            of_type: None,
            ..kind("CMA before 5.12 without a pagetypeinfo", untyped)
        },
        Kind {
            files: before_4_4(),
            free: 2059,
            blocks: Some(32),
            whole: 4,
            smaller: (10, 11),
            of_type: Some(("Reserve", 2, 8)),
            ..plain("before 4.4, with Reserve")
        },
    ]
}

fn of_another_node() -> Kind {
    let no_cma = "        cma      0\n";
    Kind {
        files: Files {
            zoneinfo: zone(0, "DMA32", 4, 16384, 65536, no_cma)
                + DEVICE
                + &zone(300, "HighMem", 1029, 16384, 1 << 20, no_cma),
            buddyinfo: buddyinfo(&[
                (0, "DMA32", &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                (300, "HighMem", &[5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            ]),
            ..Files::default()
        },
        free: 1029,
        whole: 2,
        smaller: (10, 5),
        ..plain("zones of two nodes and a device")
    }
}

fn kinds() -> Vec<Kind> {
    let all = [vec![plain("4 KiB"), of_another_node()], of_other_sizes(), of_other_kernels()];
    all.into_iter().flatten().collect()
}

impl Kind {
    /// The share of free memory in chunks below the order of `smaller`, as JSON has it.
    fn unusable(&self) -> f64 {
        (self.smaller.1 as f64 / self.free as f64 * 1e6).round() / 1e6
    }

    fn check_json(&self, document: &Value) {
        let name = self.name;
        let of = |key: &str| document[key].as_u64();
        let told = (of("page_size"), of("pageblock_order"), of("max_order"));
        let expected = (Some(self.page_size), Some(self.pageblock_order), Some(self.max_order));
        assert_eq!(told, expected, "{name}");
        let zone = document["zones"].as_array().unwrap().last().unwrap();
        let of = |key: &str| zone[key].as_u64();
        for (key, expected) in [
            ("managed", Some(self.managed)),
            ("free", Some(self.free)),
            ("held", Some(9)),
            ("cma", self.cma),
            ("cma_free", self.cma_free),
            ("blocks", self.blocks),
            ("whole_free_blocks", Some(self.whole)),
            ("mixed_blocks", self.mixed),
        ] {
            assert_eq!(of(key), expected, "{name}: {key}");
        }
        let orders = zone["orders"].as_array().unwrap();
        assert_eq!(orders.len() as u64, self.max_order + 1, "{name}");
        assert_eq!(orders[self.smaller.0]["unusable_index"], self.unusable(), "{name}");
        let pages: u64 = orders.iter().map(|order| order["pages"].as_u64().unwrap()).sum();
        assert_eq!(pages, self.free, "{name}");
        let types = zone["types"].as_array().unwrap();
        match self.of_type {
            None => assert!(types.is_empty(), "{name}"),
            Some((wanted, blocks, free)) => {
                let found = types.iter().find(|of| of["type"] == wanted).expect(name);
                let (is, pages) = (found["blocks"].as_u64(), found["free"].as_u64());
                assert_eq!((is, pages), (Some(blocks), Some(free)), "{name}");
            }
        }
    }

    /// What people read.
    fn check_page(&self, page: &str) {
        // Lines are broken where the terminal ends.
        let page = &crate::common::flat(page);
        let memory = |pages| memory_of(pages, self.page_size);
        let managed = memory(self.managed);
        let free = self.free as f64 / self.managed as f64 * 100.0;
        let mut parts = vec![
            format!("{free:.1}% of {managed} free"),
            format!("pages of {} KiB", self.page_size / 1024),
            format!("orders 0 to {}", self.max_order),
            format!("pageblocks of order {}", self.pageblock_order),
            format!("{:.3}", self.smaller.1 as f64 / self.free as f64),
        ];
        parts.extend(self.of_type.map(|(name, ..)| name.to_owned()));
        for part in parts {
            assert!(page.contains(&part), "{}: {part}\n{page}", self.name);
        }
        let cma = match (self.cma, self.cma_free) {
            (Some(0), _) => "; no CMA".to_owned(),
            (Some(cma), Some(free)) => {
                format!("; CMA {}, {} of it free", memory(cma), memory(free))
            }
            (None, Some(free)) => format!("; CMA not known, {} of it free", memory(free)),
            (of, free) => panic!("{of:?}, {free:?}"),
        };
        assert!(page.contains(&cma), "{}: {cma}\n{page}", self.name);
        let Some(blocks) = self.blocks else {
            assert!(page.contains("types are not known"), "{}\n{page}", self.name);
            return;
        };
        let size = memory(1 << self.pageblock_order);
        let all = counted(blocks, "pageblock");
        let blocks_of = format!("{all} of {size}: {} wholly free", self.whole);
        let mixed = self.mixed.map_or("mixed ones not known".to_owned(), |n| format!("{n} mixed"));
        assert!(page.contains(&format!("{blocks_of}, {mixed}")), "{}: {page}", self.name);
    }

    /// What monitoring reads, in bytes.
    fn check_metrics(&self, text: &str, document: &Value) {
        let zone = document["zones"].as_array().unwrap().last().unwrap();
        let (node, name) = (zone["node"].as_u64().unwrap(), zone["zone"].as_str().unwrap());
        let place = format!("{{node=\"{node}\",zone=\"{name}\"");
        let value = |series: &str| -> Option<f64> {
            let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
            found.map(|value| value.parse().unwrap())
        };
        let of = |metric: &str| value(&format!("freehold_{metric}{place}}}"));
        let bytes = |pages: u64| (pages * self.page_size) as f64;
        assert_eq!(value("freehold_page_size_bytes"), Some(self.page_size as f64), "{}", self.name);
        assert_eq!(value("freehold_pageblock_order"), Some(self.pageblock_order as f64));
        for (metric, expected) in [
            ("managed_bytes", Some(bytes(self.managed))),
            ("free_bytes", Some(bytes(self.free))),
            ("pcp_bytes", Some(bytes(9))),
            ("cma_bytes", self.cma.map(bytes)),
            ("cma_free_bytes", self.cma_free.map(bytes)),
            ("pageblocks", self.blocks.map(|n| n as f64)),
            ("whole_free_pageblocks", Some(self.whole as f64)),
            ("mixed_pageblocks", self.mixed.map(|n| n as f64)),
        ] {
            assert_eq!(of(metric), expected, "{}: {metric}\n{text}", self.name);
        }
        let order = self.smaller.0;
        let index = value(&format!("freehold_unusable_index{place},order=\"{order}\"}}"));
        assert_eq!(index, Some(self.unusable()), "{}", self.name);
        if let Some((name, blocks, _)) = self.of_type {
            let of_type = value(&format!("freehold_type_pageblocks{place},type=\"{name}\"}}"));
            assert_eq!(of_type, Some(blocks as f64), "{}", self.name);
        }
    }
}

/// The output of a run that must succeed.
fn printed(arguments: &[&str]) -> String {
    crate::common::printed(crate::common::freehold().arg("look").args(arguments))
}

#[test]
fn every_kind_of_machine_in_every_form() {
    for kind in kinds() {
        let folder = Folder::new();
        folder.write(&kind.files);
        let from = folder.path().to_str().unwrap();
        let found = serde_json::from_str(&printed(&["--json", from])).unwrap();
        kind.check_json(&found);
        let metrics = folder.path().join("a.prom");
        let page = printed(&["--wide", from, "--prometheus", metrics.to_str().unwrap()]);
        kind.check_page(&page);
        kind.check_metrics(&fs::read_to_string(metrics).unwrap(), &found);
    }
}
