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
//! What one thread does is timed by its CPU clock. Where another thread frees, it is the CPU time
//! of both until the last free is through (waiting for one another is not counted; it depends on
//! the machine's scheduler, and hides what is compared). The kernel's own test stops its clock when
//! the last free has been *asked for*.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use freehold::{CpuId, Migratetype, Order, Pfn, Request};
use freehold_host::freehold_vm::{Frames, Vpn};

use super::areas::{Areas, Backed, Failed, Kernel, Shape, Thread};
use super::pages::PageAllocator;
use super::vmalloc_tests::{Test, Work};
use crate::bench::clock::{Cpus, process_time, thread_time};
use crate::bench::loops::per;
use crate::bench::result::Spread;
use crate::trials::random::Random;

/// Areas that `long_busy_list_alloc_test` keeps.
const BUSY: usize = 15_000;
/// Pages that two stacks of a thread take on x86-64: the alignment of `fix_align_alloc_test`.
const STACKS: u64 = 8;
/// Areas that are gathered before another thread frees them: as many pointers as a page of the
/// kernel's lists holds.
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

/// Nanoseconds a loop as each kernel, in the order of [`Kernel::ALL`].
pub(super) fn run<P: PageAllocator, M: Backed>(
    areas: &Areas<P, M>,
    test: &Test,
    amount: Amount,
    seed: u64,
    cpus: &Cpus,
) -> Result<[f64; 3], String> {
    areas.pages.drain();
    let turns =
        Turns { areas, thread: areas.thread(CpuId::new(0))?, amount, seed, clock: thread_time };
    let result = match test.work {
        Work::FixAlign => turns.each(|_| Shape { align: STACKS, zeroed: true, ..Shape::pages(5) }),
        Work::FixSize => turns.each(|_| Shape { huge: test.huge, ..Shape::pages(test.pages) }),
        Work::RandomSize => turns.each(|random| Shape::pages(random.below(100) + 1)),
        Work::RandomSizeAlign => turns.each(|random| {
            let byte = random.below(256);
            let align = (1u64 << (byte % 23)).div_ceil(4096);
            Shape { align, zeroed: true, ..Shape::pages(byte % 10 + 1) }
        }),
        Work::FullFit => full_fit(&turns, cpus),
        Work::LongBusyList => long_busy_list(&turns),
        Work::MapRam => map_ram(&turns, test.pages),
        Work::Deferred => deferred(&Turns { clock: process_time, ..turns }, cpus),
    };
    areas.set_kernel(Kernel::Patched);
    result.map_err(|failed| {
        format!("{}_p{}_h{}: {failed}", test.name, test.pages, u8::from(test.huge))
    })
}

struct Turns<'a, P: PageAllocator + 'a, M> {
    areas: &'a Areas<P, M>,
    thread: Thread<'a, P::Cpu<'a>, M>,
    amount: Amount,
    seed: u64,
    clock: fn() -> Duration,
}

impl<P: PageAllocator, M: Backed> Turns<'_, P, M> {
    /// Times `body`, which does so many loops with such random numbers.
    fn run(
        &self,
        mut body: impl FnMut(u64, &mut Random) -> Result<(), Failed>,
    ) -> Result<[f64; 3], Failed> {
        let n = (self.amount.loops / self.amount.slices).max(1);
        let mut slices = [Spread::default(), Spread::default(), Spread::default()];
        for slice in 0..self.amount.slices {
            // None of them always follows the same one.
            let mut order = Kernel::ALL;
            order.rotate_left((slice % 3) as usize);
            for kernel in order {
                self.areas.set_kernel(kernel);
                self.areas.pages.drain();
                let mut random = Random::new(self.seed.wrapping_add(slice * 0x9e37_79b9));
                if n > UNTIMED {
                    body(UNTIMED, &mut random)?;
                }
                let start = (self.clock)();
                body(n, &mut random)?;
                slices[kernel as usize].add(per((self.clock)().saturating_sub(start), n));
            }
        }
        Ok(slices.map(|slices| slices.median().unwrap_or(0.0)))
    }

    /// What most tests do: an area of that shape, and its free.
    #[inline(always)]
    fn each(&self, shape: impl Fn(&mut Random) -> Shape) -> Result<[f64; 3], Failed> {
        self.run(|n, random| (0..n).try_for_each(|_| once(&self.thread, shape(random))))
    }
}

#[inline(always)]
fn once<F: Frames, M: Backed>(thread: &Thread<'_, F, M>, shape: Shape) -> Result<(), Failed> {
    let area = thread.vmalloc(shape)?;
    thread.write(area);
    thread.vfree(area)
}

fn full_fit<P: PageAllocator, M: Backed>(
    turns: &Turns<'_, P, M>,
    cpus: &Cpus,
) -> Result<[f64; 3], Failed> {
    let thread = &turns.thread;
    // The kernel's `fls(num_online_cpus()) * 8192` pairs; where each is two mappings of the system,
    // not more of them than a process may have.
    let bits =
        if M::IS_MEMORY { 1 } else { usize::BITS - cpus.count().clamp(1, 3).leading_zeros() };
    let (mut kept, mut freed) = (Vec::new(), Vec::new());
    for _ in 0..bits * 8192 {
        kept.push(thread.vmalloc(Shape::pages(1))?);
        freed.push(thread.vmalloc(Shape::pages(1))?);
    }
    freed.into_iter().try_for_each(|area| thread.vfree(area))?;
    let times = turns.each(|_| Shape::pages(1));
    kept.into_iter().try_for_each(|area| thread.vfree(area)).and(times)
}

fn long_busy_list<P: PageAllocator, M: Backed>(
    turns: &Turns<'_, P, M>,
) -> Result<[f64; 3], Failed> {
    let thread = &turns.thread;
    let kept: Vec<Vpn> =
        (0..BUSY).map(|_| thread.vmalloc(Shape::pages(1))).collect::<Result<_, _>>()?;
    let times = turns.run(|n, _| {
        (0..n).try_for_each(|_| {
            let large = thread.vmalloc(Shape::pages(100))?;
            let small = thread.vmalloc(Shape::pages(1))?;
            thread.write(large);
            thread.write(small);
            thread.vfree(large)?;
            thread.vfree(small)
        })
    });
    kept.into_iter().try_for_each(|area| thread.vfree(area)).and(times)
}

fn map_ram<P: PageAllocator, M: Backed>(
    turns: &Turns<'_, P, M>,
    pages: u64,
) -> Result<[f64; 3], Failed> {
    let thread = &turns.thread;
    let request = Request::new(Order::ZERO, Migratetype::Unmovable);
    let frame = |_| thread.frames.alloc(request);
    let ram: Vec<Pfn> = (0..pages).map(frame).collect::<Result<_, _>>()?;
    let times = turns.run(|n, _| {
        (0..n).try_for_each(|_| {
            let area = thread.vmalloc.vm_map_ram(&ram)?;
            thread.write(area);
            Ok(thread.vmalloc.vm_unmap_ram(area)?)
        })
    });
    ram.into_iter().try_for_each(|pfn| thread.frames.free(pfn, Order::ZERO))?;
    times
}

/// The kernel's one- and two-argument forms gather pointers alike; they differ where there is no
/// memory for the list.
fn deferred<P: PageAllocator, M: Backed>(
    turns: &Turns<'_, P, M>,
    cpus: &Cpus,
) -> Result<[f64; 3], Failed> {
    std::thread::scope(|scope| {
        let (full, to_free) = sync_channel::<Vec<Vpn>>(LISTS);
        let (done, empty) = channel();
        let areas = turns.areas;
        scope.spawn(move || {
            cpus.pin(1);
            if let Ok(thread) = areas.thread(CpuId::new(1)) {
                free_lists(&thread, &to_free, &done);
            }
        });
        turns.run(|n, _| gather(n, &turns.thread, &full, &empty))
    })
}

type Emptied = Result<Vec<Vpn>, Failed>;

/// The thread that frees.
fn free_lists<F: Frames, M: Backed>(
    thread: &Thread<'_, F, M>,
    lists: &Receiver<Vec<Vpn>>,
    done: &Sender<Emptied>,
) {
    while let Ok(mut list) = lists.recv() {
        let freed = thread.vmalloc.vfree_many(&thread.frames, &list);
        list.clear();
        if done.send(freed.map(|()| list).map_err(Failed::from)).is_err() {
            return;
        }
    }
}

/// The thread that allocates: returns when everything has been freed.
fn gather<F: Frames, M: Backed>(
    n: u64,
    thread: &Thread<'_, F, M>,
    full: &SyncSender<Vec<Vpn>>,
    empty: &Receiver<Emptied>,
) -> Result<(), Failed> {
    let mut under_way = 0;
    let mut list = Vec::with_capacity(GATHERED);
    for i in 0..n {
        let area = thread.vmalloc(Shape::pages(1))?;
        thread.write(area);
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
    use crate::bench::memory::vmalloc_tests::TESTS;
    use freehold_host::freehold_vm::{SoftMmu, VpnRange};

    fn areas<P: PageAllocator>(pages: P) -> Areas<P, SoftMmu<1>> {
        Areas::new(pages, SoftMmu::new(), VpnRange::new(Vpn::new(0), 1 << 24).unwrap())
    }

    fn freehold() -> Areas<FreeholdMachine<HostThreads>, SoftMmu<1>> {
        areas(FreeholdMachine::new(2, 1 << 18, HostThreads::new()).unwrap())
    }

    fn classic(spec: &str) -> Areas<ClassicMachine, SoftMmu<1>> {
        areas(ClassicMachine::new(spec, 2, 1 << 18).unwrap())
    }

    fn all<P: PageAllocator>(areas: &Areas<P, SoftMmu<1>>) {
        for test in &TESTS {
            let times =
                run(areas, test, Amount { loops: 16, slices: 2 }, 5, &Cpus::allowed()).unwrap();
            assert!(times.iter().all(|&time| time > 0.0), "{}", test.name);
        }
        areas.check().unwrap();
    }

    #[test]
    fn every_test_runs_over_every_kind_of_area_and_leaves_nothing() {
        all(&freehold());
        all(&classic("vanilla"));
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
        let areas = classic(spec);
        areas.set_kernel(kernel);
        let thread = areas.thread(CpuId::new(0)).unwrap();
        let run = |loops| (0..loops).for_each(|_| once(&thread, Shape::pages(pages)).unwrap());
        // Until what the CPU keeps has settled.
        run(100);
        let zone = || areas.pages.classic().stats().zone_lock;
        let (before, held) = (areas.vmalloc.stats(), zone());
        run(LOOPS);
        let (after, hold) = (areas.vmalloc.stats(), zone());
        Asked {
            calls: (
                (after.large_allocs - before.large_allocs) / LOOPS,
                (after.frees - before.frees) / LOOPS,
            ),
            holds: (hold.holds() - held.holds()) * 100 / LOOPS,
            steps: (hold.total() - held.total()) * 100 / LOOPS,
        }
    }

    /// Exact: 100 pages are chunks of 64, 32 and 4 frames, one free each at most with contiguous
    /// freeing, 100 without.
    #[test]
    fn each_kernel_asks_what_it_says() {
        for (kernel, large, frees) in [
            (Kernel::V6_18, 0, 100..=100),
            (Kernel::V6_19Rc1, 3, 100..=100),
            (Kernel::Patched, 3, 1..=3),
        ] {
            let areas = freehold();
            areas.set_kernel(kernel);
            let before = areas.vmalloc.stats();
            once(&areas.thread(CpuId::new(0)).unwrap(), Shape::pages(100)).unwrap();
            let after = areas.vmalloc.stats();
            assert_eq!(
                (after.large_allocs - before.large_allocs, after.flushes - before.flushes),
                (large, 1)
            );
            assert!(frees.contains(&(after.frees - before.frees)), "{after:?}");
        }
    }

    /// The regression by counts: single frames come from the CPU's lists and go back to them;
    /// chunks come from the zone, and page by page they go to the CPU's lists, which overflow into
    /// the zone.
    #[test]
    fn the_regression_of_6_19_rc1_is_in_the_zone_lock() {
        for pages in [16, 64, 256, 512] {
            let [old, regressed, patched] =
                Kernel::ALL.map(|kernel| asked("6.18,+contig-free", kernel, pages));
            assert_eq!(
                [old.calls, regressed.calls, patched.calls],
                [(0, pages), (1, pages), (1, 1)]
            );
            assert_eq!((old.holds, old.steps), (0, 0), "{pages} pages");
            assert!(regressed.holds >= 100, "{regressed:?}");
            let least = if pages < 64 { 1 } else { 10 };
            assert!(least * patched.steps < regressed.steps, "{regressed:?} {patched:?}");
        }
    }
}
