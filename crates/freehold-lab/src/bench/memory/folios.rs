//! 128 MiB of this process's memory in folios of 64 KiB, and their reclaim.
//!
//! ```text
//!   map, write all bytes -> madvise_free -> madvise_pageout (timed, counted) -> unmap, check
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use freehold::{CpuId, Order, Owned};
use freehold_host::HostMmu;
use freehold_host::freehold_vm::{
    Access, Frame, IntervalNode, Mapping, PageTable, Space, SpaceId, TABLE_ENTRIES, UnmapPath, Vm,
    VmError, Vma, Vpn, VpnRange,
};

use crate::bench::calls::{Machine, START};
use crate::bench::clock::{Cpus, thread_time};
use crate::bench::engines::{FreeholdMachine, HostThreads};

pub const FOLIOS: u64 = 2048;
pub const FOLIO_PAGES: u64 = ORDER.frames();
const ORDER: Order = match Order::new(4) {
    Some(order) => order,
    None => Order::ZERO,
};
const PAGES: u64 = FOLIOS * FOLIO_PAGES;
const ID: SpaceId = SpaceId::new(0);

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Reclaim {
    pub time: Duration,
    pub frames: u64,
    /// Folios that came on the deferred-split queue.
    pub deferred: u64,
    pub flushes: u64,
    pub syscalls: u64,
}

pub struct Folios {
    vm: Vm<'static, HostMmu>,
    frames: FreeholdMachine<HostThreads>,
}

type Cpu<'a> = Owned<'a, 'static, HostThreads>;

impl Folios {
    /// The machine, without folios yet. An error is what the system lacks: `userfaultfd(2)` with
    /// write protection, or the right to use it.
    pub fn new(host: HostThreads) -> Result<Self, String> {
        let pages = PAGES + TABLE_ENTRIES;
        let range = VpnRange::new(Vpn::new(0), pages).ok_or("no such range")?;
        let mmu = HostMmu::new(1, range).map_err(|error| error.to_string())?;
        let frames = FreeholdMachine::new(1, 2 * PAGES, host)?;
        // Leaked, as the allocators' metadata is: some MiB, once in a process.
        let records: Vec<Frame> = (0..2 * PAGES).map(|_| Frame::new()).collect();
        // A mapping a folio; those that are partly mapped at the end are split into pages before
        // they go.
        let mappings: Vec<Mapping> = (0..2 * PAGES).map(|_| Mapping::new()).collect();
        let tables: Vec<PageTable> = (0..pages / TABLE_ENTRIES).map(|_| PageTable::new()).collect();
        let vmas = vec![IntervalNode::new(); 2 * FOLIOS as usize].leak();
        let spaces = vec![Space::new(ID, range.start, tables.leak(), vmas)];
        Ok(Self { vm: Vm::new(mmu, START, records.leak(), mappings.leak(), spaces.leak()), frames })
    }

    /// Makes the folios, reclaims them, and takes away what is left; with a second thread of the
    /// process on another CPU where that is wanted, which every flush interrupts.
    pub fn run(&self, path: UnmapPath, second: bool, cpus: &Cpus) -> Result<Reclaim, String> {
        let reclaim = {
            let cpu =
                self.frames.freehold().own(CpuId::new(0)).map_err(|error| error.to_string())?;
            self.reclaim(&cpu, path, second, cpus).map_err(|error| error.to_string())?
        };
        let stats = self.vm.stats();
        if stats.folios != stats.folios_freed || self.vm.queued() != (0, 0) {
            return Err(format!("not whole afterwards: {stats:?}"));
        }
        self.frames.drain();
        self.frames.check(0)?;
        Ok(reclaim)
    }

    fn reclaim(
        &self,
        cpu: &Cpu<'_>,
        path: UnmapPath,
        second: bool,
        cpus: &Cpus,
    ) -> Result<Reclaim, VmError> {
        let vm = &self.vm;
        let all = VpnRange { start: Vpn::new(0), end: Vpn::new(PAGES) };
        vm.set_unmap_path(path);
        vm.add_vma(ID, all, Vma { access: Access::ReadWrite, droppable: false })?;
        for folio in 0..FOLIOS {
            vm.map_new(cpu, ID, Vpn::new(folio * FOLIO_PAGES), ORDER, Access::ReadWrite)?;
        }
        (0..PAGES).for_each(|page| self.fill(Vpn::new(page)));
        vm.madvise_free(cpu, ID, all)?;
        let (before, calls) = (vm.stats(), self.syscalls());
        let (time, frames) = timed(cpus, second, || vm.madvise_pageout(cpu, ID, all));
        let frames = frames?;
        let (after, syscalls) = (vm.stats(), self.syscalls() - calls);
        vm.unmap(cpu, ID, all)?;
        vm.remove_vma(cpu, ID, all)?;
        Ok(Reclaim {
            time,
            frames,
            syscalls,
            deferred: after.deferred_queued - before.deferred_queued,
            flushes: after.reclaim_flushes - before.reclaim_flushes,
        })
    }

    fn syscalls(&self) -> u64 {
        let stats = self.vm.mmu().stats();
        stats.release_calls + stats.protect_calls
    }

    /// As `memset` does.
    fn fill(&self, page: Vpn) {
        if let Some(words) = self.vm.mmu().words(ID, page) {
            // Relaxed: plain stores; what is in them does not matter.
            words.iter().for_each(|word| word.store(0x0101_0101_0101_0101, Ordering::Relaxed));
        }
    }
}

/// How long something takes, by itself or beside a thread that runs on another CPU.
///
/// What one thread does alone is timed by its CPU time, which a neighbour on the machine does not
/// disturb. Beside another thread it is the wall clock: while a virtual machine delivers an
/// interrupt to its other CPU the guest's CPU time may stand still, and that is just what a flush
/// costs.
fn timed<R>(cpus: &Cpus, second: bool, work: impl FnOnce() -> R) -> (Duration, R) {
    if !second {
        let start = thread_time();
        let result = work();
        return (thread_time().saturating_sub(start), result);
    }
    let (runs, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cpus.pin(1);
            // Release: whoever sees it sees this thread on its CPU.
            runs.store(true, Ordering::Release);
            // Relaxed: only says when to stop.
            while !done.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        // Acquire: as above.
        while !runs.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let start = Instant::now();
        let result = work();
        let time = start.elapsed();
        // Relaxed: as above.
        done.store(true, Ordering::Relaxed);
        (time, result)
    })
}
