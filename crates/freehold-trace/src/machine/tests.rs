//! Machines of several kinds, each with the figures that its text has.

use freehold::{CpuId, Pfn};

use super::*;
use crate::buddyinfo::{parse_buddyinfo, parse_pagetypeinfo};
use crate::{Event, EventKind, TraceMeta, TraceWriter, zoneinfo};

/// A replay knows it of the trace.
#[test]
fn a_recording_says_how_large_a_page_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    for (size, more, wanted) in [
        (Some(16384), "", (16384, Told::Said)),
        (None, "MemTotal: 262144 kB", (16384, Told::ByMemTotal)),
        (None, "", (4096, Told::ByArchitecture)),
    ] {
        let mut meta = TraceMeta::default();
        meta.files.insert("zoneinfo.before.txt", zones_of(10, 16384, ""));
        meta.files.insert("meminfo.before.txt", more);
        meta.files.insert("uname.before.txt", "Linux x86_64");
        meta.extra.insert("page_size".into(), size.into());
        let mut writer = TraceWriter::create(&path, meta, 3).unwrap();
        let kind = EventKind::Free { pfn: Pfn::new(65536), order: Order::ZERO };
        writer.write(&[Event { ts_ns: 1, cpu: CpuId::new(0), pid: 0, kind }]).unwrap();
        writer.finish().unwrap();
        let parts = Parts::read(&Files::at(&path)).unwrap();
        let found = Machine::new(parts, None).unwrap().page_size;
        assert_eq!((found.bytes, found.told), wanted, "{size:?} {more}");
    }
}

/// Of these files, each where there is one.
fn machine_of(
    zones: Vec<Zone>,
    buddies: Option<&[ZoneFree]>,
    types: Option<&PageTypeInfo>,
) -> Result<Machine, StateError> {
    let (buddies, types) = (buddies.map(<[ZoneFree]>::to_vec), types.cloned());
    Machine::new(Parts { zones: Some(zones), buddies, types, ..Parts::default() }, None)
}

/// A zone of so many pages, all of them present.
fn zoneinfo_of(free: u64, pages: u64, more: &str) -> Vec<Zone> {
    zoneinfo::parse(&zones_of(free, pages, more)).unwrap()
}

fn zones_of(free: u64, pages: u64, more: &str) -> String {
    format!(
        "Node 0, zone   Normal\n  pages free     {free}\n        min      10\n        low      12\n        \
         high     14\n        spanned  {pages}\n        present  {pages}\n        managed  {pages}\n{more}  \
         pagesets\n    cpu: 0\n              count: 7\n              high:  186\n              batch: 31\n  \
         start_pfn:           65536\n"
    )
}

#[test]
fn spans_that_overlap_are_a_doubt() {
    let of = |start: u64| {
        let other = zones_of(9, 2048, "").replace("Normal", "Movable");
        let other = other.replace("65536", &start.to_string());
        let zones = zoneinfo::parse(&(zones_of(9, 2048, "") + &other)).unwrap();
        machine_of(zones, None, None).unwrap().doubts
    };
    for (start, doubts) in [(65536 + 1024, 1), (65536 + 2048, 0), (65536 - 2048, 0), (64000, 1)] {
        assert_eq!(of(start).len(), doubts, "{start}");
    }
    assert!(of(64000)[0].contains("zones Normal of node 0 and Movable of node 0 overlap"));
}

/// Types with their blocks and free chunks, in the order given.
fn pagetypeinfo_of(order: u8, types: &[(&str, u64, &str)]) -> PageTypeInfo {
    let mut text = format!("Page block order: {order}\nPages per block:  {}\n\n", 1u64 << order);
    for (name, _, chunks) in types {
        text += &format!("Node    0, zone   Normal, type {name:>12} {chunks}\n");
    }
    let names: String = types.iter().map(|(name, ..)| format!("{name:>12} ")).collect();
    let blocks: String = types.iter().map(|(_, blocks, _)| format!("{blocks:>12} ")).collect();
    text += &format!("\nNumber of blocks type {names}\nNode 0, zone   Normal {blocks}\n");
    parse_pagetypeinfo(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

#[test]
fn cma_before_5_12_is_what_pagetypeinfo_counts() {
    let movable = ("Movable", 20, "0 2 0 0 0 0 0 0 0 0 1");
    let (unmovable, cma) = ("1 0 0 0 0 0 0 0 0 0 0", ("CMA", 8, "2 0 0 0 0 0 0 0 0 0 3"));
    let types = pagetypeinfo_of(9, &[("Unmovable", 4, unmovable), movable, cma]);
    let free = 1 + 4 + 1024 + 2 + 3072;
    let zones = |cma: &str| zoneinfo_of(free, 16384, cma);
    let machine = machine_of(zones("      nr_free_cma  3074\n"), None, Some(&types)).unwrap();
    assert_eq!((machine.zones[0].info.cma, machine.zones[0].free()), (8 * 512, free));
    assert_eq!(Look::new(&machine).zones[0].cma_free, Some(3074));
    // What zoneinfo prints is taken where it prints it.
    let machine = machine_of(zones("        cma      4096\n"), None, Some(&types)).unwrap();
    assert_eq!(machine.zones[0].info.cma, 4096);
    // All of it in use is all of it in use, not a share of what is free.
    let cma = ("CMA", 8, "0 0 0 0 0 0 0 0 0 0 0");
    let full = pagetypeinfo_of(9, &[("Movable", 24, "1 0 0 0 0 0 0 0 0 0 4"), cma]);
    let machine = machine_of(zoneinfo_of(4097, 16384, ""), None, Some(&full)).unwrap();
    assert_eq!((machine.zones[0].info.cma, Look::new(&machine).zones[0].cma_free), (4096, Some(0)));
}

#[test]
fn files_of_different_moments_are_shown_with_a_doubt() {
    let chunks = "0 0 0 0 0 0 0 0 0 0 10";
    let buddies = |text: &str| parse_buddyinfo(text).unwrap();
    let own = buddies(&format!("Node 0, zone   Normal {chunks}\n"));
    let unmovable = ("Unmovable", 16, "0 0 0 0 0 0 0 0 0 0 0");
    let types = |order, movable| pagetypeinfo_of(order, &[unmovable, ("Movable", movable, chunks)]);
    let doubts = |free, buddies: &[ZoneFree], types: Option<&PageTypeInfo>| {
        let machine = machine_of(zoneinfo_of(free, 32768, ""), Some(buddies), types).unwrap();
        let doubts = Look::new(&machine).doubts;
        let none = machine.zones[0].doubts.is_empty() && machine.doubts.is_empty();
        assert_eq!(none, doubts.is_empty());
        doubts.join("; ")
    };
    assert_eq!(doubts(10_240, &own, Some(&types(9, 48))), "");
    assert_eq!(doubts(10_300, &own, Some(&types(9, 48))), "", "copied a moment apart");
    assert_eq!(
        doubts(20_480, &own, None),
        "zone Normal: buddyinfo has 10240 pages free, zoneinfo 20480: that is more than 1 % of its 32768 pages"
    );
    for (order, movable, said) in [(10, 48, "64 pageblocks of order 10"), (9, 8, "24 pageblocks")] {
        let doubt = doubts(10_240, &own, Some(&types(order, movable)));
        assert!(doubt.starts_with(&format!("zone Normal: {said}")), "{doubt}");
    }
    let other =
        buddies(&format!("Node 0, zone   Normal {chunks}\nNode 1, zone   Normal {chunks}\n"));
    let said = "buddyinfo has zone Normal of node 1, zoneinfo has not";
    assert_eq!(doubts(10_240, &other, None), said);
    let other = buddies(&format!("Node 0, zone   Movable {chunks}\n"));
    assert!(doubts(10_240, &other, None).starts_with("buddyinfo has no zone Normal"));
    let short = buddies("Node 0, zone   Normal 0 0 0 0 0 0 0 0 40\n");
    let zones = zoneinfo_of(10_240, 32768, "");
    let refused = machine_of(zones, Some(&short), Some(&types(9, 48))).unwrap_err();
    assert_eq!(refused.to_string(), "buddyinfo has orders 0 to 8, pagetypeinfo 0 to 10");
}

#[test]
fn chunks_alone_are_a_machine_of_unknown_size() {
    let text =
        "Node 0, zone  DMA32 1 0 0 0 0 0 0 0 0 0 2\nNode 0, zone Normal 0 3 0 0 0 0 0 0 0 0 0\n";
    let parts = Parts::of_text("t", text).unwrap();
    let look = Look::new(&Machine::new(parts, None).unwrap());
    let zones: Vec<_> = look.zones.iter().map(|zone| (zone.zone.as_str(), zone.free)).collect();
    assert_eq!(zones, [("DMA32", 2049), ("Normal", 6)]);
    assert_eq!((look.total.managed, look.total.free, look.total.held), (None, 2055, None));
    let zone = &look.zones[0];
    assert_eq!((zone.managed, zone.watermarks, zone.above, zone.held), (None, None, None, None));
    assert_eq!((zone.whole_free_blocks, look.page_size_told), (Some(4), false));
}

#[test]
fn evidence_of_the_page_size_in_its_order() {
    let parts = |about: &str, total: Option<u64>, said: Option<u64>| Parts {
        zones: Some(zoneinfo_of(10, 16384, "")),
        page_size: said.map(|bytes| PageSize { bytes, told: Told::Said }),
        mem_total_kib: total,
        about: about.to_owned(),
        ..Parts::default()
    };
    let size = |parts, given| Machine::new(parts, given).unwrap().page_size;
    let of = |bytes, told| PageSize { bytes, told };
    let total = Some(16384 * 16);
    assert_eq!(size(parts("x86_64", total, Some(65536)), Some(8192)), of(8192, Told::Given));
    assert_eq!(size(parts("x86_64", total, Some(65536)), None), of(65536, Told::Said));
    assert_eq!(size(parts("x86_64", total, None), None), of(16384, Told::ByMemTotal));
    assert_eq!(size(parts("x86_64", None, None), None), of(4096, Told::ByArchitecture));
    assert_eq!(size(parts("aarch64", None, None), None), of(4096, Told::Assumed));
}

#[test]
fn more_free_than_present_as_dma_has_it_before_3_8() {
    let text = "Node 0, zone      DMA\n  pages free     3960\n        min      7\n        low      \
                8\n        high     10\n        spanned  3900\n        present  3900\n  \
                start_pfn:  16\n";
    let machine = Machine::new(Parts::of_text("t", text).unwrap(), None).unwrap();
    assert_eq!(Look::new(&machine).zones[0].managed, Some(3960));
    assert!(machine.zones[0].doubts.is_empty());
}

/// Counts that no memory has are said to be so, whichever sum they are too large for.
#[test]
fn counts_too_large_to_be_added_up_are_a_contradiction() {
    let refused = |machine: Result<Machine, StateError>, what: &str| match machine {
        Err(StateError::Contradiction { what: said }) => assert!(said.contains(what), "{said}"),
        other => panic!("{what}: {other:?}"),
    };
    let (huge, none) = (u64::MAX, "0 0 0 0 0 0 0 0 0 0 0");
    let free = format!("{huge} 0 0 0 0 0 0 0 0 0 0");
    let types = pagetypeinfo_of(9, &[("Unmovable", 4, &free), ("Movable", 28, &free)]);
    refused(machine_of(zoneinfo_of(0, 16384, ""), None, Some(&types)), "chunks of order 0");
    let types = pagetypeinfo_of(9, &[("Unmovable", huge, none), ("Movable", 28, none)]);
    refused(machine_of(zoneinfo_of(0, 16384, ""), None, Some(&types)), "pageblocks");
    let mut types = pagetypeinfo_of(9, &[("Unmovable", 4, none), ("Movable", 28, none)]);
    let mixed = |(of, _): &(BlockType, u64)| (*of, huge);
    types.mixed = vec![types.blocks[0].clone()];
    types.mixed[0].blocks = types.mixed[0].blocks.iter().map(mixed).collect();
    refused(machine_of(zoneinfo_of(0, 16384, ""), None, Some(&types)), "mixed pageblocks");
    let mut zones = zoneinfo_of(0, huge, "");
    zones.push(Zone { node: 1, ..zones[0].clone() });
    refused(machine_of(zones, None, None), "managed pages");
}
