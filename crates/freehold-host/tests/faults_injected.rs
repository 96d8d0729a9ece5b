//! Every system call fails once: a run of everything that the crate does is made over and over, and
//! each time the next system call of it is refused. What comes back is an error or a documented
//! lesser way, never a panic, and nothing is lost.
//!
//! A seccomp filter hands the calls that the crate makes to a second thread, which says for each
//! whether the kernel is to do it. The allocator of the C library is left alone: what it cannot get
//! ends a Rust program.
//!
//! Not under valgrind, which has no seccomp(2): the tests skip there. Nor under AddressSanitizer,
//! which ends the program where a call of its own is refused.

#[path = "../../freehold/tests/suite/length.rs"]
#[allow(unreachable_pub)]
mod length;

use std::io::Write;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use freehold_host::freehold::{Migratetype, Pfn};
use freehold_host::{Arena, Backing, Numa, OnFork, Topology};

use length::length;

/// The calls that are refused, and with what in turn: all that the crate makes, but for
///
/// - what the standard library and the C library do around threads and files: `exit`, `futex`,
///   `prctl`, `sigaltstack`, `rseq`, `set_robust_list`, `gettid`, `rt_sigaction`, `statx`, `lseek`,
///   `fcntl`, and `close`, whose failure nobody can act upon;
/// - `rt_sigprocmask`, which the C library makes for each thread as well, and `getpid`, which
///   cannot fail, as `fstat` of an open file;
/// - `sched_yield`, which is a hint; `tkill`, of which any failure but one says that a thread
///   lives.
const CALLS: [libc::c_long; 15] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_pidfd_open,
    libc::SYS_process_madvise,
    libc::SYS_mincore,
    libc::SYS_mbind,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_membarrier,
    libc::SYS_clone3,
    libc::SYS_read,
    libc::SYS_openat,
    libc::SYS_prlimit64,
    libc::SYS_sched_getaffinity,
];
const ERRORS: [i32; 5] = [libc::ENOMEM, libc::EAGAIN, libc::EPERM, libc::ENOSYS, libc::EMFILE];
/// Of these only calls that make a descriptor are refused with `EMFILE`.
const DESCRIPTORS: [libc::c_long; 3] =
    [libc::SYS_pidfd_open, libc::SYS_memfd_create, libc::SYS_openat];

/// Has the calling thread's calls, and those of threads that it starts, decided by whoever has the
/// descriptor.
fn watch() -> Result<OwnedFd, std::io::Error> {
    let one = |code: u32, k: u32, yes: u8, no: u8| libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k,
    };
    let (load, equal, back) =
        (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_RET);
    let mut filter = vec![one(load, 0, 0, 0)];
    filter.extend(
        CALLS
            .iter()
            .enumerate()
            .map(|(i, &call)| one(equal, call as u32, (CALLS.len() - i) as u8, 0)),
    );
    filter.push(one(back, libc::SECCOMP_RET_ALLOW, 0, 0));
    filter.push(one(back, libc::SECCOMP_RET_USER_NOTIF, 0, 0));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program outlives the call, which changes what this thread's calls do; the
    // descriptor is new.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let (set, listener) =
            (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
        match libc::syscall(libc::SYS_seccomp, set, listener, &raw const program) {
            -1 => Err(std::io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd as i32)),
        }
    }
}

/// Where the C library's own code is.
fn c_library() -> Range<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut parts = maps.lines().filter(|line| line.contains("/libc.so") && line.contains("r-xp"));
    let line =
        parts.next_back().expect("a C library").split(' ').next().unwrap().split_once('-').unwrap();
    u64::from_str_radix(line.0, 16).unwrap()..u64::from_str_radix(line.1, 16).unwrap()
}

/// What a run is told, and tells.
#[derive(Default)]
struct Plan {
    /// The call that is refused next, counted from 0; none where there are not so many.
    refuse: AtomicU64,
    error: AtomicI32,
    seen: AtomicU64,
    refused: AtomicI32,
}

/// The calls by which programs get their heap.
const HEAP: [libc::c_long; 3] = [libc::SYS_mmap, libc::SYS_munmap, libc::SYS_madvise];

/// Decides about calls as long as there is somebody who makes them. Allocates nothing: who waits
/// for an answer may hold a lock of the heap's.
fn decide(listener: &OwnedFd, plan: &Plan, library: &Range<u64>) {
    loop {
        let receive = libc::SECCOMP_IOCTL_NOTIF_RECV;
        // SAFETY: zeros are a value.
        let mut notice: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the structure of the request.
        if unsafe { libc::ioctl(listener.as_raw_fd(), receive, &raw mut notice) } != 0 {
            match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR | libc::ENOENT) => continue,
                _ => return,
            }
        }
        let call = libc::c_long::from(notice.data.nr);
        let heap = library.contains(&notice.data.instruction_pointer) && HEAP.contains(&call);
        let go_on = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let mut answer = libc::seccomp_notif_resp { id: notice.id, val: 0, error: 0, flags: go_on };
        if !heap && plan.seen.fetch_add(1, SeqCst) == plan.refuse.load(SeqCst) {
            plan.refused.store(notice.data.nr, SeqCst);
            (answer.error, answer.flags) = (-plan.error.load(SeqCst), 0);
        }
        let send = libc::SECCOMP_IOCTL_NOTIF_SEND;
        // SAFETY: the structure of the request. It fails where the caller is gone.
        unsafe { libc::ioctl(listener.as_raw_fd(), send, &raw mut answer) };
    }
}

/// A call of the crate that failed, which is fine.
fn fine<T, E: std::fmt::Display>(result: Result<T, E>) -> Option<T> {
    result.map_err(|error| assert!(!error.to_string().is_empty())).ok()
}

/// One arena, used in every way, and everything home in the end.
fn arena(builder: &freehold_host::Builder) {
    let Some(arena) = fine(builder.build()) else { return };
    let mut held = Vec::new();
    for count in [1, 3, 16, 512, 1000] {
        held.extend(fine(arena.frames(count)));
    }
    held.extend(fine(arena.zeroed(700)));
    for frames in &mut held {
        fine(frames.populate());
        frames[0] = 1;
    }
    if let Some(frames) = held.last_mut() {
        fine(frames.try_extend(100));
    }
    let mut out = [Pfn::new(0); 64];
    if let Some(got) = fine(arena.alloc_bulk(Migratetype::Movable, &mut out)) {
        // SAFETY: allocated just now.
        unsafe { arena.free_bulk(&out[..got]) }.unwrap();
    }
    std::thread::scope(|scope| {
        let half = held.split_off(held.len() / 2);
        // Where there is no thread, it happens here.
        let dropped = std::thread::Builder::new().spawn_scoped(scope, move || drop(half));
        fine(dropped);
    });
    fine(arena.trim());
    fine(arena.pass());
    fine(arena.frames_in_memory(arena.range()));
    drop(held);
    fine(arena.trim());
    if let Some(mut frames) = fine(arena.frames(arena.stats().frames / 2)) {
        frames.fill(1);
    }
    arena.drain().unwrap();
    arena.validate().unwrap();
    assert_eq!(arena.free_frames(), arena.stats().frames, "frames lost");
    assert_eq!(arena.stats().refused_drops, 0);
}

/// Each is run over and over by itself: of all in one run, the calls would be refused as often and
/// take the square of the time.
const PARTS: [fn(); 4] = [
    || arena(&Arena::builder(8 << 20)),
    || arena(&Arena::builder(8 << 20).backing(Backing::Memfd)),
    || {
        let huge = Arena::builder(8 << 20).backing(Backing::HugePages);
        arena(&huge.on_fork(OnFork::Unmapped).slots(0));
    },
    || {
        let two =
            Topology::parse("0-1", |node| Some(["0", "1"][node as usize].to_string())).unwrap();
        let two = Arena::builder(8 << 20).topology(two).numa(Numa::Prefer);
        arena(&two.populate(true));
    },
];

/// A thread that runs what it is sent, each call of which is decided about by another one.
struct Watched {
    plan: &'static Plan,
    next: mpsc::Sender<fn()>,
    ended: mpsc::Receiver<bool>,
    thread: JoinHandle<()>,
}

impl Watched {
    /// Also says why there is none, where that is so.
    fn new() -> Result<Self, String> {
        let library = c_library();
        let plan: &'static Plan = Box::leak(Box::default());
        // With room for what is sent: once it is watched, the thread waits for an answer to each
        // call, and the heap may make one.
        let (send, receive) = mpsc::sync_channel(1);
        let (next, rounds) = mpsc::channel::<fn()>();
        let (done, ended) = mpsc::channel();
        let (start, started) = mpsc::channel();
        std::thread::spawn(move || match receive.recv().unwrap() {
            Ok(listener) => {
                start.send(Ok(())).unwrap();
                decide(&listener, plan, &library);
            }
            Err(error) => start.send(Err(error)).unwrap(),
        });
        let thread = std::thread::spawn(move || {
            let watched = watch();
            let failed = watched.is_err();
            send.send(watched).unwrap();
            while let Some(part) = rounds.recv().ok().filter(|_| !failed) {
                done.send(std::panic::catch_unwind(part).is_ok()).unwrap();
            }
        });
        started.recv().unwrap().map_err(|error| error.to_string())?;
        Ok(Self { plan, next, ended, thread })
    }
}

#[test]
fn every_system_call_may_fail() {
    // Once, unwatched: what the C library sets up for itself.
    PARTS.iter().for_each(|part| part());
    let Watched { plan, next, ended, thread } = match Watched::new() {
        Ok(watched) => watched,
        Err(why) => {
            return drop(writeln!(std::io::stderr(), "SKIPPED every system call may fail: {why}"));
        }
    };
    let whole = length(false, true);
    let mut of_each = [0u32; CALLS.len()];
    let mut calls = 0;
    // Another thread of a part makes calls, too, so that which is the next is chance: one that has
    // never been refused has a second and a third time.
    for (number, part) in (0..3).flat_map(|_| PARTS.into_iter().enumerate()) {
        if number == 0 && !of_each.contains(&0) {
            break;
        }
        for at in 0.. {
            let mut refused_any = false;
            for (n, error) in ERRORS.into_iter().enumerate() {
                // Memory that is short, and one of the others by turns; all of them in CI.
                if !whole && n > 0 && n != 1 + at as usize % (ERRORS.len() - 1) {
                    continue;
                }
                // The call that was refused just now, which is the one that comes next.
                let last = plan.refused.load(SeqCst);
                if error == libc::EMFILE && !DESCRIPTORS.contains(&last.into()) {
                    continue;
                }
                plan.seen.store(0, SeqCst);
                plan.refused.store(-1, SeqCst);
                plan.error.store(error, SeqCst);
                plan.refuse.store(at, SeqCst);
                next.send(part).unwrap();
                let call = || plan.refused.load(SeqCst);
                let ok = ended.recv_timeout(Duration::from_secs(60));
                assert_eq!(
                    ok,
                    Ok(true),
                    "part {number} with error {error} from call {} (the {at}th)",
                    call()
                );
                if let Some(i) = CALLS.iter().position(|&known| known == call().into()) {
                    of_each[i] += 1;
                    refused_any = true;
                }
            }
            if !refused_any {
                break;
            }
            calls += 1;
        }
    }
    drop(next);
    thread.join().unwrap();
    let never = CALLS.iter().zip(of_each).filter(|(_, n)| *n == 0).map(|(call, _)| call);
    let never: Vec<_> = never.collect();
    assert!(never.is_empty(), "these calls were never made, so never refused: {never:?}");
    assert!(calls > 100, "only {calls} system calls");
}
