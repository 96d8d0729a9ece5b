//! The end: QEMU's `isa-debug-exit` device turns a byte written to its port into an exit status.
//!
//! QEMU ends with `2 * byte + 1`, which can never be 0; `cargo xtask qemu` knows both values below.

use crate::ports;

const PORT: u16 = 0xf4;

/// How it went.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Everything passed: QEMU ends with 33.
    Passed = 0x10,
    /// Something failed: QEMU ends with 35.
    Failed = 0x11,
}

/// Ends the machine. Where there is no such device it halts.
pub(crate) fn exit(status: Status) -> ! {
    // SAFETY: the device ends the machine and touches no memory.
    unsafe { ports::write32(PORT, status as u32) };
    loop {
        crate::cpu::halt_for_good();
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    crate::say!("kernel panic on CPU {}: {info}", crate::cpu::index());
    crate::say!("FAILED: panic");
    exit(Status::Failed)
}
