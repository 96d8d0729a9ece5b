//! An address space for a test: all of it may be mapped, and it is gone afterwards.

use freehold_vm::{Access, SpaceId, Vma, VpnRange};

use super::team::{Failure, succeeds};
use crate::machine::folios::{PAGES, page, vm};
use crate::machine::{cpu, spaces};

/// The address space of these tests.
pub(super) const SPACE: SpaceId = SpaceId::new(0);
/// All of it.
pub(super) const ALL: VpnRange = VpnRange { start: page(0), end: page(PAGES) };

/// Runs `f` with an address space that pages may be mapped in anywhere; afterwards there is none.
pub(super) fn with_space(f: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    spaces::make(SPACE);
    let vma = Vma { access: Access::ReadWrite, droppable: false };
    succeeds("no VMA", vm().add_vma(SPACE, ALL, vma))?;
    let result = f();
    let removed = vm().remove_vma(cpu::frames(), SPACE, ALL);
    let result = result.and(succeeds("the VMA cannot be removed", removed));
    spaces::destroy(SPACE);
    result
}
