//! Machines of several kinds, each with the figures that its text has.

use super::*;
use crate::buddyinfo::{parse_buddyinfo, parse_pagetypeinfo};

/// A zone of so many pages, all of them present.
fn zoneinfo_of(free: u64, pages: u64, more: &str) -> Vec<Zone> {
    zoneinfo::parse(&format!(
        "Node 0, zone   Normal\n  pages free     {free}\n        min      10\n        low      12\n        \
         high     14\n        spanned  {pages}\n        present  {pages}\n        managed  {pages}\n{more}  \
         pagesets\n    cpu: 0\n              count: 7\n              high:  186\n              batch: 31\n  \
         start_pfn:           65536\n"
    ))
    .unwrap()
}

/// Types with their blocks and free chunks, in the order given.
fn pagetypeinfo_of(order: u8, types: &[(&str, u64, &str)]) -> PageTypeInfo {
    let mut text = format!("Page block order: {order}\nPages per block:  {}\n\n", 1u64 << order);
    for (name, _, chunks) in types {
        text += &format!("Node    0, zone   Normal, type {name:>12} {chunks}\n");
    }
    let column =
        |of: &dyn Fn(&(&str, u64, &str)) -> String| types.iter().map(of).collect::<String>();
    text += &format!("\nNumber of blocks type {}\n", column(&|(name, ..)| format!("{name:>12} ")));
    text +=
        &format!("Node 0, zone   Normal {}\n", column(&|(_, blocks, _)| format!("{blocks:>12} ")));
    parse_pagetypeinfo(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

#[test]
fn pages_of_64_kib_and_blocks_of_order_13() {
    // 3 whole blocks and odd chunks: 3 * 8192 + 4096 + 5 * 8 + 9.
    let chunks = "9 0 0 5 0 0 0 0 0 0 0 0 1 3";
    let zero = "0 0 0 0 0 0 0 0 0 0 0 0 0 0";
    let buddies = parse_buddyinfo(&format!("Node 0, zone   Normal {chunks}\n")).unwrap();
    let types = pagetypeinfo_of(13, &[("Unmovable", 2, zero), ("Movable", 6, chunks)]);
    let machine =
        Machine::new(zoneinfo_of(28_721, 65536, ""), Some(&buddies), Some(&types), None).unwrap();
    assert_eq!((machine.page_size.bytes, machine.page_size.told), (65536, Told::ByOrders));
    assert_eq!((machine.pageblock_order.get(), machine.max_order.get()), (13, 13));
    let zone = &machine.zones[0];
    assert_eq!((zone.free(), zone.held()), (28_721, 7));
    let look = Look::new(&machine);
    assert_eq!((look.zones[0].blocks, look.zones[0].whole_free_blocks), (Some(8), Some(3)));
    assert_eq!(look.zones[0].mixed_blocks, None, "not known without page_owner");
    assert_eq!(
        look.zones[0].orders[13].unusable_index,
        ((28_721.0 - 24_576.0) / 28_721.0f64 * 1e6).round() / 1e6
    );
    assert_eq!((look.zones[0].above, look.total.free), (3, 28_721));

    // Without a pagetypeinfo the order of a block is that of such machines.
    let machine = Machine::new(zoneinfo_of(28_721, 65536, ""), Some(&buddies), None, None).unwrap();
    assert_eq!((machine.pageblock_order.get(), machine.pageblock_told), (13, false));
}

#[test]
fn cma_before_5_12_is_what_pagetypeinfo_counts() {
    let types = pagetypeinfo_of(
        9,
        &[
            ("Unmovable", 4, "1 0 0 0 0 0 0 0 0 0 0"),
            ("Movable", 20, "0 2 0 0 0 0 0 0 0 0 1"),
            ("CMA", 8, "2 0 0 0 0 0 0 0 0 0 3"),
        ],
    );
    let free = 1 + 4 + 1024 + 2 + 3072;
    let zones = |cma: &str| zoneinfo_of(free, 16384, cma);
    let machine =
        Machine::new(zones("      nr_free_cma  3074\n"), None, Some(&types), None).unwrap();
    assert_eq!((machine.zones[0].info.cma, machine.zones[0].free()), (8 * 512, free));
    assert_eq!(Look::new(&machine).zones[0].cma_free, Some(3074));
    // What zoneinfo prints is taken where it prints it.
    let machine = Machine::new(zones("        cma      4096\n"), None, Some(&types), None).unwrap();
    assert_eq!(machine.zones[0].info.cma, 4096);
    // All of it in use is all of it in use, not a share of what is free.
    let full = pagetypeinfo_of(
        9,
        &[("Movable", 24, "1 0 0 0 0 0 0 0 0 0 4"), ("CMA", 8, "0 0 0 0 0 0 0 0 0 0 0")],
    );
    let machine = Machine::new(zoneinfo_of(4097, 16384, ""), None, Some(&full), None).unwrap();
    assert_eq!((machine.zones[0].info.cma, Look::new(&machine).zones[0].cma_free), (4096, Some(0)));
}

#[test]
fn types_of_kernels_before_4_4() {
    let zero = "0 0 0 0 0 0 0 0 0 0 0";
    let types = pagetypeinfo_of(
        9,
        &[
            ("Unmovable", 10, zero),
            ("Reclaimable", 6, zero),
            ("Movable", 14, "3 0 0 0 0 0 0 0 0 0 2"),
            ("Reserve", 2, "0 1 0 0 0 0 0 0 0 0 0"),
            ("Isolate", 0, zero),
        ],
    );
    assert!(types.numbers().unwrap().swaps());
    let machine = Machine::new(zoneinfo_of(2053, 16384, ""), None, Some(&types), None).unwrap();
    assert_eq!(machine.zones[0].types[3].of, BlockType::Reserve);
    assert_eq!(Look::new(&machine).zones[0].types[3].free, 2);
    let modern = pagetypeinfo_of(
        9,
        &[("Unmovable", 1, zero), ("Movable", 1, zero), ("Reclaimable", 1, zero)],
    );
    assert!(!modern.numbers().unwrap().swaps());
}

#[test]
fn files_that_are_not_of_one_machine_are_refused() {
    let chunks = "0 0 0 0 0 0 0 0 0 0 10";
    let buddies = |text: &str| parse_buddyinfo(text).unwrap();
    let own = buddies(&format!("Node 0, zone   Normal {chunks}\n"));
    let types = |order, movable| {
        pagetypeinfo_of(
            order,
            &[("Unmovable", 16, "0 0 0 0 0 0 0 0 0 0 0"), ("Movable", movable, chunks)],
        )
    };
    let message = |free, pages, buddies: &[ZoneFree], types: Option<&PageTypeInfo>| {
        Machine::new(zoneinfo_of(free, pages, ""), Some(buddies), types, None)
            .unwrap_err()
            .to_string()
    };
    assert!(
        Machine::new(zoneinfo_of(10_240, 32768, ""), Some(&own), Some(&types(9, 48)), None).is_ok()
    );
    // Copied a moment apart.
    assert!(
        Machine::new(zoneinfo_of(10_300, 32768, ""), Some(&own), Some(&types(9, 48)), None).is_ok()
    );
    assert_eq!(
        message(20_480, 32768, &own, None),
        "zone Normal: buddyinfo has 10240 pages free, zoneinfo 20480: that is more than 1 % of its 32768 pages"
    );
    assert!(
        message(10_240, 32768, &own, Some(&types(10, 48)))
            .starts_with("zone Normal: 64 pageblocks of order 10 are 65536 pages")
    );
    assert!(
        message(10_240, 32768, &own, Some(&types(9, 8))).starts_with("zone Normal: 24 pageblocks")
    );
    let other =
        buddies(&format!("Node 0, zone   Normal {chunks}\nNode 1, zone   Normal {chunks}\n"));
    assert_eq!(
        message(10_240, 32768, &other, None),
        "buddyinfo has zone Normal of node 1, zoneinfo has not"
    );
    let other = buddies(&format!("Node 0, zone   Movable {chunks}\n"));
    assert!(message(10_240, 32768, &other, None).starts_with("buddyinfo has zone Movable"));
    let short = buddies("Node 0, zone   Normal 0 0 0 0 0 0 0 0 40\n");
    assert_eq!(
        message(10_240, 32768, &short, Some(&types(9, 48))),
        "buddyinfo has orders 0 to 8, pagetypeinfo 0 to 10"
    );
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
    refused(Machine::new(zoneinfo_of(0, 16384, ""), None, Some(&types), None), "chunks of order 0");
    let types = pagetypeinfo_of(9, &[("Unmovable", huge, none), ("Movable", 28, none)]);
    refused(Machine::new(zoneinfo_of(0, 16384, ""), None, Some(&types), None), "pageblocks");
    let mut types = pagetypeinfo_of(9, &[("Unmovable", 4, none), ("Movable", 28, none)]);
    let mixed = |(of, _): &(BlockType, u64)| (*of, huge);
    types.mixed = vec![types.blocks[0].clone()];
    types.mixed[0].blocks = types.mixed[0].blocks.iter().map(mixed).collect();
    refused(Machine::new(zoneinfo_of(0, 16384, ""), None, Some(&types), None), "mixed pageblocks");
    let types = pagetypeinfo_of(9, &[("Unmovable", 4, none), ("Movable", 28, none)]);
    let zones = zoneinfo_of(0, huge, "");
    refused(Machine::new(zones, None, Some(&types), None), "32 pageblocks");
    let mut zones = zoneinfo_of(0, huge, "");
    zones.push(Zone { node: 1, ..zones[0].clone() });
    refused(Machine::new(zones, None, None, None), "managed pages");
}
