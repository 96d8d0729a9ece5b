//! The words that a CPU leases: a small table, by the word's number, of what of each is in hand.
//!
//! ```text
//! key = PFN / 64      slot = key % 16     (the eight words of a block never collide)
//!
//! slot  first  mask  spare  at  kind  first: its first frame: key * 64
//!                                     mask:  frames of that word that are free and in this CPU's hand
//!                                     spare: such frames, too, in runs of four and more: kept together
//!                                     at:    that frame as a `Place`; says nothing of a slot that is not in use
//!                                     kind:  whether it serves single frames, runs or a chunk, and of which migratetype
//! ```
//!
//! **Ask before you break.** A hand serves single frames out of what lies in no run of four, and
//! runs where they fit exactly. What is more stays as it is until the board has said that no block
//! has a smaller run; then that one run, and no other, may be used up without asking again
//! (`breakable`). Without that rule large runs in hand are broken up beside small ones elsewhere.
//! That costs .005 to .010 of contiguity at order 3 in mixed loads, and a tenth of the free memory
//! in whole blocks under a page cache on few CPUs.
//!
//! | what holds | who relies on it |
//! |---|---|
//! | `mask` or `spare` not 0, or a ready bit, only while the word's lease names this CPU, without EMPTY | a free into the hand need not look |
//! | a frame in `mask` or `spare` is not in the word, but for frees that went wrong unnoticed | an allocation looks at the word once |
//! | single frames, runs and a chunk come from different slots | an order-0 request does not break up a run |
//! | slot 16 is never used: its mask is 0 and its first frame none | "no current lease" needs no branch |
//!
//! All of it is under the CPU's door; others read `first` and `mask` to tell a double free.

use crate::block::layout::{Blocks, Place, WordCell};
use crate::block::words::EMPTY;
use crate::block::{Block, TYPES, WORDS, bits};
use crate::primitive::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, Relaxed};
use crate::{Freehold, Platform};

/// Leases that a CPU can have. 64 were no faster and pin four times the blocks.
pub(crate) const SLOTS: usize = 16;
/// The second free in a row into a word leases it where it is of an order below this one: up to
/// runs of four. A longer run would be kept from requests for runs there.
pub(crate) const LEASED_BELOW: u32 = 3;
/// Places in the table: slots, and what "no current lease" names; a power of two.
const PLACES: usize = 2 * SLOTS;
/// No word's key, nor the first frame of any.
pub(crate) const NO_WORD: u64 = u64::MAX;

/// In [`Leases::freed`]: runs start at even frames.
const NONE_FREED: u32 = u32::MAX;

/// What a lease is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Single frames.
    Frames = 0,
    /// Runs of orders 1 to 5.
    Runs = 1,
    /// A chunk of whole words: see [`chunk`](crate::alloc::chunk).
    Words = 2,
}

/// What a lease is for, and the migratetype it serves, as one number.
#[inline(always)]
const fn kind_of(purpose: Purpose, migratetype: usize) -> usize {
    match purpose {
        // One for all types: such leases are in no request's way.
        Purpose::Words => KINDS - 1,
        _ => (purpose as usize) << 3 | migratetype & 7,
    }
}
/// Such numbers there are room for: a power of two, so that a place in a table needs no comparison.
const KINDS: usize = 16;
const _: () = assert!(TYPES < 8);

/// One leased word.
#[repr(C, align(64))]
pub(crate) struct Lease<'m> {
    /// [`NO_WORD`] of a slot not in use.
    pub(crate) first: AtomicU64,
    /// What is in hand; who looks for a double free may see a change late, never wrong.
    pub(crate) mask: AtomicU64,
    pub(crate) spare: AtomicU64,
    /// What may be broken up without asking, of a lease for runs.
    pub(crate) breakable: AtomicU64,
    /// Where runs of four that frees complete are kept together, of a lease for single frames.
    /// What is spare is a part of it.
    watched: AtomicU64,
    word: WordCell<'m>,
    at: Place,
    kind: AtomicU8,
    /// A free has opened it, and nothing was taken of it yet: no run is kept together so far.
    undivided: AtomicBool,
}

impl<'m> Lease<'m> {
    fn new(no_word: &'m AtomicU64) -> Self {
        Self {
            first: AtomicU64::new(NO_WORD),
            mask: AtomicU64::new(0),
            spare: AtomicU64::new(0),
            breakable: AtomicU64::new(0),
            watched: AtomicU64::new(0),
            word: WordCell::new(no_word),
            at: Place::none(),
            kind: AtomicU8::new(0),
            undivided: AtomicBool::new(false),
        }
    }

    /// What the word itself has: frees by others since it was leased.
    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        // Relaxed: a look for frees that went wrong.
        self.word.get().load(Ordering::Relaxed)
    }

    /// Whether this is the lease of the word of that key.
    #[inline(always)]
    pub(crate) fn is_of(&self, key: u64) -> bool {
        self.first.get() == key * 64
    }
    /// Whether this is the lease of the word of that frame, or one not in use, which has nothing in
    /// hand and no ready bit, and the frame's number is one of the last 64 of all.
    #[inline(always)]
    pub(crate) fn may_have(&self, pfn: u64) -> bool {
        self.first.get() ^ pfn < 64
    }
    pub(crate) fn is_in_use(&self) -> bool {
        self.first.get() != NO_WORD
    }
    /// All that is in hand.
    #[inline(always)]
    pub(crate) fn all(&self) -> u64 {
        self.mask.get() | self.spare.get()
    }
    /// Frames come into the hand beside what is there, which is `mask`.
    #[inline(always)]
    pub(crate) fn add_to(&self, mask: u64, frames: u64) {
        let mask = mask | frames;
        self.mask.set(mask);
        if bits::has_run(mask & self.watched.get(), bits::KEPT_ORDER) {
            self.keep_runs();
        }
    }
    /// Frames come into the hand beside `mask`, none of which are there, or in the word; `false`
    /// where some are, and nothing has changed then.
    #[inline(always)]
    pub(crate) fn take_back(&self, mask: u64, frames: u64) -> bool {
        let seen = mask | self.word();
        // Where no runs are kept together, as in a zone nearly all whole, or before anything is
        // taken of what frees have brought, no frame is spare.
        if self.watched.get() == 0 {
            debug_assert_eq!(self.spare.get(), 0);
            let right = seen & frames == 0;
            if right {
                self.mask.set(mask | frames);
            }
            return right;
        }
        let right = (seen | self.spare.get()) & frames == 0;
        if right {
            self.add_to(mask, frames);
        }
        right
    }
    /// Any frames come into the hand.
    pub(crate) fn add_all(&self, frames: u64) {
        self.divide();
        self.mask.set(self.mask.get() | frames);
        self.keep_runs();
    }
    /// Frames are about to be taken of what frees have brought together: its runs of four are kept
    /// so from now on.
    #[inline(always)]
    pub(crate) fn divide(&self) {
        if self.undivided.get() {
            self.undivided.set(false);
            self.watched.set(!self.breakable.get());
            self.keep_runs();
        }
    }
    /// Runs of four that have come together are kept so.
    #[cold]
    #[inline(never)]
    fn keep_runs(&self) {
        let runs = bits::in_kept_runs(self.mask.get() & self.watched.get());
        // First where it is to be, then not where it was: a thread that looks for a double free
        // looks at both, and finds it in one. Release: see `shown`.
        self.spare.store(self.spare.get() | runs, Ordering::Release);
        self.mask.store(self.mask.get() & !runs, Ordering::Release);
    }
    /// That run of what is in hand may be used up.
    pub(crate) fn break_up(&self, run: u64) {
        debug_assert!(!self.undivided.get());
        if usize::from(self.kind.get()) & kind_of(Purpose::Runs, 0) != 0 {
            return self.breakable.set(self.breakable.get() | run);
        }
        self.watched.set(self.watched.get() & !run);
        let spare = self.spare.get();
        // As in `keep_runs`.
        self.mask.store(self.mask.get() | spare & run, Ordering::Release);
        self.spare.store(spare & !run, Ordering::Release);
    }
    /// The block and the word within it, under the CPU's door.
    #[inline(always)]
    pub(crate) fn place(&self, blocks: &Blocks<'m>) -> Option<(Block<'m>, usize)> {
        self.at.get(blocks).map(|(block, offset)| (block, offset as usize / 64))
    }
    /// The block and the word within it, as another CPU sees it.
    pub(crate) fn seen_place(&self, blocks: &Blocks<'m>) -> Option<(Block<'m>, usize)> {
        self.at.seen(blocks).map(|(block, offset)| (block, offset as usize / 64))
    }
    /// Whether it is for that.
    #[inline(always)]
    pub(crate) fn serves(&self, purpose: Purpose, migratetype: usize) -> bool {
        usize::from(self.kind.get()) == kind_of(purpose, migratetype)
    }

    /// Whether it is of a chunk of whole words, of which nobody takes or frees a part.
    #[inline(always)]
    pub(crate) fn is_of_chunk(&self) -> bool {
        self.serves(Purpose::Words, 0)
    }

    /// Whether there is a run of that order in hand, together with what others have freed into the
    /// word since, as another CPU sees it.
    pub(crate) fn shows_run(&self, order: u32) -> bool {
        // Relaxed: a glance.
        self.is_in_use()
            && bits::has_run(self.all() | self.word.seen().load(Ordering::Relaxed), order)
    }

    /// What of that word is in this hand, as another CPU sees it.
    pub(crate) fn shown(&self, key: u64) -> u64 {
        // Twice, since the slot may be given to another word between two reads, and back: what both
        // looks show was in hand. Acquire: the mask is none from before that key, and the key read
        // after it is none from before that mask. That last read is relaxed: nothing comes of it
        // but one more look, which begins with the key.
        let look = || {
            let before = self.first.load(Ordering::Acquire);
            // What goes from one to the other meanwhile is in one of these three.
            let mut mask = self.mask.load(Ordering::Acquire);
            mask |= self.spare.load(Ordering::Acquire);
            mask |= self.mask.load(Ordering::Acquire);
            if before == key * 64 && self.is_of(key) { mask } else { 0 }
        };
        let seen = look();
        if seen == 0 { 0 } else { seen & look() }
    }
}

/// All leases of one CPU.
pub(crate) struct Leases<'m> {
    slots: [Lease<'m>; PLACES],
    /// The slot that requests of a kind come to; `SLOTS` for none.
    current: [AtomicU32; KINDS],
    /// Bit s: slot s may have frames in hand, by kind; its word is this CPU's, and no other may
    /// take it over.
    ready: [AtomicU32; KINDS],
    /// By order: such a run that was freed into a hand since one was last looked for, its first
    /// frame's lower half; `NONE_FREED`, where no run of frames starts, for none. Without it an
    /// exchange of order 2 takes 295 instructions instead of 141, of order 1 177 instead of 119;
    /// one of mixed orders takes a hundredth less.
    freed: [AtomicU32; 8],
    /// Where in its word the last run that was taken of a hand starts.
    start: AtomicU32,
    /// Bit s: slot s is in use.
    pub(crate) held: AtomicU32,
    /// How many may be in use; 0 where only one of those that CPUs share may be.
    pub(crate) limit: AtomicU32,
    /// How many, where less than half of memory is free.
    few: AtomicU32,
}

impl<'m> Leases<'m> {
    /// None; `no_word` is a word that is never anybody's.
    pub(crate) fn new(no_word: &'m AtomicU64) -> Self {
        Self {
            slots: core::array::from_fn(|_| Lease::new(no_word)),
            current: core::array::from_fn(|_| AtomicU32::new(SLOTS as u32)),
            ready: core::array::from_fn(|_| AtomicU32::new(0)),
            freed: core::array::from_fn(|_| AtomicU32::new(NONE_FREED)),
            start: AtomicU32::new(0),
            held: AtomicU32::new(0),
            limit: AtomicU32::new(SLOTS as u32),
            few: AtomicU32::new(SLOTS as u32),
        }
    }

    /// The slot where the word of that key is, if it is leased.
    #[inline(always)]
    pub(crate) fn slot_of(key: u64) -> usize {
        key as usize % SLOTS
    }

    #[inline(always)]
    pub(crate) fn slot(&self, slot: usize) -> &Lease<'m> {
        &self.slots[slot % PLACES]
    }

    /// The slots of a chunk of so many words.
    #[inline(always)]
    pub(crate) fn slots_of<const LEN: usize>(&self, pfn: u64) -> [&Lease<'m>; LEN] {
        let slot = Self::slot_of(pfn / 64) / LEN * LEN;
        core::array::from_fn(|n| self.slot(slot + n))
    }

    /// The lease that such requests come to; the one never used where there is none.
    #[inline(always)]
    pub(crate) fn current(&self, purpose: Purpose, migratetype: usize) -> &Lease<'m> {
        &self.slots[self.current[kind_of(purpose, migratetype)].get() as usize % PLACES]
    }

    #[inline(always)]
    pub(crate) fn set_current(&self, purpose: Purpose, migratetype: usize, slot: usize) {
        debug_assert!(slot == SLOTS || self.slot(slot).serves(purpose, migratetype));
        self.current[kind_of(purpose, migratetype)].set(slot as u32);
    }

    /// The slot that a run of that order, 1 to 5, was freed into last, unless looked at since.
    #[inline(always)]
    pub(crate) fn take_freed(&self, order: u32) -> Option<usize> {
        let freed = &self.freed[order as usize % 8];
        let pfn = freed.get();
        if pfn == NONE_FREED {
            return None;
        }
        freed.set(NONE_FREED);
        Some(Self::slot_of(u64::from(pfn) / 64))
    }

    #[inline(always)]
    pub(crate) fn set_freed(&self, order: u32, pfn: u64) {
        self.freed[order as usize % 8].set(pfn as u32);
    }

    /// `start`, which was searched for in a hand. Where it is that of the time before, as in pairs
    /// of calls, a processor goes on with what is kept here, and checks it when the search is done.
    #[inline(always)]
    pub(crate) fn predicted(&self, start: u32) -> u32 {
        if self.start.get() == start {
            // Once more: the compiler takes what it knows to be equal for the same, and would wait.
            return self.start.get();
        }
        self.start.set(start);
        start
    }

    /// Slots that may have frames in hand.
    #[inline(always)]
    pub(crate) fn ready(&self, purpose: Purpose, migratetype: usize) -> u32 {
        self.ready[kind_of(purpose, migratetype)].get()
    }

    /// Where a slot's ready bit is.
    #[inline(always)]
    fn ready_of(&self, slot: usize) -> &AtomicU32 {
        &self.ready[usize::from(self.slot(slot).kind.get()) % KINDS]
    }

    /// Whether that slot has its ready bit.
    #[inline(always)]
    pub(crate) fn is_ready(&self, slot: usize) -> bool {
        self.ready_of(slot).get() >> slot & 1 != 0
    }

    /// Notes that a slot may have frames in hand, and that its word is this CPU's.
    #[inline(always)]
    pub(crate) fn set_ready(&self, slot: usize) {
        let ready = self.ready_of(slot);
        ready.set(ready.get() | 1 << slot);
    }

    /// Notes that a slot has nothing in hand, and takes no frees the fast way.
    pub(crate) fn set_empty(&self, slot: usize) {
        let ready = self.ready_of(slot);
        ready.set(ready.get() & !(1 << slot));
    }

    /// Fills a free slot. The word's lease must name this CPU already. Runs of four are kept together
    /// at once if `divided`, but for what is `breakable`.
    #[inline]
    pub(crate) fn open(
        &self,
        slot: usize,
        key: u64,
        place: (Block<'m>, usize, &'m AtomicU64),
        kind: (Purpose, usize),
        mask: u64,
        (breakable, divided): (u64, bool),
    ) {
        let lease = &self.slots[slot];
        debug_assert!(!lease.is_in_use());
        lease.at.set(place.0, place.1 as u32 * 64);
        lease.word.set(place.2);
        lease.kind.set(kind_of(kind.0, kind.1) as u8);
        lease.breakable.set(breakable);
        let watched = if kind.0 == Purpose::Frames && divided { !breakable } else { 0 };
        lease.watched.set(watched);
        lease.undivided.set(!divided);
        // Release: who finds the key does not find what the word before had in hand.
        lease.first.store(key * 64, Ordering::Release);
        // Release: a thread that sees frames in hand sees whose they are.
        let spare = bits::in_kept_runs(mask & watched);
        lease.spare.store(spare, Ordering::Release);
        lease.mask.store(mask & !spare, Ordering::Release);
        self.held.set(self.held.get() | 1 << slot);
        if kind.0 != Purpose::Words {
            self.set_ready(slot);
        }
    }

    /// Frees a slot. What was in hand is in its word again.
    pub(crate) fn close(&self, slot: usize) {
        self.set_empty(slot);
        let lease = &self.slots[slot];
        lease.mask.set(0);
        lease.spare.set(0);
        // Relaxed: a thread that no longer finds the key goes on to an exchange of the word. Either
        // that comes after the frames were put back, and is refused, or before, and a thread that
        // puts them back tells of it.
        lease.first.set(NO_WORD);
        self.held.set(self.held.get() & !(1 << slot));
        // No other kind of request comes to it.
        let current = &self.current[usize::from(lease.kind.get()) % KINDS];
        if current.get() == slot as u32 {
            current.set(SLOTS as u32);
        }
    }

    /// The slots that requests come to now; `SLOTS` for none.
    pub(crate) fn currents(&self) -> impl Iterator<Item = u32> + '_ {
        self.current.iter().map(Relaxed::get)
    }

    /// How many words may be leased, and how many where less than half of memory is free.
    pub(crate) fn set_limits(&self, limit: u64, few: u64) {
        self.limit.set(limit.min(SLOTS as u64) as u32);
        self.few.set(few.min(limit).min(SLOTS as u64) as u32);
    }

    /// Whether one more lease would be one too many, where a slot is free.
    pub(crate) fn is_full(&self, half_free: bool) -> bool {
        let limit = if half_free { self.limit.get() } else { self.few.get() };
        limit < SLOTS as u32 && self.held.get().count_ones() >= limit.max(1)
    }
}

impl<'m> Block<'m> {
    /// The frames of a word that are in some CPU's hand, as far as that can be seen.
    #[inline]
    pub(crate) fn leased_frames(self, fh: &Freehold<'m, impl Platform>, w: usize) -> u64 {
        let head = self.head;
        let lease = head.lease(w);
        if lease == 0 || lease & EMPTY != 0 {
            return 0;
        }
        let key = u64::from(head.number) * WORDS as u64 + w as u64;
        let Some(cpu) = fh.cpus.get(usize::from(lease) - 1) else { return 0 };
        cpu.leases.slot(Leases::slot_of(key)).shown(key)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What frees bring together is kept, and what may be broken up is not.
    #[test]
    fn runs_of_four_are_kept_together_until_they_may_be_broken_up() {
        let word = AtomicU64::new(0);
        let leases = Leases::new(&word);
        leases.open(3, 3, (Block::unused(), 3, &word), (Purpose::Frames, 1), 0xf7, (0, true));
        let lease = leases.slot(3);
        assert_eq!((lease.mask.get(), lease.spare.get()), (0x7, 0xf0));
        assert!(!lease.take_back(0x7, 1 << 5), "a frame that is kept was freed again");
        lease.add_to(lease.mask.get(), 0x8);
        assert_eq!((lease.mask.get(), lease.spare.get()), (0, 0xff));
        lease.break_up(0xf);
        assert_eq!((lease.mask.get(), lease.spare.get()), (0xf, 0xf0));
        lease.mask.set(0xe);
        lease.add_to(lease.mask.get(), 1);
        assert_eq!((lease.mask.get(), lease.spare.get()), (0xf, 0xf0), "it may be used up");
    }

    /// A hand that is divided when somebody takes of it is what one is that was divided all along.
    #[test]
    fn runs_are_kept_together_late_as_they_are_at_once() {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        let leases = Leases::new(&words[0]);
        let kind = (Purpose::Frames, 1);
        for (slot, divided) in [(3, true), (4, false)] {
            let place = (Block::unused(), slot, &words[slot - 3]);
            leases.open(slot, slot as u64, place, kind, 0x7, (0, divided));
        }
        let [at_once, late] = [leases.slot(3), leases.slot(4)];
        // The last one as of a bulk call: it begins in a run that stays incomplete.
        for frames in [0x8, 0xf00, 1 << 13, 3 << 14, 1 << 12, 1 << 40, 0xfc << 56] {
            for lease in [at_once, late] {
                assert!(lease.take_back(lease.mask.get(), frames));
                assert!(!lease.take_back(lease.mask.get(), frames), "it is free");
            }
            assert_eq!((late.mask.get(), late.spare.get()), (at_once.all(), 0));
        }
        late.divide();
        assert_eq!((late.mask.get(), late.spare.get()), (at_once.mask.get(), at_once.spare.get()));
        assert!(late.take_back(late.mask.get(), 7 << 41));
        let kept = 0xff0f | 0xf << 40 | 0xf << 60;
        assert_eq!((late.mask.get(), late.spare.get()), (0xc << 56, kept));
    }

    #[test]
    fn a_slot_that_is_free_is_nobodys_current_one() {
        let word = AtomicU64::new(0);
        let leases = Leases::new(&word);
        for kind in [(Purpose::Frames, 1), (Purpose::Runs, 1), (Purpose::Frames, 2)] {
            leases.open(3, 3, (Block::unused(), 3, &word), kind, 1, (!0, true));
            leases.set_current(kind.0, kind.1, 3);
            leases.close(3);
            assert!(leases.currents().all(|slot| slot == SLOTS as u32));
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::tests::loom_tests::{model, model_within, spawn};
    use std::boxed::Box;

    /// A CPU's leases, of which it has none yet, and a word.
    fn none() -> (&'static AtomicU64, &'static Leases<'static>) {
        let word: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
        (word, Box::leak(Box::new(Leases::new(word))))
    }

    /// Between two reads of a look the slot is given to another word and back: what that word had
    /// in hand is not this one's. Once of frames that may be used, once of runs that are kept.
    #[test]
    fn what_another_word_had_in_hand_is_not_shown() {
        for (mine, others, breakable) in [(0b01, 0b10, !0), (0xff00, 0xff, 0)] {
            // Two preemptions: three are millions of executions.
            model_within(2, move || {
                let (word, leases) = none();
                let (this, other) = (3, 3 + SLOTS as u64);
                let open = move |key: u64, mask| {
                    leases.open(
                        3,
                        key,
                        (Block::unused(), 3, word),
                        (Purpose::Frames, 1),
                        mask,
                        (breakable, true),
                    );
                };
                open(this, mine);
                let owner = spawn(move || {
                    for (key, mask) in [(other, others), (this, mine)] {
                        leases.close(3);
                        open(key, mask);
                    }
                });
                assert!(
                    leases.slot(3).shown(this) & others == 0,
                    "a frame that is in use would not be taken back"
                );
                owner.join().unwrap();
            });
        }
    }

    /// A run of four is complete and kept together, and may then be broken up: each of its frames
    /// is in the hand all the time.
    #[test]
    fn a_frame_that_is_kept_is_shown() {
        model(|| {
            let (word, leases) = none();
            leases.open(3, 3, (Block::unused(), 3, word), (Purpose::Frames, 1), 0x7, (0, true));
            // The looker is the thread that is started, so that it comes last in the first
            // execution: loom remembers one access to each atomic, and a thread that reads and then
            // writes one hides what others have read before. The other way round it ran one
            // schedule.
            let looker = spawn(move || leases.slot(3).shown(3) & 1 != 0);
            leases.slot(3).add_to(0x7, 0x8);
            leases.slot(3).break_up(0xf);
            assert!(looker.join().unwrap(), "a free frame could be freed again");
        });
    }

    /// What another word had in hand before the key was this one's is not shown with it, nor taken
    /// for what both looks saw.
    #[test]
    fn what_another_word_had_in_hand_before_is_not_shown() {
        // Two preemptions: three are millions of executions.
        model_within(2, || {
            let (word, leases) = none();
            let (this, other) = (3, 3 + SLOTS as u64);
            let open = move |key: u64, mask| {
                let (place, kind) = ((Block::unused(), 3, word), (Purpose::Frames, 1));
                leases.open(3, key, place, kind, mask, (!0, true))
            };
            open(other, 0b10);
            let owner = spawn(move || {
                for (key, mask) in [(this, 0b01), (other, 0b10), (this, 0b01)] {
                    leases.close(3);
                    open(key, mask);
                }
            });
            assert!(
                leases.slot(3).shown(this) & 0b10 == 0,
                "a frame that is in use would not be taken back"
            );
            owner.join().unwrap();
        });
    }
}
