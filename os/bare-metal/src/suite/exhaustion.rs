//! All memory, taken by all CPUs at once; then all of it back.

use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{AllocError, AllocFlags, Migratetype, Order, Request};

use super::{Chain, Failure, Home, Machine, Team, holds, same, succeeds};

const MAX_CPUS: usize = 64;
/// Frames of a word: as many may a CPU take past a mark, which another one is about to reach.
const WORD: u64 = 64;

pub(super) fn exhaustion<M: Machine>(machine: &M) -> Result<(), Failure> {
    let freehold = machine.freehold();
    let before = Home::now(machine);
    let (totals, barriers) = (freehold.totals(), machine.heavy_barriers());
    let zones = || (0..freehold.zone_count()).filter_map(|zone| freehold.zone_stats(zone));
    let mins: u64 = zones().map(|zone| zone.watermarks[0]).sum();
    let chains = [const { (AtomicU64::new(0), AtomicU64::new(0)) }; MAX_CPUS];
    let taken = [const { AtomicU64::new(0) }; 2];
    Team::run(machine, |member| {
        let mut mine = Chain::EMPTY;
        let whose = member.cpu as u64;
        // First what an ordinary request may take, then the reserves, too.
        for (step, flags) in
            [AllocFlags::empty(), AllocFlags::NO_WATERMARKS].into_iter().enumerate()
        {
            let held = mine.frames;
            // Large chunks first, so that it does not take all day.
            for order in [9, 3, 0].into_iter().filter_map(Order::new) {
                loop {
                    match member
                        .frames
                        .alloc(Request::new(order, Migratetype::Movable).flags(flags))
                    {
                        Ok(pfn) => mine.push(machine, pfn, order, whose),
                        Err(AllocError::NoMemory { order: named }) => {
                            holds("the error names the order", named == order)?;
                            break;
                        }
                        Err(error) => {
                            succeeds(machine, "memory runs out as it should", Err(error))?
                        }
                    }
                }
            }
            // Relaxed: the meeting orders it.
            taken[step].fetch_add(mine.frames - held, Ordering::Relaxed);
            member.meet()?;
        }
        // What the neighbour holds is freed here: half of it comes from elsewhere.
        chains[member.cpu].0.store(mine.into_word(), Ordering::Relaxed);
        member.meet()?;
        let from = (member.cpu + 1) % machine.cpus();
        let mut theirs = Chain::from_word(chains[from].0.load(Ordering::Relaxed));
        while let Some((pfn, order, whose)) = theirs.pop(machine)? {
            same("a chunk is whose it was", whose, from as u64)?;
            succeeds(machine, "a chunk cannot be freed", member.frames.free(pfn, order))?;
        }
        Ok(())
    })?;
    let [ordinary, reserves] = taken.map(AtomicU64::into_inner);
    machine.print(format_args!(
        "    {ordinary} frames for ordinary requests, {reserves} more from the reserves (min watermarks: {mins}), of {}",
        before.frames
    ));
    let now = freehold.totals();
    machine.print(format_args!(
        "    {} refills, {} recalls, {} shared writes, {} heavy barriers",
        now.cpus.refills - totals.cpus.refills,
        now.cpus.recalls - totals.cpus.recalls,
        now.shared_writes - totals.shared_writes,
        machine.heavy_barriers() - barriers,
    ));
    // All but one of the CPUs that are told of the same last word in a zone take one too many.
    let too_many = (machine.cpus() as u64 - 1) * WORD * zones().count() as u64;
    holds("ordinary requests leave the reserves", before.frames - ordinary + too_many >= mins)?;
    same("every last frame was had", ordinary + reserves, before.frames)
}
