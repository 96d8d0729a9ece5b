//! Threads stopped by signals, at every instruction of a call: nobody else waits, and all others
//! get all memory but what the stopped thread has, and one block that it was at.
//!
//! ```text
//! stopped thread    sets the processor's trap flag; a signal after each instruction counts; the nth one's handler reads from
//!                   a semaphore that nobody has raised yet
//! others            every kind of call that does not wait; they raise the semaphore when they are done, and the call goes on
//! ```
//!
//! What each of the two exceptions is (a CPU's own door, a recall) is said where steps are counted,
//! in the crate's `stopped_tests`: they stop more calls, at each use of an atomic, and under
//! shuttle.

#![cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::common::*;
use freehold::{
    AllocError, AllocFlags, Config, Frames, Order, Pfn, Platform, Request, Watermarks, ZoneConfig,
};

/// Instructions of the stopped thread since it began to count.
static MADE: AtomicU64 = AtomicU64::new(0);
/// After which of them it is stopped.
static STOP: AtomicU64 = AtomicU64::new(u64::MAX);
/// It stands still.
static STANDS: AtomicBool = AtomicBool::new(false);
/// What it waits for.
static SEMAPHORE: AtomicI32 = AtomicI32::new(-1);

/// After each instruction. Only calls that a handler may make.
extern "C" fn trapped(_: libc::c_int) {
    let made = MADE.fetch_add(1, Ordering::Relaxed) + 1;
    if made == STOP.load(Ordering::Relaxed) {
        STANDS.store(true, Ordering::SeqCst);
        let mut raised = 0u64;
        // SAFETY: `read` may be called in a handler; the buffer is eight bytes, as an eventfd
        // gives.
        unsafe { libc::read(SEMAPHORE.load(Ordering::Relaxed), (&raw mut raised).cast(), 8) };
    }
}

/// Signals after each instruction from now on, or not.
fn single_step(on: bool) {
    // SAFETY: changes only the trap flag, on the stack and back. What it leads to is a signal,
    // which has a handler.
    unsafe {
        if on {
            core::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        } else {
            core::arch::asm!("pushfq", "and qword ptr [rsp], -257", "popfq");
        }
    }
}

fn install() {
    // SAFETY: all zeroes is a value of this plain structure; the handler is a function for the
    // whole of the program's life and makes only calls that it may make.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = trapped as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()), 0);
        let fd = libc::eventfd(0, libc::EFD_SEMAPHORE);
        assert!(fd >= 0);
        SEMAPHORE.store(fd, Ordering::Relaxed);
    }
}

/// The others' turns of waits fail the test; the stopped thread may wait once it goes on.
struct Host {
    nobody_waits: AtomicBool,
    barrier: &'static Membarrier,
}

impl Platform for Host {
    fn has_heavy_barrier(&self) -> bool {
        self.barrier.has_heavy_barrier()
    }
    fn heavy_barrier(&self) {
        self.barrier.heavy_barrier();
    }
    fn relax(&self) {
        let wrong = self.nobody_waits.load(Ordering::Relaxed);
        assert!(!wrong, "somebody waits for a thread that is stopped");
        std::thread::yield_now();
    }
}

/// A call that is stopped: an allocation or a free of that order.
#[derive(Clone, Copy, Debug)]
enum Call {
    Alloc(u8),
    Free(u8),
    Bulk,
    Range,
}

/// Raises the semaphore, also where an assertion has failed.
struct GoOn;

impl Drop for GoOn {
    fn drop(&mut self) {
        let one = 1u64;
        // SAFETY: the eight bytes of a number, to an eventfd.
        unsafe { libc::write(SEMAPHORE.load(Ordering::Relaxed), (&raw const one).cast(), 8) };
    }
}

/// Blocks of the machine.
const BLOCKS: u64 = 8;
const FRAMES: u64 = BLOCKS * 512;

/// Runs a call that is stopped after `at` instructions, the others meanwhile; how many it made, if
/// the call was over before.
fn stop(host: &Host, call: Call, owner: bool, at: u64) -> Option<u64> {
    let memory = [range(512, FRAMES)];
    let zones = [ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) }];
    let fh = build(&Config::new(3, &zones), host);
    let own = fh.on(cpu(0));
    let given = match call {
        Call::Free(n) => own.alloc(movable(n)).ok(),
        Call::Range => own.alloc(movable(10)).ok(),
        _ => None,
    };
    // One frame in hand, and some of the same block in others'.
    let mine = own.alloc(movable(0)).unwrap();
    let theirs = [0, 3, 7, 9].map(|n| (fh.on(cpu(1)).alloc(movable(n)).unwrap(), order(n)));
    MADE.store(0, Ordering::Relaxed);
    STANDS.store(false, Ordering::Relaxed);
    STOP.store(at, Ordering::Relaxed);
    let over = AtomicBool::new(false);
    let (got, made, stopped) = std::thread::scope(|scope| {
        let stopped = scope.spawn(|| {
            let got = if owner {
                let own = fh.own(cpu(0)).unwrap();
                stepped(&own, call, given)
            } else {
                stepped(&fh.on(cpu(0)), call, given)
            };
            over.store(true, Ordering::SeqCst);
            got
        });
        while !STANDS.load(Ordering::SeqCst) && !over.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let stands = STANDS.load(Ordering::SeqCst);
        if stands {
            let go_on = GoOn;
            host.nobody_waits.store(true, Ordering::Relaxed);
            others(&fh, theirs);
            all_else_is_there(&fh, call);
            host.nobody_waits.store(false, Ordering::Relaxed);
            drop(go_on);
        } else {
            others(&fh, theirs);
        }
        (stopped.join().unwrap(), MADE.load(Ordering::Relaxed), stands)
    });
    got.into_iter().for_each(|(pfn, order)| fh.on(cpu(0)).free(pfn, order).unwrap());
    fh.on(cpu(0)).free(mine, Order::ZERO).unwrap();
    assert_all_free(&fh);
    (!stopped).then_some(made)
}

/// The call, with a signal after each instruction; what it leaves the thread with.
fn stepped(door: &dyn Frames, call: Call, given: Option<Pfn>) -> Vec<(Pfn, Order)> {
    let mut out = [Pfn::new(0); 100];
    let request = match call {
        Call::Alloc(n) => movable(n),
        _ => movable(0),
    };
    // Nothing but the call itself while it is on: the machine's own allocator must not be stopped.
    single_step(true);
    let (result, freed) = match call {
        Call::Alloc(_) => (door.alloc(request).map(|pfn| (pfn, 1)), Ok(())),
        Call::Bulk => (door.alloc_bulk(request, &mut out).map(|n| (Pfn::new(0), n)), Ok(())),
        Call::Free(n) => (Err(AllocError::WouldBlock), door.free(given.unwrap(), order(n))),
        Call::Range => {
            (Err(AllocError::WouldBlock), door.free_range(range(given.unwrap().get(), 700)))
        }
    };
    single_step(false);
    freed.unwrap();
    match (call, result) {
        (Call::Alloc(n), Ok((pfn, _))) => vec![(pfn, order(n))],
        (Call::Bulk, Ok((_, n))) => out[..n].iter().map(|&pfn| (pfn, Order::ZERO)).collect(),
        (Call::Range, _) => {
            let first = given.unwrap().get();
            (first + 700..first + 1024).map(|pfn| (Pfn::new(pfn), Order::ZERO)).collect()
        }
        (Call::Free(_), _) => Vec::new(),
        (call, result) => panic!("{call:?}: {result:?}"),
    }
}

/// Frees through every CPU, the stopped thread's among them, and requests of every order.
fn others(fh: &Alloc<'_>, theirs: [(Pfn, Order); 4]) {
    for (n, (pfn, order)) in theirs.into_iter().enumerate() {
        fh.on(cpu((n % 3) as u16)).free(pfn, order).unwrap();
    }
    for n in [0, 3, 7, 9] {
        let pfn = fh.on(cpu(2)).alloc(movable(n)).unwrap();
        fh.on(cpu(1)).free(pfn, order(n)).unwrap();
        // Through the stopped thread's CPU only who does not wait.
        if let Ok(pfn) = fh.on(cpu(0)).alloc(movable(n).flags(AllocFlags::NO_LOCK)) {
            fh.on(cpu(0)).free(pfn, order(n)).unwrap();
        }
    }
}

/// All that can be had without waiting.
fn all_else_is_there(fh: &Alloc<'_>, call: Call) {
    let mut got: Vec<(Pfn, Order)> = Vec::new();
    let request = |n: u8| -> Request { movable(n).flags(AllocFlags::NO_LOCK) };
    for c in [1, 2, 1] {
        got.extend(
            std::iter::from_fn(|| fh.on(cpu(c)).alloc(request(9)).ok()).map(|p| (p, order(9))),
        );
        got.extend(
            std::iter::from_fn(|| fh.on(cpu(c)).alloc(request(0)).ok()).map(|p| (p, order(0))),
        );
    }
    let there: u64 = got.iter().map(|(_, order)| order.frames()).sum();
    let frames = match call {
        Call::Alloc(n) | Call::Free(n) => 1 << n,
        Call::Bulk => 100,
        Call::Range => 1024,
    };
    // What it leases, what it has in hand, the call's own, and a block on the way; and the frame
    // that the thread has.
    let (in_hand, leases) = fh.cpu_holdings(cpu(0)).unwrap();
    let least = FRAMES.saturating_sub(1 + in_hand.max(leases) + frames + 512);
    assert!(there >= least, "{call:?}: {there} frames can be had, of {FRAMES}; {least} at least");
    got.into_iter().for_each(|(pfn, order)| fh.on(cpu(2)).free(pfn, order).unwrap());
}

/// At some instructions of each call, spread over all; at more, and at each, where
/// `FREEHOLD_SECONDS` gives it the time: a signal takes some microseconds, and each stop makes all
/// that come before it.
#[test]
fn a_thread_stopped_by_a_signal_holds_up_nobody() {
    install();
    let seconds = std::env::var("FREEHOLD_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let most = match seconds {
        Some(600u64..) => u64::MAX,
        Some(1..) => 12,
        _ => 2,
    };
    let host: &Host = Box::leak(Box::new(Host {
        nobody_waits: AtomicBool::new(false),
        barrier: Membarrier::new(),
    }));
    let calls = [0, 3, 7, 9].map(Call::Alloc).into_iter().chain([0, 3, 7, 9].map(Call::Free));
    for call in calls.chain([Call::Bulk, Call::Range]) {
        for owner in [false, true] {
            let made = stop(host, call, owner, u64::MAX).unwrap();
            assert!(made > 20, "{call:?}: {made} instructions were seen");
            let stride = made.div_ceil(most);
            for at in (1..made).step_by(stride as usize) {
                // A few instructions more or fewer, by what the machine had in its caches of pages.
                stop(host, call, owner, at);
            }
        }
    }
}
