//! The bare machine as a place where the self-test runs.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{CpuId, Freehold, Pfn};
use freehold_kernel::suite::{Frames, Machine};
use freehold_vm::{Flush, FlushKind, Mmu};

use crate::layout::{KERNEL_SPACE, VMALLOC};
use crate::mmu::Hardware;
use crate::{calls, clock, cpu, jobs, layout, memory, mmu, platform, serial, smp, tables};

/// The only one there is.
pub(crate) struct Bare;

impl Machine for Bare {
    type Platform = platform::Machine;

    fn freehold(&self) -> &'static Freehold<'static, platform::Machine> {
        memory::freehold()
    }

    fn cpus(&self) -> usize {
        cpu::count()
    }

    fn on_all(&self, f: &(dyn Fn(usize, &Frames<platform::Machine>) + Sync)) {
        jobs::run_on_all(&|cpu| f(cpu, cpu::frames()));
    }

    fn words(&self, pfn: Pfn) -> &[AtomicU64; 512] {
        layout::words(pfn)
    }

    fn wait(&self, done: &dyn Fn() -> bool) {
        cpu::wait_until(done);
    }

    fn wake(&self) {
        jobs::wake_others();
    }

    fn set_online(&self, cpu: usize, online: bool) {
        // The CPU itself gives its handle back and takes it again: nobody else may touch it.
        jobs::run_on(1 << cpu, &|cpu| {
            if online {
                return smp::own();
            }
            smp::disown();
            let gone = memory::freehold().cpu_offline(CpuId::new(cpu as u16));
            gone.unwrap_or_else(|error| panic!("{error}"));
        });
    }

    fn tidy(&self) {
        // Tables that virtual areas have left behind.
        tables::prune(memory::root(), VMALLOC, |empty| {
            Hardware.flush(&[Flush {
                space: KERNEL_SPACE,
                range: VMALLOC,
                kind: FlushKind::Unmapped,
            }]);
            empty.iter().for_each(|table| mmu::free_table(*table));
        });
    }

    fn nanoseconds(&self) -> u64 {
        clock::nanoseconds(cpu::time_stamp())
    }

    fn heavy_barriers(&self) -> u64 {
        // Relaxed: statistics.
        calls::COUNTERS.barriers.load(Ordering::Relaxed)
    }

    fn print(&self, line: fmt::Arguments<'_>) {
        serial::line(line);
    }
}
