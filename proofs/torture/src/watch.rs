//! What each thread is doing, for those who watch from outside: the watchdog, and what stops threads.
//!
//! **Whose fault it is.** A core may be taken away for long: by its host, where the machine is a
//! virtual one, or by another program. Whoever holds a lock there keeps all others out, and nothing
//! is wrong with the allocator. So the watchdog looks from each core in turn once something is the
//! matter, and counts only turns in which each has let it run. What is told of each thread says
//! whether it waits: for a lock or a CPU's state, or for a heavy barrier, which needs every core.
//! Where nobody gets on, all wait for one another, or one is in no wait: it goes round for ever, or
//! does not run.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::call::Call;

/// Where a thread says what it is doing.
#[derive(Debug, Default)]
pub(super) struct Post {
    /// The call's number and one more; 0 where it is in none.
    call: AtomicU32,
    /// The frame or the order that the call is about, and the CPU.
    pub(super) what: AtomicU64,
    pub(super) cpu: AtomicU32,
    /// Calls that have ended.
    pub(super) calls: AtomicU64,
    /// Times that somebody has begun to stop it.
    pub(super) stops: AtomicU64,
    /// The system's number of the thread; 0 where it is not to be stopped.
    pub(super) thread: AtomicU64,
    /// Turns of waits that its calls have taken.
    pub(super) waits: AtomicU64,
    /// It waits for a heavy barrier.
    pub(super) in_barrier: AtomicBool,
}

impl Post {
    /// A call begins. Release, as all of these: a watcher that sees the call sees what it is about.
    pub(super) fn begin(&self, call: Call, cpu: u16, what: u64) {
        self.what.store(what, Ordering::Relaxed);
        self.cpu.store(u32::from(cpu), Ordering::Relaxed);
        self.call.store(call.index() as u32 + 1, Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.call.store(0, Ordering::Release);
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    pub(super) fn call(&self) -> Option<Call> {
        Call::from_index((self.call.load(Ordering::Acquire) as usize).checked_sub(1)?)
    }

    /// How many calls have ended, and turns of waits were taken.
    fn progress(&self) -> (u64, u64) {
        // Relaxed: only whether it changes is of interest.
        (self.calls.load(Ordering::Acquire), self.waits.load(Ordering::Relaxed))
    }

    /// What it is doing, after it had come as far as `before` some time ago.
    fn tell(&self, number: usize, before: (u64, u64)) -> String {
        let (calls, waits) = self.progress();
        match self.call() {
            None => format!("thread {number}: in no call, after {calls}"),
            Some(call) => {
                let (cpu, what) =
                    (self.cpu.load(Ordering::Relaxed), self.what.load(Ordering::Relaxed));
                let how = match before {
                    (calls_then, _) if calls_then != calls => "its calls end",
                    _ if self.in_barrier.load(Ordering::Relaxed) => "waits for a heavy barrier",
                    (_, waits_then) if waits_then != waits => "waits",
                    _ => "waits for nobody",
                };
                format!(
                    "thread {number}: in {call} of {what:#x} on CPU {cpu}, after {calls} calls; {how}"
                )
            }
        }
    }
}

/// What every thread is doing, a line each, with whether it waits for another one, by what it does
/// in `a_while`.
pub(super) fn tell_all(posts: &[Post], a_while: impl FnOnce()) -> Vec<String> {
    let before: Vec<_> = posts.iter().map(Post::progress).collect();
    a_while();
    posts
        .iter()
        .zip(before)
        .enumerate()
        .map(|(number, (post, before))| post.tell(number, before))
        .collect()
}

/// Notices a thread whose call does not end, by its own turns: time in which this process did not
/// run, or one of the cores, does not count.
#[derive(Debug)]
pub(super) struct Watchdog {
    seen: Vec<(u64, u32)>,
    patience: u32,
    /// Calls of all threads when it last looked.
    pub(super) calls: u64,
    idle: u32,
}

impl Watchdog {
    /// Looks every `turn`, and is patient for `patience`: so many turns.
    pub(super) fn new(threads: usize, turn: Duration, patience: Duration) -> Self {
        let turns = patience.as_millis() / turn.as_millis().max(1);
        Self {
            seen: vec![(u64::MAX, 0); threads],
            patience: (turns as u32).max(1),
            calls: 0,
            idle: 0,
        }
    }

    /// Whether some call did not end in the last turn, or nobody made one.
    pub(super) fn is_waiting(&self) -> bool {
        self.idle != 0 || self.seen.iter().any(|&(_, turns)| turns != 0)
    }

    /// Looks; says what has been going on for too long.
    pub(super) fn look(&mut self, posts: &[Post]) -> Option<String> {
        let mut all = 0;
        let mut stuck = None;
        for (number, (post, seen)) in posts.iter().zip(&mut self.seen).enumerate() {
            let calls = post.calls.load(Ordering::Acquire);
            all += calls;
            let in_call = post.call().is_some();
            *seen = if in_call && seen.0 == calls { (calls, seen.1 + 1) } else { (calls, 0) };
            if seen.1 > self.patience {
                stuck = Some(format!("a call of thread {number} does not end"));
            }
        }
        self.idle = if all == self.calls { self.idle + 1 } else { 0 };
        self.calls = all;
        if self.idle > self.patience { Some("no thread gets on".to_owned()) } else { stuck }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Door, Kind};

    #[test]
    fn a_call_that_does_not_end_is_noticed_and_one_that_does_is_not() {
        let call = Call { kind: Kind::FreeFrame, door: Door::Anybody };
        let posts = [Post::default(), Post::default()];
        let mut watchdog = Watchdog::new(2, Duration::from_millis(100), Duration::from_millis(500));
        posts[1].begin(call, 3, 0x44);
        for turn in 0..20 {
            // The first thread gets on, the second one only in the first turns.
            posts[0].begin(call, 0, 0);
            posts[0].end();
            if turn < 5 {
                posts[1].end();
                posts[1].begin(call, 3, 0x44);
            }
            assert_eq!(watchdog.look(&posts).is_some(), turn >= 10, "turn {turn}");
        }
        assert!(watchdog.is_waiting());
        let told = |a_while: fn(&Post)| tell_all(&posts, || a_while(&posts[1])).swap_remove(1);
        let said = |how| format!("thread 1: in free, order 0 of 0x44 on CPU 3, after {how}");
        assert_eq!(told(|_| ()), said("5 calls; waits for nobody"));
        assert_eq!(
            told(|post| _ = post.waits.fetch_add(1, Ordering::Relaxed)),
            said("5 calls; waits")
        );
        assert_eq!(
            told(|post| post.in_barrier.store(true, Ordering::Relaxed)),
            said("5 calls; waits for a heavy barrier")
        );
        assert_eq!(
            told(|post| _ = post.calls.fetch_add(1, Ordering::Relaxed)),
            said("6 calls; its calls end")
        );
        // Nobody in a call, and nobody gets on.
        posts[1].end();
        let mut watchdog = Watchdog::new(2, Duration::from_millis(100), Duration::from_millis(500));
        let told = (0..20).filter_map(|_| watchdog.look(&posts)).next();
        assert_eq!(told.as_deref(), Some("no thread gets on"));
    }
}
