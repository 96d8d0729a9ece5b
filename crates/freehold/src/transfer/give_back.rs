//! What is not used goes back: leases to their words, blocks to their zone.
//!
//! | when | what |
//! |---|---|
//! | a CPU's tick | leases not in use; all it has, if it has allocated nothing since the last one |
//! | the last of a group's CPUs found that, one after the other | all the group has |
//! | a group has more whole blocks than it keeps, at a tick | what is above |
//! | a CPU goes offline, is drained or recalled | all it has |
//! | a request for a whole block finds only the zone's reserve | partly free blocks, as the reserve |

use crate::block::tag::{IN_HAND, ZONE_GROUP};
use crate::block::{FRAMES, NONE};
use crate::cpu::inside::Inside;
use crate::cpu::lease::SLOTS;
use crate::primitive::Plain;
use crate::transfer::refill::COLLECT;
use crate::zone::Zone;
use crate::{AllocFlags, Freehold, Migratetype, Platform};

/// Holds in which one tick looks at announced blocks.
const TICK_HOLDS: u32 = 64;
/// Blocks given to the zone in one hold of its lock.
const BATCH: u32 = 8;
/// Partly free blocks that become the zone's reserve for one request.
const RESERVES: u32 = 8;

impl<'m, P: Platform> Inside<'_, 'm, P> {
    /// Puts everything in hand back: leases, whole blocks, the places where the next words would
    /// come from.
    pub(crate) fn give_back_all(&self) {
        self.end_leases(0);
        self.give_back_kept();
        self.cpu.hints.clear();
        for z in 0..self.fh.zones.len() {
            self.cursors(z).clear();
        }
    }

    /// Whole blocks in hand go to this CPU's group, which is told of them.
    fn give_back_kept(&self) {
        for kept in &self.cpu.kept {
            let Some(index) = self.fh.map.index(kept.get()) else { continue };
            kept.set(NONE);
            let head = self.fh.map.head(index);
            let tag = head.tag.get();
            debug_assert_eq!(tag.group(), IN_HAND);
            head.tag.hand(tag.with_group(self.fh.zones[tag.zone()].group_of(self.id.index())));
            self.fh.announce(index);
        }
    }

    /// The periodic work; see [`On::tick`](crate::On::tick).
    pub(crate) fn tick(&self) {
        let cpu = self.cpu;
        let allocs =
            cpu.counters.allocs.iter().flatten().fold(0, |sum: u64, n| sum.wrapping_add(n.get()));
        let idle = allocs == cpu.allocs_at_tick.get();
        cpu.allocs_at_tick.set(allocs);
        if idle {
            self.give_back_all();
        } else {
            // What single frames and runs come from now stays.
            let in_use =
                |keep: u32, slot: u32| if slot < SLOTS as u32 { keep | 1 << slot } else { keep };
            self.end_leases(cpu.leases.currents().fold(0, in_use));
        }
        for z in 0..self.fh.zones.len() {
            self.tick_zone(&self.fh.zones[z], idle);
        }
    }

    /// Where a zone has whole blocks that its min mark keeps from being handed out, groups' partly
    /// free blocks become that reserve: the emptiest, which are the fewest. What groups hold does
    /// not count for the mark, since nothing keeps them from handing it out. Whether a whole block
    /// may be handed out now.
    pub(crate) fn reserve_partly_free(&self, zone: &'m Zone<'m>, flags: AllocFlags) -> bool {
        if flags.contains(AllocFlags::NO_LOCK) || zone.whole_blocks.get() == 0 {
            return false;
        }
        let enough = || zone.allows(FRAMES as u64, flags, false);
        let mut groups = zone.groups_from(zone.group_of(self.id.index())).peekable();
        for _ in 0..RESERVES {
            if enough() {
                return true;
            }
            while groups.next_if(|&group| zone.stock(group).free() == 0).is_some() {}
            let Some(&group) = groups.peek() else { break };
            let held = self.fh.hold(zone, group);
            let types = [Migratetype::Movable, Migratetype::Reclaimable, Migratetype::Unmovable];
            let Some(index) = types.into_iter().find_map(|kind| held.pick(kind as usize, 0, true))
            else {
                groups.next();
                continue;
            };
            held.unlist(index);
            held.hand_over(index, ZONE_GROUP);
            self.fh.hold(zone, ZONE_GROUP).file(index);
        }
        enough()
    }

    fn tick_zone(&self, zone: &'m Zone<'m>, idle: bool) {
        let fh = self.fh;
        let own_group = zone.group_of(self.id.index());
        let group = &zone.groups[usize::from(own_group) - 1];
        let cpus =
            zone.cpus_of(own_group, fh.cpus.len()).filter(|&cpu| fh.cpus[cpu].online.get()).count()
                as u32;
        // Relaxed, and lost updates do not matter: a preference.
        let ticks = if idle { group.idle_ticks.get().saturating_add(1) } else { 0 };
        group.idle_ticks.set(ticks);
        if ticks >= cpus {
            fh.give_all(zone, own_group);
        } else {
            (0..TICK_HOLDS).find(|_| !fh.hold(zone, own_group).collect(COLLECT));
            self.cpu.counters.drained(fh.give_wholes(zone, own_group, zone.keep.get()));
        }
        if !zone.stock.inbox.is_empty() {
            (0..TICK_HOLDS).find(|_| !fh.hold(zone, ZONE_GROUP).collect(COLLECT));
        }
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Gives a group's whole blocks to the zone, but for `keep`; returns how many went.
    pub(crate) fn give_wholes(&self, zone: &'m Zone<'m>, group: u16, keep: u32) -> u32 {
        let mut given = 0;
        loop {
            let held = self.hold(zone, group);
            if keep == 0 && held.collect(COLLECT) {
                continue;
            }
            let above = held.stock().lists.wholes().saturating_sub(keep);
            if above == 0 {
                return given;
            }
            // Groups before the zone: the order of locks everywhere.
            let zones_own = self.hold(zone, ZONE_GROUP);
            for _ in 0..above.min(BATCH) {
                let Some(index) = held.take_kept_whole() else { break };
                held.hand_over(index, ZONE_GROUP);
                zones_own.place_whole(index);
                given += 1;
            }
        }
    }

    /// Gives everything that a group has to the zone.
    pub(crate) fn give_all(&self, zone: &'m Zone<'m>, group: u16) {
        self.give_wholes(zone, group, 0);
        loop {
            let held = self.hold(zone, group);
            if held.collect(COLLECT) {
                continue;
            }
            let zones_own = self.hold(zone, ZONE_GROUP);
            for _ in 0..BATCH {
                let Some(index) = held.stock().lists.any(&self.map) else { return };
                held.unlist(index);
                held.hand_over(index, ZONE_GROUP);
                zones_own.file(index);
            }
        }
    }

    /// Gives everything free that CPUs and groups have to the zones, and finishes what frees have
    /// announced.
    ///
    /// Each CPU's state is entered in turn. Takes time proportional to the blocks held.
    pub fn drain_all(&self) {
        self.recall_where(None, |_| true);
        self.collect_everywhere();
        for zone in self.zones {
            for group in 1..=zone.groups.len() as u16 {
                self.give_all(zone, group);
            }
            while self.hold(zone, ZONE_GROUP).collect(COLLECT) {}
        }
        self.tell_pressure();
    }
}
