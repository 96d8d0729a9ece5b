//! Every preset serves, takes back and is whole again.

use fastrand::Rng;
use freehold::{CpuId, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn};
use freehold_classic::{Classic, Config, Design, Request, presets};

#[test]
fn random_work_on_two_cpus_leaves_every_preset_whole() {
    for preset in presets() {
        let blocks = 64;
        let config =
            Config::single_zone(Design::parse(preset.name).unwrap(), 2, blocks * PAGEBLOCK_FRAMES);
        let classic = Classic::new(config).unwrap();
        classic.validate().unwrap();
        let mut random = Rng::with_seed(0x9e37_79b9_7f4a_7c15);
        let mut live: Vec<(Pfn, Order)> = Vec::new();
        for step in 0..60_000 {
            let cpu = CpuId::new(random.u16(..2));
            if random.u8(..100) < 52 {
                let order = Order::new([0, 0, 0, 0, 0, 1, 2, 3, 4, 9][random.usize(..10)]).unwrap();
                let migratetype = Migratetype::PCP[random.usize(..3)];
                if let Ok(pfn) = classic.alloc(cpu, Request::new(order, migratetype)) {
                    live.push((pfn, order));
                }
            } else if !live.is_empty() {
                let (pfn, order) = live.swap_remove(random.usize(..live.len()));
                let _ = classic.free(cpu, pfn, order).unwrap();
            }
            if step % 1000 == 0 {
                classic.tick(cpu);
                classic
                    .validate()
                    .unwrap_or_else(|error| panic!("{} step {step}: {error}", preset.name));
            }
        }
        for (pfn, order) in live {
            let _ = classic.free(CpuId::new(0), pfn, order).unwrap();
        }
        classic.drain_all();
        classic.validate().unwrap_or_else(|error| panic!("{}: {error}", preset.name));
        let map = classic.memory_map();
        assert_eq!(
            (map.free, map.free_blocks, map.chunks[10]),
            (map.managed, blocks, blocks / 2),
            "{}",
            preset.name
        );
    }
}
