//! The kinds of calls, and the most that each may cost: docs/bounds.md as code.
//!
//! A wait is as long as another CPU's hold of a lock, and some calls try again as often as another
//! CPU succeeds: these have no bound. While one thread runs alone nobody else does, and nearly
//! everything is bounded.

/// Frames of the largest bulk call.
pub(crate) const BULK: usize = 300;
/// Frames of the largest range that is asked for, or removed.
pub(crate) const RANGE: u64 = 1500;

/// Of a call: turns of waits, heavy barriers, writes to memory that all CPUs of a zone write. What
/// it has taken, or may take at most; `None` where it was not counted, or there is no bound.
pub(crate) type Counts = [Option<u64>; 3];

/// The most that calls of a kind may cost.
#[derive(Clone, Copy)]
struct Bound {
    name: &'static str,
    /// Turns of waits.
    waits: Option<u64>,
    /// Heavy barriers: of the CPU's owner, and of anybody else, who takes one to get in where there
    /// is an owner, and again after each time that the call was outside.
    barriers: Option<[u64; 2]>,
    /// Waits, barriers and shared writes of a thread that runs alone.
    alone: Counts,
}

/// A call that may wait for a door, with that many barriers.
const fn door(name: &'static str, owner: u64, anybody: u64) -> Bound {
    let barriers = Some([owner, anybody]);
    // Alone by its own door.
    Bound { name, waits: None, barriers, alone: [Some(0), None, None] }
}

/// A call that waits for nobody, and keeps nobody out of a CPU.
const fn free(name: &'static str) -> Bound {
    Bound { name, waits: Some(0), barriers: Some([0, 0]), alone: [Some(0), Some(0), None] }
}

/// One that may wait for the lock of hotplug, without a barrier.
const fn plug(name: &'static str) -> Bound {
    Bound { waits: None, ..free(name) }
}

/// What changes nothing, and what the CPU has in hand, is written by nobody else.
const fn look(name: &'static str) -> Bound {
    Bound { alone: [Some(0), Some(0), Some(0)], ..free(name) }
}

/// A call that asks for a block as often as others take it. Alone it takes a turn for each block
/// that a CPU keeps as a whole, and so many barriers.
const fn blocks(name: &'static str, barriers: u64) -> Bound {
    let alone = [Some(RANGE.div_ceil(512) + 1), Some(barriers), None];
    Bound { name, waits: None, barriers: None, alone }
}

macro_rules! kinds {
    ($($kind:ident = $bound:expr,)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Kind {
            $($kind,)*
        }

        impl Kind {
            const ALL: &'static [Self] = &[$(Self::$kind,)*];

            const fn bound(self) -> Bound {
                match self {
                    $(Self::$kind => $bound,)*
                }
            }
        }
    };
}

// Before a request fails it asks all CPUs twice.
kinds! {
    AllocFrame = door("alloc, order 0", 2, 5),
    AllocRun = door("alloc, orders 1 to 5", 2, 5),
    AllocWords = door("alloc, orders 6 to 8", 2, 5),
    AllocBlock = door("alloc, order 9", 2, 5),
    AllocHighAtomic = door("alloc, HIGH_ATOMIC", 2, 5),
    // Within its limits once all that failed.
    AllocAligned = door("alloc, aligned further", 3, 7),
    AllocBlocks = door("alloc, order 10", 1, 3),
    AllocLimited = door("alloc, within limits", 1, 3),
    // Each frame may be one that takes all that a failing call takes.
    AllocBulk = door("alloc_bulk", 2 * BULK as u64, 1 + 4 * BULK as u64),
    AllocLine = door("alloc_run", 0, 1),
    AllocNoLock = free("alloc, NO_LOCK"),
    AllocInHand = look("alloc_in_hand"),
    AllocAtHand = plug("alloc_run_at_hand"),
    FreeFrame = free("free, order 0"),
    FreeRun = free("free, orders 1 to 5"),
    FreeWords = free("free, orders 6 to 8"),
    FreeBlocks = free("free, orders 9 and 10"),
    FreeInHand = free("free_in_hand"),
    FreeRange = free("free_range"),
    FreeRangeWith = free("free_range_with"),
    FreeBulk = free("free_bulk"),
    CheckFree = free("check_free"),
    ContigRange = blocks("alloc_contig_range", 2),
    Isolate = blocks("isolate", 2),
    TakeFree = blocks("take_free", 2),
    // What CPUs have in hand comes back first.
    ContigFree = blocks("alloc_contig_free", 3),
    // One more for whoever looked before.
    RemoveMemory = blocks("remove_memory", 3),
    // As many ranges are tried as there are frames in the way.
    Contig = Bound { alone: [None; 3], ..blocks("alloc_contig", 0) },
    Restore = plug("restore"),
    Own = door("own", 1, 1),
    Release = door("drop of Owned", 1, 1),
    Tick = door("tick", 0, 1),
    Flush = door("flush", 0, 1),
    Drain = door("drain_all", 1, 1),
    CpuOffline = door("cpu_offline", 1, 1),
    CpuOnline = door("cpu_online", 1, 1),
    Validate = door("validate", 1, 1),
    AddMemory = plug("add_memory"),
    AddMemoryInUse = plug("add_memory_in_use"),
    GiveUpReserve = plug("give_up_reserve"),
    SetWatermarks = plug("set_watermarks"),
    Totals = look("totals, cpu_stats"),
    Where = look("zone_of, holder_of, cpu_holdings, is_online"),
    ZoneStats = look("zone_stats"),
    Pageblocks = look("pageblocks"),
    LargestOrder = look("largest_possible_order"),
    Reserve = look("reserve, may_have_free"),
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

impl Kind {
    /// As a reader knows it.
    pub(crate) const fn name(self) -> &'static str {
        self.bound().name
    }
}

impl Call {
    /// Its number.
    pub(crate) const fn index(self) -> usize {
        self.kind as usize * 2 + self.door as usize
    }

    pub(crate) fn from_index(index: usize) -> Option<Self> {
        let door = if index.is_multiple_of(2) { Door::Owner } else { Door::Anybody };
        Some(Self { kind: *Kind::ALL.get(index / 2)?, door })
    }

    /// The most that it may cost while others run, or in a thread that runs alone.
    pub(crate) fn limit(self, alone: bool) -> Counts {
        let bound = self.kind.bound();
        let barriers = bound.barriers.map(|barriers| barriers[self.door as usize]);
        if alone {
            let [waits, own, writes] = bound.alone;
            [waits, own.or(barriers), writes]
        } else {
            [bound.waits, barriers, None]
        }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let owner = if self.door == Door::Owner { " (owner)" } else { "" };
        write!(f, "{}{owner}", self.kind.name())
    }
}

/// What of `cost` is beyond the limit, if something is, and the limit.
pub(crate) fn broken(limit: Counts, cost: Counts) -> Option<(&'static str, u64, u64)> {
    const WHAT: [&str; 3] = ["turns of waits", "heavy barriers", "shared writes"];
    WHAT.into_iter().zip(limit.into_iter().zip(cost)).find_map(|(what, (limit, cost))| {
        let (limit, cost) = limit.zip(cost)?;
        (cost > limit).then_some((what, cost, limit))
    })
}

/// Half of each: too small for what is reached.
pub(crate) fn halved(limit: Counts) -> Counts {
    limit.map(|limit| Some(limit? / 2))
}

/// The kind of an allocation of one chunk.
pub(crate) const fn alloc_of(order: u8) -> Kind {
    match order {
        0 => Kind::AllocFrame,
        1..=5 => Kind::AllocRun,
        6..=8 => Kind::AllocWords,
        9 => Kind::AllocBlock,
        _ => Kind::AllocBlocks,
    }
}

/// The kind of a free of one chunk.
pub(crate) const fn free_of(order: u8) -> Kind {
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
    fn one_more_than_a_bound_is_told() {
        let limit = |kind, door, alone| Call { kind, door }.limit(alone);
        let cost = |waits, barriers| [Some(waits), Some(barriers), None];
        let free = limit(Kind::FreeFrame, Door::Owner, false);
        assert_eq!(broken(free, cost(0, 0)), None);
        assert_eq!(broken(free, cost(1, 0)), Some(("turns of waits", 1, 0)));
        assert_eq!(broken(free, cost(0, 1)), Some(("heavy barriers", 1, 0)));
        let alloc = |door| limit(Kind::AllocFrame, door, false);
        assert_eq!(broken(alloc(Door::Owner), cost(99, 2)), None);
        assert_eq!(broken(alloc(Door::Owner), cost(99, 3)), Some(("heavy barriers", 3, 2)));
        assert_eq!(broken(alloc(Door::Anybody), cost(99, 6)), Some(("heavy barriers", 6, 5)));
        let hand = limit(Kind::AllocInHand, Door::Owner, true);
        assert_eq!(broken(hand, [Some(0); 3]), None);
        assert_eq!(broken(hand, [Some(0), Some(0), Some(1)]), Some(("shared writes", 1, 0)));
        let range = limit(Kind::ContigRange, Door::Anybody, true);
        assert_eq!(broken(range, cost(5, 2)), Some(("turns of waits", 5, 4)));
        assert_eq!(broken(halved(range), cost(0, 2)), Some(("heavy barriers", 2, 1)));
        let alone = limit(Kind::AllocBulk, Door::Anybody, true);
        assert_eq!(broken(alone, cost(0, 1202)), Some(("heavy barriers", 1202, 1201)));
    }

    #[test]
    fn numbers_and_calls_are_one_to_one() {
        let count = Kind::ALL.len() * 2;
        let index = |n| Call::from_index(n).map(Call::index);
        assert!((0..count).all(|n| index(n) == Some(n)));
        assert_eq!(Call::from_index(count), None);
    }
}
