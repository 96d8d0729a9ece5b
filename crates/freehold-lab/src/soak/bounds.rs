//! The most that each call may cost, as a function of the machine: docs/bounds.md as code.
//!
//! `None` is "no bound": a wait is as long as another CPU's hold of a lock, and some calls try again as often as another
//! CPU succeeds. While one thread runs alone nobody else does, and everything is bounded.

use super::call::{Call, Door, Kind};

/// Frames of the largest bulk call of a soak.
pub(super) const BULK: usize = 300;
/// Frames of the largest range that it asks for, or removes.
pub(super) const RANGE: u64 = 1500;
/// Times that a request asks every CPU before it fails.
const RECALLS: u64 = 2;
/// Candidates that `alloc_contig` tries, with and without moving what is in the way.
const CANDIDATES: u64 = 2 * 32;
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) cpus: u64,
    /// Groups of each zone.
    pub(crate) groups: u64,
    pub(crate) zones: u64,
    /// Blocks of all zones.
    pub(crate) blocks: u64,
}

/// The most of each thing that a call may take; `None` where there is no bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limit {
    /// Turns of waits.
    pub(crate) waits: Option<u64>,
    pub(crate) barriers: Option<u64>,
    /// Holds of groups' and zones' locks.
    pub(crate) locks: Option<u64>,
}

impl Limit {
    /// What `cost` is beyond, if it is.
    pub(crate) fn broken_by(&self, cost: &Limit) -> Option<(&'static str, u64, u64)> {
        let of = |what, limit: Option<u64>, cost: Option<u64>| {
            let (limit, cost) = limit.zip(cost)?;
            (cost > limit).then_some((what, cost, limit))
        };
        of("turns of waits", self.waits, cost.waits)
            .or_else(|| of("heavy barriers", self.barriers, cost.barriers))
            .or_else(|| of("holds of locks", self.locks, cost.locks))
    }
}

impl Shape {
    /// What a call may cost while others run.
    pub(crate) fn limit(&self, call: Call) -> Limit {
        Limit { waits: waits(call.kind), barriers: barriers(call), locks: None }
    }

    /// The same for a thread that runs alone.
    pub(crate) fn limit_alone(&self, call: Call) -> Limit {
        let range = RANGE.div_ceil(512) + 1;
        let (waits, barriers) = match call.kind {
            // A wait for each block in a CPU's hand, and for each in an inbox. A barrier for all that is in hands; one for the
            // leases; then one for whoever looked before.
            Kind::ContigRange => (2 * range, 2),
            Kind::RemoveMemory => (2 * range, 3),
            Kind::Contig => (CANDIDATES * 2 * range, 1 + CANDIDATES * 2),
            _ => (0, barriers(call).unwrap_or(0)),
        };
        Limit { waits: Some(waits), barriers: Some(barriers), locks: Some(self.locks(call.kind)) }
    }

    /// Holds in which all that was announced to one holder is looked at.
    fn collected(&self) -> u64 {
        self.blocks / COLLECT + 1
    }

    /// Holds of one choice of the next block: the own group, the zone, the other groups with something and the own one again, a
    /// whole block, the others once more, and their whole blocks.
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
        let failing =
            self.zones * self.stages(false) + RECALLS * (self.collected_everywhere() + self.zones * self.stages(true));
        // For each kind of block a look at the marks, after all that was announced, and one at each block, and one at the bitmap;
        // each may take a hold.
        let within_limits = 5 * (self.blocks + self.zones * self.collected()) + self.zones;
        let bitmap = self.blocks / 768 + 2;
        let range = RANGE.div_ceil(512) + 1;
        match kind {
            Kind::AllocFrame | Kind::AllocRun | Kind::AllocWords | Kind::AllocBlock => failing,
            Kind::AllocAligned => failing + within_limits,
            Kind::AllocNoLock => self.zones * (self.stages(false) + self.stages(true)),
            Kind::AllocBulk => BULK as u64 * (failing + self.refill()),
            Kind::AllocBlocks => 2 * self.zones * (bitmap + self.collected()) + self.fetched(),
            Kind::AllocLimited => 2 * within_limits + self.fetched(),
            Kind::FreeFrame | Kind::FreeRun | Kind::FreeWords | Kind::FreeBlocks | Kind::FreeRange | Kind::FreeBulk => {
                0
            }
            Kind::Own | Kind::Release | Kind::Flush | Kind::CpuOnline | Kind::Validate => 0,
            Kind::ContigRange => 8 * range,
            Kind::RemoveMemory => 9 * range,
            Kind::AddMemory => 2 * range,
            Kind::Contig => CANDIDATES * 8 * range,
            Kind::Tick => self.zones * (2 * TICK_HOLDS + self.given()),
            Kind::Drain => self.fetched(),
            Kind::CpuOffline => self.zones * (self.given() + self.blocks + self.collected()),
        }
    }
}

fn waits(kind: Kind) -> Option<u64> {
    let never = matches!(
        kind,
        Kind::FreeFrame
            | Kind::FreeRun
            | Kind::FreeWords
            | Kind::FreeBlocks
            | Kind::FreeRange
            | Kind::FreeBulk
            | Kind::AllocNoLock
    );
    never.then_some(0)
}

fn barriers(call: Call) -> Option<u64> {
    // Who is no owner takes one to get in where there is an owner, and again after each time that it was outside.
    let entries = |outside: u64| if call.door == Door::Owner { 0 } else { 1 + outside };
    let failing = |entries: u64| RECALLS + entries;
    match call.kind {
        Kind::AllocFrame | Kind::AllocRun | Kind::AllocWords | Kind::AllocBlock | Kind::AllocAligned => {
            Some(failing(entries(RECALLS)))
        }
        // Each frame may be one that takes all that a failing call takes.
        Kind::AllocBulk => Some(entries(0) + BULK as u64 * failing(entries(RECALLS) - entries(0))),
        Kind::AllocBlocks | Kind::AllocLimited => Some(1 + entries(1)),
        Kind::AllocNoLock | Kind::AddMemory => Some(0),
        Kind::FreeFrame | Kind::FreeRun | Kind::FreeWords | Kind::FreeBlocks | Kind::FreeRange | Kind::FreeBulk => {
            Some(0)
        }
        Kind::Tick | Kind::Flush => Some(entries(0)),
        Kind::Own | Kind::Release | Kind::Drain | Kind::CpuOffline | Kind::CpuOnline | Kind::Validate => Some(1),
        // One more for each time that another CPU takes a block, or a word, that was about to be isolated.
        Kind::ContigRange | Kind::Contig | Kind::RemoveMemory => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { cpus: 8, groups: 2, zones: 2, blocks: 128 };

    fn cost(waits: u64, barriers: u64, locks: Option<u64>) -> Limit {
        Limit { waits: Some(waits), barriers: Some(barriers), locks }
    }

    #[test]
    fn one_more_than_a_bound_is_told() {
        let call = |kind, door| Call { kind, door };
        let free = SHAPE.limit(call(Kind::FreeFrame, Door::Owner));
        assert_eq!(free.broken_by(&cost(0, 0, None)), None);
        assert_eq!(free.broken_by(&cost(1, 0, None)), Some(("turns of waits", 1, 0)));
        assert_eq!(free.broken_by(&cost(0, 1, None)), Some(("heavy barriers", 1, 0)));
        let alloc = SHAPE.limit(call(Kind::AllocFrame, Door::Owner));
        assert_eq!(alloc.broken_by(&cost(99, 2, None)), None);
        assert_eq!(alloc.broken_by(&cost(99, 3, None)), Some(("heavy barriers", 3, 2)));
        let on = SHAPE.limit(call(Kind::AllocFrame, Door::Anybody));
        assert_eq!(on.broken_by(&cost(99, 6, None)), Some(("heavy barriers", 6, 5)));
        let bulk = |door| SHAPE.limit(call(Kind::AllocBulk, door)).barriers;
        assert_eq!((bulk(Door::Owner), bulk(Door::Anybody)), (Some(600), Some(1201)));
        let alone = SHAPE.limit_alone(call(Kind::FreeBulk, Door::Owner));
        assert_eq!(alone.broken_by(&cost(0, 0, Some(1))), Some(("holds of locks", 1, 0)));
    }
}
