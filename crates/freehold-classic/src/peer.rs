//! Taking a whole pageblock from another CPU: Zi Yan's question to the pcp-buddy proposal, which
//! its author called a block economy.
//!
//! ```text
//!   CPU 1  is out of movable frames, asks CPU 2, 3, ... 0 in turn, whoever has a whole block of
//!          that type
//!   CPU 2  [block 7: 512 free, own]  ──────> CPU 1  [block 7: 512 free, own]
//!          no zone lock, no splits, no merges
//! ```
//!
//! The order of asking is the natural one of a machine whose neighbours in number share a cache.
//! Each lock is tried and never waited for, since the asker holds its own. Only blocks that are
//! whole move, so that no frame of them is in use and no free can be on its way to the old owner.

use core::sync::atomic::Ordering::Relaxed;

use freehold::Migratetype;

use crate::page::{Kind, PAGEBLOCK_ORDER, State};
use crate::pageblock::UNLISTED;
use crate::pcp::{Layout, PcpInner};
use crate::zone::Zone;

impl Zone {
    /// Moves one whole pageblock of `migratetype` from the next CPU that has one to `cpu`, whose
    /// PCP is `inner`, and makes `cpu` its owner. Looks at every other CPU at most.
    pub(crate) fn take_from_peer(
        &self,
        cpu: usize,
        inner: &mut PcpInner,
        layout: Layout,
        migratetype: Migratetype,
    ) -> bool {
        let index = layout.index(PAGEBLOCK_ORDER, migratetype);
        let cpus = self.pcps.len();
        for peer in (1..cpus).map(|step| (cpu + step) % cpus) {
            inner.counters.peers_asked += 1;
            let Some(mut other) = self.pcps[peer].try_lock() else { continue };
            // The coldest.
            let movable = |&frame: &u32| self.may_move(frame, peer as u32, migratetype);
            let Some(frame) = other.lists[index].iter(&self.frames).filter(movable).last() else {
                continue;
            };
            other.remove(&self.frames, index, frame);
            drop(other);
            self.blocks.set_owner(self.block_of(frame), Some(cpu as u32));
            let state = State::new(Kind::PcpBuddy, PAGEBLOCK_ORDER, migratetype);
            inner.push_back(&self.frames, index, frame, state);
            inner.counters.peer_blocks += 1;
            return true;
        }
        false
    }

    /// Whether a whole block on `peer`'s lists may get another owner. The caller holds that PCP's
    /// lock.
    fn may_move(&self, frame: u32, peer: u32, migratetype: Migratetype) -> bool {
        let block = self.block_of(frame);
        // A block of another type, or one that is being isolated, goes to the zone when it is
        // drained.
        let now = self.blocks.migratetype(block);
        let fits =
            now == migratetype || migratetype == Migratetype::Movable && now == Migratetype::Cma;
        let own = self.blocks.owner(block).is_none_or(|owner| owner == peer);
        // Still on the owner's list of blocks with fragments, which only the zone lock opens:
        // somebody else has allocated them since. Relaxed: blocks come onto the list under the lock
        // that the caller holds.
        let unlisted =
            self.blocks.data(block).is_some_and(|data| data.list.load(Relaxed) == UNLISTED);
        fits && own && unlisted
    }
}
