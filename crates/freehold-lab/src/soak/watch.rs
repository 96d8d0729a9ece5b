//! What each thread is doing, for who watches from outside: the watchdog, and who stops threads.
//!
//! **Whose fault it is.** A core may be taken away for long: by its host, where the machine is a virtual one, or by another
//! program. Whoever holds a lock there keeps all others out, and nothing is wrong with the allocator. So the watchdog looks from
//! each core in turn, and counts only turns in which each has let it run. And where nobody gets on, one thread at least must be
//! in no wait: it goes round for ever, or it does not run. The report says of each whether it waits.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::call::Call;

/// Not in a call.
const IDLE: u32 = u32::MAX;

/// Where a thread says what it is doing.
#[derive(Debug)]
pub(super) struct Post {
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
}

impl Post {
    pub(super) fn new() -> Self {
        Self {
            call: AtomicU32::new(IDLE),
            what: AtomicU64::new(0),
            cpu: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            stops: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }

    /// A call begins. Release, as all of these: a watcher that sees the call sees what it is about.
    pub(super) fn begin(&self, call: Call, cpu: u16, what: u64) {
        self.what.store(what, Ordering::Relaxed);
        self.cpu.store(u32::from(cpu), Ordering::Relaxed);
        self.call.store(call.index() as u32, Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.call.store(IDLE, Ordering::Release);
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    pub(super) fn call(&self) -> Option<Call> {
        Call::from_index(self.call.load(Ordering::Acquire) as usize)
    }

    fn tell(&self, number: usize, waits: u64) -> String {
        let calls = self.calls.load(Ordering::Acquire);
        match self.call() {
            None => format!("thread {number}: in no call, after {calls}"),
            Some(call) => {
                let (cpu, what) = (self.cpu.load(Ordering::Relaxed), self.what.load(Ordering::Relaxed));
                let how = if self.waits.load(Ordering::Relaxed) == waits { "waits for nobody" } else { "waits" };
                format!("thread {number}: in {call} of {what:#x} on CPU {cpu}, after {calls} calls; {how}")
            }
        }
    }
}

/// What every thread is doing, a line each, with whether it waits for another one, by what it does in `a_while`.
pub(super) fn tell_all(posts: &[Post], a_while: impl FnOnce()) -> Vec<String> {
    let waits: Vec<u64> = posts.iter().map(|post| post.waits.load(Ordering::Relaxed)).collect();
    a_while();
    posts.iter().zip(waits).enumerate().map(|(number, (post, waits))| post.tell(number, waits)).collect()
}

/// Notices a thread whose call does not end, by its own turns: time in which this process did not run, or one of the cores, does
/// not count.
#[derive(Debug)]
pub(super) struct Watchdog {
    seen: Vec<(u64, u32)>,
    patience: u32,
    /// Calls of all threads when it last looked.
    pub(super) calls: u64,
    idle: u32,
}

impl Watchdog {
    /// Looks every `turn`, and is patient for `patience`.
    pub(super) fn new(threads: usize, turn: Duration, patience: Duration) -> Self {
        let turns = patience.as_millis() / turn.as_millis().max(1);
        Self { seen: vec![(u64::MAX, 0); threads], patience: (turns as u32).max(1), calls: 0, idle: 0 }
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
    use crate::soak::call::{Door, Kind};

    #[test]
    fn a_call_that_does_not_end_is_noticed_and_one_that_does_is_not() {
        let call = Call { kind: Kind::FreeFrame, door: Door::Anybody };
        let posts = [Post::new(), Post::new()];
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
        let [nobody, other] = [0, 1].map(|waits| {
            tell_all(&posts, || {
                posts[1].waits.fetch_add(waits, Ordering::Relaxed);
            })
        });
        assert_eq!(nobody[1], "thread 1: in free, order 0 of 0x44 on CPU 3, after 5 calls; waits for nobody");
        assert_eq!(other[1], "thread 1: in free, order 0 of 0x44 on CPU 3, after 5 calls; waits");
        // Nobody in a call, and nobody gets on.
        posts[1].end();
        let mut watchdog = Watchdog::new(2, Duration::from_millis(100), Duration::from_millis(500));
        let told = (0..20).filter_map(|_| watchdog.look(&posts)).next();
        assert_eq!(told.as_deref(), Some("no thread gets on"));
    }
}
