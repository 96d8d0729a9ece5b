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

/// The processor's error code of the last fault.
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

/// Reads a word; none where there was a page fault.
///
/// # Safety
///
/// What is mapped at the address, if anything, must be memory that may be read while others write
/// to it.
pub(crate) unsafe fn probe_read(at: u64) -> Option<u64> {
    // SAFETY: the access is one instruction of assembly, so that no assumption of the compiler's is
    // broken by what it finds; that it may read there is the caller's promise. A page fault comes
    // back here.
    let probed = unsafe { probe_read_word(at) };
    (probed.done != 0).then_some(probed.value)
}

/// Writes a word.
///
/// # Errors
///
/// The processor's error code of the page fault, where there was one: bit 0, the page was there;
/// bit 1, it was a write.
///
/// # Safety
///
/// What is mapped at the address, if anything, must be memory that no reference covers but to
/// shared words.
pub(crate) unsafe fn probe_write(at: u64, value: u64) -> Result<(), u64> {
    // SAFETY: as in `probe_read`.
    let probed = unsafe { probe_write_word(at, value) };
    // Relaxed: there is one CPU.
    if probed.done != 0 { Ok(()) } else { Err(LAST.load(Ordering::Relaxed)) }
}
