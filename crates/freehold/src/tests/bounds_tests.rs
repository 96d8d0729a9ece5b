//! The bounds of docs/bounds.md on machines of up to 8 TiB, in steps: uses of atomics, exactly
//! counted.
//!
//! Nobody touches the memory, and of its metadata only what a call uses is backed: a section of 64
//! blocks, and one bit for each block. What would take hours to fill is made by hand: a zone whose
//! blocks are all in use is one whose bitmap has no bits.

use crate::tests::testing::*;
use std::io::Write;

/// Frames of 1 GiB, and of the memory whose summary one word of the upper level is.
const GIB: u64 = 1 << 18;
const WORD_OF_SUMMARY: u64 = GIB << 9;

/// One zone of so many GiB; `None` where there are no addresses for its metadata.
fn machine(gib: u64) -> Option<Machine> {
    let memory = [frames_at(0, gib * GIB)];
    let zones = [ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) }];
    let config = Config { extra_ranges: 4, ..Config::new(2, &zones) };
    let size = config.metadata_size().ok();
    let mut region: Vec<u8> = Vec::new();
    let Some(size) = size.filter(|&size| region.try_reserve_exact(size).is_ok()) else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no room for the metadata of {gib} GiB");
        return None;
    };
    // Never given back: an allocator's metadata lives as long as it does.
    let region = Box::leak(Box::new(region)).spare_capacity_mut();
    Some(Machine::new(&config, &mut region[..size], &SingleCpu).unwrap())
}

/// The sizes, in GiB. Miri backs all of the metadata at once.
fn sizes() -> &'static [u64] {
    if cfg!(miri) { &[16] } else { &[16, 1 << 10, 8 << 10] }
}

/// Words of the upper level of a summary of blocks, and of one of sections.
fn upper_words(gib: u64) -> u64 {
    (gib * GIB).div_ceil(WORD_OF_SUMMARY)
}

fn request(order: u8, migratetype: Migratetype) -> Request {
    Request::new(of_order(order), migratetype)
}

/// The steps of a request, which is met or not.
fn alloc(fh: &Machine, request: Request) -> (Option<Pfn>, u64) {
    let (result, steps) = steps(|| fh.here().alloc(request));
    (result.ok(), steps)
}

/// Has all whole blocks of these bits be in use, without their metadata.
fn use_up(fh: &Machine, bits: core::ops::Range<u64>) {
    let zone = &fh.zones[0];
    for (w, mask) in
        crate::block::bits::spans(bits.start as usize, (bits.end - bits.start) as usize)
    {
        zone.bitmap.take(w, mask).unwrap();
    }
    let blocks = bits.end - bits.start;
    assert!(zone.grant_blocks(fh.outside(), blocks, crate::AllocFlags::NO_WATERMARKS, false));
    assert!(zone.claim_wholes(blocks));
}

/// Each order's first request, whose section is set up by it, and its free. A row of the board that
/// has nothing is one look for each 512 GiB more.
#[test]
fn a_call_takes_as_many_steps_on_eight_tebibytes_as_on_sixteen_gibibytes() {
    const LOOKS: u64 = 48;
    let mut least: Vec<(u64, u64)> = Vec::new();
    for &gib in sizes() {
        let Some(fh) = machine(gib) else { continue };
        let mut all = Vec::new();
        for kind in [Migratetype::Movable, Migratetype::Unmovable] {
            for order in [0, 3, 7, 9, 10, 18] {
                let (pfn, took) = alloc(&fh, request(order, kind));
                let (pfn, order) = (pfn.unwrap(), of_order(order));
                let (freed, free) = steps(|| fh.here().free(pfn, order));
                freed.unwrap();
                all.push((took, free));
            }
        }
        fh.drain_all();
        fh.validate().unwrap();
        std::eprintln!("{gib} GiB: {all:?}");
        if least.is_empty() {
            least.clone_from(&all);
        }
        let more = LOOKS * (upper_words(gib) - 1);
        for (&(took, free), &(least_took, least_free)) in all.iter().zip(&least) {
            assert!(took <= least_took + more, "{gib} GiB: {all:?}, on the smallest {least:?}");
            assert_eq!(free, least_free, "{gib} GiB: {all:?}, on the smallest {least:?}");
        }
    }
}

/// The first block of each 1 GiB is in use, so that no run that is aligned to that starts there:
/// the bitmap's words are looked at, twice, and no block.
#[test]
fn a_search_with_an_alignment_looks_at_words_and_not_at_blocks() {
    for &gib in sizes() {
        let Some(fh) = machine(gib) else { continue };
        (0..gib).for_each(|n| use_up(&fh, n * 512..n * 512 + 1));
        for order in [0, 9, 10, 17] {
            let request = request(order, Migratetype::Movable).align(of_order(18));
            let (pfn, steps) = alloc(&fh, request);
            std::eprintln!("{gib} GiB, order {order}: {steps}");
            assert_eq!(pfn, None);
            let words = gib * 512 / 64;
            assert!(
                steps <= 12 * words + 2000,
                "{gib} GiB, order {order}: {steps} steps, {words} words"
            );
        }
    }
}

/// However much memory there is, a block's metadata is written when its section is first used. That
/// of 64 TiB is more than 32 bits, or some machines, can address.
#[test]
fn what_is_not_used_is_not_set_up() {
    let sizes: &[u64] = if cfg!(miri) { &[1] } else { &[1, 1 << 10, 1 << 16] };
    for fh in sizes.iter().filter_map(|&gib| machine(gib)) {
        assert_eq!(fh.map.all().count(), 0);
        let pfn = fh.here().alloc(movable(0)).unwrap();
        assert_eq!(fh.map.all().count() as u64, crate::block::SECTION_BLOCKS);
        fh.here().free(pfn, Order::ZERO).unwrap();
    }
}

/// One bit for each block is written when memory comes, and no more where all of it is new.
#[test]
fn memory_comes_and_goes_by_words() {
    for &gib in sizes() {
        let memory = gib * GIB;
        let (fh, set_up) = steps(|| machine(gib));
        let Some(fh) = fh else { continue };
        let words = gib * 512 / 64;
        std::eprintln!("{gib} GiB: {set_up} steps to set up");
        assert!(set_up <= 4 * words + 4000, "{gib} GiB: {set_up} steps for {words} words");
        // Eight blocks at the end go and come.
        let range = frames_at(memory - 8 * 512, 8 * 512);
        let ((), gone) = steps(|| fh.remove_memory(range).unwrap());
        let ((), back) = steps(|| fh.add_memory(range).unwrap());
        std::eprintln!("{gib} GiB: {gone} steps to remove, {back} to add");
        assert!(
            gone <= 3 * 8 * 512 + 4000 && back <= 2000 + 8 * gib,
            "{gib} GiB: {gone} and {back} steps"
        );
        fh.validate().unwrap();
    }
}

/// A request that finds nothing, the first and the next.
#[test]
fn a_request_that_fails_looks_at_summaries() {
    for &gib in sizes() {
        let Some(fh) = machine(gib) else { continue };
        use_up(&fh, 0..gib * 512);
        for order in [0, 3, 7, 9, 10, 18] {
            let movable = request(order, Migratetype::Movable);
            let [first, again] = [(), ()].map(|()| {
                let (pfn, steps) = alloc(&fh, movable);
                assert_eq!(pfn, None);
                steps
            });
            std::eprintln!("{gib} GiB, order {order}: {first}, {again}");
            // 32 rows and the bitmap, some of them several times.
            let words = upper_words(gib);
            assert!(first <= 1500 + 150 * words && again <= first, "{gib} GiB, order {order}");
        }
    }
}
