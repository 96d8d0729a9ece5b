//! Orders 10 to 18: runs of wholly free blocks, found in the zones' bitmaps.
//!
//! | step | holds |
//! |---|---|
//! | `find`, a few words of the bitmap at a time | an aligned run of bits that were set |
//! | as many whole blocks are claimed | the zone keeps its mark |
//! | the bits are cleared word by word, all or none | nobody else has these blocks |
//! | `take_block` of each | it is in use as a whole; the last one makes the run the caller's |
//! | no run in any zone: whole blocks come from CPUs, then once more | it fails only where those made none |
//! | no run: HIGHATOMIC blocks become ordinary ones, then once more | nor these |

use crate::block::Block;
use crate::block::FRAMES;
use crate::cpu::by::By;
use crate::cpu::inside::Inside;
use crate::zone::Zone;
use crate::zone::bitmap::Search;
use crate::{AllocError, AllocFlags, Freehold, Pfn, Platform, Request};

/// Words of the bitmap looked at between two looks at the mark.
const SEARCH_WORDS: u32 = 12;

impl<'m, P: Platform> Inside<'_, 'm, P> {
    /// A run of `2^(order - 9)` whole blocks: from the zones; after fetching home all that is free
    /// if need be.
    pub(crate) fn alloc_run_of_blocks(&self, request: &Request) -> Result<Pfn, AllocError> {
        self.look_everywhere(request, || {
            let mut zones = self.fh.zonelist(self.id.index(), request.node);
            zones.find_map(|z| self.fh.take_run_of_blocks(self.by(), z, request, 0, u64::MAX))
        })
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Takes a run of whole blocks of one zone, aligned as the request wants it, whose frames lie
    /// in `from..below`.
    pub(crate) fn take_run_of_blocks(
        &self,
        by: By<'_, 'm, P>,
        z: usize,
        request: &Request,
        from: u64,
        below: u64,
    ) -> Option<Pfn> {
        let zone = &self.zones[z];
        let order = u32::from(request.order.get()) - 9;
        let (len, frames) = (1u64 << order, request.order.frames());
        let align = request.align.max(request.order).frames() / FRAMES as u64;
        let mut at = from.div_ceil(FRAMES as u64).saturating_sub(zone.first_block);
        let to = (below / FRAMES as u64).saturating_sub(zone.first_block);
        let may_wait = !request.flags.contains(AllocFlags::NO_LOCK);
        let allowed = || zone.allows(by, frames, request.flags, false, false);
        loop {
            let mut steps = 0;
            let found = zone.bitmap.find(order, at, to, SEARCH_WORDS, &mut steps);
            let first = match found {
                Search::None => return None,
                Search::More(next) => {
                    at = next;
                    continue;
                }
                // The bitmap starts at a multiple of the largest order.
                Search::Found(first) if first % align != 0 => {
                    at = first.next_multiple_of(align);
                    continue;
                }
                Search::Found(first) => first,
            };
            if !zone.claim_wholes(len, allowed) {
                return None;
            }
            let (writes, taken) = zone.bitmap.take_run(first, len);
            by.wrote(zone, writes + 1);
            if taken && zone.take_found(self, (first, len), request, may_wait) {
                zone.update_mode();
                return Some(Pfn::new((zone.first_block + first) * FRAMES as u64));
            }
            if taken {
                zone.bitmap.insert_range(first, first + len);
            }
            zone.give_up_wholes(self, len);
            // Somebody was faster, or is setting up a section of it.
            at = first + len;
        }
    }
}

impl<'m> Zone<'m> {
    /// Blocks whose bits were cleared are handed out; `false` where somebody else is setting a section
    /// of them up, and nothing has changed then.
    fn take_found(
        &self,
        fh: &Freehold<'m, impl Platform>,
        (first, len): (u64, u64),
        request: &Request,
        may_wait: bool,
    ) -> bool {
        let blocks = || (first..first + len).map(|bit| self.set_up(fh, bit, may_wait));
        if blocks().any(|block: Option<Block<'m>>| block.is_none()) {
            return false;
        }
        for block in blocks().flatten() {
            block.take_block(fh, request.migratetype as usize);
        }
        true
    }
}
