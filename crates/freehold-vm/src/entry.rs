//! A page table entry: which frame a virtual page shows, what may be done with it, and what has
//! been done.
//!
//! ```text
//!  63 ........ 52 51 .............. 12 11         8         7      6      5      1         0
//!      unused    |       PFN          | soft-   | PROT_ | huge | dirty| young| writable | present
//!                                       dirty     NONE
//! ```
//!
//! The bits lie where x86-64 has them, so that a kernel's own entries can be used without
//! translating. There, too, an entry without the present bit means nothing to the hardware, and the
//! system uses the rest as it likes: PROT_NONE is such an entry, which keeps its frame but can
//! cause no access and so sits in no TLB.

use core::fmt;

use freehold::Pfn;

use crate::Access;

/// One page table entry. Zero is "nothing mapped".
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Entry(u64);

const PFN_SHIFT: u32 = 12;
const PFN_BITS: u64 = ((1 << 40) - 1) << PFN_SHIFT;

impl Entry {
    /// Nothing mapped.
    pub const NONE: Self = Self(0);
    /// The hardware uses the entry.
    pub const PRESENT: Self = Self(1 << 0);
    /// Writing is allowed.
    pub const WRITABLE: Self = Self(1 << 1);
    /// Somebody has used the page since the bit was last cleared. Set by hardware, or by a software
    /// walk.
    pub const YOUNG: Self = Self(1 << 5);
    /// Somebody has written to the page since the bit was last cleared. Set by hardware, or by a
    /// software walk.
    pub const DIRTY: Self = Self(1 << 6);
    /// The entry is one for all 512 pages of its table (a PMD): the first of the table, and no
    /// other has anything mapped. See [`Vm::set_pmd_mappings`](crate::Vm::set_pmd_mappings).
    pub const HUGE: Self = Self(1 << 7);
    /// The frame stays, but every access faults. Never together with PRESENT.
    pub const PROT_NONE: Self = Self(1 << 8);
    /// The page was written to since a checkpointing tool last asked. Set by the system when it
    /// lets a write happen.
    pub const SOFT_DIRTY: Self = Self(1 << 11);
    /// What hardware changes by itself.
    pub const HARDWARE: Self = Self(Self::YOUNG.0 | Self::DIRTY.0);

    /// A fresh entry: not young, not dirty, soft-dirty as every new mapping is.
    #[must_use]
    pub const fn new(pfn: Pfn, access: Access) -> Self {
        let kind = match access {
            Access::None => Self::PROT_NONE.0,
            Access::Read => Self::PRESENT.0,
            Access::ReadWrite => Self::PRESENT.0 | Self::WRITABLE.0,
        };
        Self((pfn.get() << PFN_SHIFT) & PFN_BITS | kind | Self::SOFT_DIRTY.0)
    }

    /// The entry with these bits, as a page table holds it.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits, as a page table holds them.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether all of `bits` are set.
    #[must_use]
    pub const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 == bits.0
    }

    /// The entry with these bits set.
    #[must_use]
    pub const fn with(self, bits: Self) -> Self {
        Self(self.0 | bits.0)
    }

    /// The entry with these bits clear.
    #[must_use]
    pub const fn without(self, bits: Self) -> Self {
        Self(self.0 & !bits.0)
    }

    /// Those of the entry's bits that are in `bits`.
    #[must_use]
    pub const fn only(self, bits: Self) -> Self {
        Self(self.0 & bits.0)
    }

    /// Whether the entry holds a frame: present or PROT_NONE.
    #[must_use]
    pub const fn is_mapped(self) -> bool {
        self.0 & (Self::PRESENT.0 | Self::PROT_NONE.0) != 0
    }

    /// Whether a CPU can use the entry, so that a TLB may hold it.
    #[must_use]
    pub const fn is_present(self) -> bool {
        self.has(Self::PRESENT)
    }

    /// Whether writing is allowed.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        self.has(Self::WRITABLE)
    }

    /// Whether it was written through since the bit was last cleared.
    #[must_use]
    pub const fn is_dirty(self) -> bool {
        self.has(Self::DIRTY)
    }

    /// Whether it was used since the bit was last cleared.
    #[must_use]
    pub const fn is_young(self) -> bool {
        self.has(Self::YOUNG)
    }

    /// The frame.
    #[must_use]
    pub const fn pfn(self) -> Pfn {
        Pfn::new((self.0 & PFN_BITS) >> PFN_SHIFT)
    }

    /// This entry, but for the frame `frames` further on.
    #[must_use]
    pub const fn advance(self, frames: u64) -> Self {
        Self(self.0 + (frames << PFN_SHIFT))
    }

    /// Whether `other` may be cleared and restored together with this one, being the entry of the
    /// frame `distance` further on: all bits agree but those that hardware changes by itself.
    ///
    /// That write and soft-dirty bits must agree is the correction of CVE-2026-31398: one value
    /// restores the whole batch, so a batch that mixed writable and read-only entries would come
    /// back all writable. That the present and PROT_NONE bits must agree makes the first entry's
    /// answer to "does this need a flush?" the answer for all.
    #[must_use]
    pub const fn batches_with(self, other: Self, distance: u64) -> bool {
        self.advance(distance).without(Self::HARDWARE).0 == other.without(Self::HARDWARE).0
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_mapped() {
            return write!(f, "Entry(none, {:#x})", self.0);
        }
        let flag = |bit: Self, c: char| if self.has(bit) { c } else { '-' };
        write!(
            f,
            "Entry({}, {}{}{}{}{}{})",
            self.pfn(),
            flag(Self::PRESENT, 'p'),
            flag(Self::PROT_NONE, 'n'),
            flag(Self::WRITABLE, 'w'),
            flag(Self::YOUNG, 'y'),
            flag(Self::DIRTY, 'd'),
            flag(Self::SOFT_DIRTY, 's')
        )
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_hardware_bits_may_differ_within_a_batch() {
        let first = Entry::new(Pfn::new(40), Access::ReadWrite);
        let second = Entry::new(Pfn::new(41), Access::ReadWrite);
        assert!(first.batches_with(second, 1));
        assert!(first.batches_with(second.with(Entry::HARDWARE), 1));
        assert!(!first.batches_with(second, 2), "another frame");
        assert!(!first.batches_with(second.without(Entry::WRITABLE), 1));
        assert!(!first.batches_with(second.without(Entry::SOFT_DIRTY), 1));
        assert!(!first.batches_with(Entry::new(Pfn::new(41), Access::None), 1));
    }

    #[test]
    fn an_entry_keeps_its_frame_and_its_bits_apart() {
        let entry = Entry::new(Pfn::new((1 << 40) - 1), Access::None);
        assert_eq!(entry.pfn().get(), (1 << 40) - 1);
        assert!(entry.is_mapped() && !entry.is_present() && !entry.is_writable());
        assert_eq!(entry.with(Entry::DIRTY).only(Entry::HARDWARE), Entry::DIRTY);
        assert!(!Entry::NONE.is_mapped());
    }
}
