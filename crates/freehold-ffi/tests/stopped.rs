//! The arena's frees as C calls them never wait for another thread: one is stopped in the middle of
//! a call, wherever it happens to be, and others free beside it. The same over what Rust calls, and
//! more of it, is `tests/stopped.rs` of `freehold-host`.
#![cfg(all(target_os = "linux", feature = "std"))]

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use freehold_ffi::host::arena::*;
use freehold_ffi::host::frames::*;
use freehold_ffi::host::memory::*;
use freehold_ffi::status::Status;

/// The thread that is to be stopped has been, and is held while this is set.
static HOLD: AtomicBool = AtomicBool::new(false);
static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn stop_here(_: i32) {
    STOPPED.store(true, SeqCst);
    while HOLD.load(SeqCst) {
        // SAFETY: allowed in signal handlers.
        unsafe { libc::usleep(200) };
    }
    STOPPED.store(false, SeqCst);
}

/// A handle that threads may share, as C's may.
#[derive(Clone, Copy)]
struct Shared(*mut Arena);
// SAFETY: every call of an arena but its end is for any thread.
unsafe impl Send for Shared {}

impl Shared {
    fn frames(self, count: u64) -> Option<Frames> {
        let mut frames = MaybeUninit::uninit();
        // SAFETY: the arena lives as long as the test, and the result is written where the call
        // succeeds.
        unsafe {
            let status = freehold_arena_frames(self.0, count, frames.as_mut_ptr(), null_mut());
            (status == Status::Ok).then(|| frames.assume_init())
        }
    }

    fn free(self, mut frames: Frames) {
        // SAFETY: they are the caller's, who has no copy of them.
        let freed = unsafe { freehold_arena_free_frames(self.0, &raw mut frames, null_mut()) };
        assert_eq!(freed, Status::Ok);
    }

    fn bulk(self, pfns: &mut [u64]) -> usize {
        let mut got = 0;
        // SAFETY: the array is as long as that.
        let done = unsafe {
            freehold_arena_alloc_bulk(
                self.0,
                1,
                pfns.as_mut_ptr(),
                pfns.len(),
                &raw mut got,
                null_mut(),
            )
        };
        if done == Status::Ok { got } else { 0 }
    }

    fn free_bulk(self, pfns: &[u64]) {
        // SAFETY: allocated by the caller, and used by nobody.
        let freed =
            unsafe { freehold_arena_free_bulk(self.0, pfns.as_ptr(), pfns.len(), null_mut()) };
        assert_eq!(freed, Status::Ok);
    }
}

/// What the stopped thread was doing, over and over.
const CALLS: [&str; 5] = ["single frames", "long runs", "bulk", "trim", "drain and flush"];

fn work(call: usize, arena: Shared, end: &AtomicBool) {
    let mut pfns = vec![0; 2000];
    while !end.load(Relaxed) {
        match call {
            0 => [(); 40]
                .map(|()| arena.frames(1))
                .into_iter()
                .flatten()
                .for_each(|frames| arena.free(frames)),
            1 => [1700, 300]
                .map(|count| arena.frames(count))
                .into_iter()
                .flatten()
                .for_each(|frames| arena.free(frames)),
            2 => {
                let got = arena.bulk(&mut pfns);
                arena.free_bulk(&pfns[..got]);
            }
            // SAFETY: the arena lives.
            3 => unsafe {
                freehold_arena_trim(arena.0, null_mut(), null_mut());
                arena.frames(512).into_iter().for_each(|frames| arena.free(frames));
            },
            // SAFETY: the arena lives.
            _ => unsafe {
                freehold_arena_drain(arena.0, null_mut());
                arena.frames(16).into_iter().for_each(|frames| arena.free(frames));
                freehold_arena_flush(arena.0, null_mut());
            },
        }
    }
}

/// What the others free. The odd ones are a thread's first call.
const FREES: [&str; 6] = [
    "one frame",
    "one frame, first",
    "1,700 frames",
    "1,700 frames, first",
    "by number",
    "500 in bulk, first",
];

const READY: u32 = 1;
const GO: u32 = 2;
const DONE: u32 = 3;

/// Has it ready, and frees it when told to; the state is not on the heap, whose lock the stopped
/// thread may hold.
fn free(kind: usize, arena: Shared, state: &'static AtomicU32) -> JoinHandle<()> {
    let prepare = move || {
        let count = [1, 1, 1700, 1700, 77, 0][kind];
        let frames = (count > 0).then(|| arena.frames(count).unwrap());
        let mut pfns = vec![0; if kind == 5 { 500 } else { 0 }];
        assert_eq!(arena.bulk(&mut pfns), pfns.len());
        (frames.map(|frames| (frames.pfn, frames.count)), pfns)
    };
    let first = kind % 2 == 1;
    let made = first.then(prepare);
    std::thread::spawn(move || {
        let (range, pfns) = made.unwrap_or_else(prepare);
        state.store(READY, SeqCst);
        while state.load(SeqCst) != GO {
            std::thread::sleep(Duration::from_micros(100));
        }
        // SAFETY: allocated above, and used by nobody.
        unsafe {
            if let Some((pfn, count)) = range {
                // A handle's free is that of its range; C's is a plain value, so it can be made
                // anew.
                if kind == 4 {
                    assert_eq!(freehold_arena_free(arena.0, pfn, 0, null_mut()), Status::Ok);
                    assert_eq!(
                        freehold_arena_free_range(arena.0, pfn + 1, pfn + count, null_mut()),
                        Status::Ok
                    );
                } else {
                    arena.free(Frames {
                        memory: freehold_arena_pointer(arena.0, pfn),
                        pfn,
                        count,
                        arena: arena.0,
                    });
                }
            }
        }
        arena.free_bulk(&pfns);
        state.store(DONE, SeqCst);
        // A thread that ends may wait: it gives up what it holds.
        while HOLD.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

fn round(call: usize, n: u64, arena: Shared) {
    static STATES: [AtomicU32; FREES.len()] = [const { AtomicU32::new(0) }; FREES.len()];
    static END: AtomicBool = AtomicBool::new(false);
    HOLD.store(true, SeqCst);
    END.store(false, SeqCst);
    STATES.iter().for_each(|state| state.store(0, SeqCst));
    let frees: Vec<_> =
        STATES.iter().enumerate().map(|(kind, state)| free(kind, arena, state)).collect();
    while STATES.iter().any(|state| state.load(SeqCst) != READY) {
        std::thread::sleep(Duration::from_micros(100));
    }
    let worker = std::thread::spawn(move || work(call, arena, &END));
    // Somewhere else in every round.
    std::thread::sleep(Duration::from_micros(200 + n * 97 % 800));
    let thread = std::os::unix::thread::JoinHandleExt::as_pthread_t(&worker);
    // SAFETY: it runs until `END`.
    assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
    while !STOPPED.load(SeqCst) {
        std::thread::yield_now();
    }
    STATES.iter().for_each(|state| state.store(GO, SeqCst));
    // A free takes microseconds; this long only where it waits, or where the machine is very busy.
    let waited = Instant::now();
    let late = || STATES.iter().position(|state| state.load(SeqCst) != DONE);
    while late().is_some() && waited.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_micros(200));
    }
    let late = late();
    HOLD.store(false, SeqCst);
    END.store(true, SeqCst);
    assert_eq!(late.map(|kind| (FREES[kind], CALLS[call])), None, "this free waits for that call");
    frees.into_iter().chain([worker]).for_each(|thread| thread.join().unwrap());
}

#[test]
fn frees_of_c_do_not_wait_for_a_thread_stopped_in_the_middle_of_a_call() {
    let mut arena = null_mut();
    // SAFETY: a handler for a signal that nobody else uses here; a place for the arena.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = stop_here as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()), 0);
        assert_eq!(freehold_arena_new(256 << 20, &raw mut arena, null_mut()), Status::Ok);
    }
    let seconds = std::env::var("FREEHOLD_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let time = seconds.map_or(Duration::from_millis(300), Duration::from_secs);
    let start = Instant::now();
    for n in 0.. {
        round(n as usize % CALLS.len(), n, Shared(arena));
        if start.elapsed() > time && n as usize > 2 * CALLS.len() {
            break;
        }
    }
    // SAFETY: no thread uses it any more.
    unsafe {
        assert_eq!(freehold_arena_drain(arena, null_mut()), Status::Ok);
        assert_eq!(freehold_arena_validate(arena, null_mut()), Status::Ok);
        assert_eq!(freehold_arena_destroy(&raw mut arena, null_mut()), Status::Ok);
    }
}
