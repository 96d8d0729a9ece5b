//! Putting frames into a block's words, and telling its holder where that matters.
//!
//! Most puts into a group's block tell nobody: the bit is in the word, and the lists know of a run
//! as large already. One that completes a larger run pushes the block into the inbox of its group,
//! at most once until somebody has looked. Of a block that the zone holds the first put does,
//! whatever it completes: what is free there counts for the watermarks.

use crate::block::layout::Index;
use crate::block::tag::{ABSENT, IN_HAND, ISOLATED, SPLIT, WHOLE};
use crate::block::words::CLASS_QUEUED;
use crate::block::{WORDS, bits};
use crate::primitive::Ordering;
use crate::{Freehold, Pfn, Platform};

impl<'m, P: Platform> Freehold<'m, P> {
    /// Puts frames that were in somebody's hand back into their word.
    pub(crate) fn put_back(&self, index: Index, w: usize, bits: u64) {
        let (now, strays) = self.map.line(index).put_back(w, bits);
        self.report_late(index, w, strays);
        // What was in the word already did not count while the word was leased.
        self.announce_completed(index, now, now);
    }

    /// A word is `now`, after `bits` of it became takeable: announces the block if its holder does
    /// not know of such a run.
    #[inline(always)]
    pub(crate) fn announce_completed(&self, index: Index, now: u64, bits: u64) {
        let head = self.map.head(index);
        if now != 0 && head.completes(now, bits) {
            self.announce(index);
        }
    }

    /// Tells a block's holder to look at it. One exchange and one push at most; never waits.
    #[cold]
    #[inline(never)]
    pub(crate) fn announce(&self, index: Index) {
        let head = self.map.head(index);
        while head.class() != CLASS_QUEUED && head.queue() != CLASS_QUEUED {
            // Whoever has it by now forwards it if it has changed hands meanwhile.
            let tag = head.tag.get();
            if tag.group() != IN_HAND && matches!(tag.state(), SPLIT | WHOLE) {
                return self.zones[tag.zone()].stock(tag.group()).inbox.push(&self.map, index);
            }
            // Taken, absent or in a CPU's hand: nothing of it is to be told. Unless that has
            // changed just now, and whoever changed it has found it marked.
            head.begin_listing();
            if head.tag.get() == tag {
                return;
            }
        }
    }

    /// Frames were freed that were free already, and the call could not see it.
    #[inline(always)]
    pub(crate) fn report_late(&self, index: Index, w: usize, strays: u64) {
        if strays != 0 {
            self.report_late_slow(index, w, strays);
        }
    }

    #[cold]
    fn report_late_slow(&self, index: Index, w: usize, strays: u64) {
        for bit in bits::each(strays) {
            // Relaxed: a statistic.
            self.late_double_frees.fetch_add(1, Ordering::Relaxed);
            self.platform
                .late_double_free(Pfn::new(self.map.base(index) + w as u64 * 64 + u64::from(bit)));
        }
    }

    /// Empties the words of a block all of which is free, or taken: what is in them are frees that
    /// went wrong unseen.
    #[inline(always)]
    pub(crate) fn report_strays(&self, index: Index) {
        if self.map.line(index).has_strays() {
            self.report_strays_slow(index);
        }
    }

    /// What is in the words of a block that is in use as a whole, for who is about to make it a
    /// split one.
    pub(crate) fn strays(&self, index: Index) -> [u64; WORDS] {
        core::array::from_fn(|w| self.map.line(index).word(w))
    }

    /// Takes just these frames out of the words again. For who has made the block a split one: what
    /// was there before that cannot have been a right free, what came after may be.
    pub(crate) fn report_these_strays(&self, index: Index, strays: [u64; WORDS]) {
        for (w, strays) in strays.into_iter().enumerate().filter(|(_, strays)| *strays != 0) {
            let taken = self.map.line(index).take_stray_bits(w, strays);
            self.report_late(index, w, taken);
        }
    }

    #[cold]
    fn report_strays_slow(&self, index: Index) {
        for w in 0..WORDS {
            let strays = self.map.line(index).take_stray(w);
            self.report_late(index, w, strays);
        }
    }

    /// Whether frames of that block may be handed out or leased.
    pub(crate) fn is_usable(&self, index: Index) -> bool {
        let tag = self.map.head(index).tag.get();
        tag.state() != ABSENT && !tag.has(ISOLATED)
    }
}
