//! Emptying blocks that hold little, so that they go back to the OS as a whole.
//!
//! ```text
//!  after a shrink       #...#... ##.##### #...#... #######.        a block with one frame in use
//!  two blocks emptied   ........ ######## ........ ########        stays in memory as a whole
//! ```
//!
//! The arena says which frame goes where; the program moves, since only it knows who points to a
//! frame. The blocks with least in use come first, and contents go to the smallest free runs of
//! others (`emptiest` and `evacuate` of the core). No frame moves into a wholly free block, nor
//! into one that the OS does not back: where there is no other place, the call ends.

use freehold::{AllocFlags, FrameRange, Migratetype, On, Order, PAGEBLOCK_FRAMES, Pfn, Request};

use super::Arena;
use super::raw::chunk;
use crate::Error;
use crate::host::Host;

/// What [`Arena::evacuate`] came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Evacuated {
    /// Blocks that are wholly free now.
    pub blocks: u64,
    /// Frames moved.
    pub frames: u64,
    /// Blocks of which something could not move.
    pub refused: u64,
    /// An allocation failed meanwhile and waited for the call, which ended early; or the call came
    /// from a mover.
    pub cut_short: bool,
}

impl Arena {
    /// Empties blocks, those with least in use first, of a program that holds chunks of one order
    /// and can move each of them; moves at most `budget` frames. What is free then goes back by the
    /// next [`trim`](Self::trim), or by the second [`pass`](Self::pass) from now.
    ///
    /// `mover(old, new)` copies the chunk at `old` to `new`, has whoever uses it use `new` from
    /// then on, and returns true. False says that it did not: the chunk at `old` is nobody's that
    /// it knows, or busy, or a [tenant's](crate::Tenants), which is known by its number. Then `new`
    /// goes home, and that block stays in use. It may call any arena, but not wait for another
    /// thread that allocates in this one; other threads work on meanwhile. Its calls wait for no
    /// pass nor move of any arena: an allocation that would is refused, and what would give back or
    /// move is [cut short](Evacuated::cut_short).
    ///
    /// Of an arena in guard mode nothing moves. Takes a barrier and two looks at the board for each
    /// block, and the copies.
    ///
    /// # Safety
    ///
    /// Where `mover` returns true, nobody uses the frames at `old` any more, and nobody frees them.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]. [`Error::Free`] where `old` was freed in spite of the contract.
    pub unsafe fn evacuate(
        &self,
        order: Order,
        budget: u64,
        mut mover: impl FnMut(Pfn, Pfn) -> bool,
    ) -> Result<Evacuated, Error> {
        self.core.check_fork()?;
        let mut done = Evacuated::default();
        if self.inner.guard.is_some() || order > Order::PAGEBLOCK {
            return Ok(done);
        }
        self.core.collect_ended();
        let Some(_alone) = self.inner.release.to_move() else {
            return Ok(Evacuated { cut_short: true, ..done });
        };
        // What is kept looks as if it were somebody's.
        let _nothing = self.core.keep_nothing();
        let keeper = self.core.keeper();
        let result = (0..self.core.engine.zone_count()).try_for_each(|zone| {
            self.evacuate_zone(&keeper, (zone, order, budget), &mut done, &mut mover)
        });
        keeper.flush()?;
        result.map(|()| done)
    }

    fn evacuate_zone(
        &self,
        keeper: &On<'_, 'static, Host>,
        (zone, order, budget): (usize, Order, u64),
        done: &mut Evacuated,
        mover: &mut impl FnMut(Pfn, Pfn) -> bool,
    ) -> Result<(), Error> {
        let engine = &self.core.engine;
        for block in engine.emptiest(zone, u32::MAX, |_| true) {
            if self.inner.release.is_wanted() {
                done.cut_short = true;
                return Ok(());
            }
            if u64::from(block.used) > budget.saturating_sub(done.frames) {
                return Ok(());
            }
            // Somebody else has it in hand, or has freed what was in it.
            let Ok(mut emptying) = engine.evacuate(block.start) else { continue };
            let mut end = Ok(Room::Left);
            emptying.move_used(|run| {
                end = self.move_run(keeper, order, run, done, mover);
                matches!(end, Ok(Room::Left))
            });
            let whole = emptying.finish();
            done.blocks += u64::from(whole);
            match end? {
                Room::None => return Ok(()),
                _ => done.refused += u64::from(!whole),
            }
        }
        Ok(())
    }

    /// Moves the chunks of a run of frames in use.
    fn move_run(
        &self,
        keeper: &On<'_, 'static, Host>,
        order: Order,
        run: FrameRange,
        done: &mut Evacuated,
        mover: &mut impl FnMut(Pfn, Pfn) -> bool,
    ) -> Result<Room, Error> {
        let mut old = run.start;
        while old < run.end {
            if !old.is_aligned(order) || run.end.get() - old.get() < order.frames() {
                return Ok(Room::Refused);
            }
            // A run that is being kept at this moment is nobody's to move.
            if self.marks.waits(old.get(), order.frames()) {
                return Ok(Room::Refused);
            }
            let Some(new) = self.room_beside(keeper, order) else { return Ok(Room::None) };
            // It goes home too if `mover` panics.
            let spare = Spare { keeper, new, order };
            if !mover(old, new) {
                return Ok(Room::Refused);
            }
            std::mem::forget(spare);
            // From now on nobody else frees it. Before, its marks are for whoever does.
            self.give_up(chunk(old, order))?;
            keeper.free(old, order)?;
            done.frames += order.frames();
            old = Pfn::new(old.get() + order.frames());
        }
        Ok(Room::Left)
    }

    /// A chunk of a block that is in use, and in memory.
    fn room_beside(&self, keeper: &On<'_, 'static, Host>, order: Order) -> Option<Pfn> {
        let request = Request::new(order, Migratetype::Movable).flags(AllocFlags::NO_WATERMARKS);
        let new = keeper.alloc(request).ok()?;
        let spare = Spare { keeper, new, order };
        let free = self.core.engine.pageblock(new).map_or(0, |state| u64::from(state.free));
        let was_whole = free + order.frames() >= PAGEBLOCK_FRAMES;
        if was_whole || self.inner.notes.is_released(new) {
            return None;
        }
        std::mem::forget(spare);
        self.inner.notes.handed_out(chunk(new, order), |_| {});
        Some(new)
    }
}

/// A chunk that was allocated a moment ago and that nobody has yet: it goes home.
struct Spare<'a> {
    keeper: &'a On<'a, 'static, Host>,
    new: Pfn,
    order: Order,
}

impl Drop for Spare<'_> {
    fn drop(&mut self) {
        // It is allocated: that cannot fail.
        let _ = self.keeper.free(self.new, self.order);
    }
}

/// Why a run was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    /// All of it has moved, and there may be more room.
    Left,
    /// Something in it does not move.
    Refused,
    /// There is no place for more.
    None,
}
