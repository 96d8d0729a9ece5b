//! A request fails only where nobody has what it asks for.

mod common;

use common::*;
use freehold::{Config, Pfn, SingleCpu, Watermarks, ZoneConfig};

/// Blocks that one group's CPU had whole and freed are there for the CPUs of all other groups, in every order.
#[test]
fn whole_blocks_that_another_group_keeps_are_found_before_a_request_fails() {
    for (group, o) in [(None, 0), (Some(1), 0), (Some(1), 3), (Some(1), 6), (Some(1), 8), (Some(1), 9)] {
        let memory = [range(512, 64 * MIB)];
        let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
        let fh = build(&Config { group, ..Config::new(3, &[zone]) }, SingleCpu);
        let all = |c: u16, o: u8| -> Vec<Pfn> { std::iter::from_fn(|| fh.on(cpu(c)).alloc(movable(o)).ok()).collect() };
        let blocks = all(0, 9);
        assert_eq!(blocks.len() as u64, 64 * MIB / 512);
        blocks.iter().for_each(|&pfn| fh.on(cpu(0)).free(pfn, order(9)).unwrap());
        let chunks = all(1, o);
        assert_eq!((chunks.len() as u64) << o, 64 * MIB, "order {o} failed although memory was free, group {group:?}");
        chunks.iter().for_each(|&pfn| fh.on(cpu(2)).free(pfn, order(o)).unwrap());
        assert_all_free(&fh);
    }
}
