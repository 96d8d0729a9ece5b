//! One CPU's own data, found through the GS register; and single instructions.
//!
//! ```text
//!   IA32_GS_BASE -> PerCpu { index, APIC id, counters, calls from others, a job, its handle into freehold ... }
//! ```
//!
//! There is no user mode, so GS never changes after a CPU has set it.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use freehold::Owned;

use crate::jobs::Job;
use crate::platform::Machine;

/// CPUs that the kernel has room for.
pub(crate) const MAX_CPUS: usize = 8;

/// The CPU's own handle into the page allocator.
pub(crate) type Frames = Owned<'static, 'static, Machine>;

/// What belongs to one CPU. Everything that others may touch is atomic.
#[repr(C)]
pub(crate) struct PerCpu {
    /// Which one this is. First (hence `repr(C)`), since the GS register points here.
    index: AtomicU64,
    /// The number that interrupts for it are sent to.
    pub(crate) apic_id: AtomicU32,
    /// Answers interrupts.
    pub(crate) online: AtomicBool,
    /// Within an interrupt handler.
    pub(crate) in_interrupt: AtomicBool,
    /// Calls of others that wait for this CPU: see `calls.rs`.
    pub(crate) incoming: AtomicU64,
    /// What it is to do next: see `jobs.rs`.
    pub(crate) job: AtomicPtr<Job<'static>>,
    /// Timer interrupts.
    pub(crate) timer_ticks: AtomicU64,
    /// Time to call the allocator's `tick`.
    pub(crate) tick_due: AtomicBool,
    /// How often that was done.
    pub(crate) allocator_ticks: AtomicU64,
    /// The address that the last expected page fault was about, and its error code.
    pub(crate) fault_address: AtomicU64,
    /// See `fault_address`.
    pub(crate) fault_code: AtomicU64,
    /// Address space in use: its index plus 1, 0 for none.
    pub(crate) space: AtomicU64,
    /// Frames that the timer's handler has allocated and not given back yet, as PFN; 0 for none.
    pub(crate) interrupt_frames: [AtomicU64; 4],
    frames: UnsafeCell<Option<Frames>>,
}

// SAFETY: all fields but `frames` are atomics; `frames` is only reached by the CPU that this
// belongs to, outside interrupt handlers: see `frames` and `set_frames` below.
unsafe impl Sync for PerCpu {}

impl PerCpu {
    const fn new() -> Self {
        Self {
            index: AtomicU64::new(0),
            apic_id: AtomicU32::new(0),
            online: AtomicBool::new(false),
            in_interrupt: AtomicBool::new(false),
            incoming: AtomicU64::new(0),
            job: AtomicPtr::new(core::ptr::null_mut()),
            timer_ticks: AtomicU64::new(0),
            tick_due: AtomicBool::new(false),
            allocator_ticks: AtomicU64::new(0),
            fault_address: AtomicU64::new(0),
            fault_code: AtomicU64::new(0),
            space: AtomicU64::new(0),
            interrupt_frames: [const { AtomicU64::new(0) }; 4],
            frames: UnsafeCell::new(None),
        }
    }
}

static CPUS: [PerCpu; MAX_CPUS] = [const { PerCpu::new() }; MAX_CPUS];
static COUNT: AtomicU64 = AtomicU64::new(1);

/// Any CPU's data.
pub(crate) fn at(index: usize) -> &'static PerCpu {
    &CPUS[index]
}

/// How many CPUs there are.
pub(crate) fn count() -> usize {
    // Relaxed: set before other CPUs start.
    COUNT.load(Ordering::Relaxed) as usize
}

/// Says how many CPUs there are.
pub(crate) fn set_count(n: usize) {
    // Relaxed: see `count`.
    COUNT.store(n as u64, Ordering::Relaxed);
}

/// A bit for each CPU that answers interrupts.
pub(crate) fn online_mask() -> u64 {
    // Acquire: who is seen online has set itself up.
    (0..count())
        .filter(|&i| CPUS[i].online.load(Ordering::Acquire))
        .fold(0, |mask, i| mask | 1 << i)
}

/// Says which CPU this is. To be done first of all.
pub(crate) fn init(index: usize) {
    let this = &CPUS[index];
    // Relaxed: this CPU's own.
    this.index.store(index as u64, Ordering::Relaxed);
    // SAFETY: GS points to a static from now on; nobody uses GS for anything else.
    unsafe { write_msr(0xc000_0101, core::ptr::from_ref(this) as u64) };
}

/// Which CPU this is.
pub(crate) fn index() -> usize {
    let index: u64;
    // SAFETY: `init` was the first thing that this CPU did in Rust, so GS points to its `PerCpu`.
    unsafe { asm!("mov {}, gs:[0]", out(reg) index, options(nostack, preserves_flags, readonly)) };
    index as usize
}

/// This CPU's data. There is no scheduler, so that code stays on its CPU.
pub(crate) fn this() -> &'static PerCpu {
    &CPUS[index()]
}

/// This CPU's handle into the allocator.
///
/// # Panics
///
/// In an interrupt handler, which may have interrupted a call of this very handle: there
/// [`Freehold::on`](freehold::Freehold::on) is right. And while the CPU is offline for the allocator.
pub(crate) fn frames() -> &'static Frames {
    try_frames().unwrap_or_else(|| panic!("CPU {} has given its handle back", index()))
}

fn try_frames() -> Option<&'static Frames> {
    let this = this();
    // Relaxed: this CPU's own.
    assert!(
        !this.in_interrupt.load(Ordering::Relaxed),
        "the CPU's own handle in an interrupt handler"
    );
    // SAFETY: only this CPU gets here, and not from an interrupt handler, so `set_frames` is not
    // running meanwhile. It is only called between jobs, when nobody has kept what this returned.
    unsafe { &*this.frames.get() }.as_ref()
}

/// Takes this CPU from the allocator for good, or gives it back.
///
/// # Safety
///
/// Nothing on this CPU may still use what [`frames`] returned.
pub(crate) unsafe fn set_frames(frames: Option<Frames>) {
    // SAFETY: only this CPU gets here; that there are no references is the caller's promise.
    unsafe { *this().frames.get() = frames };
}

/// Writes a model-specific register.
///
/// # Safety
///
/// What the register does must be what the rest of the kernel expects.
pub(crate) unsafe fn write_msr(register: u32, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// Reads a model-specific register.
pub(crate) fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: those read here (the APIC's base) exist on every x86-64, and reading has no effect.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// The time stamp counter.
pub(crate) fn time_stamp() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a counter. The fence keeps it from being read before what comes before is done.
    unsafe {
        asm!("lfence", "rdtsc", out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags))
    };
    u64::from(high) << 32 | u64::from(low)
}

/// Allows interrupts.
pub(crate) fn interrupts_on() {
    // SAFETY: the handlers are in place before this is first called, and harm nothing that they
    // interrupt.
    unsafe { asm!("sti", options(nostack)) };
}

/// Waits until `done`, asleep where it takes long: whoever makes it so sends an interrupt, or the
/// timer's next one is soon enough. Interrupts must be on.
pub(crate) fn wait_until(done: impl Fn() -> bool) {
    let mut turns = 0u32;
    while !done() {
        crate::calls::poll();
        turns += 1;
        if turns < 200 {
            core::hint::spin_loop();
            continue;
        }
        // SAFETY: interrupts were on and are on again after the `sti`, which lets the next
        // instruction begin first: an interrupt that comes after the look at `done` ends the `hlt`.
        unsafe { asm!("cli", options(nostack)) };
        if done() {
            interrupts_on();
        } else {
            // SAFETY: as above.
            unsafe { asm!("sti", "hlt", options(nostack)) };
        }
    }
}

/// One turn of a wait: answers calls of others.
pub(crate) fn pause() {
    crate::calls::poll();
    core::hint::spin_loop();
}

/// What a CPU does between one thing and the next: the periodic work that the timer has asked for.
pub(crate) fn safe_point() {
    let this = this();
    // Relaxed: this CPU's own; the handler that sets it runs here.
    if this.tick_due.load(Ordering::Relaxed) {
        this.tick_due.store(false, Ordering::Relaxed);
        // While the CPU is offline for the allocator there is nothing to do.
        if try_frames().is_some_and(|frames| frames.tick().is_ok()) {
            this.allocator_ticks.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// `hlt` with interrupts off, for ever.
pub(crate) fn halt_for_good() {
    // SAFETY: stops this CPU; nothing is expected of it any more.
    unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
}
