//! The loops of `lib/test_vmalloc.c`, as three kernels in turns: see [`Kernel`].
//!
//! ```text
//!   setup    | 6.18 | 6.19-rc1 | patched | 6.19-rc1 | patched | 6.18 | ...    | teardown
//!            the same random numbers in each three;
//!            each slice: stocks drained, a few loops untimed, then its share of the loops
//! ```
//!
//! A run's figure is the median of its slices: one that the machine disturbed does not count.
//!
//! What one thread does is timed by its CPU clock. Where another thread frees, it is the CPU time of both until the last
//! free is through (waiting for one another is not counted; it depends on the machine's scheduler, and hides what is
//! compared). The kernel's own test stops its clock when the last free has been *asked for*.

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::Duration;

use freehold::CpuId;
use rustix::time::{ClockId, clock_gettime};

use super::areas::{Areas, Failed, Kernel, Shape, Thread};
use super::vmalloc_tests::{Test, Work};
use crate::bench::clock::{Cpus, thread_time};
use crate::bench::loops::{Random, per};
use crate::bench::result::Spread;

/// Areas that `long_busy_list_alloc_test` keeps.
const BUSY: usize = 15_000;
/// Pages that two stacks of a thread take on x86-64: the alignment of `fix_align_alloc_test`.
const STACKS: u64 = 8;
/// Areas that are gathered before another thread frees them: as many pointers as a page of the kernel's lists holds.
const GATHERED: usize = 508;
/// Lists of them that may wait for the other thread.
const LISTS: usize = 16;
/// Loops before the clock starts.
const UNTIMED: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Amount {
    /// Loops as each kernel.
    pub(super) loops: u64,
    /// Slices that they are cut into.
    pub(super) slices: u64,
}

/// Nanoseconds a loop.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Times {
    pub(super) patched: f64,
    /// 6.18 and 6.19-rc1, where there is a choice.
    pub(super) before: Option<[f64; 2]>,
}

pub(super) fn run<A: Areas>(areas: &A, test: &Test, amount: Amount, seed: u64, cpus: &Cpus) -> Result<Times, String> {
    cpus.pin(0);
    areas.drain();
    let turns = Turns { areas, amount, seed, clock: thread_time };
    let mut thread = areas.thread(CpuId::new(0))?;
    let result = match test.work {
        Work::FixAlign => {
            let shape = Shape { align: STACKS, zeroed: true, ..Shape::pages(5) };
            turns.run(|n, _| (0..n).try_for_each(|_| once(&mut thread, shape)))
        }
        Work::FixSize => {
            let shape = Shape { huge: test.huge, ..Shape::pages(test.pages) };
            turns.run(|n, _| (0..n).try_for_each(|_| once(&mut thread, shape)))
        }
        Work::RandomSize => {
            turns.run(|n, random| (0..n).try_for_each(|_| once(&mut thread, Shape::pages(random.below(100) + 1))))
        }
        Work::RandomSizeAlign => turns.run(|n, random| {
            (0..n).try_for_each(|_| {
                let byte = random.below(256);
                let align = (1u64 << (byte % 23)).div_ceil(4096);
                once(&mut thread, Shape { align, zeroed: true, ..Shape::pages(byte % 10 + 1) })
            })
        }),
        Work::FullFit => full_fit(&turns, &mut thread, cpus),
        Work::LongBusyList => long_busy_list(&turns, &mut thread),
        Work::MapRam => thread.prepare_ram(test.pages).and_then(|()| {
            let times = turns.run(|n, _| {
                (0..n).try_for_each(|_| {
                    let area = thread.map_ram()?;
                    thread.write(&area);
                    thread.unmap_ram(area)
                })
            });
            thread.done_with_ram().and(times)
        }),
        Work::Deferred => deferred(Turns { clock: process_time, ..turns }, &mut thread, cpus),
    };
    areas.set_kernel(Kernel::Patched);
    result.map_err(|failed| format!("{}_p{}_h{}: {failed}", test.name, test.pages, u8::from(test.huge)))
}

/// CPU time of all threads of this process.
fn process_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

struct Turns<'a, A> {
    areas: &'a A,
    amount: Amount,
    seed: u64,
    clock: fn() -> Duration,
}

impl<A: Areas> Turns<'_, A> {
    /// Times `body`, which does so many loops with such random numbers.
    fn run(&self, mut body: impl FnMut(u64, &mut Random) -> Result<(), Failed>) -> Result<Times, Failed> {
        let n = (self.amount.loops / self.amount.slices).max(1);
        let switchable = self.areas.set_kernel(Kernel::Patched);
        let mut slices = [Spread::default(), Spread::default(), Spread::default()];
        for slice in 0..self.amount.slices {
            // None of them always follows the same one.
            let mut order = Kernel::ALL;
            order.rotate_left((slice % 3) as usize);
            for kernel in order.into_iter().filter(|&kernel| kernel == Kernel::Patched || switchable) {
                self.areas.set_kernel(kernel);
                self.areas.drain();
                let mut random = Random::new(self.seed.wrapping_add(slice * 0x9e37_79b9));
                if n > UNTIMED {
                    body(UNTIMED, &mut random)?;
                }
                let start = (self.clock)();
                body(n, &mut random)?;
                slices[kernel as usize].add(per((self.clock)().saturating_sub(start), n));
            }
        }
        let [old, regressed, patched] = slices.map(|slices| slices.median());
        Ok(Times {
            patched: patched.unwrap_or(0.0),
            before: old.zip(regressed).map(|(old, regressed)| [old, regressed]),
        })
    }
}

/// What most tests do.
#[inline(always)]
fn once<T: Thread>(thread: &mut T, shape: Shape) -> Result<(), Failed> {
    let area = thread.vmalloc(shape)?;
    thread.write(&area);
    thread.vfree(area)
}

fn full_fit<A: Areas, T: Thread>(turns: &Turns<'_, A>, thread: &mut T, cpus: &Cpus) -> Result<Times, Failed> {
    // The kernel's `fls(num_online_cpus()) * 8192` pairs; where each is two mappings of the system, not more of them
    // than a process may have.
    let bits = if turns.areas.is_memory() { 1 } else { usize::BITS - cpus.count().clamp(1, 3).leading_zeros() };
    let (mut kept, mut freed) = (Vec::new(), Vec::new());
    for _ in 0..bits * 8192 {
        kept.push(thread.vmalloc(Shape::pages(1))?);
        freed.push(thread.vmalloc(Shape::pages(1))?);
    }
    freed.into_iter().try_for_each(|area| thread.vfree(area))?;
    let times = turns.run(|n, _| (0..n).try_for_each(|_| once(thread, Shape::pages(1))));
    kept.into_iter().try_for_each(|area| thread.vfree(area)).and(times)
}

fn long_busy_list<A: Areas, T: Thread>(turns: &Turns<'_, A>, thread: &mut T) -> Result<Times, Failed> {
    let mut kept = Vec::new();
    for _ in 0..BUSY {
        kept.push(thread.vmalloc(Shape::pages(1))?);
    }
    let times = turns.run(|n, _| {
        (0..n).try_for_each(|_| {
            let large = thread.vmalloc(Shape::pages(100))?;
            let small = thread.vmalloc(Shape::pages(1))?;
            thread.write(&large);
            thread.write(&small);
            thread.vfree(large)?;
            thread.vfree(small)
        })
    });
    kept.into_iter().try_for_each(|area| thread.vfree(area)).and(times)
}

/// The kernel's one- and two-argument forms gather pointers alike; they differ where there is no memory for the list.
fn deferred<A: Areas, T: Thread<Area = A::Area>>(
    turns: Turns<'_, A>,
    thread: &mut T,
    cpus: &Cpus,
) -> Result<Times, Failed> {
    std::thread::scope(|scope| {
        let (full, to_free) = sync_channel::<Vec<A::Area>>(LISTS);
        let (done, empty) = channel();
        let areas = turns.areas;
        scope.spawn(move || {
            cpus.pin(1);
            if let Ok(mut thread) = areas.thread(CpuId::new(1)) {
                free_lists(&mut thread, &to_free, &done);
            }
        });
        turns.run(|n, _| gather(n, thread, &full, &empty))
    })
}

type Emptied<A> = Result<Vec<A>, Failed>;

/// The thread that frees.
fn free_lists<T: Thread>(
    thread: &mut T,
    lists: &Receiver<Vec<T::Area>>,
    done: &std::sync::mpsc::Sender<Emptied<T::Area>>,
) {
    while let Ok(mut list) = lists.recv() {
        let freed = thread.vfree_many(&mut list).map(|()| list);
        if done.send(freed).is_err() {
            return;
        }
    }
}

/// The thread that allocates: returns when everything has been freed.
fn gather<T: Thread>(
    n: u64,
    thread: &mut T,
    full: &SyncSender<Vec<T::Area>>,
    empty: &Receiver<Emptied<T::Area>>,
) -> Result<(), Failed> {
    let mut under_way = 0;
    let mut list = Vec::with_capacity(GATHERED);
    for i in 0..n {
        let area = thread.vmalloc(Shape::pages(1))?;
        thread.write(&area);
        list.push(area);
        if list.len() == GATHERED || i + 1 == n {
            let next = match empty.try_recv() {
                Ok(emptied) => {
                    under_way -= 1;
                    emptied?
                }
                Err(_) => Vec::with_capacity(GATHERED),
            };
            full.send(std::mem::replace(&mut list, next)).map_err(|_| Failed::Abandoned)?;
            under_way += 1;
        }
    }
    for _ in 0..under_way {
        empty.recv().map_err(|_| Failed::Abandoned)??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::engines::{ClassicMachine, FreeholdMachine, HostThreads};
    use crate::bench::memory::mapped::Mapped;
    use crate::bench::memory::over_vm::OverVm;
    use crate::bench::memory::vmalloc_tests::TESTS;
    use freehold_host::freehold_vm::{SoftMmu, Vpn, VpnRange};

    const FEW: Amount = Amount { loops: 16, slices: 2 };

    fn all<A: Areas>(areas: &A, has_switch: bool) {
        for test in &TESTS {
            let times = run(areas, test, FEW, 5, &Cpus::allowed()).unwrap();
            assert_eq!((times.before.is_some(), times.patched > 0.0), (has_switch, true), "{}", test.name);
        }
        areas.check().unwrap();
    }

    #[test]
    fn every_test_runs_over_every_kind_of_area_and_leaves_nothing() {
        let range = VpnRange::new(Vpn::new(0), 1 << 24).unwrap();
        let freehold = FreeholdMachine::new(2, 1 << 18, HostThreads::new()).unwrap();
        all(&OverVm::new(freehold, SoftMmu::<1>::new(), range), true);
        let vanilla = ClassicMachine::new("vanilla", 2, 1 << 18).unwrap();
        all(&OverVm::new(vanilla, SoftMmu::<1>::new(), range), true);
        all(&Mapped, false);
    }

    /// What a loop asks of vmalloc and of the zone.
    #[derive(Debug)]
    struct Asked {
        /// Calls for chunks of more than a frame, and frees.
        calls: (u64, u64),
        /// Holds of the zone lock and steps in them, of a hundred loops.
        holds: u64,
        steps: u64,
    }

    fn asked(spec: &str, kernel: Kernel, pages: u64) -> Asked {
        const LOOPS: u64 = 1000;
        let range = VpnRange::new(Vpn::new(0), 1 << 24).unwrap();
        let areas = OverVm::new(ClassicMachine::new(spec, 2, 1 << 18).unwrap(), SoftMmu::<1>::new(), range);
        areas.set_kernel(kernel);
        let mut thread = areas.thread(CpuId::new(0)).unwrap();
        let mut run = |loops| (0..loops).for_each(|_| once(&mut thread, Shape::pages(pages)).unwrap());
        // Until what the CPU keeps has settled.
        run(100);
        let zone = || areas.pages().classic().stats().zone_lock;
        let (before, held) = (areas.stats(), zone());
        run(LOOPS);
        let (after, hold) = (areas.stats(), zone());
        Asked {
            calls: ((after.large_allocs - before.large_allocs) / LOOPS, (after.frees - before.frees) / LOOPS),
            holds: (hold.holds() - held.holds()) * 100 / LOOPS,
            steps: (hold.total() - held.total()) * 100 / LOOPS,
        }
    }

    /// Exact: 100 pages are chunks of 64, 32 and 4 frames, one free each at most with contiguous freeing, 100 without.
    #[test]
    fn each_kernel_asks_what_it_says() {
        let range = VpnRange::new(Vpn::new(0), 1 << 24).unwrap();
        for (kernel, large, frees) in
            [(Kernel::V6_18, 0, 100..=100), (Kernel::V6_19Rc1, 3, 100..=100), (Kernel::Patched, 3, 1..=3)]
        {
            let freehold = FreeholdMachine::new(2, 1 << 18, HostThreads::new()).unwrap();
            let areas = OverVm::new(freehold, SoftMmu::<1>::new(), range);
            areas.set_kernel(kernel);
            let mut thread = areas.thread(CpuId::new(0)).unwrap();
            let before = areas.stats();
            once(&mut thread, Shape::pages(100)).unwrap();
            let after = areas.stats();
            assert_eq!((after.large_allocs - before.large_allocs, after.flushes - before.flushes), (large, 1));
            assert!(frees.contains(&(after.frees - before.frees)), "{after:?}");
        }
    }

    /// The regression by counts: single frames come from the CPU's lists and go back to them; chunks come from the zone,
    /// and page by page they go to the CPU's lists, which overflow into the zone.
    #[test]
    fn the_regression_of_6_19_rc1_is_in_the_zone_lock() {
        for pages in [16, 64, 256, 512] {
            let [old, regressed, patched] = Kernel::ALL.map(|kernel| asked("6.18,+contig-free", kernel, pages));
            assert_eq!([old.calls, regressed.calls, patched.calls], [(0, pages), (1, pages), (1, 1)]);
            assert_eq!((old.holds, old.steps), (0, 0), "{pages} pages");
            assert!(regressed.holds >= 100, "{regressed:?}");
            let least = if pages < 64 { 1 } else { 10 };
            assert!(least * patched.steps < regressed.steps, "{regressed:?} {patched:?}");
        }
    }
}
