//! Work for CPUs: one job at a time, run to its end; between jobs they sleep.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::interrupts::WAKE;
use crate::{apic, cpu};

/// Something to be done by several CPUs.
pub(crate) struct Job<'a> {
    f: &'a (dyn Fn(usize) + Sync),
    /// A bit for each CPU that has not finished.
    left: AtomicU64,
    /// Who waits for it.
    from: u32,
}

fn wake(cpu: usize) {
    // Relaxed: set before the CPU was online.
    apic::send(cpu::at(cpu).apic_id.load(Ordering::Relaxed), WAKE);
}

/// Ends the sleep of all others, so that they look again at what they wait for.
pub(crate) fn wake_others() {
    let others = cpu::online_mask() & !(1 << cpu::index());
    (0..cpu::count()).filter(|other| others & 1 << other != 0).for_each(wake);
}

/// Runs `f` on each of these CPUs, with their numbers, at once, and returns when all are through.
/// This CPU may be one.
pub(crate) fn run_on(cpus: u64, f: &(dyn Fn(usize) + Sync)) {
    let me = cpu::index();
    let others = cpus & !(1 << me);
    let job = Job { f, left: AtomicU64::new(others), from: me as u32 };
    let pointer = core::ptr::from_ref(&job).cast_mut().cast::<Job<'static>>();
    for other in (0..cpu::count()).filter(|other| others & 1 << other != 0) {
        // Release: the other sees the job.
        let before = cpu::at(other).job.swap(pointer, Ordering::AcqRel);
        assert!(before.is_null(), "CPU {other} has a job already");
        wake(other);
    }
    if cpus & 1 << me != 0 {
        f(me);
    }
    // Acquire: what the others did comes before what follows. Only then may the job go.
    cpu::wait_until(|| job.left.load(Ordering::Acquire) == 0);
    cpu::safe_point();
}

/// Runs `f` on every CPU that is online.
pub(crate) fn run_on_all(f: &(dyn Fn(usize) + Sync)) {
    run_on(cpu::online_mask(), f);
}

/// What every CPU but the first does for good.
pub(crate) fn serve() -> ! {
    let (me, this) = (cpu::index(), cpu::this());
    loop {
        // Acquire: pairs with the Release of `run_on`.
        let job = || this.job.load(Ordering::Acquire);
        cpu::wait_until(|| !job().is_null() || this.tick_due.load(Ordering::Relaxed));
        cpu::safe_point();
        let job = job();
        if job.is_null() {
            continue;
        }
        // SAFETY: whoever put it there waits in `run_on` until this CPU has taken its bit away.
        let job = unsafe { &*job };
        (job.f)(me);
        cpu::safe_point();
        // Relaxed: before `left`, with which the next job may come.
        this.job.store(core::ptr::null_mut(), Ordering::Relaxed);
        let from = job.from as usize;
        // Release: what was done comes before this.
        job.left.fetch_and(!(1 << me), Ordering::AcqRel);
        wake(from);
    }
}
