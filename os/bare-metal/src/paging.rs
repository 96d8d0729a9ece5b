//! The arithmetic of x86-64's page tables: which entry of which level is for a page, and how a run
//! of frames is cut into entries.
//!
//! ```text
//!   virtual address   47 ...... 39 | 38 ...... 30 | 29 ...... 21 | 20 ...... 12 | 11 ... 0
//!                     level 4: 512   level 3: 1     level 2: 2     level 1: 4     byte
//!                     GiB an entry   GiB            MiB            KiB
//! ```

use freehold::{FrameRange, Order, PAGEBLOCK_FRAMES, Pfn};
use freehold_vm::{Entry, Vpn, VpnRange};

/// Entries in a table.
pub const ENTRIES: usize = 512;

/// The bit that says that nothing may be executed from there.
pub const NO_EXECUTE: u64 = 1 << 63;

/// Pages that one entry of a level covers: 1, 512, 2^18, 2^27 for levels 1 to 4.
#[must_use]
pub const fn pages_of_entry(level: u32) -> u64 {
    1 << (9 * (level - 1))
}

/// The number of the entry for a page in its table of that level.
#[must_use]
pub const fn index(vpn: Vpn, level: u32) -> usize {
    (vpn.get() >> (9 * (level - 1))) as usize & (ENTRIES - 1)
}

/// The page behind the last one that the same entry of that level covers.
#[must_use]
pub const fn entry_end(vpn: Vpn, level: u32) -> Vpn {
    Vpn::new((vpn.get() | (pages_of_entry(level) - 1)) + 1)
}

/// The address of a page, sign-extended as the processor demands.
#[must_use]
pub const fn address(vpn: Vpn) -> u64 {
    (((vpn.get() << 12) as i64) << 16 >> 16) as u64
}

/// The page of an address: 36 bits, without the sign extension.
#[must_use]
pub const fn page_of(address: u64) -> Vpn {
    Vpn::new(address >> 12 & ((1 << 36) - 1))
}

/// An entry as the tables hold it, as the mechanisms know it: without what they know nothing of.
#[must_use]
pub const fn from_hardware(bits: u64) -> Entry {
    Entry::from_bits(bits & !NO_EXECUTE)
}

/// An entry of the mechanisms as the tables hold it: data, not to be executed.
#[must_use]
pub const fn to_hardware(entry: Entry) -> u64 {
    if entry.is_mapped() { entry.bits() | NO_EXECUTE } else { entry.bits() }
}

/// Neighbouring entries of one table, or one entry of level 2 that maps 2 MiB by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The first page.
    pub at: Vpn,
    /// The frame that the first page shows.
    pub pfn: Pfn,
    /// How many pages.
    pub pages: u64,
    /// Whether one entry of level 2 is enough.
    pub huge: bool,
}

/// Cuts a run of frames, to be seen from `at` on, into spans: whole 2 MiB where `leaf` allows and
/// both the page and the frame are so aligned, otherwise as far as the level 1 table goes.
pub fn spans(at: Vpn, frames: FrameRange, leaf: Order) -> impl Iterator<Item = Span> {
    let (mut at, mut pfn) = (at, frames.start);
    core::iter::from_fn(move || {
        let left = frames.end.get() - pfn.get();
        if left == 0 {
            return None;
        }
        let aligned = index(at, 1) == 0 && pfn.is_aligned(Order::PAGEBLOCK);
        let huge = leaf >= Order::PAGEBLOCK && aligned && left >= PAGEBLOCK_FRAMES;
        let pages = left.min(entry_end(at, 2).get() - at.get());
        let span = Span { at, pfn, pages, huge };
        at = Vpn::new(at.get() + pages);
        pfn = Pfn::new(pfn.get() + pages);
        Some(span)
    })
}

/// Cuts a range of pages where level 1 tables end.
pub fn tables(range: VpnRange) -> impl Iterator<Item = VpnRange> {
    let mut at = range.start;
    core::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let part = VpnRange { start: at, end: entry_end(at, 2).min(range.end) };
        at = part.end;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn indices_are_the_address_bits() {
        let vpn = page_of(0xffff_8080_4030_2000);
        assert_eq!([4, 3, 2, 1].map(|level| index(vpn, level)), [257, 1, 1, 0x102]);
        assert_eq!(address(vpn), 0xffff_8080_4030_2000);
        assert_eq!(address(page_of(0x7fff_ffff_f000)), 0x7fff_ffff_f000);
        assert_eq!(entry_end(vpn, 1).get(), vpn.get() + 1);
        assert_eq!(address(entry_end(vpn, 2)), 0xffff_8080_4040_0000);
    }

    #[test]
    fn two_mib_are_one_entry_only_where_all_is_aligned() {
        let run = FrameRange::new(Pfn::new(1024), 1030).unwrap();
        let cut = |at, leaf| {
            spans(Vpn::new(at), run, leaf).map(|s| (s.pages, s.huge)).collect::<Vec<_>>()
        };
        assert_eq!(cut(512, Order::PAGEBLOCK), [(512, true), (512, true), (6, false)]);
        assert_eq!(cut(512, Order::ZERO), [(512, false), (512, false), (6, false)]);
        assert_eq!(cut(513, Order::PAGEBLOCK), [(511, false), (512, false), (7, false)]);
        let odd = FrameRange::new(Pfn::new(1025), 512).unwrap();
        assert!(spans(Vpn::new(512), odd, Order::PAGEBLOCK).all(|span| !span.huge));
    }

    #[test]
    fn entries_survive_the_way_there_and_back() {
        let entry =
            Entry::new(Pfn::new(0x1234), freehold_vm::Access::ReadWrite).with(Entry::HARDWARE);
        assert_eq!(from_hardware(to_hardware(entry)), entry);
        assert_eq!(to_hardware(Entry::NONE), 0);
    }

    proptest! {
        #[test]
        fn spans_cover_every_page_once_and_never_cross_a_table(
            at in 0u64..(1 << 36) - 5000, pfn in 0u64..1 << 30, len in 0u64..5000, aligned in any::<bool>(),
        ) {
            let (at, pfn) = if aligned { (at & !511, pfn & !511) } else { (at, pfn) };
            let run = FrameRange::new(Pfn::new(pfn), len).unwrap();
            let (mut next, mut frame) = (at, pfn);
            for span in spans(Vpn::new(at), run, Order::PAGEBLOCK) {
                prop_assert_eq!((span.at.get(), span.pfn.get()), (next, frame));
                prop_assert_eq!(next >> 9, (next + span.pages - 1) >> 9);
                prop_assert!(!span.huge || span.pages == 512);
                next += span.pages;
                frame += span.pages;
            }
            prop_assert_eq!(frame, pfn + len);
            let range = VpnRange::new(Vpn::new(at), len).unwrap();
            let mut next = at;
            for part in tables(range) {
                prop_assert_eq!(part.start.get(), next);
                prop_assert!(!part.is_empty());
                prop_assert_eq!(part.start.get() >> 9, (part.end.get() - 1) >> 9);
                next = part.end.get();
            }
            prop_assert_eq!(next, at + len);
        }
    }
}
