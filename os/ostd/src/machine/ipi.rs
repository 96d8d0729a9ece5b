//! Interrupts from CPU to CPU.
//!
//! OSTD has such calls, but version 0.17 reads an xAPIC's ID without shifting it, so that all of
//! them go to CPU 0 where there is no x2APIC: under QEMU's translation before version 9. What is
//! here is the line that OSTD gives us and one write to the interrupt command register.

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::sync::atomic::Ordering;

use ostd::irq::IrqLine;
use spin::Once;

use super::{calls, cpu};
use crate::frames::direct_map;

/// Where the xAPIC's registers are. OSTD's direct map shows them: it reaches to the end of memory,
/// of which `cargo xtask ostd` has some above 4 GiB.
const XAPIC: usize = 0xfee0_0000;
const XAPIC_COMMAND: usize = XAPIC + 0x300;
const XAPIC_TARGET: usize = XAPIC + 0x310;
const X2APIC_COMMAND: u32 = 0x830;
const APIC_BASE: u32 = 0x1b;
/// In `APIC_BASE`.
const X2APIC_ON: u64 = 1 << 10;
/// A fixed vector, edge, to one CPU.
const ASSERT: u32 = 1 << 14;

static LINE: Once<IrqLine> = Once::new();

/// Makes the line. The first CPU, once.
pub(crate) fn init() {
    let mut line = IrqLine::alloc().unwrap_or_else(|error| panic!("no vector: {error:?}"));
    line.on_active(|_| calls::poll());
    LINE.call_once(|| line);
}

/// This CPU's number at the APIC.
pub(crate) fn my_id() -> u32 {
    __cpuid(1).ebx >> 24
}

/// Interrupts these CPUs: each answers what was asked of it, and looks again at what it waits for.
pub(crate) fn send(mask: u64) {
    let _off = ostd::irq::disable_local();
    let vector = u32::from(LINE.get().expect("made before any CPU is started").num());
    for target in (0..cpu::count()).filter(|target| mask & 1 << target != 0) {
        // Relaxed: set before the CPU was online.
        let id = cpu::at(target).apic_id.load(Ordering::Relaxed);
        if read_msr(APIC_BASE) & X2APIC_ON != 0 {
            // The fence: a write to this register may overtake stores to memory.
            // SAFETY: sends an interrupt whose handler is in place.
            unsafe {
                asm!("mfence", "wrmsr", in("ecx") X2APIC_COMMAND, in("eax") vector | ASSERT,
                    in("edx") id, options(nostack, preserves_flags));
            }
        } else {
            let [command, to] =
                [XAPIC_COMMAND, XAPIC_TARGET].map(|at| direct_map(at).cast::<u32>());
            // SAFETY: device registers in the direct map; interrupts are off, so nobody else on
            // this CPU writes the target between the two. An interrupt before has been accepted:
            // an xAPIC does that within a bus cycle.
            unsafe {
                to.write_volatile(id << 24);
                command.write_volatile(vector | ASSERT);
            }
        }
    }
}

fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: `APIC_BASE` exists on every x86-64, and reading has no effect.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}
