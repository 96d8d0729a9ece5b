//! The kernel's virtual areas: freehold-vm's `Vmalloc` over the processor's page tables. Stacks are
//! the first of them.

use freehold::FRAME_SIZE;
use freehold_kernel::paging::address;
use freehold_vm::{IntervalNode, Layout, RunNode, Vmalloc};
use spin::Once;

use crate::layout::{KERNEL_SPACE, VMALLOC};
use crate::mmu::Hardware;
use crate::{cpu, memory};

/// Pages of a CPU's stack.
const STACK: u64 = 16;
const AREAS: usize = 1024;
const RUNS: usize = 16384;

static AREAS_OF_THE_KERNEL: Once<Vmalloc<'static, Hardware>> = Once::new();

/// Makes them. The first CPU, once.
pub(crate) fn init() {
    let areas = memory::slice_of(AREAS, |_| IntervalNode::new());
    let runs = memory::slice_of(RUNS, |_| RunNode::new());
    AREAS_OF_THE_KERNEL.call_once(|| Vmalloc::new(Hardware, KERNEL_SPACE, VMALLOC, areas, runs));
}

/// The kernel's virtual areas.
pub(crate) fn areas() -> &'static Vmalloc<'static, Hardware> {
    AREAS_OF_THE_KERNEL.get().expect("made at boot")
}

/// A stack's upper end. Every area is followed by a page that is never mapped, and nothing is
/// mapped before the first, so that a stack that grows too large faults.
pub(crate) fn stack() -> u64 {
    let area = areas().vmalloc(cpu::frames(), Layout::pages(STACK));
    address(area.unwrap_or_else(|error| panic!("no stack: {error}"))) + STACK * FRAME_SIZE
}
