//! The address space of the kernel, and the way from a frame to its bytes.
//!
//! ```text
//!   0xffff_ffff_8000_0000   the kernel's image: text, rodata, data, each with its own rights
//!   0xffff_c000_0000_0000   vmalloc: 64 GiB of virtual areas
//!   0xffff_8000_0000_0000   the direct map: all physical memory, in pages of 2 MiB, not to be executed
//!   ------------------------ above: the same in every address space; below: one's own ------------------------
//!   0x0000_1000_0000_0000   where folios are mapped, in address spaces of their own
//!   0                       nothing: a null pointer faults
//! ```

use core::sync::atomic::AtomicU64;

use freehold::{FRAME_SIZE, Pfn};
use freehold_kernel::paging::{ENTRIES, page_of};
use freehold_vm::{SpaceId, Vpn, VpnRange};

/// Where physical address 0 is seen.
pub(crate) const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// Where the kernel's image is seen: physical address 0 would be here.
pub(crate) const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;
/// What the boot code maps.
pub(crate) const BOOT_MAPPED: u64 = 4 << 30;

/// The virtual areas: 64 GiB, within one entry of level 4, which all address spaces share.
pub(crate) const VMALLOC: VpnRange =
    VpnRange { start: page_of(0xffff_c000_0000_0000), end: page_of(0xffff_c010_0000_0000) };

/// Where the address spaces have their folios.
pub(crate) const USER: Vpn = page_of(0x1000_0000_0000);

/// The kernel's half, in calls that name an address space.
pub(crate) const KERNEL_SPACE: SpaceId = SpaceId::new(u16::MAX);

/// Where the direct map shows a physical address.
pub(crate) const fn direct(physical: u64) -> u64 {
    DIRECT_MAP + physical
}

/// A frame as 512 words, which anybody may use at any time.
///
/// Words, not bytes, and atomic, so that what two CPUs do to a frame by mistake is a wrong value
/// and not undefined.
pub(crate) fn words(pfn: Pfn) -> &'static [AtomicU64; ENTRIES] {
    let at = direct(pfn.get() * FRAME_SIZE) as *const [AtomicU64; ENTRIES];
    // SAFETY: the direct map shows all RAM at fixed addresses for as long as the kernel runs, a
    // frame is aligned to more than a word, and any bits are a valid word. Frames are only ever
    // used through here or, by whoever allocated them, through another mapping; shared words allow
    // both.
    unsafe { &*at }
}
