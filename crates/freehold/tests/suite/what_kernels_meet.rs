//! What a kernel meets that embeds the allocator: zones without memory, marks and address limits
//! together, interrupts, address spaces that are mostly holes, alignment beyond the size.

use crate::common::*;

/// Requests within limits took frames without telling the zone: its mark was kept by none.
#[test]
fn limited_requests_keep_the_min_mark_too() {
    let fh = marked(1, range(0, 1024), [600, 700, 800], &SingleCpu);
    let device = movable(0).below(Pfn::new(1024));
    let got = all(&fh, device);
    assert_eq!((got.len(), fh.zone_stats(0).unwrap().free), (424, 600));
    // A frame that comes back may be had again, also where its block is on a list already.
    fh.here().free(got[100], Order::ZERO).unwrap();
    assert_eq!(fh.here().alloc(device), Ok(got[100]));
    // Flags reach below, as for any other request.
    assert_eq!(all(&fh, device.flags(AllocFlags::MIN_RESERVE)).len(), 300);
    assert_eq!(all(&fh, device.flags(AllocFlags::NO_WATERMARKS)).len(), 300);
    fh.validate().unwrap();
}

/// Each allocation asked the zone that had nothing, and none came from the CPU's hand.
#[test]
fn a_zone_without_memory_is_not_in_the_way() {
    let memory = [range(0, 64 * MIB)];
    let later = ZoneConfig { span: range(64 * MIB, 64 * MIB), spare_sections: 1, ..unmarked(&[]) };
    let fh = build(
        &Config { extra_ranges: 1, ..Config::new(2, &[unmarked(&memory), later]) },
        &SingleCpu,
    );
    let before: Vec<Pfn> = (0..2000).map(|_| fh.here().alloc(movable(0)).unwrap()).collect();
    let totals = fh.totals();
    assert!(totals.cpus.slow < 20, "{totals:?}");
    // Memory comes, and is used first from then on, as from the beginning; then it goes again.
    fh.add_memory(later.span).unwrap();
    fh.validate().unwrap();
    let after: Vec<Pfn> = (0..2000).map(|_| fh.here().alloc(movable(0)).unwrap()).collect();
    assert!(after.iter().all(|&pfn| fh.zone_of(pfn) == Some(1)));
    assert!(fh.totals().cpus.slow < 40, "{:?}", fh.totals());
    before.iter().chain(&after).for_each(|&pfn| fh.here().free(pfn, Order::ZERO).unwrap());
    fh.remove_memory(later.span).unwrap();
    assert_eq!(fh.zone_of(fh.here().alloc(movable(0)).unwrap()), Some(0));
    fh.validate().unwrap();
}

/// The zone that a CPU tries first is full: nothing that others share is written to find that out.
#[test]
fn a_full_zone_is_not_written_to_by_each_request() {
    let (low, high) = ([range(0, 16 * MIB)], [range(16 * MIB, 512)]);
    let fh = build(&Config::new(1, &[unmarked(&low), unmarked(&high)]), &SingleCpu);
    (0..512).for_each(|_| assert_eq!(fh.zone_of(fh.here().alloc(movable(0)).unwrap()), Some(1)));
    fh.here().alloc(movable(0)).unwrap();
    let before = fh.totals();
    (0..100).for_each(|_| assert_eq!(fh.zone_of(fh.here().alloc(movable(0)).unwrap()), Some(0)));
    let after = fh.totals();
    assert!(after.shared_writes - before.shared_writes < 20, "{before:?} {after:?}");
}

/// Memory that comes ends the pressure, and marks that rise begin it: who does that tells it.
#[test]
fn pressure_is_told_when_memory_comes_and_when_marks_change() {
    let host = Listening::default();
    let memory = [range(0, 1024)];
    let marks = Watermarks::Frames { min: 100, low: 200, high: 300 };
    let zone = ZoneConfig { span: range(0, 4096), watermarks: marks, ..ZoneConfig::new(&memory) };
    let fh = build(&Config { extra_ranges: 1, ..Config::new(1, &[zone]) }, &host);
    let told = || host.told();
    all(&fh, movable(0));
    assert_eq!(told(), [PressureLevel::Low]);
    fh.add_memory(range(1024, 2048)).unwrap();
    assert_eq!(told(), [PressureLevel::None]);
    fh.set_watermarks(0, 3000, 3001, 3002).unwrap();
    assert_eq!(told(), [PressureLevel::Min]);
}

/// 4 PiB of addresses of which all but a few blocks are holes: no call walks through them.
#[test]
fn an_address_space_of_holes_takes_no_time() {
    let end = 1 << 40;
    let memory = [range(0, 2048), range(1 << 35, 512), range(end - 1024, 1024)];
    let fh = build(&Config { extra_ranges: 2, ..Config::new(2, &[unmarked(&memory)]) }, &SingleCpu);
    assert_eq!(fh.zone_stats(0).unwrap().free, 3584);
    assert_eq!(fh.pageblocks(0).count(), 7);
    assert_eq!(fh.here().alloc(movable(0).below(Pfn::new(end - 1))), Ok(Pfn::new(0)));
    assert_eq!(fh.here().alloc(unmovable(0).from(Pfn::new(1 << 36))), Ok(Pfn::new(end - 1024)));
    let limits = FrameRange { start: Pfn::new(2048), end: Pfn::new(end) };
    assert_eq!(fh.alloc_contig_free(1, Order::ZERO, limits), Ok(range(1 << 35, 1)));
    assert_eq!(fh.alloc_contig_free(600, Order::ZERO, limits), Ok(range(end - 1023, 600)));
    fh.remove_memory(range(512, 512)).unwrap();
    assert_eq!(fh.pageblocks(0).count(), 6);
    fh.validate().unwrap();
}

/// On 32 bits the size went around, and was one that a region may have.
#[test]
fn metadata_that_cannot_be_addressed_is_refused() {
    let memory = [range(0, 1 << 34)];
    let zones = [ZoneConfig::new(&memory)];
    let size = Config::new(1, &zones).metadata_size();
    match size {
        Ok(size) => assert!(size_of::<usize>() == 8 && size as u64 > 99 << 25),
        Err(error) => {
            assert!(
                size_of::<usize>() == 4 && error == ConfigError::TooLarge { sections: 1 << 19 }
            );
            assert!(error.to_string().contains("more than this target can address"));
        }
    }
}

/// Memory in 2,000 pieces, each of which ends within a block: set up in steps that grow with the
/// square of the pieces. With their cube or more, as before, this test would take minutes.
#[test]
fn memory_in_thousands_of_pieces_is_set_up() {
    let pieces = if cfg!(miri) { 10 } else { 2_000 };
    let memory: Vec<FrameRange> = (0..pieces).map(|n| range(n * 1024, 600)).collect();
    let fh = build(&Config::new(1, &[unmarked(&memory)]), &SingleCpu);
    assert_eq!(fh.zone_stats(0).unwrap().managed, pieces * 600);
    let pfn = fh.here().alloc(movable(0)).unwrap();
    fh.here().free(pfn, Order::ZERO).unwrap();
}

/// As docs/kernels.md has it: 100 bytes a block, 5 KiB a CPU.
#[test]
fn metadata_takes_what_the_page_for_kernels_says() {
    let size = |gib: u64, cpus: u16| {
        let memory = [range(0, gib << 18)];
        let zones = [ZoneConfig::new(&memory)];
        Config::new(cpus, &zones).metadata_size().unwrap()
    };
    let per_block = (size(1025, 64) - size(1, 64)) as f64 / 1024.0 / 512.0;
    let per_cpu = (size(64, 128) - size(64, 64)) / 64;
    assert!((99.0..=100.0).contains(&per_block), "{per_block} bytes a block");
    assert_eq!((per_cpu + 256) / 512, 10, "{per_cpu} bytes a CPU, not about 5 KiB");
}

#[test]
fn memory_at_the_end_of_the_number_space_is_refused() {
    let memory = [FrameRange { start: Pfn::new(u64::MAX - 5), end: Pfn::new(u64::MAX) }];
    let zones = [ZoneConfig::new(&memory)];
    let size = Config::new(1, &zones).metadata_size();
    assert!(matches!(size, Err(ConfigError::Span { .. })), "{size:?}");
}

/// However many CPUs keep blocks of a range, all of them are asked at once; and once the blocks are
/// isolated all doors are passed.
#[test]
fn a_range_whose_blocks_are_kept_by_many_cpus_takes_two_barriers() {
    let host = Barriers::default();
    let fh = one_zone(8, &[range(0, 64 * MIB)], &host);
    let owned: Vec<_> = (0..8).map(|n| fh.own(cpu(n)).unwrap()).collect();
    for owned in &owned {
        let blocks = [owned.alloc(movable(9)).unwrap(), owned.alloc(movable(9)).unwrap()];
        blocks.into_iter().for_each(|block| owned.free(block, order(9)).unwrap());
    }
    assert_eq!(fh.zone_stats(0).unwrap().blocks_in_cpus, 16, "each CPU keeps two blocks");
    let before = host.count();
    fh.alloc_contig_range(range(0, 16 * 512), |_| false).unwrap();
    assert_eq!(host.count() - before, 2);
    drop(owned);
    fh.here().free_range(range(0, 16 * 512)).unwrap();
    assert_all_free(&fh);
}

#[test]
fn blocks_that_are_emptied_together_take_one_barrier() {
    let host = Barriers::default();
    let fh = one_zone(8, &[range(0, 64 * MIB)], &host);
    let owned: Vec<_> = (0..8).map(|n| fh.own(cpu(n)).unwrap()).collect();
    let blocks: [Pfn; 8] = std::array::from_fn(|n| {
        let start = owned[n].alloc(movable(9)).unwrap();
        owned[n].free_range(range(start.get() + 1, 511)).unwrap();
        start
    });
    fh.drain_all();
    let before = host.count();
    let mut begun = fh.evacuate_each(blocks);
    assert_eq!(host.count() - before, 1);
    for (emptying, start) in begun.iter_mut().zip(blocks) {
        let left = emptying.as_mut().unwrap().move_used(|used| owned[0].free_range(used).is_ok());
        assert_eq!(left, 0, "{start}");
    }
    let _ = begun.map(|emptying| assert!(emptying.unwrap().finish()));
    drop(owned);
    assert_all_free(&fh);
}
