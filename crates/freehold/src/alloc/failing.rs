//! Requests about to fail, counted: meanwhile no CPU takes more in hand than a call needs.
//!
//! ```text
//! CPU 0   fails ── Failing::new ── recall ── look ─────────────── found
//! CPU 1                                   free, alloc: one frame, no lease
//! ```
//!
//! Without it CPU 1 leases a word with the last free frames between the recall and the look, and
//! CPU 0 fails beside frames that lie side by side. That was seen 113 times in a row.
//!
//! Nor does a CPU keep to itself what it frees: its [allowance](crate::zone::allowance) is 0.
//!
//! A thread that is stopped while it is counted holds up nobody: the others go on, frame by frame.

use crate::alloc::ladder::Climb;
use crate::cpu::by::Inside;
use crate::cpu::recall::Recall;
use crate::primitive::{Count, Ordering, Relaxed};
use crate::zone::Apart;
use crate::zone::moving::Movers;
use crate::{AllocError, Freehold, Pfn, Platform};

/// How often a request asks all CPUs for what they have in hand before it fails: what was on its
/// way from one to another the first time is somewhere the second time.
const RECALLS: usize = 2;

impl<'m, P: Platform> Climb<'_, 'm, P> {
    /// What a look finds after every CPU was asked for what it has in hand. Frames may go into a
    /// hand between the two, so both are done again, unless nobody was asked and
    /// [nobody would be](Recall::would_ask).
    #[cold]
    pub(crate) fn look_for_the_last_time(
        &self,
        inside: &Inside<'_, 'm, P>,
        look: impl Fn() -> Option<Pfn>,
    ) -> Result<Pfn, AllocError> {
        let (fh, mut watched) = (self.by.fh, None);
        let _failing = Failing::new(fh);
        for _ in 0..RECALLS {
            // What is in hand for other purposes, here and elsewhere.
            inside.give_back_all();
            watched = self.begin_watch(inside);
            let asks_for = watched.as_ref().and_then(|watched| watched.asks_for());
            let asked = inside.outside(|| Recall::by(fh, self.id).for_order(asks_for));
            inside.cpu.counters.recalls.add(u64::from(asked != 0));
            // It may have gone offline meanwhile: it may not lease anything.
            inside.is_online()?;
            // Another call may have come in here meanwhile and left something.
            inside.give_back_all();
            let found = Movers(fh).look_beside(&look);
            if let Some(pfn) = found {
                return Ok(pfn);
            }
            // What has come out of a hand since has ended the generation.
            let all_seen = asked == 0
                && !Recall::by(fh, self.id).would_ask(asks_for)
                && watched.as_ref().is_none_or(|watched| watched.goes_on(fh));
            if all_seen {
                break;
            }
        }
        if let Some(watched) = watched {
            self.remember(inside, &watched);
        }
        Err(AllocError::NoMemory { order: self.request.order })
    }
}

/// Requests that are about to fail.
pub(crate) struct Failures(pub(crate) Apart);

/// Counts a request as failing for as long as it lives.
pub(crate) struct Failing<'a, 'm, P>(&'a Freehold<'m, P>);

impl<'a, 'm, P> Failing<'a, 'm, P> {
    /// Before others are asked for what they have in hand.
    pub(crate) fn new(fh: &'a Freehold<'m, P>) -> Self {
        // SeqCst: a CPU that is asked later has seen it when it takes its next word, or its lease
        // is among those that the recall ends.
        fh.failing.0.0.fetch_add(1, Ordering::SeqCst);
        for cpu in fh.cpus.iter().filter(|cpu| cpu.most.get() != 0) {
            // SeqCst: as in `Cpu::set_most`.
            cpu.most.store(0, Ordering::SeqCst);
        }
        Self(fh)
    }
}

impl<P> Drop for Failing<'_, '_, P> {
    fn drop(&mut self) {
        // SeqCst: as it came.
        self.0.failing.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Failures {
    /// Whether a request is about to fail, so that nobody may take more than it needs.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        // SeqCst: see `Failing::new`. On x86-64 it is a plain load.
        self.0.0.load(Ordering::SeqCst) != 0
    }
}
