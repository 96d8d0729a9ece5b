//! Exceptions: page faults that somebody expects are told to them, everything else prints the
//! registers and ends the machine.
//!
//! Code that may fault uses [`probe_read`] and [`probe_write`], single instructions with known
//! addresses. A fault there is noted and the instruction left by another exit.

use core::arch::{asm, global_asm};
use core::sync::atomic::Ordering;

use crate::interrupts::Frame;
use crate::{cpu, exit, say};

global_asm!(
    r#"
    .text
    .balign 16
probe_read_word:
probe_read_at:
    movq (%rdi), %rax
    movl $1, %edx
    ret
probe_write_word:
probe_write_at:
    movq %rsi, (%rdi)
    movl $1, %edx
    ret
probe_faulted:
    xorl %eax, %eax
    xorl %edx, %edx
    ret
"#,
    options(att_syntax)
);

/// A word, and whether it could be had: as the calling convention returns two words.
#[repr(C)]
struct Probed {
    value: u64,
    done: u64,
}

unsafe extern "C" {
    fn probe_read_word(at: u64) -> Probed;
    fn probe_write_word(at: u64, value: u64) -> Probed;
    static probe_read_at: u8;
    static probe_write_at: u8;
    static probe_faulted: u8;
}

/// An access that the page tables did not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageFault {
    /// The address.
    pub(crate) address: u64,
    /// The processor's error code: bit 0, the page was there; bit 1, it was a write.
    pub(crate) code: u64,
}

impl PageFault {
    /// Nothing is mapped there.
    pub(crate) fn not_present(self) -> bool {
        self.code & 1 == 0
    }

    /// It was a write.
    pub(crate) fn is_write(self) -> bool {
        self.code & 2 != 0
    }

    fn last() -> Self {
        let this = cpu::this();
        // Relaxed: this CPU's own.
        let load = |word: &core::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
        Self { address: load(&this.fault_address), code: load(&this.fault_code) }
    }
}

/// Reads a word.
///
/// # Errors
///
/// The page fault, where there was one.
///
/// # Safety
///
/// What is mapped at the address, if anything, must be memory that may be read while others write
/// to it.
pub(crate) unsafe fn probe_read(at: u64) -> Result<u64, PageFault> {
    // SAFETY: the access is one instruction of assembly, so that no assumption of the compiler's is
    // broken by what it finds; that it may read there is the caller's promise. A page fault comes
    // back here.
    let probed = unsafe { probe_read_word(at) };
    if probed.done != 0 { Ok(probed.value) } else { Err(PageFault::last()) }
}

/// Writes a word.
///
/// # Errors
///
/// The page fault, where there was one.
///
/// # Safety
///
/// What is mapped at the address, if anything, must be memory that no reference covers but to
/// shared words.
pub(crate) unsafe fn probe_write(at: u64, value: u64) -> Result<(), PageFault> {
    // SAFETY: as in `probe_read`.
    let probed = unsafe { probe_write_word(at, value) };
    if probed.done != 0 { Ok(()) } else { Err(PageFault::last()) }
}

const NAMES: [&str; 22] = [
    "divide error",
    "debug",
    "NMI",
    "breakpoint",
    "overflow",
    "bound range",
    "invalid opcode",
    "device not available",
    "double fault",
    "coprocessor overrun",
    "invalid TSS",
    "segment not present",
    "stack fault",
    "general protection",
    "page fault",
    "reserved",
    "x87 error",
    "alignment check",
    "machine check",
    "SIMD error",
    "virtualization",
    "control protection",
];

/// Called with vectors below 32.
pub(crate) fn handle(frame: &mut Frame) {
    let address: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    if frame.vector == 14 {
        let [read, write, faulted] =
            [&raw const probe_read_at, &raw const probe_write_at, &raw const probe_faulted]
                .map(|label| label as u64);
        if frame.rip == read || frame.rip == write {
            let this = cpu::this();
            // Relaxed: this CPU's own.
            this.fault_address.store(address, Ordering::Relaxed);
            this.fault_code.store(frame.error, Ordering::Relaxed);
            frame.rip = faulted;
            return;
        }
    }
    fatal(frame, address)
}

fn fatal(f: &Frame, cr2: u64) -> ! {
    let cr3: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr3", out(reg) cr3, options(nomem, nostack, preserves_flags)) };
    let name = NAMES.get(f.vector as usize).copied().unwrap_or("reserved");
    say!("exception {} ({name}) on CPU {}, error code {:#x}", f.vector, cpu::index(), f.error);
    say!("  rip {:#018x}  cs {:#06x}  rflags {:#010x}", f.rip, f.cs, f.rflags);
    say!("  rsp {:#018x}  ss {:#06x}  cr2 {cr2:#018x}  cr3 {cr3:#018x}", f.rsp, f.ss);
    say!("  rax {:#018x}  rbx {:#018x}  rcx {:#018x}  rdx {:#018x}", f.rax, f.rbx, f.rcx, f.rdx);
    say!("  rsi {:#018x}  rdi {:#018x}  rbp {:#018x}  r8  {:#018x}", f.rsi, f.rdi, f.rbp, f.r8);
    say!("  r9  {:#018x}  r10 {:#018x}  r11 {:#018x}  r12 {:#018x}", f.r9, f.r10, f.r11, f.r12);
    say!("  r13 {:#018x}  r14 {:#018x}  r15 {:#018x}", f.r13, f.r14, f.r15);
    say!("FAILED: exception");
    exit::exit(exit::Status::Failed)
}
