//! What can be counted exactly of what benchmarks time: how few frames an engine hands out when few are in use, so
//! that they stay in the CPU's cache, and how many blocks become whole again.
//!
//! Everything here runs on one thread that plays all CPUs in a fixed order: the counts are the same on every machine.

use freehold::{CpuId, Order, Pfn};
use freehold_lab::bench::calls::{Calls, Machine};
use freehold_lab::bench::engines::{ClassicMachine, FreeholdMachine, HostThreads, Stamped};
use freehold_lab::bench::loops::{Random, shuffle};

/// 1 GiB.
const FRAMES: u64 = 1 << 18;
const CPUS: u16 = 2;
const PAIRS: u64 = 1_000_000;

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

/// Distinct frames handed out over a million pairs with `in_flight` frames in use.
fn distinct_in_flight<M: Machine>(machine: &M, in_flight: usize, next: Next) -> u64 {
    let stamped = Stamped::new(machine, FRAMES);
    {
        let mut cpu = stamped.cpu(CpuId::new(0)).unwrap();
        let mut frames: Vec<Pfn> = (0..in_flight).map(|_| cpu.alloc(Order::ZERO).unwrap()).collect();
        let mut random = Random::new(7);
        for n in 0..PAIRS {
            let at = match next {
                Next::Oldest => n as usize % in_flight,
                Next::Newest => in_flight - 1,
                Next::Random => random.below(in_flight as u64) as usize,
            };
            cpu.free(frames[at], Order::ZERO).unwrap();
            frames[at] = cpu.alloc(Order::ZERO).unwrap();
        }
        frames.into_iter().for_each(|pfn| cpu.free(pfn, Order::ZERO).unwrap());
    }
    stamped.drain();
    stamped.check(0).unwrap();
    stamped.distinct()
}

#[test]
fn few_frames_in_flight_are_few_frames() {
    for in_flight in [1, 64] {
        for next in [Next::Oldest, Next::Newest, Next::Random] {
            let ours = distinct_in_flight(&freehold(), in_flight, next);
            let theirs = distinct_in_flight(&vanilla(), in_flight, next);
            println!("{in_flight} in flight, {next:?} freed first: freehold {ours}, vanilla {theirs}");
            assert!(ours <= theirs, "{in_flight} in flight, {next:?}: freehold {ours}, vanilla {theirs}");
        }
    }
}

/// Distinct frames handed out when CPU 1 frees what CPU 0 allocates, 64 a message, `behind` messages later.
fn distinct_produced<M: Machine>(machine: &M, behind: usize, bulk: bool) -> u64 {
    let stamped = Stamped::new(machine, FRAMES);
    {
        let mut producer = stamped.cpu(CpuId::new(0)).unwrap();
        let mut consumer = stamped.cpu(CpuId::new(1)).unwrap();
        let mut ring = std::collections::VecDeque::new();
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
            ring.push_back(message);
            if ring.len() > behind {
                ring.pop_front().into_iter().for_each(&mut consume);
            }
        }
        ring.into_iter().for_each(consume);
    }
    stamped.drain();
    stamped.check(0).unwrap();
    stamped.distinct()
}

#[test]
fn producer_and_consumer_use_few_frames() {
    for behind in [0, 1, 64] {
        for bulk in [false, true] {
            let ours = distinct_produced(&freehold(), behind, bulk);
            let theirs = distinct_produced(&vanilla(), behind, bulk);
            println!("{behind} messages behind, bulk {bulk}: freehold {ours}, vanilla {theirs}");
            assert!(ours <= theirs, "{behind} messages behind, bulk {bulk}: freehold {ours}, vanilla {theirs}");
        }
    }
}

/// Wholly free blocks when half of a live set of mixed orders, made by random allocations and frees on two CPUs, is
/// freed at random.
fn blocks_after_half<M: Machine>(machine: &M, seed: u64) -> u64 {
    let stamped = Stamped::new(machine, FRAMES);
    let mut live: Vec<(Pfn, Order)> = Vec::new();
    let mut used = 0;
    {
        let mut cpus = [0, 1].map(|cpu| stamped.cpu(CpuId::new(cpu)).unwrap());
        let mut random = Random::new(seed);
        // Some 30 % of memory in use, three times renewed.
        let target = FRAMES * 3 / 10;
        for _ in 0..3 * target / 4 {
            let order = Order::new([0, 0, 0, 0, 1, 2, 3, 4][random.below(8) as usize]).unwrap();
            if used < target {
                let pfn = cpus[random.below(2) as usize].alloc(order).unwrap();
                live.push((pfn, order));
                used += order.frames();
            }
            if used >= target || random.below(4) == 0 {
                let (pfn, order) = live.swap_remove(random.below(live.len() as u64) as usize);
                cpus[random.below(2) as usize].free(pfn, order).unwrap();
                used -= order.frames();
            }
        }
        shuffle(&mut live, seed);
        for (pfn, order) in live.drain(live.len() / 2..) {
            cpus[random.below(2) as usize].free(pfn, order).unwrap();
            used -= order.frames();
        }
    }
    stamped.drain();
    stamped.check(used).unwrap();
    stamped.free_blocks().unwrap()
}

#[test]
fn blocks_are_whole_again_when_half_is_freed() {
    let (mut ours, mut theirs) = (0, 0);
    for seed in 1..=8 {
        let (our, their) = (blocks_after_half(&freehold(), seed), blocks_after_half(&vanilla(), seed));
        println!("seed {seed}: wholly free blocks of {}: freehold {our}, vanilla {their}", FRAMES / 512);
        ours += our;
        theirs += their;
    }
    assert!(ours >= theirs, "wholly free blocks over all seeds: freehold {ours}, vanilla {theirs}");
}
