//! Frames on the way outside every CPU's state, so that no request fails beside them.
//!
//! Between two steps of a call free frames may be in no word, no hand and no bitmap: a block that
//! is becoming whole, one that is being split, a run of words of which one was lost to somebody
//! else. Or they are in their words, and no row of the board leads there: their block's class or
//! tag has changed, and its row is told next. A thread that is inside a CPU's state shows that by
//! its door, which a recall waits for. A thread that is in none marks it here:
//!
//! ```text
//! zone.outside[n].moving     calls begun, upper half | calls at it, lower half
//!
//! mover   +1 begun, +1 at it      takes frames ... puts them where all can see them      -1 at it
//! asker                      reads all marks; looks everywhere, finds none; reads them again
//! ```
//!
//! | the marks | what the asker knows |
//! |---|---|
//! | nobody at it, and the same twice | no frame was on the way outside every door while it looked |
//! | otherwise | it looks again, once nobody is at it |
//!
//! The asker waits for a bounded number of turns. A thread that is stopped on the way for longer
//! keeps its frames, up to a block of them, as a thread that is stopped with frames in its hand
//! does; the request fails then as if they were in use.

use crate::block::LOOKS;
use crate::cpu::By;
use crate::primitive::{AtomicU64, Ordering, acquire_fence, full_fence};
use crate::zone::Zone;
use crate::{Freehold, Platform};

/// One call begun, and at it.
const ONE: u64 = 1 << 32 | 1;

/// What threads in no CPU's state count and mark, on several lines: not all of them write one.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct Outside {
    pub(crate) frees: AtomicU64,
    /// Calls that have frames on the way; see the module's documentation.
    pub(crate) moving: AtomicU64,
}

/// Lines of them that a zone has.
pub(crate) const OUTSIDE: usize = if cfg!(loom) { 1 } else { 8 };

/// Somebody outside every CPU's state has frames on the way for as long as this lives.
pub(crate) struct Moving<'m>(&'m AtomicU64);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        // Release: a thread that sees that nobody is at it sees where the frames are.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// What the marks of all zones say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moves {
    begun: u64,
    pub(crate) at_it: u64,
}

impl<'m> Zone<'m> {
    /// Marks that frames are on the way, `n` being any number; of a CPU its door says so.
    pub(crate) fn moving(&'m self, by: By<'_, 'm, impl Platform>, n: usize) -> Option<Moving<'m>> {
        let mark = &self.outside[n % self.outside.len()].moving;
        by.cpu().is_none().then(|| {
            // Relaxed: the fence has a thread that sees by what the frames are taken see this, too.
            // A full one: the block's tag is read next, which hotplug writes before it looks here.
            mark.fetch_add(ONE, Ordering::Relaxed);
            full_fence();
            Moving(mark)
        })
    }
}

/// Those who have frames on the way outside every door.
pub(crate) struct Movers<'a, 'm, P>(pub(crate) &'a Freehold<'m, P>);

impl<P: Platform> Movers<'_, '_, P> {
    /// The sum of all marks.
    pub(crate) fn moves(&self) -> Moves {
        let marks = self.0.zones.iter().flat_map(|zone| &zone.outside);
        let none = Moves { begun: 0, at_it: 0 };
        marks.fold(none, |sum, mark| {
            // Acquire: what is at it no more has put its frames where they are found.
            let mark = mark.moving.load(Ordering::Acquire);
            Moves {
                begun: sum.begun.wrapping_add(mark >> 32),
                at_it: sum.at_it + (mark & 0xffff_ffff),
            }
        })
    }

    /// Waits until all who are there now have put their frames where they are found; `false` where
    /// one of them has not after [`LOOKS`] turns.
    pub(crate) fn wait(&self) -> bool {
        // A thread that marks its frames after this sees what the caller has written.
        full_fence();
        let mut marks = self.0.zones.iter().flat_map(|zone| &zone.outside);
        marks.all(|mark| {
            (0..LOOKS).any(|_| {
                // Acquire: as in `moves`.
                let nobody = mark.moving.load(Ordering::Acquire) as u32 == 0;
                if !nobody {
                    self.0.platform.relax();
                }
                nobody
            })
        })
    }

    /// What a look at all there is finds, for a thread that fails if that is nothing; made again
    /// where frames were on the way meanwhile. Waits for up to [`LOOKS`] turns in all.
    pub(crate) fn look_beside<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let mut turns = 0;
        loop {
            let before = self.moves();
            let found = look();
            if found.is_some() {
                return found;
            }
            // A thread that took what this look has missed had marked that before.
            acquire_fence();
            if before.at_it == 0 && self.moves() == before {
                return None;
            }
            loop {
                if turns == LOOKS {
                    return None;
                }
                turns += 1;
                self.0.platform.relax();
                if self.moves().at_it == 0 {
                    break;
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{LOOKS, Movers, OUTSIDE};
    use crate::block::bits;
    use crate::block::words::{CLASS_NONE, CLASS_WHOLE};
    use crate::tests::testing::*;

    /// A machine of that many frames, and its host.
    fn machine(frames: u64) -> (&'static Machine, &'static Turns) {
        let host = Turns::new(false);
        (Box::leak(Box::new(machine_on(host, 1, frames))), host)
    }

    /// What a request on CPU 0 comes to while somebody outside every CPU's state has all memory,
    /// three blocks, on the way, until turn `at`; and how many turns it waited.
    fn beside_a_mover(request: Request, at: u64) -> (Result<Pfn, AllocError>, u64) {
        let (fh, host) = machine(1536);
        let zone = &fh.zones[0];
        let take = || zone.take_whole(fh.outside(), Want::new(0, 1)).unwrap();
        let mark = zone.moving(fh.outside(), 0);
        let blocks: Vec<_> = [take(), take(), take()].into();
        let arrive = move || {
            blocks.into_iter().for_each(|block| fh.outside().insert_whole(block));
            drop(mark);
        };
        host.set_then(at, arrive);
        let result = fh.here().alloc(request);
        (result, host.taken())
    }

    /// One of each way in which a request may fail.
    fn requests() -> [Request; 5] {
        let request = |order| movable(order);
        [request(0), request(6), request(9), request(10), request(0).below(Pfn::new(1 << 20))]
    }

    #[test]
    fn a_request_does_not_fail_beside_frames_on_the_way() {
        for request in requests() {
            let (result, turns) = beside_a_mover(request, 3);
            assert!(result.is_ok(), "{request:?}: {result:?}");
            assert_eq!(turns, 3);
        }
    }

    /// Frames were on the way while it looked, and are where they belong when it asks again.
    #[test]
    fn a_move_that_begins_and_ends_during_a_look_has_it_look_again() {
        let (fh, _) = machine(1536);
        let mut looks = 0;
        let look = || {
            looks += 1;
            drop(fh.zones[0].moving(fh.outside(), 0));
            (looks == 2).then_some(())
        };
        assert_eq!(Movers(fh).look_beside(look), Some(()));
    }

    /// A thread that is stopped on the way holds nobody up for longer than that; and a call that
    /// may not wait does not wait.
    #[test]
    fn nobody_waits_for_frames_on_the_way_for_ever() {
        for request in requests() {
            let (result, turns) = beside_a_mover(request, u64::MAX);
            assert_eq!(result, Err(AllocError::NoMemory { order: request.order }));
            assert!((1..=2 * u64::from(LOOKS)).contains(&turns), "{turns} turns");
            let (result, turns) = beside_a_mover(request.flags(AllocFlags::NO_LOCK), 1);
            assert_eq!((result, turns), (Err(AllocError::WouldBlock), 0));
        }
    }

    /// A block is claimed for isolation, and a request fails beside it; then its section is not to
    /// be had, and the claim is given up.
    #[test]
    fn who_failed_beside_a_claim_that_came_to_nothing_is_told() {
        let (fh, host) = machine(512);
        fh.set_watermarks(0, 0, 0, 0).unwrap();
        let all = frames_at(0, 512);
        let request = movable(0);
        let fails = move || assert!(fh.here().alloc(request).is_err());
        host.set_then(1, fails);
        fh.map.blocks.leave_marked(0, true);
        fh.remove_memory(all).unwrap_err();
        fh.map.blocks.leave_marked(0, false);
        assert!(host.then.lock().unwrap().is_none(), "nobody has failed");
        fh.here().alloc(request).unwrap();
    }

    /// Frames of a block all of which is in use otherwise.
    struct Case {
        /// Free from the start. Without them the block is in use as a whole, and has a class from
        /// when it was not.
        before: core::ops::Range<u64>,
        /// Freed outside every CPU's state, by a thread that is stopped.
        stopped: core::ops::Range<u64>,
        /// Freed by others meanwhile.
        meanwhile: core::ops::Range<u64>,
    }

    /// Frees frames of the first block, all of one word, outside every CPU's state.
    fn free_outside(fh: &Machine, frames: &core::ops::Range<u64>) {
        if !frames.is_empty() {
            let len = (frames.end - frames.start) as u32;
            let bits = bits::mask((frames.start % 64) as u32, len);
            Freeing::of(fh, None).word(frames.start / 64, bits, 1).unwrap();
        }
    }

    /// A request in mid-free: what it comes to, and how many turns it waited. `None` where the free
    /// has fewer than `n` steps.
    fn in_mid_free(case: &Case, n: u64) -> Option<(Result<Pfn, AllocError>, u64)> {
        let (fh, host) = machine(512);
        fh.set_watermarks(0, 0, 0, 0).unwrap();
        let request = |order| movable(order);
        let cpu = fh.here();
        let block = fh.map.locate(cpu.alloc(request(9)).unwrap().get()).unwrap();
        if case.before.is_empty() {
            assert!(block.change_class(CLASS_NONE, CLASS_WHOLE - 1));
        } else {
            free_outside(fh, &case.before);
        }
        let found = Rc::new(Cell::new(None));
        let (note, meanwhile) = (found.clone(), case.meanwhile.clone());
        let others = move || {
            free_outside(fh, &meanwhile);
            let result = fh.here().alloc(request(0));
            note.set(Some((result, host.taken())));
        };
        interrupted(n, others, || free_outside(fh, &case.stopped));
        found.take()
    }

    /// Frames were there before the free that is stopped, or others' frees of some have ended:
    /// between a class and its row no request finds them, but it knows that somebody is at it.
    #[test]
    fn no_request_fails_beside_a_free_outside_every_door_without_waiting_for_it() {
        let cases = [
            // The class of one word's runs goes up, and that of several words'.
            Case { before: 0..1, stopped: 1..2, meanwhile: 0..0 },
            Case { before: 0..64, stopped: 64..128, meanwhile: 0..0 },
            // A block in use as a whole becomes a split one.
            Case { before: 0..0, stopped: 0..1, meanwhile: 100..101 },
        ];
        for (number, case) in cases.iter().enumerate() {
            let mut waited = 0;
            for n in 1.. {
                let Some((result, turns)) = in_mid_free(case, n) else { break };
                assert!(result.is_ok() || turns != 0, "case {number}, step {n}: {result:?}");
                waited += u32::from(result.is_err());
            }
            assert!(waited > 0, "case {number}: at no step are the frames out of sight");
        }
    }

    /// Frees outside every door write as many lines as there are, by their blocks; those by a door
    /// that is free write their CPU's own.
    #[test]
    fn frees_of_different_blocks_write_different_lines() {
        let (fh, _) = machine(512 * 4 * OUTSIDE as u64);
        let cpu = fh.here();
        let block = movable(9);
        let blocks: Vec<_> = (0..OUTSIDE).map(|_| cpu.alloc(block).unwrap()).collect();
        let lines = || fh.zones[0].outside.each_ref().map(|line| line.frees.get());
        for pfn in &blocks {
            cpu.free(*pfn, Order::ZERO).unwrap();
        }
        assert_eq!(lines(), [0; OUTSIDE]);
        assert_eq!(fh.totals().unattributed_frees, 0);
        for pfn in &blocks {
            Freeing::of(fh, None).word(pfn.get() / 64, 1 << 1, 1).unwrap();
        }
        assert_eq!(lines(), [1; OUTSIDE]);
        assert_eq!(fh.totals().unattributed_frees, OUTSIDE as u64);
        fh.validate().unwrap();
    }
}
