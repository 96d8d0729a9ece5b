//! The timer's interrupt: asks for the allocator's periodic work, and, where a test wants it, uses
//! the allocator in the middle of whatever it has interrupted.
//!
//! `Owned::tick` must not be called here: the interrupt may have come in the middle of a call on
//! the same handle, which would then be waited for, for ever. So the handler leaves a note, and the
//! CPU does the work at its next safe point.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use freehold::{AllocFlags, CpuId, Migratetype, Order, Pfn, Request};
use ostd::timer::{TIMER_FREQ, register_callback_on_cpu};

use super::{cpu, zone};

/// Timer interrupts between two calls of the allocator's tick. Once a second is what it is meant
/// for; this is four times as often, so that a short run sees some.
const TICKS: u64 = TIMER_FREQ / 4;

/// Whether the handler allocates and frees.
pub(crate) static ALLOCATES: AtomicBool = AtomicBool::new(false);
/// What came of it.
pub(crate) static ALLOCATED: AtomicU64 = AtomicU64::new(0);
/// Requests that would have had to wait.
pub(crate) static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Frames given back.
pub(crate) static FREED: AtomicU64 = AtomicU64::new(0);
/// Frees that were refused: none may be.
pub(crate) static WRONG: AtomicU64 = AtomicU64::new(0);

/// From now on this CPU's timer calls [`interrupt`].
pub(crate) fn set_up() {
    register_callback_on_cpu(interrupt);
}

/// Called with interrupts off, [`TIMER_FREQ`] times a second.
fn interrupt() {
    let this = cpu::this();
    // Relaxed, here and below: this CPU's own, or statistics.
    let ticks = this.timer_ticks.fetch_add(1, Ordering::Relaxed);
    if ticks % TICKS == TICKS - 1 {
        this.tick_due.store(true, Ordering::Relaxed);
    }
    if ALLOCATES.load(Ordering::Relaxed) {
        use_allocator(ticks);
    }
}

/// Gives one frame back and takes another: whatever this has interrupted may be inside the
/// allocator.
fn use_allocator(ticks: u64) {
    let here = zone::freehold().on(CpuId::new(cpu::index() as u16));
    let slot = &cpu::this().interrupt_frames[ticks as usize % 4];
    let old = slot.swap(0, Ordering::Relaxed);
    if old != 0 {
        let counter = if here.free(Pfn::new(old), Order::ZERO).is_ok() { &FREED } else { &WRONG };
        counter.fetch_add(1, Ordering::Relaxed);
    }
    let request = Request::new(Order::ZERO, Migratetype::Unmovable)
        .flags(AllocFlags::NO_LOCK | AllocFlags::NON_BLOCK);
    match here.alloc(request) {
        Ok(pfn) => {
            slot.store(pfn.get(), Ordering::Relaxed);
            ALLOCATED.fetch_add(1, Ordering::Relaxed);
        }
        Err(_) => {
            REFUSED.fetch_add(1, Ordering::Relaxed);
        }
    }
}
