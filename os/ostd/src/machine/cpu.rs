//! What belongs to one CPU, and work for all of them: one job at a time, run to its end.
//!
//! OSTD starts the other CPUs and has nothing for them to do. They sleep in [`serve`] and wake up
//! for jobs. No task ever runs on them, so code stays on its CPU.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use freehold::{CpuId, Owned};
use ostd::cpu::num_cpus;
use ostd::irq::InterruptLevel;
use spin::Once;

use super::platform::Machine;
use super::{calls, ipi, probe, zone};

/// CPUs that there is room for.
pub(crate) const MAX_CPUS: usize = 16;

/// The CPU's own handle into the page allocator.
pub(crate) type Frames = Owned<'static, 'static, Machine>;

/// What belongs to one CPU. Everything that others may touch is atomic.
pub(crate) struct PerCpu {
    /// It serves jobs and answers calls.
    online: AtomicBool,
    /// The number that interrupts for it are sent to.
    pub(crate) apic_id: AtomicU32,
    /// Calls of others that wait for this CPU: see `calls.rs`.
    pub(crate) incoming: AtomicU64,
    /// What it is to do next.
    job: AtomicPtr<Job<'static>>,
    /// The address that the last expected page fault was about.
    pub(crate) fault_address: AtomicU64,
    /// The error code of that fault.
    pub(crate) fault_code: AtomicU64,
    /// Address space in use: its index plus 1, 0 for none.
    pub(crate) space: AtomicU64,
    frames: UnsafeCell<Option<Frames>>,
}

// SAFETY: all fields but `frames` are atomics; `frames` is only reached by the CPU that this
// belongs to, outside interrupt handlers: see `frames` and `set_up` below.
unsafe impl Sync for PerCpu {}

impl PerCpu {
    const fn new() -> Self {
        Self {
            online: AtomicBool::new(false),
            apic_id: AtomicU32::new(0),
            incoming: AtomicU64::new(0),
            job: AtomicPtr::new(core::ptr::null_mut()),
            fault_address: AtomicU64::new(0),
            fault_code: AtomicU64::new(0),
            space: AtomicU64::new(0),
            frames: UnsafeCell::new(None),
        }
    }
}

static CPUS: [PerCpu; MAX_CPUS] = [const { PerCpu::new() }; MAX_CPUS];

/// Any CPU's data.
pub(crate) fn at(index: usize) -> &'static PerCpu {
    &CPUS[index]
}

/// How many CPUs there are.
pub(crate) fn count() -> usize {
    num_cpus()
}

/// Which CPU this is.
pub(crate) fn index() -> usize {
    u32::from(ostd::cpu::CpuId::current_racy()) as usize
}

/// This CPU's data.
pub(crate) fn this() -> &'static PerCpu {
    &CPUS[index()]
}

/// A bit for each CPU that answers calls.
pub(crate) fn online_mask() -> u64 {
    // Acquire: who is seen online has set itself up.
    (0..count())
        .filter(|&i| CPUS[i].online.load(Ordering::Acquire))
        .fold(0, |mask, i| mask | 1 << i)
}

/// This CPU's handle into the allocator.
///
/// # Panics
///
/// In an interrupt handler, which may have interrupted a call of this very handle: there
/// [`Freehold::on`](freehold::Freehold::on) is right.
pub(crate) fn frames() -> &'static Frames {
    assert!(in_task(), "the CPU's own handle in an interrupt handler");
    // SAFETY: only this CPU gets here, and not from an interrupt handler; `set_up` has filled it
    // before anybody could ask, and nobody changes it again.
    let frames = unsafe { &*this().frames.get() };
    frames.as_ref().expect("the CPUs were started")
}

/// Whether this is not an interrupt handler.
pub(crate) fn in_task() -> bool {
    InterruptLevel::current().is_task_context()
}

/// Brings all CPUs to where they serve jobs. The first CPU; again does nothing.
pub(crate) fn start() {
    static STARTED: Once<()> = Once::new();
    STARTED.call_once(|| {
        assert!(count() <= MAX_CPUS, "{} CPUs, and room for {MAX_CPUS}", count());
        probe::init();
        ipi::init();
        zone::init();
        set_up();
        ostd::boot::smp::register_ap_entry(serve);
        while online_mask().count_ones() as usize != count() {
            pause();
        }
    });
}

/// Brings this CPU to where it can be called and given jobs.
fn set_up() {
    let id = CpuId::new(index() as u16);
    let frames = zone::freehold().own(id).unwrap_or_else(|error| panic!("{error}"));
    // SAFETY: this CPU's own, and nobody has asked for it yet: see `frames`.
    unsafe { *this().frames.get() = Some(frames) };
    // Relaxed: published by `online`.
    this().apic_id.store(ipi::my_id(), Ordering::Relaxed);
    // Release: who sees this CPU online may call it.
    this().online.store(true, Ordering::Release);
}

/// Something to be done by several CPUs.
struct Job<'a> {
    f: &'a (dyn Fn(usize) + Sync),
    /// A bit for each CPU that has not finished.
    left: AtomicU64,
    /// Who waits for it.
    from: usize,
}

/// Ends the sleep of these CPUs, so that they look again at what they wait for.
fn wake(mask: u64) {
    ipi::send(mask & !(1 << index()));
}

/// Ends the sleep of all others.
pub(crate) fn wake_others() {
    wake(online_mask());
}

/// Runs `f` on all CPUs, with their numbers, at once, and returns when all are through.
pub(crate) fn run_on_all(f: &(dyn Fn(usize) + Sync)) {
    let me = index();
    let others = online_mask() & !(1 << me);
    let job = Job { f, left: AtomicU64::new(others), from: me };
    let pointer = core::ptr::from_ref(&job).cast_mut().cast::<Job<'static>>();
    for other in (0..count()).filter(|other| others & 1 << other != 0) {
        // AcqRel: the other sees the job.
        let before = CPUS[other].job.swap(pointer, Ordering::AcqRel);
        assert!(before.is_null(), "CPU {other} has a job already");
    }
    wake(others);
    f(me);
    // Acquire: what the others did comes before what follows. Only then may the job go.
    wait_until(|| job.left.load(Ordering::Acquire) == 0);
}

/// What every CPU but the first does for good.
fn serve() {
    set_up();
    let (me, this) = (index(), this());
    loop {
        // Acquire: pairs with the swap in `run_on_all`.
        let job = || this.job.load(Ordering::Acquire);
        wait_until(|| !job().is_null());
        // SAFETY: whoever put it there waits in `run_on_all` until this CPU has taken its bit away.
        let job = unsafe { &*job() };
        (job.f)(me);
        // Relaxed: before `left`, with which the next job may come.
        this.job.store(core::ptr::null_mut(), Ordering::Relaxed);
        let from = job.from;
        // AcqRel: what was done comes before this.
        job.left.fetch_and(!(1 << me), Ordering::AcqRel);
        wake(1 << from);
    }
}

/// Waits until `done`, asleep where it takes long: whoever makes it so sends an interrupt, or the
/// timer's next one is soon enough. Interrupts must be on.
pub(crate) fn wait_until(done: impl Fn() -> bool) {
    let mut turns = 0u32;
    while !done() {
        calls::poll();
        turns += 1;
        if turns < 200 {
            core::hint::spin_loop();
            continue;
        }
        // SAFETY: interrupts were on and are on again after the `sti`, which lets the next
        // instruction begin first: an interrupt that comes after the look at `done` ends the `hlt`.
        unsafe { asm!("cli", options(nostack)) };
        if done() {
            // SAFETY: as above.
            unsafe { asm!("sti", options(nostack)) };
        } else {
            // SAFETY: as above.
            unsafe { asm!("sti", "hlt", options(nostack)) };
        }
    }
}

/// One turn of a wait: answers calls of others.
pub(crate) fn pause() {
    calls::poll();
    core::hint::spin_loop();
}
