//! What one CPU allocates and another frees: each frame must come home to its block.

use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{Migratetype, Order, Pfn, Request};

use super::{Chain, Failure, Machine, Team, chain, same, succeeds};

const ROUNDS: u64 = 6;
const SINGLE: usize = 192;
const MAX_CPUS: usize = 64;

/// Each CPU frees what its neighbour has allocated.
pub(super) fn ring<M: Machine>(machine: &M) -> Result<(), Failure> {
    let before = machine.freehold().totals();
    let mail = [const { AtomicU64::new(0) }; MAX_CPUS];
    let cpus = machine.cpus().min(MAX_CPUS);
    let movable = |order| Request::new(order, Migratetype::Movable);
    Team::run(machine, |member| {
        for round in 0..ROUNDS {
            let mut chain = Chain::EMPTY;
            let whose = member.cpu as u64 | round << 8;
            let mut bulk = [Pfn::new(0); SINGLE];
            let got = member.frames.alloc_bulk(movable(Order::ZERO), &mut bulk);
            same(
                "a bulk allocation is complete",
                succeeds(machine, "no frames", got)? as u64,
                SINGLE as u64,
            )?;
            bulk.iter().for_each(|pfn| chain.push(machine, *pfn, Order::ZERO, whose));
            for order in [1, 4, 9].into_iter().filter_map(Order::new) {
                let pfn = succeeds(machine, "no chunk", member.frames.alloc(movable(order)))?;
                chain.push(machine, pfn, order, whose);
            }
            // Relaxed: the meeting orders it.
            mail[member.cpu].store(chain.into_word(), Ordering::Relaxed);
            member.meet()?;
            let from = (member.cpu + 1) % cpus;
            let mut theirs = Chain::from_word(mail[from].load(Ordering::Relaxed));
            let expected = from as u64 | round << 8;
            while let Some((pfn, order, whose)) = theirs.pop(machine)? {
                same("a chunk is whose it was", whose, expected)?;
                succeeds(machine, "a chunk cannot be freed", member.frames.free(pfn, order))?;
            }
            member.meet()?;
        }
        Ok(())
    })?;
    let totals = machine.freehold().totals();
    let remote = totals.cpus.remote_frees - before.cpus.remote_frees + totals.unattributed_frees
        - before.unattributed_frees;
    machine.print(format_args!(
        "    {remote} frees into other CPUs' hands, or while the CPU was busy"
    ));
    Ok(())
}

/// Blocks that one CPU has, each frame freed by another one.
pub(super) fn parts<M: Machine>(machine: &M) -> Result<(), Failure> {
    const BLOCKS: usize = 4;
    let mail = [const { AtomicU64::new(0) }; BLOCKS];
    let cpus = machine.cpus() as u64;
    Team::run(machine, |member| {
        if member.cpu == 0 {
            for slot in &mail {
                let pfn = member.frames.alloc(Request::new(Order::PAGEBLOCK, Migratetype::Movable));
                let pfn = succeeds(machine, "no block", pfn)?;
                super::stamped(machine, pfn, Order::PAGEBLOCK, 1);
                // Relaxed: the meeting orders it.
                slot.store(pfn.get(), Ordering::Relaxed);
            }
        }
        member.meet()?;
        for slot in &mail {
            let block = slot.load(Ordering::Relaxed);
            for i in (0..Order::PAGEBLOCK.frames()).filter(|i| i % cpus == member.cpu as u64) {
                let pfn = Pfn::new(block + i);
                chain::check(machine, pfn, Order::ZERO, 1)?;
                succeeds(machine, "a part cannot be freed", member.frames.free(pfn, Order::ZERO))?;
            }
        }
        Ok(())
    })
}
