//! What must be true while nobody calls, and in the end.

use std::sync::PoisonError;

use super::bounds::Limit;
use super::call::Call;
use super::tally::Tally;
use super::world::World;

/// Waits until nobody calls, and checks every invariant and that all frames are somewhere.
pub(super) fn pause(world: &World) {
    let _alone = world.gate.write().unwrap_or_else(PoisonError::into_inner);
    if let Err(violation) = world.freehold.validate() {
        world.books.tell(format!("an invariant is broken: {violation}"));
    }
    let (free, managed) = frames(world);
    let owned = world.books.owned();
    if managed != world.frames() || free + owned != managed {
        world.books.tell(format!("{free} free frames and {owned} in use are not the {managed} that there are"));
    }
}

fn frames(world: &World) -> (u64, u64) {
    let zones = (0..world.freehold.zone_count()).filter_map(|zone| world.freehold.zone_stats(zone));
    zones.fold((0, 0), |(free, managed), zone| (free + zone.free, managed + zone.managed))
}

/// After everybody has freed all: everything is home, and the allocator has counted what was called.
pub(super) fn end(world: &World, tally: &Tally) {
    if let Err(violation) = world.freehold.validate() {
        world.books.tell(format!("in the end an invariant is broken: {violation}"));
    }
    world.freehold.drain_all();
    if let Err(violation) = world.freehold.validate() {
        world.books.tell(format!("after draining an invariant is broken: {violation}"));
    }
    for zone in 0..world.freehold.zone_count() {
        let Some(stats) = world.freehold.zone_stats(zone) else { continue };
        if stats.free != stats.managed || stats.free_in_zone != stats.managed {
            world.books.tell(format!(
                "zone {zone} has {} frames, but in the end {} are free, {} of them at home",
                stats.managed, stats.free, stats.free_in_zone
            ));
        }
        if stats.free_blocks != stats.managed / 512 {
            world.books.tell(format!("zone {zone}: {} blocks are whole in the end", stats.free_blocks));
        }
    }
    let (_, managed) = frames(world);
    if managed != world.frames() || world.books.owned() != 0 {
        let (there, owned) = (world.frames(), world.books.owned());
        world.books.tell(format!("{managed} of {there} frames are there in the end, {owned} of them in use"));
    }
    counts(world, tally);
}

fn counts(world: &World, tally: &Tally) {
    let totals = world.freehold.totals();
    let late = world.freehold.platform().late();
    if totals.late_double_frees != 0 || late != 0 {
        world.books.tell(format!("{late} right frees were told as double ones"));
    }
    let allocs = totals.cpus.total_allocs();
    if allocs > tally.allocs || allocs + tally.unseen < tally.allocs {
        world.books.tell(format!(
            "{} allocations were made, {} of which may not have been counted: {allocs} were",
            tally.allocs, tally.unseen
        ));
    }
    let frees = totals.cpus.local_frees + totals.cpus.remote_frees + totals.unattributed_frees;
    if !(tally.frees..=tally.frees + tally.trims).contains(&frees) {
        world.books.tell(format!("{} frees and {} trims at most were made, {frees} counted", tally.frees, tally.trims));
    }
}

/// Every bound was kept.
pub(super) fn bounds(world: &World, tally: &Tally, alone: bool) {
    for call in Call::all() {
        let Some(line) = tally.line(call) else { continue };
        let limit = if alone { world.shape.limit_alone(call) } else { world.shape.limit(call) };
        let cost = Limit { waits: Some(line.waits), barriers: Some(line.barriers), locks: line.locks };
        if let Some((what, cost, limit)) = limit.broken_by(&cost) {
            let when = if alone { "alone, " } else { "" };
            world.books.tell(format!("{call}: {when}{cost} {what}, and {limit} are the most there may be"));
        }
    }
}
