//! The kinds of calls that are counted and timed.

macro_rules! kinds {
    ($($kind:ident: $name:literal,)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Kind {
            $(#[doc = $name] $kind,)*
        }

        impl Kind {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// As a reader knows it.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    AllocFrame: "alloc, order 0",
    AllocRun: "alloc, orders 1 to 5",
    AllocWords: "alloc, orders 6 to 8",
    AllocBlock: "alloc, order 9",
    AllocBlocks: "alloc, order 10",
    AllocAligned: "alloc, aligned further",
    AllocLimited: "alloc, within limits",
    AllocNoLock: "alloc, NO_LOCK",
    AllocHighAtomic: "alloc, HIGH_ATOMIC",
    AllocInHand: "alloc_in_hand",
    AllocBulk: "alloc_bulk",
    FreeFrame: "free, order 0",
    FreeRun: "free, orders 1 to 5",
    FreeWords: "free, orders 6 to 8",
    FreeBlocks: "free, orders 9 and 10",
    FreeInHand: "free_in_hand",
    FreeRange: "free_range",
    FreeRangeWith: "free_range_with",
    FreeBulk: "free_bulk",
    ContigRange: "alloc_contig_range",
    Contig: "alloc_contig",
    ContigFree: "alloc_contig_free",
    Own: "own",
    Release: "drop of Owned",
    Tick: "tick",
    Flush: "flush",
    Drain: "drain_all",
    CpuOffline: "cpu_offline",
    CpuOnline: "cpu_online",
    RemoveMemory: "remove_memory",
    AddMemory: "add_memory",
    SetWatermarks: "set_watermarks",
    Validate: "validate",
    Totals: "totals, cpu_stats",
    Where: "zone_of, holder_of, cpu_holdings, is_online",
    ZoneStats: "zone_stats",
    Pageblocks: "pageblocks",
    LargestOrder: "largest_possible_order",
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Door {
    /// The CPU's owner.
    Owner,
    /// Anybody, on a CPU that may have an owner; or a call that concerns no single CPU.
    Anybody,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) door: Door,
}

impl Call {
    pub(crate) const COUNT: usize = Kind::ALL.len() * 2;

    /// Its number, below [`COUNT`](Self::COUNT).
    pub(crate) const fn index(self) -> usize {
        self.kind as usize * 2 + self.door as usize
    }

    pub(crate) fn from_index(index: usize) -> Option<Self> {
        let door = if index.is_multiple_of(2) { Door::Owner } else { Door::Anybody };
        Some(Self { kind: *Kind::ALL.get(index / 2)?, door })
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).filter_map(Self::from_index)
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let owner = if self.door == Door::Owner { " (owner)" } else { "" };
        write!(f, "{}{owner}", self.kind.name())
    }
}

/// The kind of an allocation of one chunk.
pub(super) const fn alloc_of(order: u8) -> Kind {
    match order {
        0 => Kind::AllocFrame,
        1..=5 => Kind::AllocRun,
        6..=8 => Kind::AllocWords,
        9 => Kind::AllocBlock,
        _ => Kind::AllocBlocks,
    }
}

/// The kind of a free of one chunk.
pub(super) const fn free_of(order: u8) -> Kind {
    match order {
        0 => Kind::FreeFrame,
        1..=5 => Kind::FreeRun,
        6..=8 => Kind::FreeWords,
        _ => Kind::FreeBlocks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_calls_are_one_to_one() {
        assert_eq!(Call::all().count(), Call::COUNT);
        assert!(Call::all().enumerate().all(|(n, call)| call.index() == n));
        assert_eq!(Call::from_index(Call::COUNT), None);
    }
}
