//! Segments, and the stacks that interrupts and exceptions switch to.
//!
//! Compiled `core` uses the red zone: 128 bytes below the stack pointer, which an interrupt on the
//! same stack would overwrite. So nothing is ever handled on the stack that it interrupts: every
//! vector names one of six stacks of its CPU (IST), to whose top the processor switches. That only
//! works if a stack is not entered twice:
//!
//! | IST | for | not entered again, since |
//! |---|---|---|
//! | 1 | timer, calls from other CPUs, everything from devices | handlers run with interrupts off to the end |
//! | 2 | page faults | the handler touches only what is always mapped; a second fault ends the machine |
//! | 3 | all other exceptions | they end the machine |
//! | 4, 5, 6 | NMI, double fault, machine check | they end the machine |

use core::arch::asm;
use core::cell::UnsafeCell;

use crate::cpu::MAX_CPUS;

const STACKS: usize = 6;
const STACK_SIZE: usize = 16 << 10;
pub(crate) const CODE: u16 = 0x08;
const DATA: u16 = 0x10;
const TSS: u16 = 0x18;

/// Stack numbers, as the interrupt descriptors name them.
pub(crate) mod ist {
    pub(crate) const INTERRUPT: u8 = 1;
    pub(crate) const PAGE_FAULT: u8 = 2;
    pub(crate) const EXCEPTION: u8 = 3;
    pub(crate) const NMI: u8 = 4;
    pub(crate) const DOUBLE_FAULT: u8 = 5;
    pub(crate) const MACHINE_CHECK: u8 = 6;
}

#[repr(C, align(16))]
struct Stack([u8; STACK_SIZE]);

/// The task state segment: of interest only for its table of stacks.
#[repr(C, packed(4))]
struct Tss {
    reserved: u32,
    rsp: [u64; 3],
    reserved2: u64,
    ist: [u64; 7],
    reserved3: u64,
    reserved4: u16,
    io_map: u16,
}

#[repr(C, align(16))]
struct PerCpu {
    gdt: [u64; 5],
    tss: Tss,
    stacks: [Stack; STACKS],
}

struct Cell(UnsafeCell<PerCpu>);

// SAFETY: each CPU uses its own element only, in `init`; afterwards only the processor does.
unsafe impl Sync for Cell {}

impl Cell {
    const fn new() -> Self {
        let tss = Tss {
            reserved: 0,
            rsp: [0; 3],
            reserved2: 0,
            ist: [0; 7],
            reserved3: 0,
            reserved4: 0,
            io_map: size_of::<Tss>() as u16,
        };
        let stacks = [const { Stack([0; STACK_SIZE]) }; STACKS];
        Self(UnsafeCell::new(PerCpu {
            gdt: [0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0, 0],
            tss,
            stacks,
        }))
    }
}

static ALL: [Cell; MAX_CPUS] = [const { Cell::new() }; MAX_CPUS];

#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

/// Loads this CPU's segments and tells the processor where its stacks are. Once, early, with
/// interrupts off.
pub(crate) fn init(index: usize) {
    // SAFETY: only CPU `index` calls this, once, so this is the only reference; see `Cell`.
    let this = unsafe { &mut *ALL[index].0.get() };
    for (ist, stack) in this.stacks.iter().enumerate() {
        this.tss.ist[ist] = core::ptr::from_ref(stack) as u64 + STACK_SIZE as u64;
    }
    let base = &raw const this.tss as u64;
    let limit = size_of::<Tss>() as u64 - 1;
    this.gdt[3] = limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
    this.gdt[4] = base >> 32;
    let pointer =
        Pointer { limit: size_of_val(&this.gdt) as u16 - 1, base: this.gdt.as_ptr() as u64 };
    // SAFETY: the table has the segments that the boot code used, at the same places, and a task
    // state segment, all of which stay where they are. Reloading CS takes a far return. FS and GS
    // keep their bases: they are not loaded.
    unsafe {
        asm!(
            "lgdt [{pointer}]",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ds, {data:x}",
            "mov es, {data:x}",
            "mov ss, {data:x}",
            "ltr {tss:x}",
            pointer = in(reg) &raw const pointer,
            code = in(reg) u64::from(CODE),
            data = in(reg) u32::from(DATA),
            tss = in(reg) u32::from(TSS),
            scratch = out(reg) _,
        );
    }
}
