//! Threads that are stopped in mid-call: a signal comes, and its handler sleeps, or stands until it
//! is let go.
//!
//! A thread that this one keeps out, by a lock or by being inside the state of a CPU, waits that
//! long. Nothing else may: a free that waits then is noticed by its count of waits.

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::exact::random::Random;

/// The longest sleep of a handler, in ns.
static LONGEST: AtomicU64 = AtomicU64::new(0);
/// Handlers stand for as long as this is set.
static HOLD: AtomicBool = AtomicBool::new(false);
/// A handler stands.
static STANDS: AtomicBool = AtomicBool::new(false);
/// Threads that may be stopped, by the numbers that the system has for them.
static THREADS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

const SIGNAL: libc::c_int = libc::SIGUSR1;

fn sleep(ns: u64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ns as _ };
    // SAFETY: both pointers are as nanosleep wants them, and it may be called in a handler.
    unsafe { libc::nanosleep(&time, null_mut()) };
}

extern "C" fn stopped(_: libc::c_int) {
    // SAFETY: each thread has its own errno. It is put back for the code that was interrupted.
    let errno = unsafe { *libc::__errno_location() };
    if HOLD.load(Ordering::SeqCst) {
        STANDS.store(true, Ordering::SeqCst);
        while HOLD.load(Ordering::SeqCst) {
            sleep(50_000);
        }
        STANDS.store(false, Ordering::SeqCst);
    } else {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is writable, and the call may be made in a handler.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        // The last digits of the clock are as good as random.
        let drawn = (now.tv_nsec as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        sleep(drawn % (LONGEST.load(Ordering::Relaxed) + 1));
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Sets the handler up.
pub(crate) fn install() {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a zeroed sigaction is one without flags, with an empty mask; `stopped` is a handler
    // that takes the number of the signal, and calls only what a handler may call.
    let done = unsafe {
        let action = action.assume_init_mut();
        action.sa_sigaction = stopped as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(SIGNAL, action, null_mut())
    };
    assert_eq!(done, 0, "sigaction(2)");
}

fn threads() -> MutexGuard<'static, Vec<i32>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` while this thread may be stopped.
pub(crate) fn stoppable<T>(f: impl FnOnce() -> T) -> T {
    let this = rustix::thread::gettid().as_raw_nonzero().get();
    threads().push(this);
    let result = f();
    threads().retain(|&thread| thread != this);
    result
}

fn send(thread: i32) -> bool {
    // SAFETY: tgkill takes no pointers. A thread that has ended meanwhile is refused; the handler
    // is there for all others.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL) == 0 }
}

/// Stops random threads until `over`, each for `longest` at most; how often that was.
pub(crate) fn stop_threads(
    longest: Duration,
    over: impl Fn() -> bool + Send + 'static,
) -> JoinHandle<u64> {
    LONGEST.store(longest.as_nanos() as u64, Ordering::Relaxed);
    install();
    std::thread::spawn(move || {
        let (mut random, mut stops) = (Random::new(12_345), 0);
        while !over() {
            let thread = {
                let all = threads();
                (!all.is_empty()).then(|| random.pick(&all))
            };
            stops += u64::from(thread.is_some_and(send));
            // Pauses as long as the stops: half of the time nobody stands still.
            let pause = random.below(LONGEST.load(Ordering::Relaxed) / 1_000 + 1);
            std::thread::sleep(Duration::from_micros(pause));
        }
        stops
    })
}

/// Stops the only thread that may be stopped wherever it is, calls `f`, and lets it go on.
///
/// # Panics
///
/// There is no such thread.
pub(crate) fn while_it_stands<T>(f: impl FnOnce() -> T) -> T {
    HOLD.store(true, Ordering::SeqCst);
    assert!(send(threads()[0]), "the thread is there");
    while !STANDS.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let result = f();
    HOLD.store(false, Ordering::SeqCst);
    while STANDS.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    result
}
