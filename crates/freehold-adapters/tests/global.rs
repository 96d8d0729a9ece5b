//! This whole test program has the arena under it: the harness, its threads, and what they leave to
//! their last breath.

use std::cell::RefCell;
use std::sync::Mutex;

use freehold_adapters::global::LargeFromArena;

/// From a page on, so that nearly everything that could go round in a circle does.
#[global_allocator]
static GLOBAL: LargeFromArena =
    LargeFromArena::with(256 << 20, 4096, |builder| builder.slots(4).shared_slots(1));

/// Tests here look at one arena, so they come one after the other.
static ONE: Mutex<()> = Mutex::new(());

fn used() -> u64 {
    GLOBAL.arena().map_or(0, |arena| arena.stats().frames - arena.free_frames())
}

fn is_frames<T>(slice: &[T]) -> bool {
    GLOBAL.arena().is_some_and(|arena| arena.pfn_of(slice.as_ptr().cast()).is_some())
}

#[test]
fn large_is_frames_small_is_not_and_all_comes_home() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let small = vec![1u8; 4095];
    let mut large = vec![2u8; 1 << 20];
    let arena = GLOBAL.arena().expect("there was a large buffer");
    assert!(!is_frames(&small) && is_frames(&large));
    let before = used();
    let at = large.as_ptr();
    large.truncate(10_000);
    large.shrink_to_fit();
    assert_eq!((before - used(), large.as_ptr()), (256 - 3, at));
    large.resize(5 << 20, 3);
    assert_eq!((large[9_999], large[10_000], large[(5 << 20) - 1]), (2, 3, 3));
    large.truncate(100);
    large.shrink_to_fit();
    assert!(!is_frames(&large) && large == [2; 100]);
    let zeroes = vec![0u64; 100_000];
    assert!(is_frames(&zeroes) && zeroes.iter().all(|&n| n == 0));
    drop(zeroes);
    // More than there is comes from the system.
    let most = vec![4u8; 250 << 20];
    let more = vec![5u8; 50 << 20];
    assert!(is_frames(&most) && !is_frames(&more));
    drop((most, more));
    arena.validate().unwrap();
}

thread_local! {
    static LAST: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static FIRST: RefCell<Option<DropsLate>> = const { RefCell::new(None) };
}

/// Allocates and frees while its thread's storage is being taken down.
struct DropsLate(Vec<u8>);

impl Drop for DropsLate {
    fn drop(&mut self) {
        let other = vec![9u8; 50_000];
        assert!(self.0.iter().all(|&byte| byte == 8) && other[49_999] == 9);
    }
}

#[test]
fn threads_come_and_go_and_leave_nothing() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    drop(vec![1u8; 8192]);
    let before = used();
    for round in 0..20u8 {
        let threads: Vec<_> = (0..8u8)
            .map(|t| {
                std::thread::spawn(move || {
                    // First, so that it is dropped behind the arena's own thread-local values, or
                    // before: both happen.
                    FIRST.with_borrow_mut(|first| *first = Some(DropsLate(vec![8; 20_000])));
                    let mut kept = Vec::new();
                    for i in 0..50usize {
                        let buffer = vec![t ^ round; 3000 + 700 * i];
                        if i % 4 == 0 {
                            kept.push(buffer);
                        }
                    }
                    LAST.with_borrow_mut(|last| last.extend(kept.drain(4..)));
                    kept
                })
            })
            .collect();
        for (t, thread) in threads.into_iter().enumerate() {
            let kept = thread.join().unwrap();
            assert!(kept.iter().flatten().all(|&byte| byte == t as u8 ^ round));
        }
    }
    // What a thread's destructors free comes home after `join` saw its result, if not much later.
    for _ in 0..1000 {
        if used() == before {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(used(), before);
    GLOBAL.arena().unwrap().validate().unwrap();
}

/// What the harness's own threads take and give back meanwhile is in the count, too: one fork of
/// ten that nothing else came beside will do. What a child did to the arena would be in all of
/// them.
#[test]
fn a_forked_child_gets_by_without_the_arena() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let parents = vec![6u8; 100_000];
    assert!(is_frames(&parents));
    let unchanged = (0..10).any(|_| {
        let before = used();
        fork_and_wait(&parents);
        used() == before
    });
    assert!(unchanged, "a child's calls have changed its parent's arena");
    assert!(parents.iter().all(|&byte| byte == 6));
    drop(parents);
}

// A slice has no buffer to drop.
#[allow(clippy::ptr_arg)]
fn fork_and_wait(parents: &Vec<u8>) {
    // The child of a program with threads may only do what is safe in a signal handler; with glibc,
    // malloc is made safe for it too, which is what the system's allocator is here. SAFETY: the
    // child allocates, frees and leaves, and calls nothing that takes a lock of Rust's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mine = vec![7u8; 100_000];
        let ok = !is_frames(&mine) && parents[99_999] == 6;
        // SAFETY: a second owner of the parent's buffer, which only the child has: it drops its
        // copy of memory that is the parent's, and never comes back.
        drop(unsafe { std::ptr::read(parents) });
        drop(mine);
        // SAFETY: ends the process without running anything of the parent's.
        unsafe { libc::_exit(if ok { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: the status is a plain number on this stack.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}
