//! No allocator at all: `mmap` and `munmap`, a system call each, as programs do that map and unmap
//! buffers themselves.
//!
//! A mapping costs no frame before it is touched, so benchmarks that do not write measure the
//! system calls only; those that write pay for the faults too. A block is aligned to its size, as
//! every engine's is: for that, twice its size is mapped and the ends are cut off.

use std::ptr::null_mut;

use freehold::{CpuId, FrameRange, Order, Pfn};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::bench::backing::FRAME;
use crate::bench::calls::{Calls, Machine, Refused};
use crate::bench::kind::Kind;

#[derive(Clone, Copy, Debug, Default)]
pub struct MmapMachine;

impl Machine for MmapMachine {
    type Cpu<'a> = MmapCpu;

    fn cpu(&self, _: CpuId) -> Result<MmapCpu, Refused> {
        Ok(MmapCpu)
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn unsuited(&self, kind: Kind) -> Option<&'static str> {
        match kind {
            Kind::RandomFree
            | Kind::RemoteFree
            | Kind::TwoThreads
            | Kind::Churn
            | Kind::Mixed
            | Kind::Tails => Some(
                "holes in random order are more mappings than a process may have (vm.max_map_count)",
            ),
            Kind::CmaRange => Some("mmap cannot be asked for given frames"),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct MmapCpu;

fn unmap(at: usize, bytes: usize) -> Result<(), Refused> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: benchmarks free only what they were given, once; the warm-up, which stamps every
    // frame, has run the same loops. The ends cut off a block in `alloc` are known to nobody else.
    unsafe { munmap(std::ptr::with_exposed_provenance_mut(at), bytes) }
        .map_err(|_| Refused::NoMemory)
}

impl Calls for MmapCpu {
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused> {
        let bytes = FRAME << order.get();
        let mapped = if order == Order::ZERO { bytes } else { 2 * bytes };
        // SAFETY: a new mapping where the system likes; nothing that exists is touched.
        let at = unsafe {
            mmap_anonymous(
                null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let at = at.map_err(|_| Refused::NoMemory)?.expose_provenance();
        let block = at.next_multiple_of(bytes);
        unmap(at, block - at)?;
        unmap(block + bytes, at + mapped - (block + bytes))?;
        Ok(Pfn::new((block / FRAME) as u64))
    }

    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        unmap(pfn.get() as usize * FRAME, FRAME << order.get())
    }

    fn free_bulk(&mut self, frames: &[Pfn]) -> Result<(), Refused> {
        // Neighbours by one call, as anybody would.
        frames
            .chunk_by(|a, b| a.get() + 1 == b.get())
            .try_for_each(|run| unmap(run[0].get() as usize * FRAME, run.len() * FRAME))
    }

    fn free_range(&mut self, range: FrameRange) -> Result<(), Refused> {
        unmap(range.start.get() as usize * FRAME, range.len() as usize * FRAME)
    }
}
