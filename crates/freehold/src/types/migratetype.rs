//! What a pageblock is meant for.

use core::fmt;

/// The kind of allocation that a pageblock serves, so that what cannot move is kept together.
///
/// The numbers are the kernel's (x86-64 with CMA and isolation). The first three are the types a
/// request may name and that per-CPU lists are kept for; the others are states of a pageblock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Migratetype {
    /// Stays where it is until freed: kernel objects, page tables.
    Unmovable = 0,
    /// Can be migrated elsewhere: user memory, page cache.
    Movable = 1,
    /// Cannot be moved but can be dropped under pressure: inode and dentry caches.
    Reclaimable = 2,
    /// Kept back for high-order requests that may not wait.
    HighAtomic = 3,
    /// Lent to movable requests until a device claims it.
    Cma = 4,
    /// Being emptied: nothing may be allocated from it.
    Isolate = 5,
}

impl Migratetype {
    /// Every type, in the order of its number.
    pub const ALL: [Self; 6] = [
        Self::Unmovable,
        Self::Movable,
        Self::Reclaimable,
        Self::HighAtomic,
        Self::Cma,
        Self::Isolate,
    ];

    /// The types that a request may name, for each of which a CPU keeps its own lists.
    pub const PCP: [Self; 3] = [Self::Unmovable, Self::Movable, Self::Reclaimable];

    /// The type of that number, if there is one.
    #[inline]
    #[must_use]
    pub const fn from_index(index: usize) -> Option<Self> {
        if index < Self::ALL.len() { Some(Self::ALL[index]) } else { None }
    }

    /// The number as an index into a table with one entry a type.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether whole pageblocks of this and another such type may merge into a larger chunk.
    ///
    /// True of the three ordinary types only: any other block would lose its purpose.
    #[inline]
    #[must_use]
    pub const fn is_mergeable(self) -> bool {
        (self as u8) < Self::HighAtomic as u8
    }

    /// The types to take from when this one has nothing left, best first; empty if it never takes.
    ///
    /// Linux 6.12 and later, table `fallbacks`.
    #[inline]
    #[must_use]
    pub const fn fallbacks(self) -> &'static [Self] {
        match self {
            Self::Unmovable => &[Self::Reclaimable, Self::Movable],
            Self::Movable => &[Self::Reclaimable, Self::Unmovable],
            Self::Reclaimable => &[Self::Unmovable, Self::Movable],
            Self::HighAtomic | Self::Cma | Self::Isolate => &[],
        }
    }

    /// The field's name for it, as `/proc/pagetypeinfo` prints it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unmovable => "Unmovable",
            Self::Movable => "Movable",
            Self::Reclaimable => "Reclaimable",
            Self::HighAtomic => "HighAtomic",
            Self::Cma => "CMA",
            Self::Isolate => "Isolate",
        }
    }
}

impl fmt::Display for Migratetype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_positions() {
        for (i, mt) in Migratetype::ALL.into_iter().enumerate() {
            assert_eq!(mt.index(), i);
            assert_eq!(Migratetype::from_index(i), Some(mt));
        }
        assert_eq!(Migratetype::from_index(6), None);
    }

    #[test]
    fn only_ordinary_types_merge_and_fall_back() {
        for mt in Migratetype::ALL {
            assert_eq!(mt.is_mergeable(), Migratetype::PCP.contains(&mt));
            assert_eq!(mt.fallbacks().len(), if mt.is_mergeable() { 2 } else { 0 });
            assert!(!mt.fallbacks().contains(&mt));
        }
    }
}
