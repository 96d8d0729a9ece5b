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

/// Of a call: turns of waits, heavy barriers, writes to memory that all CPUs of a zone write. What
/// it has taken, or may take at most; `None` where it was not counted, or there is no bound.
pub(crate) type Counts = [Option<u64>; 3];

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

/// What a call may cost while others run.
pub(crate) fn limit(call: Call) -> Counts {
    [waits(call.kind), barriers(call), None]
}

/// What a call may cost a thread that runs alone.
pub(crate) fn limit_alone(call: Call) -> Counts {
    let range = RANGE.div_ceil(512) + 1;
    let (waits, barriers) = match call.kind {
        // A turn for each block that a CPU keeps as a whole. A barrier for all that CPUs keep, and
        // one for the leases.
        Kind::ContigRange => (Some(range), Some(2)),
        // One more for whoever looked before.
        Kind::RemoveMemory => (Some(range), Some(3)),
        // What CPUs have in hand comes back first; then nothing is in the way of a range that a
        // glance has found free.
        Kind::ContigFree => (Some(range), Some(3)),
        // As many ranges are tried as there are frames in the way.
        Kind::Contig => (None, None),
        _ => (Some(0), Some(barriers(call).unwrap_or(0))),
    };
    [waits, barriers, shared_writes(call.kind)]
}

/// What changes nothing, and what the CPU has in hand, is written by nobody else.
fn shared_writes(kind: Kind) -> Option<u64> {
    (is_look(kind) || kind == Kind::AllocInHand).then_some(0)
}

fn waits(kind: Kind) -> Option<u64> {
    let never =
        is_free(kind) || is_look(kind) || matches!(kind, Kind::AllocNoLock | Kind::AllocInHand);
    never.then_some(0)
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
        Kind::Totals | Kind::Where | Kind::ZoneStats | Kind::Pageblocks | Kind::LargestOrder
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
        | Kind::AllocHighAtomic => Some(failing(entries(RECALLS))),
        // Within its limits once all that failed.
        Kind::AllocAligned => Some(1 + failing(entries(RECALLS + 1))),
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

    #[test]
    fn one_more_than_a_bound_is_told() {
        let limit = |kind, door| super::limit(Call { kind, door });
        let cost = |waits, barriers| [Some(waits), Some(barriers), None];
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
        let alone = |kind| limit_alone(Call { kind, door: Door::Owner });
        let hand = alone(Kind::AllocInHand);
        assert_eq!(broken(hand, [Some(0); 3]), None);
        assert_eq!(broken(hand, [Some(0), Some(0), Some(1)]), Some(("shared writes", 1, 0)));
        let range = alone(Kind::ContigRange);
        assert_eq!(broken(range, cost(5, 2)), Some(("turns of waits", 5, 4)));
        assert_eq!(broken(halved(range), cost(0, 2)), Some(("heavy barriers", 2, 1)));
    }
}
