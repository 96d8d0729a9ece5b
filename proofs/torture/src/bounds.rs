//! The most that each call may cost, as a function of the machine: docs/bounds.md as code.
//!
//! `None` is "no bound": a wait is as long as another CPU's hold of a lock, and some calls try
//! again as often as another CPU succeeds. While one thread runs alone nobody else does, and
//! everything is bounded.

use super::call::{Call, Door, Kind};

/// Frames of the largest bulk call of a soak.
pub(super) const BULK: usize = 300;
/// Frames of the largest range that it asks for, or removes.
pub(super) const RANGE: u64 = 1500;
/// Times that a request asks every CPU before it fails.
const RECALLS: u64 = 2;
/// Candidates that `alloc_contig_free` tries; `alloc_contig` tries as many more, moving what is in
/// the way.
const CANDIDATES: u64 = 32;
/// Times that a request looks for the next block of a type before it goes on: words of a block.
const REFILLS: u64 = 8;
/// Types that a request may fall back to.
const FALLBACKS: u64 = 2;
/// Announced blocks looked at, and blocks given to the zone, in one hold.
const COLLECT: u64 = 6;
const BATCH: u64 = 8;
/// Partly free blocks that become a zone's reserve for one request.
const RESERVES: u64 = 8;
/// Holds in which a tick looks at announced blocks.
const TICK_HOLDS: u64 = 64;
/// Steps of a look at a block that was announced, or is at the wrong place of its list: found,
/// taken off its list, its words read, made whole, put where it belongs.
const LOOK: u64 = 8;
/// Steps of taking a whole block: three levels of the bitmap to find it, once more past the last
/// one looked at, its section set up, three levels to clear it, one to hand it over.
const WHOLE: u64 = 5 + 16 + 3 + 1;
/// Whole blocks taken in one hold.
const WHOLES: u64 = 4;
/// Words of the bitmap looked at in one hold, and the steps of each: to the next one, and its runs.
const SEARCH: u64 = 12 * 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) cpus: u64,
    /// Groups of each zone.
    pub(crate) groups: u64,
    pub(crate) zones: u64,
    /// Blocks of all zones.
    pub(crate) blocks: u64,
}

/// Of a call: turns of waits, heavy barriers, holds of groups' and zones' locks, steps under zones'
/// locks. What it has taken, or may take at most; `None` where it was not counted, or there is no
/// bound.
pub(crate) type Counts = [Option<u64>; 4];

/// What of `cost` is beyond the limit, if something is, and the limit.
pub(crate) fn broken(limit: Counts, cost: Counts) -> Option<(&'static str, u64, u64)> {
    const WHAT: [&str; 4] =
        ["turns of waits", "heavy barriers", "holds of locks", "steps under zones' locks"];
    WHAT.into_iter().zip(limit.into_iter().zip(cost)).find_map(|(what, (limit, cost))| {
        let (limit, cost) = limit.zip(cost)?;
        (cost > limit).then_some((what, cost, limit))
    })
}

/// Half of each: too small for what is reached.
pub(crate) fn halved(limit: Counts) -> Counts {
    limit.map(|limit| Some(limit? / 2))
}

impl Shape {
    /// What a call may cost while others run.
    pub(crate) fn limit(&self, call: Call) -> Counts {
        [waits(call.kind), barriers(call), None, None]
    }

    /// What a call may cost a thread that runs alone.
    pub(crate) fn limit_alone(&self, call: Call) -> Counts {
        let range = RANGE.div_ceil(512) + 1;
        let (waits, barriers) = match call.kind {
            // A wait for each block in a CPU's hand, and for each in an inbox. A barrier for all
            // that is in hands; one for the leases; then one for whoever looked before.
            Kind::ContigRange => (2 * range, 2),
            Kind::RemoveMemory => (2 * range, 3),
            Kind::Contig => (2 * CANDIDATES * 2 * range, 1 + 2 * CANDIDATES * 2),
            Kind::ContigFree => (CANDIDATES * 2 * range, 1 + CANDIDATES * 2),
            _ => (0, barriers(call).unwrap_or(0)),
        };
        let locks = self.locks(call.kind);
        [waits, barriers, locks, self.steps(call.kind, locks)].map(Some)
    }

    /// The most steps of one hold of a zone's lock while nobody else calls: what it is there for,
    /// and each block that was forgotten at the wrong place of a list.
    pub(crate) fn steps_of_a_hold(&self) -> u64 {
        Self::STEPS + self.blocks * LOOK
    }

    /// Steps of a hold without what was forgotten: announced blocks looked at, and then whole ones
    /// taken, or a batch of blocks put where they belong, or the bitmap searched.
    const STEPS: u64 = COLLECT * LOOK + WHOLES * WHOLE + BATCH * LOOK + SEARCH;

    /// The most steps under zones' locks of a call with so many holds. Allocations find what was
    /// forgotten, once between two frees; what comes back from the CPUs counts as frees.
    fn steps(&self, kind: Kind, locks: u64) -> u64 {
        let looks = match kind {
            Kind::AllocBulk => BULK as u64 * (1 + RECALLS),
            kind if is_alloc(kind) => 1 + RECALLS,
            _ => 0,
        };
        locks * Self::STEPS + looks * self.blocks * LOOK
    }

    /// Holds in which all that was announced to one holder is looked at.
    fn collected(&self) -> u64 {
        self.blocks / COLLECT + 1
    }

    /// Holds of one choice of the next block: the own group, the zone, the other groups with
    /// something and the own one again, a whole block, the others once more, and their whole
    /// blocks.
    fn refill(&self) -> u64 {
        1 + 2 + self.groups + 2 + 2 * self.groups
    }

    /// Holds of one zone's stages.
    fn stages(&self, all: bool) -> u64 {
        let holders = self.groups + 1;
        // Own type and CMA; a whole block looks at each holder instead.
        let normal = 2 * REFILLS * self.refill() + holders * self.collected();
        let reserve = 2 * self.collected();
        let fallback = FALLBACKS * holders + 1 + REFILLS * self.refill();
        let mix = FALLBACKS * holders * self.collected();
        // A whole block, once the reserve has moved; other orders take one hold.
        let last = 2 * RESERVES + holders * self.collected();
        normal + reserve + if all { fallback + mix + last } else { 0 }
    }

    /// Holds in which every holder looks at what was announced to it, twice.
    fn collected_everywhere(&self) -> u64 {
        2 * self.zones * (self.groups + 1) * self.collected()
    }

    /// Holds in which all that one group has goes to its zone.
    fn given(&self) -> u64 {
        2 * self.collected() + 2 * 2 * (self.blocks / BATCH + 2)
    }

    /// Holds in which every whole block comes to its zone.
    fn fetched(&self) -> u64 {
        self.collected_everywhere() + self.zones * (self.groups * self.given() + self.collected())
    }

    fn locks(&self, kind: Kind) -> u64 {
        let failing = self.zones * self.stages(false)
            + RECALLS * (self.collected_everywhere() + self.zones * self.stages(true));
        // For each kind of block a look at the marks, after all that was announced, and one at each
        // block, and one at the bitmap; each may take a hold.
        let within_limits = 5 * (self.blocks + self.zones * self.collected()) + self.zones;
        let bitmap = self.blocks / 768 + 2;
        let range = RANGE.div_ceil(512) + 1;
        match kind {
            Kind::AllocFrame
            | Kind::AllocRun
            | Kind::AllocWords
            | Kind::AllocBlock
            | Kind::AllocHighAtomic => failing,
            Kind::AllocAligned => failing + within_limits,
            Kind::AllocNoLock => self.zones * (self.stages(false) + self.stages(true)),
            Kind::AllocBulk => BULK as u64 * (failing + self.refill()),
            Kind::AllocBlocks => 2 * self.zones * (bitmap + self.collected()) + self.fetched(),
            Kind::AllocLimited => 2 * within_limits + self.fetched(),
            Kind::ContigRange => 8 * range,
            Kind::RemoveMemory => 9 * range,
            Kind::AddMemory => 2 * range,
            Kind::SetWatermarks => 1,
            Kind::Contig => 2 * CANDIDATES * 8 * range,
            Kind::ContigFree => CANDIDATES * 8 * range,
            Kind::Tick => self.zones * (2 * TICK_HOLDS + self.given()),
            Kind::Drain => self.fetched(),
            Kind::CpuOffline => self.zones * (self.given() + self.blocks + self.collected()),
            // Frees, looks, what comes from the hand, and what only goes through doors.
            _ => 0,
        }
    }
}

fn waits(kind: Kind) -> Option<u64> {
    let never =
        is_free(kind) || is_look(kind) || matches!(kind, Kind::AllocNoLock | Kind::AllocInHand);
    never.then_some(0)
}

/// May look for a block on lists.
fn is_alloc(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::AllocFrame
            | Kind::AllocRun
            | Kind::AllocWords
            | Kind::AllocBlock
            | Kind::AllocBlocks
            | Kind::AllocAligned
            | Kind::AllocLimited
            | Kind::AllocNoLock
            | Kind::AllocHighAtomic
            | Kind::AllocBulk
    )
}

fn is_free(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::FreeFrame
            | Kind::FreeRun
            | Kind::FreeWords
            | Kind::FreeBlocks
            | Kind::FreeInHand
            | Kind::FreeRange
            | Kind::FreeRangeWith
            | Kind::FreeBulk
    )
}

/// Changes nothing.
fn is_look(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Totals
            | Kind::Where
            | Kind::ZoneStats
            | Kind::Pageblocks
            | Kind::BlocksHeld
            | Kind::LargestOrder
    )
}

fn barriers(call: Call) -> Option<u64> {
    // Who is no owner takes one to get in where there is an owner, and again after each time that
    // it was outside.
    let entries = |outside: u64| if call.door == Door::Owner { 0 } else { 1 + outside };
    let failing = |entries: u64| RECALLS + entries;
    match call.kind {
        Kind::AllocFrame
        | Kind::AllocRun
        | Kind::AllocWords
        | Kind::AllocBlock
        | Kind::AllocHighAtomic
        | Kind::AllocAligned => Some(failing(entries(RECALLS))),
        // Each frame may be one that takes all that a failing call takes.
        Kind::AllocBulk => Some(entries(0) + BULK as u64 * failing(entries(RECALLS) - entries(0))),
        Kind::AllocBlocks | Kind::AllocLimited => Some(1 + entries(1)),
        Kind::Tick | Kind::Flush => Some(entries(0)),
        Kind::Own
        | Kind::Release
        | Kind::Drain
        | Kind::CpuOffline
        | Kind::CpuOnline
        | Kind::Validate => Some(1),
        // One more for each time that another CPU takes a block, or a word, that was about to be
        // isolated.
        Kind::ContigRange | Kind::Contig | Kind::ContigFree | Kind::RemoveMemory => None,
        // Frees, looks, and what keeps nobody out of a CPU.
        _ => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { cpus: 8, groups: 2, zones: 2, blocks: 128 };

    #[test]
    fn one_more_than_a_bound_is_told() {
        let limit = |kind, door| SHAPE.limit(Call { kind, door });
        let cost = |waits, barriers| [Some(waits), Some(barriers), None, None];
        let free = limit(Kind::FreeFrame, Door::Owner);
        assert_eq!(broken(free, cost(0, 0)), None);
        assert_eq!(broken(free, cost(1, 0)), Some(("turns of waits", 1, 0)));
        assert_eq!(broken(free, cost(0, 1)), Some(("heavy barriers", 1, 0)));
        let alloc = limit(Kind::AllocFrame, Door::Owner);
        assert_eq!(broken(alloc, cost(99, 2)), None);
        assert_eq!(broken(alloc, cost(99, 3)), Some(("heavy barriers", 3, 2)));
        assert_eq!(
            broken(limit(Kind::AllocFrame, Door::Anybody), cost(99, 6)),
            Some(("heavy barriers", 6, 5))
        );
        assert_eq!(
            [Door::Owner, Door::Anybody].map(|door| limit(Kind::AllocBulk, door)[1]),
            [Some(600), Some(1201)]
        );
        let alone = SHAPE.limit_alone(Call { kind: Kind::FreeBulk, door: Door::Owner });
        assert_eq!(
            broken(alone, [Some(0), Some(0), Some(1), None]),
            Some(("holds of locks", 1, 0))
        );
        let marks = SHAPE.limit_alone(Call { kind: Kind::SetWatermarks, door: Door::Anybody });
        let (most, steps) = (Shape::STEPS, |steps| [0, 0, 1, steps].map(Some));
        assert_eq!((marks[3], broken(marks, steps(most))), (Some(most), None));
        assert_eq!(
            broken(marks, steps(most + 1)),
            Some(("steps under zones' locks", most + 1, most))
        );
        assert_eq!(broken(halved(marks), steps(0)), Some(("holds of locks", 1, 0)));
    }
}
