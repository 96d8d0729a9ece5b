//! The block in use: the one that a CPU leases its next words from without any lock, and those
//! listed behind it.
//!
//! A hold of the group's lock finds one block, which in memory that has been in use for long has a
//! word or two to give. The block behind it on its list is of the same type, largest run and
//! fullness, so it is as good a choice, and its link may be read without the lock: it is a hint,
//! and what the tag and the words say decides. What is used up that way stays where it was listed,
//! and is looked at in vain once by the next hold: so only a few blocks are left behind for each
//! hold.

use crate::block::layout::Index;
use crate::cpu::inside::Inside;
use crate::group::lists::WHOLE_LIST;
use crate::primitive::Plain;
use crate::transfer::refill::Want;
use crate::{Pfn, Platform};

/// Blocks that a CPU goes on to after each look under its group's lock.
pub(crate) const FOLLOWED: u32 = 3;
/// Single frames and runs of order 1 may come from a block whose largest run is of order 2: with
/// less there would be a lock for every few frames, with more larger runs are broken up.
const SMALL_CLASS: u8 = 3;

impl<'m, P: Platform> Inside<'_, 'm, P> {
    /// From the home zone's block in use.
    #[inline(never)]
    pub(crate) fn take_of_block_in_use_at_home(&self, want: Want) -> Option<Pfn> {
        self.take_of_block_in_use(self.cpu.home_zone.get() as usize, self.cpu.home.get(), want)
            .map(Pfn::new)
    }

    /// From the block in use of a zone, if `holder`, this CPU's group there, still has it, or from
    /// the next ones of its list.
    #[inline]
    pub(crate) fn take_of_block_in_use(&self, z: usize, holder: u32, want: Want) -> Option<u64> {
        let index = self.fh.map.index(self.cursors(z).get(want.purpose(), want.migratetype))?;
        if !self.fits(index, z, holder, want) {
            return None;
        }
        self.take_of(index, want).or_else(|| self.take_of_next(index, z, holder, want))
    }

    /// Whether a block may be used without a look at the lists: `holder` has it for that type.
    /// Unless most of the zone is whole, it also has no larger run than is taken: otherwise the
    /// lists may know one that fits better, which is what keeps others whole.
    fn fits(&self, index: Index, z: usize, holder: u32, want: Want) -> bool {
        let head = self.fh.map.head(index);
        let tag = head.tag.get();
        let roomy = self.fh.zones[z].roomy.get();
        tag.holder() == holder
            && tag.migratetype() == want.migratetype
            && (roomy || !self.breaks_a_run(index, want))
    }

    /// Whether the lists know a larger run of that block than such a request takes.
    pub(crate) fn breaks_a_run(&self, index: Index, want: Want) -> bool {
        self.fh.map.head(index).class() > SMALL_CLASS.max(want.order as u8 + 1)
    }

    /// From the blocks listed behind one that has nothing left; the one that has is in use from now
    /// on.
    #[cold]
    #[inline(never)]
    fn take_of_next(&self, mut index: Index, z: usize, holder: u32, want: Want) -> Option<u64> {
        for left in (0..self.cpu.followed.get()).rev() {
            let links = self.fh.map.links(index);
            if links.list.get() >= WHOLE_LIST {
                return None;
            }
            index = self.fh.map.index(links.next.get())?;
            self.cpu.followed.set(left);
            if !self.fits(index, z, holder, want) {
                return None;
            }
            if let Some(pfn) = self.take_of(index, want) {
                self.cursors(z).set(want.purpose(), want.migratetype, index.get());
                return Some(pfn);
            }
        }
        None
    }
}
