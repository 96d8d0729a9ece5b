//! Accesses that must not work, do not, and say where.

use freehold::FRAME_SIZE;
use freehold_kernel::paging::address;
use freehold_kernel::suite::{Failure, Team, holds, same, succeeds};
use freehold_vm::{Access, Layout};

use crate::areas::areas;
use crate::cpu;
use crate::exceptions::{PageFault, probe_read, probe_write};
use crate::machine::Bare;

fn must_fault(at: u64, result: Result<(), PageFault>, present: bool) -> Result<(), Failure> {
    let Err(fault) = result else { return holds("an access that must fault", false) };
    same("the fault's address", fault.address, at)?;
    holds("whether something is mapped there", fault.not_present() != present)
}

fn of_one_cpu(machine: &Bare) -> Result<(), Failure> {
    const PAGES: u64 = 5;
    let frames = cpu::frames();
    // SAFETY: only called below, for areas of this very test, addresses where nothing may be, and
    // the kernel's text, which nobody writes.
    let read = |at| unsafe { probe_read(at) }.map(|_| ());
    // SAFETY: as above; the text is not to be written to, and if it is after all, that is what this
    // is to find out.
    let write = |at| unsafe { probe_write(at, 42) };

    for null in [0, 8, FRAME_SIZE - 8] {
        must_fault(null, read(null), false)?;
        must_fault(null, write(null), false)?;
    }
    // The kernel's own instructions are there, and not to be written to.
    let text = of_one_cpu as fn(&Bare) -> Result<(), Failure> as usize as u64 & !7;
    holds("text can be read", read(text).is_ok())?;
    must_fault(text, write(text), true)?;

    let area = succeeds(machine, "no area", areas().vmalloc(frames, Layout::pages(PAGES)))?;
    let start = address(area);
    for at in (start..start + PAGES * FRAME_SIZE).step_by(2048) {
        holds("an area can be written to", write(at).is_ok())?;
    }
    // The guard page behind, and whatever is before: another area's guard page.
    let guard = start + PAGES * FRAME_SIZE;
    must_fault(guard, write(guard), false)?;
    must_fault(start - 8, write(start - 8), false)?;
    succeeds(machine, "the area cannot be freed", areas().vfree(frames, area))?;
    must_fault(start, read(start), false)?;

    let layout = Layout { access: Access::Read, ..Layout::pages(1) };
    let area = succeeds(machine, "no area", areas().vmalloc(frames, layout))?;
    holds("a read-only area can be read", read(address(area)).is_ok())?;
    must_fault(address(area), write(address(area)), true)?;
    succeeds(machine, "the area cannot be freed", areas().vfree(frames, area))
}

pub(super) fn faults(machine: &Bare) -> Result<(), Failure> {
    Team::run(machine, |_| of_one_cpu(machine))
}
