//! I/O ports: the instructions.

use core::arch::asm;

/// Writes a byte to a port.
///
/// # Safety
///
/// The device behind the port must not harm memory that Rust relies on.
pub(crate) unsafe fn write8(port: u16, value: u8) {
    // SAFETY: no memory is touched; what the device does is the caller's promise.
    unsafe {
        asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags))
    };
}

/// Writes four bytes to a port.
///
/// # Safety
///
/// As [`write8`].
pub(crate) unsafe fn write32(port: u16, value: u32) {
    // SAFETY: as in `write8`.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags))
    };
}

/// Reads a byte from a port.
///
/// # Safety
///
/// As [`write8`]: reading can have effects, too.
pub(crate) unsafe fn read8(port: u16) -> u8 {
    let value;
    // SAFETY: as in `write8`.
    unsafe {
        asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags))
    };
    value
}
