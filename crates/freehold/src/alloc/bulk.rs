//! Many single frames in one call: whole words of 64 at a time.
//!
//! **Allocating**, round after round until `out` is full:
//!
//! | step | holds |
//! |---|---|
//! | the current lease's hand, none of which its word has too | as with one frame: it is free and in nobody else's sight |
//! | 64 are wanted: `take_bits` of a whole word of the block in use that nobody leases | nobody else can take these frames |
//! | afterwards the block is split still and the word not leased | they are the caller's, no lease needed; else put back |
//! | 64 are still wanted: a refill without a lease | the block in use is another one, or there is none |
//! | one frame by the ladder | a lease is current again; or it failed, and what `out` has is the answer if that is any |
//!
//! **Freeing**, for neighbours in the slice that share a word:
//!
//! | step | holds |
//! |---|---|
//! | `same_word` | no frame is in the mask twice: a second one begins the next mask, and is refused there |
//! | the hand; straight into the word; `Freeing::word` | each frees all of the mask or none of it |
//! | refused: frame by frame up to the first refused | all before that one is free, nothing behind it; `freed` says how many |

use crate::alloc::ladder::{Climb, IN_USE};
use crate::alloc::pick::Want;
use crate::block::{WORDS, bits};
use crate::cpu::Inside;
use crate::cpu::lease::{NO_WORD, Purpose};
use crate::free::fast::{FastFree, InHand};
use crate::free::slow::Freeing;
use crate::platform::{OnPanic, PlatformExt};
use crate::primitive::{Count, Relaxed};
use crate::{AllocError, BulkFreeError, Order, Pfn, Platform, Request};

impl<'m, P: Platform> Inside<'_, 'm, P> {
    /// Fills `out`; see [`On::alloc_bulk`](crate::On::alloc_bulk). Leaves the CPU.
    pub(crate) fn alloc_bulk(
        self,
        request: &Request,
        out: &mut [Pfn],
    ) -> Result<usize, AllocError> {
        if request.order != Order::ZERO {
            return Err(AllocError::OrderTooLarge { order: request.order, max: Order::ZERO });
        }
        // A CPU that went offline since that look leases nothing: one frame at a time says so.
        let any_frame = request.way == Request::FRAME && self.cpu.online.get();
        let mut done = 0;
        let mut failure = None;
        while done < out.len() {
            if any_frame {
                let kind = request.migratetype as usize;
                done += self.frames_in_hand(kind, &mut out[done..]);
                done += self.frames_of_block(kind, &mut out[done..]);
                let zone = self.home();
                if out.len() - done >= 64 && zone.may_lease(self.by(), kind, 0, request.flags) {
                    // The next block, without a lease.
                    if self.refill(zone, Want::new(0, kind)).is_some() {
                        done += self.frames_of_block(kind, &mut out[done..]);
                    }
                }
                if done == out.len() {
                    break;
                }
            }
            // One frame by the ladder; it leaves a new current lease behind.
            let found = match any_frame {
                true => self.next_frame(request.migratetype as usize).map(Pfn::new),
                false => None,
            };
            match found.map_or_else(|| Climb::new(&self, request).find(IN_USE), Ok) {
                Ok(pfn) => {
                    self.cpu.counters.allocs[request.migratetype as usize][0].add(1);
                    out[done] = pfn;
                    done += 1;
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        if let (0, Some(error)) = (done, failure) {
            self.cpu.counters.failed.add(1);
            self.leave(request, &[]);
            return Err(error);
        }
        for pfn in &out[..done] {
            self.fh.platform.handed_out(*pfn, Order::ZERO);
        }
        self.leave(request, &out[..done]);
        Ok(done)
    }

    /// Leaves the CPU with these frames, none where the request has failed, and tells the host.
    fn leave(self, request: &Request, frames: &[Pfn]) {
        let fh = self.fh;
        let back = OnPanic(|| _ = Freeing::of(fh, None).frames(frames));
        self.leave_and_tell(request.flags);
        core::mem::forget(back);
    }

    /// What the current lease has, as far as `out` goes.
    #[inline]
    fn frames_in_hand(&self, migratetype: usize, out: &mut [Pfn]) -> usize {
        let lease = self.leases.current(Purpose::Frames, migratetype);
        let mask = lease.mask.get();
        if mask == 0 || mask & lease.word() != 0 {
            // Freed twice: the slow way knows.
            return 0;
        }
        let (left, done) = write_out(lease.first.get(), mask, out);
        lease.mask.set(left);
        self.counters.allocs[migratetype % 4][0].add(done as u64);
        done
    }

    /// Whole words of the block in use, past the leases: for as many frames as are still wanted.
    #[inline]
    fn frames_of_block(&self, migratetype: usize, out: &mut [Pfn]) -> usize {
        let zone = self.home_zone.get() as usize;
        let in_use = self.cursors(zone).get(&self.fh.map.blocks, Purpose::Frames, migratetype);
        let Some(block) = in_use.filter(|_| out.len() >= 64) else { return 0 };
        let line = block.line;
        let tag = block.tag.get();
        if tag.zone() != zone || !tag.is_ordinary_of(migratetype) {
            return 0;
        }
        let (base, mut done) = (block.base(), 0);
        let take = |w: usize, word, count| {
            line.take_bits(w, word) && block.still_open(self.by(), w, word, count)
        };
        for w in 0..WORDS {
            let word = line.word(w);
            if word == 0 || block.is_leased(w) {
                continue;
            }
            // Most are full, of which there is nothing to count.
            let taken = match word {
                u64::MAX => take(w, u64::MAX, 64),
                word => take(w, word, word.count_ones().into()),
            };
            if taken {
                done += write_out(base + w as u64 * 64, word, &mut out[done..]).1;
                if out.len() - done < 64 {
                    break;
                }
            }
        }
        self.counters.allocs[migratetype % 4][0].add(done as u64);
        done
    }
}

/// Writes a word's frames out, lowest first, as `out` has room; what is left, and their number.
#[inline]
fn write_out(base: u64, mask: u64, out: &mut [Pfn]) -> (u64, usize) {
    if let (u64::MAX, Some(all)) = (mask, out.first_chunk_mut::<64>()) {
        // Of a constant length, so that the compiler writes several at a time.
        for (i, pfn) in all.iter_mut().enumerate() {
            *pfn = Pfn::new(base + i as u64);
        }
        return (0, 64);
    }
    let mut left = mask;
    let mut done = 0;
    while left != 0 && done < out.len() {
        // A run at a time: most words are one.
        let start = left.trailing_zeros();
        let len = (left >> start).trailing_ones().min((out.len() - done) as u32);
        for (i, pfn) in out[done..done + len as usize].iter_mut().enumerate() {
            *pfn = Pfn::new(base + u64::from(start) + i as u64);
        }
        done += len as usize;
        left &= !bits::mask(start, len);
    }
    (left, done)
}

impl<'m, P: Platform> Freeing<'_, 'm, P> {
    /// Single frames in any order: neighbours in the slice that share a word go together.
    pub(crate) fn frames(&self, frames: &[Pfn]) -> Result<(), BulkFreeError> {
        let mut at = 0;
        while at < frames.len() {
            let (mask, run) = same_word(&frames[at..]);
            let key = frames[at].get() / 64;
            let way = self.inside.map(|inside| FastFree(**inside));
            let in_hand = way.map_or(InHand::No, |way| way.free_in_hand(key * 64, mask));
            if let Some(inside) = self.inside {
                if in_hand == InHand::Yes {
                    inside.cpu.counters.local_frees.add(run as u64 - 1);
                    at += run;
                    continue;
                }
                if run > 1 {
                    // Worth a lease at once.
                    inside.cpu.last_key.set(key);
                }
            }
            let all = way.is_some_and(|way| match run {
                // Inlined: calls made this dearer than single frees (134 instructions, 124).
                1 if in_hand == InHand::Elsewhere => way.to_word::<0>(frames[at].get()),
                64 if mask == !0 && in_hand == InHand::Elsewhere => {
                    let put = way.other_words_to_block::<1>(key * 64);
                    // A chunk of single frames is none that comes again as one.
                    way.chunk.freed.set(NO_WORD);
                    way.count_frees(if put { 63 } else { 0 });
                    put
                }
                _ => false,
            });
            if all {
                at += run;
                continue;
            }
            if let Err(error) = self.word(key, mask, run as u64) {
                // The word as a whole was refused; frame by frame finds the first that is to blame.
                for (i, &pfn) in frames[at..at + run].iter().enumerate() {
                    if let Err(error) = self.word(key, 1 << (pfn.get() % 64), 1) {
                        return Err(BulkFreeError { freed: at + i, error });
                    }
                }
                // Somebody else's free was in the way: all of it is free now, but part not by us.
                return Err(BulkFreeError { freed: at + run, error });
            }
            at += run;
        }
        Ok(())
    }
}

/// The frames at the start of the slice that share a word, none twice: as a mask, and how many.
#[inline]
fn same_word(frames: &[Pfn]) -> (u64, usize) {
    let first = frames[0].get();
    let key = first / 64;
    // Scattered frames share no word: no more is looked at.
    if frames.get(1).is_none_or(|next| next.get() / 64 != key) {
        return (1 << (first % 64), 1);
    }
    if let (0, Some(all)) = (first % 64, frames.first_chunk::<64>()) {
        // A whole word in order: no early exit, so that the compiler looks at several at a time.
        let others = all.iter().enumerate().map(|(i, pfn)| pfn.get() ^ first ^ i as u64);
        if others.fold(0, |any, other| any | other) == 0 {
            return (!0, 64);
        }
    }
    // Ascending neighbours first: they are common, and cheap to recognise.
    let most = frames.len().min(64 - (first % 64) as usize);
    let mut run = 1;
    while run < most && frames[run].get() == first + run as u64 {
        run += 1;
    }
    let mut mask = bits::mask((first % 64) as u32, run as u32);
    while run < frames.len() && frames[run].get() / 64 == key {
        let frame = 1 << (frames[run].get() % 64);
        if mask & frame != 0 {
            break;
        }
        mask |= frame;
        run += 1;
    }
    (mask, run)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::FastFree;
    use crate::tests::testing::*;

    /// A thread that looked whether it is online and only then got in.
    #[test]
    fn a_cpu_that_went_offline_gets_no_block_for_a_bulk_call() {
        let fh = machine(2, 1 << 16);
        let id = CpuId::new(1);
        fh.on(id).offline().unwrap();
        let inside = inside(&fh, id.get());
        let request = movable(0);
        assert_eq!(
            inside.alloc_bulk(&request, &mut [Pfn::new(0); 128]),
            Err(AllocError::CpuOffline { cpu: id })
        );
        assert_eq!(fh.zone_stats(0).unwrap().free, 1 << 16);
        fh.validate().unwrap();
    }

    #[test]
    fn a_cpu_that_went_offline_leases_nothing_for_a_second_free_in_a_row() {
        let (fh, id) = (machine(2, 1 << 16), CpuId::new(1));
        let mut frames = [Pfn::new(0); 2];
        assert_eq!(fh.on(CpuId::new(0)).alloc_bulk(movable(0), &mut frames), Ok(2));
        fh.on(CpuId::new(0)).flush().unwrap();
        fh.on(id).free(frames[0], Order::ZERO).unwrap();
        fh.on(id).offline().unwrap();
        let inside = inside(&fh, id.get());
        assert!(!FastFree(*inside).to_word::<0>(frames[1].get()));
        assert_eq!(inside.leases.held.get(), 0);
        drop(inside);
        fh.validate().unwrap();
    }
}
