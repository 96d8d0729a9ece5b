//! Accesses that may fault: single instructions with known addresses, which OSTD leaves by another
//! exit (`.ex_table`) after it has told our handler of the fault.
//!
//! Only addresses of the lower half are probed: OSTD ends the kernel at a fault in its own.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use ostd::arch::cpu::context::CpuException;
use ostd::arch::trap::inject_user_page_fault_handler;

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
    .pushsection .ex_table, "a"
    .balign 8
    .quad probe_read_at, probe_faulted
    .quad probe_write_at, probe_faulted
    .popsection
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
}

/// An access that the page tables did not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageFault {
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
        // Relaxed: there is one CPU.
        Self { code: LAST.load(Ordering::Relaxed) }
    }
}

/// The error code of the last fault that was noted.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Makes faults of probes come back. Once.
pub(crate) fn init() {
    inject_user_page_fault_handler(note);
}

/// Notes a fault. Nothing is mended: OSTD looks for another exit.
fn note(exception: &CpuException) -> Result<(), ()> {
    if let CpuException::PageFault(fault) = exception {
        // Relaxed: there is one CPU.
        LAST.store(fault.error_code.bits() as u64, Ordering::Relaxed);
    }
    Err(())
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
