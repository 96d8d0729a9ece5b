//! What CPUs have goes back: what a CPU does not use, by itself; and all of it, where somebody asks.
//!
//! | when | what |
//! |---|---|
//! | a CPU's tick | leases not in use; all it has, if it has allocated nothing since the last one |
//! | its zone comes near the min mark | leases and whole blocks, of all CPUs |
//! | a CPU goes offline; a request is about to fail; a range is isolated; all is drained | all it has |
//!
//! Who asks others recalls what they have:
//!
//! ```text
//! a look at each CPU; knock at those that have something, or at all   (the owner stays out, or is inside still)
//! one heavy barrier for all of them
//! for each of these: wait until its owner has left, end its leases, let it in again
//! ```
//!
//! Whether a CPU is inside its state at this moment, on its way with frames that are in no slot
//! yet, is nowhere but in its door.

use crate::block::{Block, IN_HAND, MOVABLE};
use crate::cpu::lease::SLOTS;
use crate::cpu::{By, Cpu, CpuState, Inside};
use crate::platform::PlatformExt;
use crate::primitive::{Ordering, Relaxed, acquire_fence};
use crate::zone::Zone;
use crate::zone::board::CLASSES;
use crate::{CpuId, Freehold, Order, Platform};

/// No CPU has that number.
const NOBODY: u32 = u32::MAX;

/// A thread that asks CPUs for what they have. It is inside no CPU's state and holds no lock. Costs
/// one heavy barrier, or none.
pub(crate) struct Recall<'a, 'm, P> {
    fh: &'a Freehold<'m, P>,
    /// The CPU that asks the others.
    but: Option<CpuId>,
}

impl<'a, 'm, P: Platform> Recall<'a, 'm, P> {
    /// All CPUs may be asked.
    pub(crate) fn of_all(fh: &'a Freehold<'m, P>) -> Self {
        Self { fh, but: None }
    }

    /// All but this one.
    pub(crate) fn by(fh: &'a Freehold<'m, P>, cpu: CpuId) -> Self {
        Self { fh, but: Some(cpu) }
    }

    /// The numbers of the CPUs that `wanted` picks.
    fn numbers<'s>(
        &'s self,
        wanted: impl Fn(Cpu<'_, 'm, P>) -> bool + 's,
    ) -> impl Iterator<Item = usize> + 's {
        let others = self.fh.cpus.iter().enumerate();
        let others = others.filter(move |&(number, cpu)| {
            self.but.is_none_or(|but| but.index() != number) && wanted(self.fh.cpu(cpu))
        });
        others.map(|(number, _)| number)
    }

    /// Ends these CPUs' leases, and takes the whole blocks that they keep, as far as a glance shows
    /// that there are any; returns how many CPUs were asked.
    ///
    /// For a request of order 0 to 8 only those are asked who have a run of it in hand, together
    /// with what others have freed into the word since: asking any other interrupts it for nothing.
    pub(crate) fn for_order(&self, order: Option<Order>) -> u32 {
        // Acquire: a thread that has taken what we did not find was inside its CPU's state then.
        acquire_fence();
        self.of(|cpu| Self::may_have_for(cpu, order))
    }

    /// Whether [`for_order`](Self::for_order) would ask anybody now. A recall that asks nobody, and
    /// a look that finds nothing, are two moments: in between frames may have come out of a hand
    /// and gone into another. So who fails looks at the hands once more.
    pub(crate) fn would_ask(&self, order: Option<Order>) -> bool {
        // Acquire: as `for_order`.
        acquire_fence();
        self.numbers(|cpu| Self::may_have_for(cpu, order)).next().is_some()
    }

    /// [`for_order`](Self::for_order), of the CPUs that `wanted` picks.
    pub(crate) fn of(&self, wanted: impl Fn(Cpu<'_, 'm, P>) -> bool) -> u32 {
        self.visit(self.numbers(wanted), |inside| inside.give_back_all())
    }

    /// CPUs whose doors nobody owns and nobody is inside give back what they have, where they have
    /// something for that order, by a glance; whether any did. A thread that this one has
    /// interrupted inside such a door keeps it shut, and is not waited for.
    #[cold]
    pub(crate) fn at_open_doors(&self, order: Order) -> bool {
        let mut any = false;
        for number in self.numbers(|cpu| Self::has_for(cpu, Some(order))) {
            let inside = Inside::try_enter(self.fh, &self.fh.cpus[number], false);
            any |= inside.is_some();
            inside.iter().for_each(Inside::give_back_all);
        }
        any
    }

    /// Enters every CPU once.
    pub(crate) fn each(&self, visit: impl Fn(&Inside<'_, 'm, P>)) {
        self.visit(self.numbers(|_| true), visit);
    }

    /// CPUs tell the zones of all that they may still take of them. What is in hand stays there.
    #[cold]
    pub(crate) fn of_allowances(&self) {
        let tell = |inside: &Inside<'_, 'm, P>| _ = inside.tell_all();
        self.visit(self.numbers(|cpu| cpu.may_take_any()), tell);
    }

    /// Where a zone has become LEAN the CPUs whose home it is put back what they have in hand,
    /// once. Each of them is entered: who comes in later sees the mode, and takes nothing in hand.
    /// So a request that may not wait, and cannot ask, finds all that is free.
    #[cold]
    #[inline(never)]
    pub(crate) fn empty_hands(&self, zone: &Zone<'m>) {
        // Acquire: pairs with `update_mode`, and the CPUs that are entered see the mode.
        if zone.hands_to_empty.swap(false, Ordering::Acquire) {
            let home = |cpu: Cpu<'_, 'm, P>| cpu.is_home(zone.id.into());
            self.visit(self.numbers(home), |inside| inside.empty_hand());
        }
    }

    /// Enters these CPUs, whose numbers rise: so two of us cannot wait for each other.
    fn visit(
        &self,
        numbers: impl Iterator<Item = usize>,
        visit: impl Fn(&Inside<'_, 'm, P>),
    ) -> u32 {
        let (mut first, mut last, mut owned) = (NOBODY, None::<&CpuState<'m>>, false);
        for number in numbers {
            let cpu = &self.fh.cpus[number];
            owned |= cpu.door.knock(&self.fh.platform);
            // A thread that has knocked has the links, until it lets the CPU in again.
            cpu.next_asked.set(NOBODY);
            match last.replace(cpu) {
                Some(last) => last.next_asked.set(number as u32),
                None => first = number as u32,
            }
        }
        if owned {
            self.fh.platform.barrier();
        }
        // Those that are out come first: none of them is kept out by the owner of another.
        let (later, out) = self.visit_in_line(first, false, &visit);
        out + self.visit_in_line(later, true, &visit).1
    }

    /// Visits the CPUs of a line, on whose doors we have knocked; those whose owners are inside
    /// only `if_occupied`. A line of whom is left, and how many were visited.
    fn visit_in_line(
        &self,
        mut first: u32,
        if_occupied: bool,
        visit: &impl Fn(&Inside<'_, 'm, P>),
    ) -> (u32, u32) {
        let (mut left, mut last, mut visited) = (NOBODY, None::<&CpuState<'m>>, 0);
        while let Some(cpu) = self.fh.cpus.get(first as usize) {
            let number = first;
            first = cpu.next_asked.get();
            if !if_occupied && cpu.door.has_owner_inside() {
                cpu.next_asked.set(NOBODY);
                match last.replace(cpu) {
                    Some(last) => last.next_asked.set(number),
                    None => left = number,
                }
                continue;
            }
            cpu.door.await_owner(&self.fh.platform);
            visit(&Inside::already(self.fh.cpu(cpu), false));
            visited += 1;
        }
        (left, visited)
    }

    /// Whether a CPU has something for a request of that order, or may be on its way with it.
    ///
    /// A thread that is inside may have taken frames that are in no slot yet, or not put back yet
    /// what it had. So the door is looked at before the hand, for one that is about to have them,
    /// and after it, for one that has just had them. Where all three looks show nothing, and frames
    /// were this CPU's before the first, they are on the board by the last, or in use.
    fn may_have_for(cpu: Cpu<'_, 'm, P>, order: Option<Order>) -> bool {
        // Acquire, in each look: what was done inside before is seen by the look that follows.
        cpu.door.is_occupied() || Self::has_for(cpu, order) || {
            // Acquire: a thread that has emptied the hand was inside then.
            acquire_fence();
            cpu.door.is_occupied()
        }
    }

    /// Whether a CPU has something that a request of that order would ask it for, by a glance.
    pub(crate) fn has_for(cpu: Cpu<'_, 'm, P>, order: Option<Order>) -> bool {
        cpu.kept.iter().any(|kept| !kept.is_none())
            || cpu.leases.held.get() != 0 && Self::has_in_hand(cpu, order)
            || order.is_none_or(|order| order >= Order::PAGEBLOCK) && Self::uses_a_free_block(cpu)
            || order.is_none() && cpu.may_take_any()
    }

    /// Whether a CPU takes its next words from a block that may be wholly free, and stays split
    /// until that CPU goes on to another one; by a glance.
    fn uses_a_free_block(cpu: Cpu<'_, 'm, P>) -> bool {
        let places = (0..cpu.fh.zones.len()).flat_map(|z| cpu.cursors(z).places());
        places
            .filter_map(|place| place.seen(&cpu.fh.map.blocks))
            .any(|(block, _)| block.class() >= CLASSES && block.tag.get().is_open())
    }

    /// Whether a CPU has a run of that order in hand, by a glance.
    fn has_in_hand(cpu: Cpu<'_, 'm, P>, order: Option<Order>) -> bool {
        let Some(order) = order.filter(|&order| order < Order::PAGEBLOCK) else { return true };
        // Of a run of several words each is full.
        let order = u32::from(order.get()).min(6);
        (0..SLOTS).any(|slot| cpu.leases.slot(slot).shows_run(order))
    }
}

impl<P: Platform> Inside<'_, '_, P> {
    /// Puts everything in hand back: leases, whole blocks, where the next words would come from.
    pub(crate) fn give_back_all(&self) {
        self.empty_hand();
        self.cpu.recent.clear();
        self.cpu.runs_from.clear();
        for z in 0..self.fh.zones.len() {
            for place in self.cursors(z).places() {
                let Some(block) = place.block(&self.fh.map.blocks) else { continue };
                place.clear();
                self.by().leave(block);
            }
        }
        self.tell_all();
        self.holds_nothing();
    }

    /// Puts leases and whole blocks back. Where the next frames come from stays.
    pub(crate) fn empty_hand(&self) {
        self.end_leases(0);
        self.give_up_unused_share();
        for kept in &self.cpu.kept {
            let Some(block) = kept.block(&self.fh.map.blocks) else { continue };
            kept.clear();
            self.by().release_whole(block);
        }
        self.cpu.keeps.set(false);
    }

    /// The periodic work; see [`On::tick`](crate::On::tick).
    pub(crate) fn tick(&self) {
        let allocs =
            self.counters.allocs.iter().flatten().fold(0, |sum: u64, n| sum.wrapping_add(n.get()));
        let idle = allocs == self.allocs_at_tick.get();
        self.allocs_at_tick.set(allocs);
        if idle {
            self.give_back_all();
        } else {
            // What single frames and runs come from now stays.
            let in_use =
                |keep: u32, slot: u32| if slot < SLOTS as u32 { keep | 1 << slot } else { keep };
            self.end_leases(self.leases.currents().fold(0, in_use));
            self.give_up_unused_share();
            self.tell_all();
        }
    }
}

impl<'m, P: Platform> By<'_, 'm, P> {
    /// A whole block that this thread has, or a CPU has kept, is anybody's from now on.
    pub(crate) fn release_whole(self, block: Block<'m>) {
        let tag = block.tag.get();
        // In the bitmap a type means nothing.
        block.tag.set(tag.with_flag(IN_HAND, false).with_type(MOVABLE));
        self.free_whole(block);
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Gives everything free that CPUs have to the zones.
    ///
    /// Each CPU's state is entered in turn.
    pub fn drain_all(&self) {
        Recall::of_all(self).of(|_| true);
        self.outside().tell_pressure();
    }
}
