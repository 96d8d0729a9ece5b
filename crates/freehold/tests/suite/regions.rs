//! Regions of 1 GiB on machines of several: frames that cannot be moved keep to few of them, so
//! that movement makes the others whole.

use std::collections::BTreeSet;

use crate::common::*;

const GIB: u64 = 1 << 18;

/// Page cache fills all but a twelfth of a machine; less than a hundredth cannot be moved. Then it
/// is dropped, and what is in use moves out of a region.
#[test]
fn what_cannot_be_moved_leaves_regions_that_movement_makes_whole() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let gib = random.u64(3..7);
    println!("seed {seed}: {gib} GiB");
    let fh = one_zone(4, &[range(0, gib * GIB)], &SingleCpu);
    let (mut page_cache, mut fixed): (Vec<(Pfn, Order)>, Vec<_>) = Default::default();
    for _ in 0..gib * GIB / 4 {
        let door = fh.on(cpu(random.u16(..4)));
        let is_fixed = random.u32(..30) == 0;
        let (chunks, migratetype, orders) = match is_fixed {
            true => (&mut fixed, Migratetype::PCP[random.usize(..2) * 2], 4),
            false => (&mut page_cache, Migratetype::Movable, 6),
        };
        let is_full = fh.zone_stats(0).unwrap().free < gib * GIB / 12;
        let reclaimed = match is_fixed {
            true => usize::from(chunks.len() as u64 > gib * GIB / 400),
            false => usize::from(is_full) * 200,
        };
        for _ in 0..reclaimed {
            let (pfn, order) = chunks.swap_remove(random.usize(..chunks.len()));
            door.free(pfn, order).unwrap();
        }
        let order = order(random.u8(..orders));
        chunks.push((door.alloc(Request::new(order, migratetype)).unwrap(), order));
    }
    let region = |pfn: Pfn| pfn.get() / GIB;
    let tainted: BTreeSet<u64> = fixed.iter().map(|chunk| region(chunk.0)).collect();
    assert!(tainted.len() <= 2, "seed {seed}: {tainted:?} of {gib} regions");
    let free = |(pfn, order)| fh.here().free(pfn, order).unwrap();
    page_cache.split_off(page_cache.len() / 3).into_iter().for_each(free);
    let clean = (0..gib).find(|region| !tainted.contains(region)).unwrap();
    let all = range(clean * GIB, GIB);
    fh.isolate(all).unwrap();
    for (pfn, order) in page_cache.into_iter().filter(|chunk| region(chunk.0) == clean) {
        (0..order.frames()).for_each(|_| _ = fh.here().alloc(movable(0)).unwrap());
        free((pfn, order));
    }
    fh.restore(all);
    fh.drain_all();
    assert_eq!(fh.here().alloc(movable(18)), Ok(all.start), "seed {seed}");
    fh.validate().unwrap();
}

/// What is added later may be taken away again: it has frames that cannot be moved only where no
/// other block is free.
#[test]
fn added_memory_is_the_last_to_hold_what_cannot_be_moved() {
    let memory = [range(0, 2 * GIB)];
    let zone = ZoneConfig { spare_sections: 8, span: range(0, 4 * GIB), ..unmarked(&memory) };
    let fh = build(&Config { extra_ranges: 1, ..Config::new(1, &[zone]) }, &SingleCpu);
    fh.add_memory(range(3 * GIB, GIB / 8)).unwrap();
    let blocks = (0..1025).map(|_| fh.here().alloc(unmovable(9)).unwrap().get() / 512);
    assert!(blocks.eq((0..1024).rev().chain([3 * 512])));
}
