//! Which words a CPU leases, and what it lets go.

use super::*;
use crate::memory::hotplug::Hotplug;
use crate::tests::testing::*;

/// Has CPU 0 lease a word, and let go of it if `flush`; then CPU 1 tries, and frees frame
/// `freed` of it. Who leases the word afterwards, and what it has.
fn after_another_has_tried(flush: bool, freed: u64) -> (u16, u64) {
    let fh = machine(2, 1 << 16);
    let first = fh.here();
    let pfn = first.alloc(movable(0)).unwrap();
    if flush {
        first.flush().unwrap();
    }
    let (block, w) = place(&fh, pfn);
    let (head, line) = (block.head, block.line);
    let inside = inside(&fh, 1);
    assert_eq!(inside.lease(block, w, head.tag.get(), (Purpose::Frames, 1), (freed, None)), None);
    assert_eq!(inside.cpu.leases.held.get(), 0);
    (head.lease(w), line.word(w))
}

/// The lease comes to nothing, since the block was of another type; at each of its steps a
/// frame of the word is freed that is free already. It is counted once.
#[test]
fn a_frame_freed_twice_while_a_lease_comes_to_nothing_counts_once() {
    let (mut n, mut told, mut reached) = (0, 0, true);
    while reached {
        n += 1;
        let fh: &'static _ = Box::leak(Box::new(machine(1, 1024)));
        let cpu = fh.here();
        let pfn = cpu.alloc(movable(0)).unwrap();
        cpu.flush().unwrap();
        let (block, w) = place(fh, pfn);
        let inside = inside(fh, 0);
        let before = block.head.tag.get().with_type(Migratetype::Unmovable as usize);
        let wrong = move || {
            let _ = Freeing::of(fh, None).word(pfn.get() / 64, 1 << 5, 1);
        };
        let lease = || inside.lease(block, w, before, (Purpose::Frames, 1), (0, None));
        let (slot, ran) = interrupted(n, wrong, lease);
        assert_eq!(slot, None);
        drop(inside);
        reached = ran;
        told += fh.totals().late_double_frees;
        let (word, free) = (block.line.word(w), fh.zones[0].free(fh).all);
        assert_eq!((word, free), (!(1 << (pfn.get() % 64)), 1023), "step {n}");
        fh.validate().unwrap();
    }
    assert!(told > 0, "no free came while the frames were away");
}

/// The first frame freed went into its word, the second leased that: of what came into the hand
/// then the board has not heard yet.
#[test]
fn a_lease_that_ends_tells_of_what_it_had() {
    let fh = unmarked(2, 2048);
    let (cpu, other) = (fh.here(), fh.on(CpuId::new(1)));
    exhaust(&fh, movable(0));
    cpu.free_range(frames_at(1024, 1024)).unwrap();
    (8..16).for_each(|n| cpu.free(Pfn::new(n), Order::ZERO).unwrap());
    assert_eq!(fh.cpus[0].leases.held.get().count_ones(), 1);
    cpu.flush().unwrap();
    fh.validate().unwrap();
    assert_eq!(other.alloc(movable(3)), Ok(Pfn::new(8)));
}

/// Frames in all hands after each CPU has allocated frames and runs of each type.
fn in_hands(fh: &Machine) -> u64 {
    for (number, _) in fh.cpus.iter().enumerate() {
        let cpu = fh.on(CpuId::new(number as u16));
        for (order, migratetype) in [0, 1, 2]
            .into_iter()
            .flat_map(|order| Migratetype::PCP.map(|migratetype| (of_order(order), migratetype)))
        {
            let _ = cpu.alloc(Request::new(order, migratetype));
        }
    }
    fh.cpus
        .iter()
        .flat_map(|cpu| (0..SLOTS).map(|slot| cpu.leases.slot(slot).all()))
        .fold(0, |sum, hand| sum + u64::from(hand.count_ones()))
}

/// Whatever the number of CPUs; and none is without a word where there are enough.
#[test]
fn all_hands_together_have_a_hundredth_of_memory_at_most() {
    for (cpus, frames) in [(1, 4096), (64, 1 << 13), (40, 1 << 16), (64, 1 << 19), (3, 1 << 18)] {
        let fh = machine(cpus, frames);
        Hotplug::lock(&fh).compute_limits();
        let (words, hands) = (frames.div_ceil(6400), in_hands(&fh));
        assert!(hands <= words * 64, "{cpus} CPUs, {frames} frames: {hands} in hands");
        let holders = fh.cpus.iter().filter(|cpu| cpu.leases.held.get() != 0).count() as u64;
        assert_eq!(holders, words.min(cpus.into()), "{cpus} CPUs, {frames} frames");
        fh.validate().unwrap();
    }
}

/// What CPUs had in hand of more memory goes back with it.
#[test]
fn hands_shrink_with_memory() {
    let fh = machine(2, 1 << 18);
    Hotplug::lock(&fh).compute_limits();
    let left = 1 << 14;
    assert!(in_hands(&fh) > u64::div_ceil(left, 6400) * 64);
    fh.remove_memory(frames_at(left, (1 << 18) - left)).unwrap();
    let in_hand = |cpu| fh.on(CpuId::new(cpu)).holdings().unwrap().0;
    assert_eq!([in_hand(0), in_hand(1)], [0, 0]);
    fh.validate().unwrap();
}

/// There is one word for two CPUs: the second one has it once the first one idles.
#[test]
fn a_shared_word_goes_on_when_its_cpu_idles() {
    let fh = machine(2, 4096);
    Hotplug::lock(&fh).compute_limits();
    let alloc = |cpu: u16| {
        let request = movable(0);
        fh.on(CpuId::new(cpu)).alloc(request).unwrap();
        [0, 1].map(|cpu: usize| fh.cpus[cpu].leases.held.get().count_ones())
    };
    assert_eq!(alloc(0), [1, 0]);
    assert_eq!(alloc(1), [1, 0], "it took its frame past the leases");
    (0..2).for_each(|_| fh.here().tick().unwrap());
    assert_eq!(alloc(1), [0, 1]);
    assert_eq!(alloc(0), [0, 1]);
    fh.on(CpuId::new(1)).offline().unwrap();
    assert_eq!(alloc(0), [1, 0]);
}

/// There is one word for two CPUs, and who has it allocates on and on: it passes between them as
/// it is used up, and never are two leased.
#[test]
fn a_shared_word_goes_round_as_it_is_used_up() {
    let fh = machine(2, 4096);
    Hotplug::lock(&fh).compute_limits();
    let alloc = |cpu: u16| {
        fh.on(CpuId::new(cpu)).alloc(movable(0)).unwrap();
        let held = [0, 1].map(|cpu: usize| fh.cpus[cpu].leases.held.get().count_ones());
        assert!(held[0] + held[1] <= 1, "{held:?}");
        held[1 - usize::from(cpu)] == 0
    };
    assert!((0..200).all(|_| alloc(0)), "nobody else wants it");
    let held: Vec<bool> = (0..600)
        .map(|_| {
            alloc(0);
            alloc(1)
        })
        .collect();
    let rounds = held.windows(2).filter(|two| two[0] != two[1]).count();
    assert!((6..=30).contains(&rounds), "it changed hands {rounds} times");
    fh.validate().unwrap();
}

/// A single run is claimed where the CPU may lease, too.
#[test]
fn a_share_by_which_nothing_is_leased_is_given_up() {
    let fh = machine(2, 4096);
    Hotplug::lock(&fh).compute_limits();
    let base = fh.here().alloc(movable(9)).unwrap().get();
    fh.here().free(Pfn::new(base + 8), Order::new(3).unwrap()).unwrap();
    fh.here().flush().unwrap();
    assert_eq!(fh.here().alloc(movable(3)), Ok(Pfn::new(base + 8)));
    assert_eq!(leased(&fh), 0);
    fh.on(CpuId::new(1)).alloc(movable(0)).unwrap();
    assert_eq!(fh.cpus[1].leases.held.get().count_ones(), 1);
}

/// Where less than half of memory is free a CPU of a small machine leases two words, and where
/// less than an eighth is, one at a time.
#[test]
fn a_hand_lets_go_where_little_is_free() {
    for (of_8, words) in [(3, 3), (6, 2), (7, 1)] {
        let fh = machine(1, 1 << 16);
        Hotplug::lock(&fh).compute_limits();
        let cpu = fh.here();
        for _ in 0..=(of_8 << 13) / 512 {
            cpu.alloc(movable(9)).unwrap();
        }
        in_hands(&fh);
        assert_eq!(fh.cpus[0].leases.held.get().count_ones(), words, "{of_8} eighths in use");
    }
}

/// A CPU that leases nothing, and of whose first block so many frames from each of these on are
/// free again.
fn with_free_runs(firsts: &[u64], order: u8) -> Machine {
    let fh = machine(1, 1 << 14);
    let base = fh.here().alloc(movable(9)).unwrap().get();
    firsts.iter().for_each(|first| {
        fh.here().free(Pfn::new(base + first), Order::new(order).unwrap()).unwrap();
    });
    fh
}

fn leased(fh: &Machine) -> u32 {
    fh.cpus[0].leases.held.get().count_ones()
}

#[test]
fn a_word_with_a_single_run_is_not_leased_for_it() {
    for (firsts, words) in [(&[8][..], 0), (&[8, 32], 1)] {
        let fh = with_free_runs(firsts, 3);
        fh.here().flush().unwrap();
        let pfn = fh.here().alloc(movable(3)).unwrap();
        assert_eq!((pfn.get() % 512, leased(&fh)), (8, words), "{firsts:?}");
        fh.validate().unwrap();
    }
}

/// A word leased for single frames would keep its runs from requests for runs.
#[test]
fn a_second_free_in_a_row_leases_its_word_up_to_runs_of_four() {
    for (order, words) in [(0, 1), (2, 1), (3, 0), (5, 0)] {
        assert_eq!(leased(&with_free_runs(&[0, 32], order)), words, "order {order}");
    }
    // Frames of one bulk call that lie side by side are a row.
    for (frames, words) in [(4, 1), (8, 0)] {
        let fh = with_free_runs(&[0], 0);
        let base = fh.zones[0].span.start.get() | 32;
        let frames: Vec<Pfn> = (base..base + frames).map(Pfn::new).collect();
        fh.here().free_bulk(&frames).unwrap();
        assert_eq!(leased(&fh), words, "{} frames", frames.len());
    }
}

/// Each pair takes the run by the hint of the free before it, and its word is not leased for
/// single frames. With debug-poison each free goes the slow way.
#[cfg(not(feature = "debug-poison"))]
#[test]
fn a_single_run_goes_and_comes_by_its_hint() {
    for order in 1..5 {
        let fh = with_free_runs(&[32], order);
        fh.here().flush().unwrap();
        for pair in 0..4 {
            let pfn = fh.here().alloc(movable(order)).unwrap();
            assert_eq!((pfn.get() % 512, leased(&fh)), (32, 0), "order {order}, pair {pair}");
            fh.here().free(pfn, Order::new(order).unwrap()).unwrap();
            assert!(fh.cpus[0].recent.has(u32::from(order)), "order {order}, pair {pair}");
        }
    }
}

/// Its word had nothing left in hand, and the next one has not either.
#[test]
fn a_run_freed_into_an_empty_hand_is_the_next_one_taken() {
    let fh = machine(1, 1 << 16);
    let cpu = fh.here();
    let runs: Vec<Pfn> = (0..16).map(|_| cpu.alloc(movable(3)).unwrap()).collect();
    cpu.free(runs[3], Order::new(3).unwrap()).unwrap();
    let slot = Leases::slot_of(runs[3].get() / 64);
    assert_eq!(fh.cpus[0].leases.take_freed(3), Some(slot));
    assert_eq!(cpu.alloc(movable(3)), Ok(runs[3]));
}

/// The first frame is in use, the second one is free.
#[test]
fn neither_a_leased_word_nor_a_free_of_what_is_free_is_leased() {
    assert_eq!(after_another_has_tried(false, 0), (1, 0));
    assert_eq!(after_another_has_tried(true, 0b10), (0, !0b1));
}
