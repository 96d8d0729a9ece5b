//! Threads that are stopped in mid-call: a signal comes, and its handler sleeps.
//!
//! Whoever the thread kept out, by a lock or by being inside a CPU's state, waits that long.
//! Nothing else may: a free that waits then is noticed by its count of waits, and whoever is kept
//! out for good by the watchdog.

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::report::Stops;
use super::watch::Post;
use super::world::World;
use freehold_lab::trials::random::Random;

/// How long the handler sleeps, in ns.
static NAP: AtomicI64 = AtomicI64::new(0);
/// Handlers that have begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// Handlers that have ended.
static ENDED: AtomicU64 = AtomicU64::new(0);

const SIGNAL: libc::c_int = libc::SIGUSR1;
/// How long a signal may take to arrive.
const ARRIVAL: Duration = Duration::from_millis(200);

extern "C" fn nap(_: libc::c_int) {
    BEGUN.fetch_add(1, Ordering::AcqRel);
    let time = libc::timespec { tv_sec: 0, tv_nsec: NAP.load(Ordering::Acquire) as _ };
    // SAFETY: both pointers are as nanosleep wants them, and it may be called in a handler. It
    // changes errno, which is put back for whom was interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        libc::nanosleep(&time, null_mut());
        *libc::__errno_location() = errno;
    }
    ENDED.fetch_add(1, Ordering::AcqRel);
}

fn install() -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a zeroed sigaction is one without flags, with an empty mask; `nap` is a handler that
    // takes the signal's number, and calls only what a handler may call.
    unsafe {
        let action = action.assume_init_mut();
        action.sa_sigaction = nap as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(SIGNAL, action, null_mut()) == 0
    }
}

/// The system's number of this thread.
pub(super) fn this_thread() -> u64 {
    rustix::thread::gettid().as_raw_nonzero().get() as u64
}

fn send(thread: u64) -> bool {
    // SAFETY: tgkill takes no pointers. A thread that has ended meanwhile is refused; the handler
    // is there for all others.
    let sent =
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread as libc::pid_t, SIGNAL) };
    sent == 0
}

/// Stops random threads until the world ends; returns how often, and how often in mid-call.
pub(super) fn stop_threads(world: &'static World) -> Stops {
    if !install() {
        world.books.tell("threads cannot be stopped: sigaction(2) failed".to_owned());
        return Stops::default();
    }
    let mut random = Random::new(world.plan.seed ^ 0x5709);
    let mut stops = Stops::default();
    while !world.is_over() {
        std::thread::sleep(Duration::from_micros(500 + random.below(8000)));
        let post = &world.posts[random.below(world.posts.len() as u64) as usize];
        if let Some(was_in_call) = stop(post, &mut random) {
            stops.threads += 1;
            stops.in_call += u64::from(was_in_call);
        }
    }
    stops
}

/// Stops one thread for some ms; whether it was in a call, if it could be stopped.
fn stop(post: &Post, random: &mut Random) -> Option<bool> {
    let thread = post.thread.load(Ordering::Acquire);
    if thread == 0 {
        return None;
    }
    // Now and then for longer than the system's own turns.
    let ms = if random.below(20) == 0 { 60 } else { 1 + random.below(6) };
    NAP.store(ms as i64 * 1_000_000, Ordering::Release);
    let (begun, ended) = (BEGUN.load(Ordering::Acquire), ENDED.load(Ordering::Acquire));
    // Before the signal: a call during which this changes is not timed.
    post.stops.fetch_add(1, Ordering::AcqRel);
    if !send(thread) || !until(|| BEGUN.load(Ordering::Acquire) > begun) {
        return None;
    }
    // It stands still now, wherever it is.
    let in_call = post.call().is_some();
    until(|| ENDED.load(Ordering::Acquire) > ended);
    Some(in_call)
}

/// Waits for a handler; not for ever, since the thread may have ended.
fn until(condition: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() > ARRIVAL {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    true
}
