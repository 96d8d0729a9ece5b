//! `trunc`: a large file is read, so that its pages fill the page cache, and truncated.
//!
//! The benchmark of the 2022 series's bulk-free patches: sparse files, so that no filesystem is
//! measured, in half of the memory; removal frees their pages in file order, a folio batch a call,
//! on one CPU that allocates nothing meanwhile. Every page passes through the CPU's lists to the
//! zone, so bulk free is all there is.
//!
//! ```text
//!   read:      allocate, zero  x half of the memory          truncate:  free 31, free 31, ...   in file order
//! ```

use freehold::{CpuId, Order, Pfn};

use super::Run;
use crate::bench::backing::FRAME;
use crate::bench::calls::{Calls, FOLIOS, Machine, Refused};
use crate::bench::clock::timed;
use crate::bench::figures::{Figures, Meter};
use crate::bench::loops::per;
use crate::bench::metric::{About, ns, with_locks};

pub const ABOUT: About = About {
    what: "One thread reads sparse files into the page cache (allocates single frames and zeroes them, half of the \
           memory: 512 MiB) and truncates them (frees them in file order, 31 a call). Zone locks and work are those of \
           the truncation.",
    source: "mmtests config-io-trunc, the benchmark of patches 2 to 4 of \"Follow-up on high-order PCP caching\" (2022)",
    metrics: with_locks![
        ns("ns_per_page_read", "a page, allocated and zeroed"),
        ns("ns_per_page_truncated", "a page, freed"),
    ],
    ..About::ONE_THREAD
};

pub fn measure<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let memory = run.memory(machine);
    let mut pages = vec![Pfn::default(); run.frames as usize / 2];
    let mut cpu = machine.cpu(CpuId::new(0))?;
    let read = timed(|| {
        pages.iter_mut().try_for_each(|page| {
            *page = cpu.alloc(Order::ZERO)?;
            memory.fill(*page, 0, FRAME);
            Ok::<_, Refused>(())
        })
    })?;
    let truncated = timed(|| pages.chunks(FOLIOS).try_for_each(|batch| cpu.free_folios(batch)))?;
    let count = pages.len() as u64;
    Ok(Figures::default()
        .with("ns_per_page_read", per(read, count))
        .with("ns_per_page_truncated", per(truncated, count)))
}

pub fn count<M: Machine>(machine: &M) -> Result<Figures, Refused> {
    let mut pages = vec![Pfn::default(); 1 << 17];
    let mut cpu = machine.cpu(CpuId::new(0))?;
    crate::bench::loops::alloc_all(&mut cpu, &mut pages)?;
    let mut meter = Meter::default();
    meter.part(machine, pages.len() as u64, || {
        pages.chunks(FOLIOS).try_for_each(|batch| cpu.free_folios(batch))
    })?;
    Ok(Figures::default().with_zone_lock(&meter))
}
