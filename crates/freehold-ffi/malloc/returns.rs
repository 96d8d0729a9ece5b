//! When free memory goes back to the system: by a thread that sleeps while nobody frees.
//!
//! ```text
//! frees of 4 MiB    wake it
//! awake             a pass each half of the decay: the first sees what is free, the second gives it back
//!                   two passes that found nothing: it sleeps again
//! ```
//!
//! Without the thread (`FREEHOLD_MALLOC_THREAD=0`) the free that would wake it makes the pass.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::{large, options};

/// Frames that are freed, by whichever threads, until there is something to do.
const ENOUGH: u64 = 1024;

const NO_THREAD: u32 = 0;
const ASLEEP: u32 = 1;
const AWAKE: u32 = 2;

/// What the thread does; it waits on this word.
static STATE: AtomicU32 = AtomicU32::new(NO_THREAD);
/// Something has been freed since the last pass.
static FREED: AtomicBool = AtomicBool::new(false);
/// Without a thread: when the next pass may be made, in milliseconds of the monotonic clock.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Frames freed since. Not by thread: what one has freed that ends would be forgotten.
static FRAMES: AtomicU64 = AtomicU64::new(0);

/// So many frames have been freed.
#[inline(always)]
pub(crate) fn freed(frames: u32) {
    // Relaxed, both: a hint of when.
    if FRAMES.fetch_add(frames.into(), Ordering::Relaxed) + u64::from(frames) >= ENOUGH {
        FRAMES.store(0, Ordering::Relaxed);
        wake();
    }
}

#[cold]
fn wake() {
    let options = options::get();
    if options.decay == 0 {
        return;
    }
    if !options.thread {
        pass_if_due(options.decay);
        return;
    }
    // SeqCst, with the loop below: either the thread sees that something was freed before it
    // sleeps, or this sees that it sleeps.
    FREED.store(true, Ordering::SeqCst);
    let state = STATE.load(Ordering::SeqCst);
    if state == AWAKE
        || STATE.compare_exchange(state, AWAKE, Ordering::SeqCst, Ordering::SeqCst).is_err()
    {
        return;
    }
    if state == ASLEEP {
        futex(libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
    } else if !start() {
        STATE.store(NO_THREAD, Ordering::SeqCst);
        pass_if_due(options.decay);
    }
}

fn futex(operation: libc::c_int, value: u32) {
    // SAFETY: the word stays; there is no time-out.
    unsafe {
        libc::syscall(libc::SYS_futex, STATE.as_ptr(), operation, value, ptr::null::<u8>());
    }
}

/// Starts the thread, which takes no signal: those are meant for the program's own.
fn start() -> bool {
    let Some(_inside) = large::Inside::enter() else { return false };
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: each set is filled before it is read. The new thread inherits what is blocked.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        if libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) != 0 {
            return false;
        }
    }
    let thread = std::thread::Builder::new().name("freehold-malloc".into()).stack_size(256 << 10);
    let started = thread.spawn(run).is_ok();
    // SAFETY: the set that was there before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    started
}

fn run() {
    let half = Duration::from_millis(options::get().decay / 2);
    let mut quiet = 0;
    loop {
        std::thread::sleep(half);
        let freed = FREED.swap(false, Ordering::SeqCst);
        quiet = if large::pass() || freed { 0 } else { quiet + 1 };
        if quiet < 2 {
            continue;
        }
        quiet = 0;
        STATE.store(ASLEEP, Ordering::SeqCst);
        if FREED.load(Ordering::SeqCst) {
            STATE.store(AWAKE, Ordering::SeqCst);
            continue;
        }
        while STATE.load(Ordering::SeqCst) == ASLEEP {
            futex(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, ASLEEP);
        }
    }
}

/// A pass by the calling thread, if the last one was long enough ago.
fn pass_if_due(decay: u64) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    let now = now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000;
    let due = NEXT.load(Ordering::Relaxed);
    let next = now + decay / 2;
    if now >= due && NEXT.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        large::pass();
    }
}

/// A child has none of its parent's threads.
pub(crate) fn forked() {
    STATE.store(NO_THREAD, Ordering::Relaxed);
    FREED.store(false, Ordering::Relaxed);
}
