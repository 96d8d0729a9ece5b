//! What can be counted exactly of what benchmarks time: how few frames an engine hands out when few
//! are in use, so that they stay in the CPU's cache, and how many blocks become whole again.
//!
//! Everything here runs on one thread that plays all CPUs in a fixed order: the counts are the same
//! on every machine.

use std::collections::HashSet;

use crate::common::length::length;
use freehold::{CpuId, Order, Pfn};
use freehold_lab::bench::calls::{Calls, Machine};
use freehold_lab::bench::engines::{ClassicMachine, FreeholdMachine, HostThreads};
use freehold_lab::bench::loops::shuffle;
use freehold_lab::trials::random::Random;

/// 1 GiB.
const FRAMES: u64 = 1 << 18;
const CPUS: u16 = 2;
const PAIRS: u64 = 200_000;

fn freehold() -> FreeholdMachine<HostThreads> {
    FreeholdMachine::new(CPUS, FRAMES, HostThreads::new()).unwrap()
}

fn vanilla() -> ClassicMachine {
    ClassicMachine::new("vanilla", CPUS, FRAMES).unwrap()
}

/// Which of the frames in flight is freed next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Oldest,
    Newest,
    Random,
}

/// Distinct frames handed out over all pairs with `in_flight` frames in use.
fn distinct_in_flight<M: Machine>(machine: &M, in_flight: usize, next: Next) -> u64 {
    let mut cpu = machine.cpu(CpuId::new(0)).unwrap();
    let mut frames: Vec<Pfn> = (0..in_flight).map(|_| cpu.alloc(Order::ZERO).unwrap()).collect();
    let mut distinct: HashSet<Pfn> = frames.iter().copied().collect();
    assert_eq!(distinct.len(), in_flight, "a frame was handed out twice");
    let mut random = Random::new(7);
    for n in 0..PAIRS {
        let at = match next {
            Next::Oldest => n as usize % in_flight,
            Next::Newest => in_flight - 1,
            Next::Random => random.below(in_flight as u64) as usize,
        };
        cpu.free(frames[at], Order::ZERO).unwrap();
        frames[at] = cpu.alloc(Order::ZERO).unwrap();
        distinct.insert(frames[at]);
    }
    frames.into_iter().for_each(|pfn| cpu.free(pfn, Order::ZERO).unwrap());
    drop(cpu);
    machine.drain();
    machine.check(0).unwrap();
    distinct.len() as u64
}

#[test]
fn few_frames_in_flight_are_few_frames() {
    for in_flight in [1, 64] {
        for next in [Next::Oldest, Next::Newest, Next::Random] {
            let ours = distinct_in_flight(&freehold(), in_flight, next);
            let theirs = distinct_in_flight(&vanilla(), in_flight, next);
            println!(
                "{in_flight} in flight, {next:?} freed first: freehold {ours}, vanilla {theirs}"
            );
            assert!(
                ours <= theirs,
                "{in_flight} in flight, {next:?}: freehold {ours}, vanilla {theirs}"
            );
        }
    }
}

/// Distinct frames handed out when CPU 1 frees what CPU 0 allocates, 64 a message, `behind`
/// messages later.
fn distinct_produced<M: Machine>(machine: &M, behind: usize, bulk: bool) -> u64 {
    let mut producer = machine.cpu(CpuId::new(0)).unwrap();
    let mut consumer = machine.cpu(CpuId::new(1)).unwrap();
    let (mut ring, mut distinct) = (std::collections::VecDeque::new(), HashSet::new());
    let mut consume = |message: [Pfn; 64]| {
        if bulk {
            consumer.free_bulk(&message).unwrap();
        } else {
            message.iter().for_each(|&pfn| consumer.free(pfn, Order::ZERO).unwrap());
        }
    };
    for _ in 0..PAIRS / 64 {
        let mut message = [Pfn::default(); 64];
        if bulk {
            producer.alloc_bulk(&mut message).unwrap();
        } else {
            message.iter_mut().for_each(|pfn| *pfn = producer.alloc(Order::ZERO).unwrap());
        }
        distinct.extend(message);
        ring.push_back(message);
        if ring.len() > behind {
            ring.pop_front().into_iter().for_each(&mut consume);
        }
    }
    ring.into_iter().for_each(consume);
    drop((producer, consumer));
    machine.drain();
    machine.check(0).unwrap();
    distinct.len() as u64
}

#[test]
fn producer_and_consumer_use_few_frames() {
    for behind in [0, 1, 64] {
        for bulk in [false, true] {
            let ours = distinct_produced(&freehold(), behind, bulk);
            let theirs = distinct_produced(&vanilla(), behind, bulk);
            println!("{behind} messages behind, bulk {bulk}: freehold {ours}, vanilla {theirs}");
            assert!(
                ours <= theirs,
                "{behind} messages behind, bulk {bulk}: freehold {ours}, vanilla {theirs}"
            );
        }
    }
}

/// A way to come to a live set: random allocations and frees, three times over.
#[derive(Clone, Copy, Debug)]
struct History {
    /// CPUs that take part, each call on a random one.
    cpus: u64,
    /// Orders of the allocations, each as likely.
    orders: &'static [u8],
    /// Memory in use before half of it is freed, in percent.
    percent: u64,
}

/// Wholly free blocks when half of the live set, taken at random, has been freed and CPUs are
/// drained.
fn blocks_after_half<M: Machine>(machine: &M, history: History, seed: u64) -> u64 {
    let mut live: Vec<(Pfn, Order)> = Vec::new();
    let mut used = 0;
    {
        let mut cpus = [0, 1].map(|cpu| machine.cpu(CpuId::new(cpu)).unwrap());
        let mut random = Random::new(seed);
        let target = FRAMES * history.percent / 100;
        let mut allocated = 0;
        while allocated < 3 * target || used < target {
            if used < target {
                let order =
                    Order::new(history.orders[random.below(history.orders.len() as u64) as usize])
                        .unwrap();
                let pfn = cpus[random.below(history.cpus) as usize].alloc(order).unwrap();
                live.push((pfn, order));
                used += order.frames();
                allocated += order.frames();
            }
            if used >= target && allocated < 3 * target || random.below(4) == 0 {
                let (pfn, order) = live.swap_remove(random.below(live.len() as u64) as usize);
                cpus[random.below(history.cpus) as usize].free(pfn, order).unwrap();
                used -= order.frames();
            }
        }
        shuffle(&mut live, seed);
        for (pfn, order) in live.drain(live.len() / 2..) {
            cpus[random.below(history.cpus) as usize].free(pfn, order).unwrap();
            used -= order.frames();
        }
    }
    machine.drain();
    machine.check(used).unwrap();
    machine.free_blocks().unwrap()
}

fn compare_blocks(history: History) -> (u64, u64) {
    // A single one may be luck: three in CI.
    let most = length(1, 3);
    let seeds = 1..=most;
    let ours = seeds.clone().map(|seed| blocks_after_half(&freehold(), history, seed)).sum();
    let theirs = seeds.map(|seed| blocks_after_half(&vanilla(), history, seed)).sum();
    println!(
        "{history:?}: wholly free blocks of {}: freehold {ours}, vanilla {theirs}",
        most * FRAMES / 512
    );
    (ours, theirs)
}

const ZERO: &[u8] = &[0];
const SMALL: &[u8] = &[0, 0, 0, 0, 1, 2, 3, 4];
const LARGE: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 4, 6, 8, 9, 9];

/// Every history in which freehold ends with fewer than `percent` of vanilla's wholly free blocks.
fn fewer_blocks(percent: u64, histories: impl IntoIterator<Item = History>) -> Vec<String> {
    let compared = histories.into_iter().map(|history| (history, compare_blocks(history)));
    let fewer = compared.filter(|(_, (ours, theirs))| ours * 100 < theirs * percent);
    fewer
        .map(|(history, (ours, theirs))| format!("{history:?}: freehold {ours}, vanilla {theirs}"))
        .collect()
}

fn histories(cpus: u64, orders: &'static [u8]) -> impl Iterator<Item = History> {
    [10, 30, 60, 80].into_iter().map(move |percent| History { cpus, orders, percent })
}

#[test]
fn blocks_are_whole_again_when_half_of_the_frames_is_freed() {
    let ends = histories(1, ZERO).filter(|history| [10, 80].contains(&history.percent));
    let fewer = fewer_blocks(100, ends);
    assert!(fewer.is_empty(), "freehold has fewer wholly free blocks:\n{}", fewer.join("\n"));
}

/// The aim is 100 % here too. What is reached is 99 % and more with single frames, 90 % and more
/// where orders are mixed: single frames and runs come from blocks of their own, and a lease keeps
/// its block begun (`--nocapture` prints the counts). This holds the line.
#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite bench:: -- --ignored"]
fn nearly_as_many_blocks_are_whole_again_with_more_cpus_and_orders() {
    let mixed = |cpus| [SMALL, LARGE].into_iter().flat_map(move |orders| histories(cpus, orders));
    let fewer = [
        fewer_blocks(100, histories(1, ZERO)),
        fewer_blocks(99, histories(2, ZERO)),
        fewer_blocks(90, mixed(1)),
        fewer_blocks(89, mixed(2)),
    ]
    .concat();
    assert!(
        fewer.is_empty(),
        "freehold has clearly fewer wholly free blocks:\n{}",
        fewer.join("\n")
    );
}
