//! What must be true while nobody calls, and in the end.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use freehold::Migratetype;

use super::clerk::Tally;
use super::world::World;

/// Waits until nobody calls, and checks every invariant and that all frames are somewhere.
pub(super) fn pause(world: &World) {
    let _alone = world.gate.write().unwrap_or_else(PoisonError::into_inner);
    if let Err(violation) = world.freehold.validate() {
        world.ledger.tell(format!("an invariant is broken: {violation}"));
    }
    let (free, managed) = frames(world);
    let owned = world.ledger.owned();
    if managed != world.frames() || free + owned != managed {
        world.ledger.tell(format!(
            "{free} free frames and {owned} in use are not the {managed} that there are"
        ));
    }
    (0..world.freehold.zone_count()).for_each(|zone| one_zone(world, zone));
}

/// What is said of a zone is so, and said everywhere alike.
fn one_zone(world: &World, zone: usize) {
    let Some(stats) = world.freehold.zone_stats(zone) else { return };
    let marks = world.marks()[zone];
    if stats.watermarks != marks {
        world.ledger.tell(format!(
            "zone {zone} has the watermarks {:?}, but {marks:?} were set",
            stats.watermarks
        ));
    }
    let free: u64 = world.freehold.pageblocks(zone).map(|block| u64::from(block.free)).sum();
    if free != stats.free {
        world.ledger.tell(format!(
            "zone {zone} has {} free frames, its pageblocks have {free}",
            stats.free
        ));
    }
    let reserved = stats.blocks_by_type[Migratetype::HighAtomic.index()];
    // A block more is made while there are less than 1 %.
    let most = world.zones[zone].frames() / 100 / 512 + 1;
    if reserved > most {
        world.ledger.tell(format!(
            "zone {zone} has {reserved} HIGHATOMIC blocks, and {most} are the most there may be"
        ));
    }
    // Relaxed: a maximum that is read after all threads have been joined.
    world.high_atomic.fetch_max(reserved, Ordering::Relaxed);
}

fn frames(world: &World) -> (u64, u64) {
    let zones = (0..world.freehold.zone_count()).filter_map(|zone| world.freehold.zone_stats(zone));
    zones.fold((0, 0), |(free, managed), zone| (free + zone.free, managed + zone.managed))
}

/// After everybody has freed all: everything is home, and the allocator has counted what was
/// called.
pub(super) fn end(world: &World, tally: &Tally) {
    if let Err(violation) = world.freehold.validate() {
        world.ledger.tell(format!("in the end an invariant is broken: {violation}"));
    }
    world.freehold.drain_all();
    if let Err(violation) = world.freehold.validate() {
        world.ledger.tell(format!("after draining an invariant is broken: {violation}"));
    }
    for zone in 0..world.freehold.zone_count() {
        let Some(stats) = world.freehold.zone_stats(zone) else { continue };
        if stats.free != stats.managed || stats.free_in_zone != stats.managed {
            world.ledger.tell(format!(
                "zone {zone} has {} frames, but in the end {} are free, {} of them at home",
                stats.managed, stats.free, stats.free_in_zone
            ));
        }
        if stats.free_blocks != world.whole[zone] {
            world
                .ledger
                .tell(format!("zone {zone}: {} blocks are whole in the end", stats.free_blocks));
        }
    }
    let (_, managed) = frames(world);
    if managed != world.frames() || world.ledger.owned() != 0 {
        let (there, owned) = (world.frames(), world.ledger.owned());
        world.ledger.tell(format!(
            "{managed} of {there} frames are there in the end, {owned} of them in use"
        ));
    }
    counts(world, tally);
}

fn counts(world: &World, tally: &Tally) {
    let totals = world.freehold.totals();
    let late = world.freehold.platform().late();
    if totals.late_double_frees != 0 || late != 0 {
        world.ledger.tell(format!("{late} right frees were told as double ones"));
    }
    let allocs = totals.cpus.total_allocs();
    if allocs > tally.allocs || allocs + tally.unseen < tally.allocs {
        world.ledger.tell(format!(
            "{} allocations were made, {} of which may not have been counted: {allocs} were",
            tally.allocs, tally.unseen
        ));
    }
    let frees = totals.cpus.local_frees + totals.cpus.remote_frees + totals.unattributed_frees;
    if !(tally.frees..=tally.frees + tally.trims).contains(&frees) {
        world.ledger.tell(format!(
            "{} frees and {} trims at most were made, {frees} counted",
            tally.frees, tally.trims
        ));
    }
}
