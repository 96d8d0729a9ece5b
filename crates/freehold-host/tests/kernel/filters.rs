//! System calls that are forbidden before or after an arena was made (seccomp).

use freehold_host::{Arena, Error, Frames};

use crate::common::child::fork;
use crate::common::{all_are, skipped};

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
                // Room for all that `work` allocates before the other thread has come to free any.
                let arena = match Arena::builder(32 << 20).build() {
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
