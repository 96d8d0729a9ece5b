//! Interrupts and exceptions: the table, the way in, and who handles what.
//!
//! ```text
//!   vector stub: error code (or 0), number -> common: registers and XMM saved -> `entered` in Rust -> iretq
//! ```
//!
//! Handlers run on stacks of their own (`descriptors.rs`) with interrupts off. Compiled code uses
//! SSE registers anywhere, so all of them are saved: `fxsave` takes 512 bytes.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

use crate::descriptors::{CODE, ist};
use crate::{apic, calls, cpu, exceptions, timer};

/// The local APIC's timer.
pub(crate) const TIMER: u8 = 0xe0;
/// Another CPU asks for something: `calls.rs`.
pub(crate) const CALL: u8 = 0xe1;
/// There may be something to do: nothing but the end of a `hlt`.
pub(crate) const WAKE: u8 = 0xe2;
/// The local APIC's "never mind".
pub(crate) const SPURIOUS: u8 = 0xff;

global_asm!(
    r#"
    .text
    .balign 16
interrupt_stubs:
    .set vector, 0
    .rept 256
    .balign 16
    .if vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30
    .else
    pushq $0
    .endif
    pushq $vector
    jmp interrupt_common
    .set vector, vector + 1
    .endr

interrupt_common:
    pushq %rax
    pushq %rbx
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %rbp
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, %rdi
    // The processor aligned the stack to 16 and pushed 5 words, the stub 2, this 15: 22 words,
    // aligned again.
    subq $512, %rsp
    fxsave64 (%rsp)
    cld
    call interrupt_entered
    fxrstor64 (%rsp)
    addq $512, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rbp
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %rbx
    popq %rax
    addq $16, %rsp
    iretq
"#,
    options(att_syntax)
);

/// What was interrupted, as `interrupt_common` has put it on the stack.
#[repr(C)]
pub(crate) struct Frame {
    pub(crate) r15: u64,
    pub(crate) r14: u64,
    pub(crate) r13: u64,
    pub(crate) r12: u64,
    pub(crate) r11: u64,
    pub(crate) r10: u64,
    pub(crate) r9: u64,
    pub(crate) r8: u64,
    pub(crate) rbp: u64,
    pub(crate) rdi: u64,
    pub(crate) rsi: u64,
    pub(crate) rdx: u64,
    pub(crate) rcx: u64,
    pub(crate) rbx: u64,
    pub(crate) rax: u64,
    pub(crate) vector: u64,
    pub(crate) error: u64,
    pub(crate) rip: u64,
    pub(crate) cs: u64,
    pub(crate) rflags: u64,
    pub(crate) rsp: u64,
    pub(crate) ss: u64,
}

#[unsafe(no_mangle)]
extern "C" fn interrupt_entered(frame: &mut Frame) {
    let vector = frame.vector as u8;
    if vector < 32 {
        return exceptions::handle(frame);
    }
    let this = cpu::this();
    // Relaxed: this CPU's own. Handlers do not interrupt each other.
    this.in_interrupt.store(true, Ordering::Relaxed);
    match vector {
        TIMER => timer::interrupt(),
        CALL => calls::interrupt(),
        _ => {}
    }
    if vector != SPURIOUS {
        apic::end_of_interrupt();
    }
    this.in_interrupt.store(false, Ordering::Relaxed);
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Gate {
    low: u64,
    high: u64,
}

struct Idt(UnsafeCell<[Gate; 256]>);

// SAFETY: written by the first CPU before others start, only read afterwards.
unsafe impl Sync for Idt {}

static IDT: Idt = Idt(UnsafeCell::new([Gate { low: 0, high: 0 }; 256]));

unsafe extern "C" {
    static interrupt_stubs: u8;
}

/// Fills the table. The first CPU, once.
pub(crate) fn fill_table() {
    for vector in 0..256u64 {
        let stack = match vector {
            2 => ist::NMI,
            8 => ist::DOUBLE_FAULT,
            14 => ist::PAGE_FAULT,
            18 => ist::MACHINE_CHECK,
            0..32 => ist::EXCEPTION,
            _ => ist::INTERRUPT,
        };
        let stub = &raw const interrupt_stubs as u64 + vector * 16;
        // An interrupt gate: present, interrupts off on entry.
        let low = stub & 0xffff
            | u64::from(CODE) << 16
            | u64::from(stack) << 32
            | 0x8e << 40
            | (stub >> 16 & 0xffff) << 48;
        // SAFETY: other CPUs have not started, so nobody reads or writes the table meanwhile.
        unsafe { (*IDT.0.get())[vector as usize] = Gate { low, high: stub >> 32 } };
    }
}

/// Loads the table on this CPU.
pub(crate) fn load_table() {
    #[repr(C, packed)]
    struct Pointer {
        limit: u16,
        base: u64,
    }
    let pointer = Pointer { limit: 256 * 16 - 1, base: IDT.0.get() as u64 };
    // SAFETY: the table is filled, and static.
    unsafe {
        asm!("lidt [{}]", in(reg) &raw const pointer, options(readonly, nostack, preserves_flags))
    };
}
