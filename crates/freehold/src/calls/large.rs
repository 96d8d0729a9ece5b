//! Orders 10 to 18: runs of wholly free blocks, found in the zones' bitmaps.
//!
//! | step | holds |
//! |---|---|
//! | the zone's lock, what was announced to it listed | what it knows to be wholly free is in its bitmap |
//! | it would keep its mark | the request may have them |
//! | `find`, a few words of the bitmap a hold | an aligned run of set bits, which stay set while the lock is held |
//! | who may not wait sets up each block's metadata | what comes after the unlock waits for nobody |
//! | the bits are cleared; unlock | nobody else finds these blocks, and the zone does not count them |
//! | of each block: the tag says "in a CPU's hand", then it is on no list | whoever looks for its holder waits |
//! | `take_block` | it is in use as a whole; the last one makes the run the caller's |
//! | no run in any zone: whole blocks come from CPUs and groups, then once more | it fails only where those made none |

use crate::block::tag::{IN_HAND, ZONE_GROUP};
use crate::block::{FRAMES, bits};
use crate::cpu::inside::Inside;
use crate::group::lists::NO_LIST;
use crate::primitive::{Count, Ordering};
use crate::transfer::refill::COLLECT;
use crate::zone::bitmap::Search;
use crate::{AllocError, AllocFlags, Freehold, Pfn, Platform, Request};

/// Words of the bitmap looked at in one hold.
const SEARCH_WORDS: u32 = 12;

impl<'m, P: Platform> Inside<'_, 'm, P> {
    /// A run of `2^(order - 9)` whole blocks: from the zones; after fetching home all that is free
    /// if need be.
    pub(crate) fn alloc_run_of_blocks(&self, request: &Request) -> Result<Pfn, AllocError> {
        let zones = || self.fh.zonelist(self.id.index(), request.node);
        for round in 0..2 {
            if let Some(pfn) =
                zones().find_map(|z| self.fh.take_run_of_blocks(z, request, 0, u64::MAX))
            {
                return Ok(pfn);
            }
            if request.flags.contains(AllocFlags::NO_LOCK) {
                return Err(AllocError::WouldBlock);
            }
            if round == 0 {
                self.outside(|| self.fh.fetch_wholes());
            }
        }
        Err(AllocError::NoMemory { order: request.order })
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Brings every wholly free block that a CPU or a group has to its zone. The caller is inside
    /// no CPU's state.
    pub(crate) fn fetch_wholes(&self) {
        self.recall_and_collect();
        for zone in self.zones {
            for group in 1..=zone.groups.len() as u16 {
                self.give_wholes(zone, group, 0);
            }
            while self.hold(zone, ZONE_GROUP).collect(COLLECT) {}
        }
    }

    /// Takes a run of whole blocks of one zone, aligned as the request wants it, whose frames lie
    /// in `from..below`.
    pub(crate) fn take_run_of_blocks(
        &self,
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
        loop {
            let held = self.hold_collected(zone, ZONE_GROUP, request.flags)?;
            if !zone.leaves_mark(frames, request.flags, false) {
                return None;
            }
            let mut steps = 0;
            let found = zone.bitmap.find(order, at, to, SEARCH_WORDS, &mut steps);
            held.step(steps);
            match found {
                Search::None => return None,
                Search::More(next) => at = next,
                // The bitmap starts at a multiple of the largest order.
                Search::Found(first) if first % align != 0 => at = first.next_multiple_of(align),
                // Who may not wait must not have to when the blocks are off the bitmap.
                Search::Found(first)
                    if !held.waits
                        && (first..first + len).any(|bit| held.set_up(bit).is_none()) =>
                {
                    return None;
                }
                Search::Found(first) => {
                    // All at once, by whole words: nobody else can find these blocks any more.
                    for (w, m) in bits::spans(first as usize, len as usize) {
                        held.step(zone.bitmap.remove(w, m));
                    }
                    zone.whole_blocks.sub(len);
                    drop(held);
                    for bit in first..first + len {
                        self.take_found(z, bit, request.migratetype as usize);
                    }
                    return Some(Pfn::new((zone.first_block + first) * FRAMES as u64));
                }
            }
        }
    }

    /// A block whose bit was found and cleared is handed out.
    fn take_found(&self, z: usize, bit: u64, migratetype: usize) {
        let zone = &self.zones[z];
        let number = zone.first_block + bit;
        if self.map.locate_block(number).is_none() {
            self.map.set_up(number << 9, || self.waited());
        }
        // There was room for it when the memory was added.
        let Some(index) = self.map.locate_block(number) else { return };
        zone.make_present(self.map.head(index));
        // No lock keeps others out here. As one that a CPU has in hand it is waited for until it is
        // taken: a whole block of the zone's on no list would be taken for one that was freed just
        // now, and one in use that is on a list would be unlisted.
        let head = self.map.head(index);
        head.tag.set(head.tag.get().with_group(IN_HAND));
        // SeqCst: who sees it on no list sees that it is in a hand; and see `Held::accept`.
        self.map.links(index).list.store(NO_LIST, Ordering::SeqCst);
        self.take_block(index, migratetype, ZONE_GROUP);
    }
}
