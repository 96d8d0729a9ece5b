//! An address space for a test: all of it may be mapped, and it is gone afterwards.

use freehold_vm::{Access, Vma, VpnRange};
use ostd::early_println;
use spin::Once;

use crate::machine::folios::{PAGES, page, vm};
use crate::machine::space::{self, SPACE};
use crate::machine::{probe, zone};

/// All of it.
pub(super) const ALL: VpnRange = VpnRange { start: page(0), end: page(PAGES) };

/// What is free in the zone when nothing runs: frames, whole blocks; and double frees that showed
/// late.
fn home() -> [u64; 3] {
    zone::freehold().drain_all();
    let stats = zone::freehold().zone_stats(0).expect("the zone");
    [stats.free, stats.whole_blocks, zone::freehold().totals().late_double_frees]
}

/// Runs `f` with an address space that pages may be mapped in anywhere; afterwards there is none,
/// as many frames of the zone must be free and as many blocks whole as before, and every invariant
/// of the allocator must hold.
pub(super) fn with_space(f: impl FnOnce()) {
    static STARTED: Once<()> = Once::new();
    STARTED.call_once(|| {
        probe::init();
        zone::init();
    });
    early_println!();
    let before = home();
    space::make();
    let vma = Vma { access: Access::ReadWrite, droppable: false };
    vm().add_vma(SPACE, ALL, vma).expect("a VMA");
    f();
    vm().remove_vma(zone::freehold(), SPACE, ALL).expect("the VMA goes");
    space::destroy();
    zone::freehold().validate().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(home(), before, "free frames, whole blocks, late double frees");
}
