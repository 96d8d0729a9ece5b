//! 128 MiB of this process's memory in folios of 64 KiB, and their reclaim in every variant.
//!
//! ```text
//!   map, write all bytes -> madvise_free -> what the variant does -> madvise_pageout -> unmap, check
//!                                           again, pins, rights      (timed, counted)
//! ```

use std::sync::atomic::Ordering;
use std::time::Duration;

use freehold::{CpuId, Order, Owned, Pfn};
use freehold_host::HostMmu;
use freehold_host::freehold_vm::{
    Access, Frame, IntervalNode, Mapping, PageTable, Space, SpaceId, TABLE_ENTRIES, UnmapPath, Vm,
    VmError, Vma, Vpn, VpnRange,
};

use super::second::{Other, timed};
use super::variants::Variant;
use crate::bench::calls::{Machine, START};
use crate::bench::clock::Cpus;
use crate::bench::engines::{FreeholdMachine, HostThreads};

pub const FOLIOS: u64 = 2048;
pub const FOLIO_PAGES: u64 = ORDER.frames();
/// One folio in so many is what a variant does something to.
pub const SHARE: u64 = 8;

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
    /// Folios that stay because they were written to.
    pub redirtied: u64,
    /// Folios that stay because somebody uses them.
    pub busy: u64,
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

    /// Makes the folios, reclaims them, and takes away what is left.
    pub fn run(&self, variant: Variant, path: UnmapPath, cpus: &Cpus) -> Result<Reclaim, String> {
        let base = if variant == Variant::AcrossTables { FOLIO_PAGES / 2 } else { 0 };
        let all = VpnRange::new(Vpn::new(base), PAGES).ok_or("no such range")?;
        let reclaim = {
            let cpu =
                self.frames.freehold().own(CpuId::new(0)).map_err(|error| error.to_string())?;
            self.reclaim(&cpu, variant, path, all, cpus).map_err(|error| error.to_string())?
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
        variant: Variant,
        path: UnmapPath,
        all: VpnRange,
        cpus: &Cpus,
    ) -> Result<Reclaim, VmError> {
        let vm = &self.vm;
        vm.set_unmap_path(path);
        vm.add_vma(ID, all, Vma { access: Access::ReadWrite, droppable: false })?;
        let page = |folio: u64, page: u64| Vpn::new(all.start.get() + folio * FOLIO_PAGES + page);
        for folio in 0..FOLIOS {
            vm.map_new(cpu, ID, page(folio, 0), ORDER, Access::ReadWrite)?;
        }
        (0..PAGES).for_each(|page| self.fill(Vpn::new(all.start.get() + page)));
        let some = || (0..FOLIOS).step_by(SHARE as usize);
        if variant == Variant::MixedRights {
            for folio in some() {
                let half =
                    VpnRange { start: page(folio, FOLIO_PAGES / 2), end: page(folio, FOLIO_PAGES) };
                vm.protect(ID, half, Access::Read)?;
            }
        }
        vm.madvise_free(cpu, ID, all)?;
        let mut pins = Vec::new();
        match variant {
            Variant::Redirtied => some().for_each(|folio| self.write(page(folio, 3))),
            Variant::Pinned => {
                for folio in some() {
                    pins.push(vm.pin(cpu, ID, page(folio, 0), false)?);
                }
            }
            _ => {}
        }
        let (before, calls) = (vm.stats(), self.syscalls());
        let mut n = 0;
        let mut touch = || {
            n += SHARE;
            self.write(page(n % FOLIOS, n / FOLIOS % FOLIO_PAGES));
        };
        let mut spin = std::hint::spin_loop;
        let other: Option<Other<'_>> = match variant {
            Variant::SecondThread => Some(&mut spin),
            Variant::Toucher => Some(&mut touch),
            _ => None,
        };
        let (time, frames) = timed(cpus, other, || vm.madvise_pageout(cpu, ID, all));
        let frames = frames?;
        let (after, syscalls) = (vm.stats(), self.syscalls() - calls);
        pins.into_iter().try_for_each(|pfn: Pfn| vm.unpin(cpu, pfn, false))?;
        vm.unmap(cpu, ID, all)?;
        vm.remove_vma(cpu, ID, all)?;
        Ok(Reclaim {
            time,
            frames,
            syscalls,
            deferred: after.deferred_queued - before.deferred_queued,
            flushes: after.reclaim_flushes - before.reclaim_flushes,
            redirtied: after.redirtied - before.redirtied,
            busy: after.kept_busy - before.kept_busy,
        })
    }

    fn syscalls(&self) -> u64 {
        let stats = self.vm.mmu().stats();
        stats.release_calls + stats.protect_calls
    }

    fn write(&self, page: Vpn) {
        if let Some(words) = self.vm.mmu().words(ID, page) {
            // Relaxed: a plain store; what is in it does not matter.
            words[3].store(7, Ordering::Relaxed);
        }
    }

    /// As `memset` does.
    fn fill(&self, page: Vpn) {
        if let Some(words) = self.vm.mmu().words(ID, page) {
            // Relaxed: as above.
            words.iter().for_each(|word| word.store(0x0101_0101_0101_0101, Ordering::Relaxed));
        }
    }
}
