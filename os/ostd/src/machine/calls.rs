//! Calls to other CPUs: a memory barrier, or translations to be forgotten, by interrupt.
//!
//! ```text
//!   CPU 1: its call = { translations, CPUs still to answer: 0, 2, 3 }
//!          a bit in `incoming` of each of them, and an interrupt where there was none
//!          waits, and answers others meanwhile
//!   CPU 2: interrupt -> takes `incoming` -> for each bit: forgets the translations, takes itself
//!          off the list
//! ```
//!
//! Nobody waits deaf: who waits for an answer, or for a lock, looks at `incoming` in every turn
//! ([`poll`]), so two CPUs that call each other, one of them even with interrupts off, both get
//! through. Each CPU has one call for ordinary code and one for its interrupt handlers, which do
//! not interrupt each other.

use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

use freehold_vm::Flush;

use super::cpu::{self, MAX_CPUS};
use super::{ipi, tlb};

/// What one CPU asks of others.
struct Call {
    /// A bit for each CPU that has not answered yet.
    waiting: AtomicU64,
    ranges: AtomicPtr<Flush>,
    len: AtomicUsize,
}

impl Call {
    const fn new() -> Self {
        Self {
            waiting: AtomicU64::new(0),
            ranges: AtomicPtr::new(core::ptr::null_mut()),
            len: AtomicUsize::new(0),
        }
    }
}

static CALLS: [[Call; 2]; MAX_CPUS] = [const { [const { Call::new() }; 2] }; MAX_CPUS];

/// What has been done, over all CPUs.
struct Counters {
    /// TLB shootdowns: calls that made other CPUs forget translations.
    shootdowns: AtomicU64,
    /// Interrupts sent for them.
    shootdown_interrupts: AtomicU64,
    /// CPUs called for shootdowns, whether that took an interrupt or one was on its way already.
    shootdown_calls: AtomicU64,
}

/// See [`Counters`].
static COUNTERS: Counters = Counters {
    shootdowns: AtomicU64::new(0),
    shootdown_interrupts: AtomicU64::new(0),
    shootdown_calls: AtomicU64::new(0),
};

/// [`Counters`] at some moment.
#[derive(Clone, Copy)]
pub(crate) struct Snapshot {
    pub(crate) shootdowns: u64,
    pub(crate) shootdown_interrupts: u64,
    pub(crate) shootdown_calls: u64,
}

/// What has been counted so far.
pub(crate) fn snapshot() -> Snapshot {
    // Relaxed: statistics.
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Snapshot {
        shootdowns: load(&COUNTERS.shootdowns),
        shootdown_interrupts: load(&COUNTERS.shootdown_interrupts),
        shootdown_calls: load(&COUNTERS.shootdown_calls),
    }
}

fn count(counter: &AtomicU64, n: u64) {
    // Relaxed: statistics.
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Makes every other CPU pass a full memory barrier. See
/// [`Platform::heavy_barrier`](freehold::Platform).
pub(crate) fn barrier() {
    // The caller's own: what it has stored is seen before what it loads next.
    fence(Ordering::SeqCst);
    broadcast(cpu::online_mask(), &[]);
}

/// Makes these CPUs forget these translations.
pub(crate) fn shootdown(targets: u64, ranges: &[Flush]) {
    let others = targets & !(1 << cpu::index());
    if others == 0 {
        return;
    }
    count(&COUNTERS.shootdowns, 1);
    count(&COUNTERS.shootdown_calls, u64::from(others.count_ones()));
    let sent = broadcast(targets, ranges);
    count(&COUNTERS.shootdown_interrupts, sent);
}

/// Calls CPUs and waits for all of them; returns how many interrupts it took.
fn broadcast(targets: u64, ranges: &[Flush]) -> u64 {
    let me = cpu::index();
    let targets = targets & !(1 << me);
    if targets == 0 {
        return 0;
    }
    let level = usize::from(!cpu::in_task());
    let call = &CALLS[me][level];
    // Relaxed: published by `waiting` and `incoming`.
    call.ranges.store(ranges.as_ptr().cast_mut(), Ordering::Relaxed);
    call.len.store(ranges.len(), Ordering::Relaxed);
    call.waiting.store(targets, Ordering::Release);
    // Those that have no interrupt coming.
    let mut silent = 0u64;
    for target in (0..MAX_CPUS).filter(|target| targets & 1 << target != 0) {
        // Release: who finds the bit sees the call. Acquire: pairs with the taker's, so that "there
        // was one already" means an interrupt that has not been answered.
        let bit = 1 << (me * 2 + level);
        if cpu::at(target).incoming.fetch_or(bit, Ordering::AcqRel) == 0 {
            silent |= 1 << target;
        }
    }
    ipi::send(silent);
    // Acquire: what the others did before they answered comes before what this CPU does next.
    while call.waiting.load(Ordering::Acquire) != 0 {
        poll();
        core::hint::spin_loop();
    }
    u64::from(silent.count_ones())
}

/// Answers what others have asked of this CPU. Cheap where there is nothing.
pub(crate) fn poll() {
    let this = cpu::this();
    // Relaxed: a look; the swap decides.
    if this.incoming.load(Ordering::Relaxed) == 0 {
        return;
    }
    answer(this);
}

fn answer(this: &cpu::PerCpu) {
    // AcqRel: a full barrier on x86-64, which is all that a barrier call wants. Acquire so that the
    // calls are seen; Release so that whoever finds nothing here comes after.
    let from = this.incoming.swap(0, Ordering::AcqRel);
    let me = cpu::index();
    for bit in (0..2 * MAX_CPUS).filter(|bit| from & 1 << bit != 0) {
        let call = &CALLS[bit / 2][bit % 2];
        // Relaxed: the Acquire above has them.
        let (ranges, len) = (call.ranges.load(Ordering::Relaxed), call.len.load(Ordering::Relaxed));
        if len > 0 {
            // SAFETY: the caller waits for this CPU's bit in `waiting` before it returns, and its
            // slice lives as long.
            tlb::forget(unsafe { core::slice::from_raw_parts(ranges, len) });
        }
        // Release: the caller that sees the bit gone comes after what was done here. Acquire:
        // nothing of what comes next here is done before.
        call.waiting.fetch_and(!(1 << me), Ordering::AcqRel);
    }
}
