//! A lock as a queue in time: who asks while it is held begins when it is free.
//!
//! ```text
//!   time  ------------------------------------------------------------------>
//!   A     asks [=== hold ===]
//!   B       asks .. waits ..[== hold ==]
//!   C                 asks ... waits ...[= hold =]
//! ```
//!
//! The simulator carries a call out as a whole at the moment at which it begins, so it books holds
//! that begin a little later than the clock, and a later call may ask for a time before them. A gap
//! that is long enough is then taken, as it would have been: otherwise a call that waits for a
//! CPU's lock before it comes to the zone's would keep the zone's lock from everybody in the
//! meantime. Holds that touch are kept as one, so there is seldom more than a handful.

use std::collections::VecDeque;

use super::time::Time;

/// When a hold begins, and how long its asker waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    pub start: Time,
    pub end: Time,
    /// From asking to the start.
    pub waited: Time,
}

#[derive(Clone, Debug, Default)]
pub struct Lock {
    /// Booked stretches by when they begin, none touching the next.
    booked: VecDeque<(Time, Time)>,
    /// Who held it last, as CPU + 1; 0 = nobody yet.
    last: u16,
}

impl Lock {
    /// Whether somebody holds it at `at`.
    pub fn is_held(&self, at: Time) -> bool {
        self.booked.iter().any(|&(start, end)| start <= at && at < end)
    }

    /// The earliest time from `at` on after which nobody has booked it.
    pub fn free_after_all(&self, at: Time) -> Time {
        self.booked.iter().fold(at, |last, &(_, end)| last.max(end))
    }

    /// Forgets what ended by `now`: nobody will ask for a time before it.
    pub fn forget_before(&mut self, now: Time) {
        while self.booked.front().is_some_and(|&(_, end)| end <= now) {
            self.booked.pop_front();
        }
    }

    /// Whether the last hold was another CPU's, and whose: the lock's line, and what it protects,
    /// is there.
    pub fn last_other(&self, cpu: u16) -> Option<u16> {
        self.last.checked_sub(1).filter(|&last| last != cpu)
    }

    /// Books `hold` for `cpu`, which asks at `at`: in the first gap that is long enough.
    pub fn acquire(&mut self, cpu: u16, at: Time, hold: Time) -> Grant {
        let mut start = at;
        let mut index = 0;
        for &(from, to) in &self.booked {
            if start + hold <= from {
                break;
            }
            start = start.max(to);
            index += 1;
        }
        self.book(index, start, start + hold);
        self.last = cpu + 1;
        Grant { start, end: start + hold, waited: start - at }
    }

    /// Books from `start`, when nobody holds it, to `end`: for a hold whose length is known only
    /// when it is over. It may reach into another that was booked for later.
    pub fn hold_until(&mut self, cpu: u16, start: Time, end: Time) {
        self.book(self.booked.partition_point(|&(from, _)| from < start), start, end);
        self.last = cpu + 1;
    }

    fn book(&mut self, index: usize, start: Time, end: Time) {
        if start == end {
            return;
        }
        let joins_before = index > 0 && self.booked[index - 1].1 == start;
        let joins_after = self.booked.get(index).is_some_and(|&(from, _)| from == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.booked[index - 1].1 = self.booked[index].1;
                self.booked.remove(index);
            }
            (true, false) => self.booked[index - 1].1 = end,
            (false, true) => self.booked[index].0 = start,
            (false, false) => self.booked.insert(index, (start, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ps: u64) -> Time {
        Time::from_ps(ps)
    }

    #[test]
    fn three_who_ask_one_after_the_other() {
        let mut lock = Lock::default();
        let grant =
            |start, end, waited| Grant { start: at(start), end: at(end), waited: at(waited) };
        assert_eq!(lock.acquire(0, at(0), at(10)), grant(0, 10, 0));
        assert_eq!(lock.acquire(1, at(4), at(6)), grant(10, 16, 6));
        assert_eq!(lock.acquire(2, at(5), at(1)), grant(16, 17, 11));
        assert_eq!(lock.acquire(0, at(30), at(5)), grant(30, 35, 0));
        assert_eq!((lock.last_other(0), lock.last_other(1)), (None, Some(0)));
    }

    #[test]
    fn a_gap_that_is_long_enough_is_taken_and_one_that_is_not_is_not() {
        let mut lock = Lock::default();
        lock.acquire(0, at(100), at(10));
        assert_eq!(lock.acquire(1, at(0), at(100)).start, at(0), "fits exactly, and touches");
        assert_eq!(lock.booked.len(), 1, "0 to 110 is one stretch now");
        assert_eq!(lock.acquire(1, at(50), at(1)).start, at(110));
        let mut lock = Lock::default();
        lock.acquire(0, at(100), at(10));
        assert_eq!(lock.acquire(1, at(95), at(6)).start, at(110));
        assert_eq!(lock.acquire(1, at(95), at(5)).start, at(95));
    }

    #[test]
    fn a_hold_that_reaches_into_a_later_one_does_not_hide_it() {
        let mut lock = Lock::default();
        lock.hold_until(0, at(100), at(110));
        lock.hold_until(1, at(20), at(30));
        assert_eq!(lock.free_after_all(at(25)), at(110));
        lock.hold_until(1, at(95), at(105));
        assert_eq!((lock.free_after_all(at(25)), lock.is_held(at(108))), (at(110), true));
        lock.forget_before(at(30));
        assert_eq!(lock.booked.len(), 2);
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let mut lock = Lock::default();
        lock.acquire(0, at(0), at(10));
        lock.acquire(0, at(20), at(10));
        lock.forget_before(at(10));
        assert_eq!(lock.booked.len(), 1);
        assert!(
            !lock.is_held(at(19))
                && lock.is_held(at(20))
                && lock.is_held(at(29))
                && !lock.is_held(at(30))
        );
        assert_eq!((lock.free_after_all(at(25)), lock.free_after_all(at(35))), (at(30), at(35)));
    }
}
