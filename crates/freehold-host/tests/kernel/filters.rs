//! System calls that are forbidden after an arena was made (seccomp), and signals.

use std::sync::atomic::{AtomicU64, Ordering};

use freehold::Migratetype;
use freehold_host::{Arena, Error, Frames};

use crate::common::child::fork;
use crate::common::{all_are, order, skipped};

/// From here on these calls fail with `EPERM` in this process.
fn forbid(calls: &[libc::c_long]) -> std::io::Result<()> {
    let step = |code: u32, k: u32, jt: u8| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    // Load the call's number; on a match jump to the last instruction.
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (i, &call) in calls.iter().enumerate() {
        let jump = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        filter.push(step(jump, call as u32, (calls.len() - i) as u8));
    }
    let answer = libc::BPF_RET | libc::BPF_K;
    filter.push(step(answer, libc::SECCOMP_RET_ALLOW, 0));
    filter.push(step(answer, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a filter that outlives the calls. 1, 1: a filter, for all threads.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_seccomp, 1, 1, &raw const program) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Threads that free each other's frames, passes, and runs of the whole arena, which reach into
/// every thread's CPU.
fn work(arena: &'static Arena) -> bool {
    let (to, from) = std::sync::mpsc::channel::<Frames>();
    let other = std::thread::spawn(move || {
        let mine = Frames::new(arena, 3).unwrap();
        from.into_iter().for_each(drop);
        drop(mine);
    });
    for i in 0..500 {
        if let Ok(frames) = Frames::zeroed(arena, 1 + i % 20) {
            assert!(all_are(&frames, 0));
            to.send(frames).unwrap();
        }
    }
    // Reaches into the other thread's CPU while it lives.
    arena.drain().unwrap();
    drop(to);
    other.join().unwrap();
    let _ = arena.trim();
    arena.drain().unwrap();
    arena.validate().is_ok() && arena.free_frames() == arena.stats().frames
}

#[test]
fn calls_that_are_forbidden_later_end_nothing() {
    for calls in [
        &[libc::SYS_membarrier][..],
        &[libc::SYS_madvise, libc::SYS_process_madvise],
        &[libc::SYS_process_madvise, libc::SYS_pidfd_open],
        &[libc::SYS_mincore, libc::SYS_openat],
    ] {
        for late in [false, true] {
            let status = fork(|| {
                if !late && forbid(calls).is_err() {
                    skipped("calls_that_are_forbidden", &std::io::Error::last_os_error());
                    return true;
                }
                let arena = match Arena::builder(16 << 20).build() {
                    Ok(arena) => arena.leak(),
                    // Without `madvise` a fork could not be told.
                    Err(Error::Os { .. }) => return !late,
                    Err(_) => return false,
                };
                let biased = arena.stats().biased;
                drop(Frames::new(arena, 100).unwrap());
                if late && forbid(calls).is_err() {
                    return true;
                }
                work(arena) && (late || !calls.contains(&libc::SYS_membarrier) || !biased)
            });
            assert_eq!(status, 0, "{calls:?} late: {late}");
        }
    }
}

static REFUSED: AtomicU64 = AtomicU64::new(0);
static ARENA: std::sync::OnceLock<&'static Arena> = std::sync::OnceLock::new();

extern "C" fn allocate_in_handler(_: libc::c_int) {
    let Some(arena) = ARENA.get() else { return };
    match arena.alloc(order(0), Migratetype::Movable) {
        // Between two calls of its thread it is like any other.
        // SAFETY: allocated just now, and used by nobody.
        Ok(pfn) => unsafe { arena.free(pfn, order(0)) }.unwrap(),
        Err(Error::Reentered) => _ = REFUSED.fetch_add(1, Ordering::Relaxed),
        Err(_) => {}
    }
}

#[test]
fn a_handler_that_allocates_inside_a_call_is_refused_and_nothing_is_broken() {
    if !cfg!(debug_assertions) {
        return;
    }
    let status = fork(|| {
        let arena = Arena::with_size(8 << 20).unwrap().leak();
        let _ = ARENA.set(arena);
        let (handler, every) =
            (allocate_in_handler as extern "C" fn(_), libc::timeval { tv_sec: 0, tv_usec: 50 });
        // SAFETY: the handler allocates, which is what is tried; a timer of this child's own.
        unsafe {
            libc::signal(libc::SIGALRM, handler as usize);
            let timer = libc::itimerval { it_interval: every, it_value: every };
            libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
        }
        // The child's watch in `fork` ends this where no signal ever finds a call under way.
        while REFUSED.load(Ordering::Relaxed) < 10 {
            for n in [1, 3, 8, 64] {
                drop(arena.frames(n).unwrap());
            }
        }
        // SAFETY: the handler allocates, which is what is tried; a timer of this child's own.
        unsafe { libc::signal(libc::SIGALRM, libc::SIG_IGN) };
        arena.validate().is_ok() && arena.free_frames() == arena.stats().frames
    });
    assert_eq!(status, 0);
}
