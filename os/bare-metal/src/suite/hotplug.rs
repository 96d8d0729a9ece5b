//! CPUs that go away and come back while what they allocated is in use.

use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{AllocError, CpuId, Migratetype, Order, Request};

use super::{Chain, Failure, Machine, Team, holds, same, succeeds};

pub(super) fn hotplug<M: Machine>(machine: &M) -> Result<(), Failure> {
    let freehold = machine.freehold();
    let request = Request::new(Order::ZERO, Migratetype::Movable);
    for gone in 1..machine.cpus() {
        let id = CpuId::new(gone as u16);
        let chain = AtomicU64::new(0);
        Team::run(machine, |member| {
            if member.cpu == gone {
                let mut mine = Chain::EMPTY;
                for _ in 0..700 {
                    let pfn = succeeds(machine, "no frame", member.frames.alloc(request))?;
                    mine.push(machine, pfn, Order::ZERO, gone as u64);
                }
                // Relaxed: read after all are through.
                chain.store(mine.into_word(), Ordering::Relaxed);
            }
            Ok(())
        })?;
        machine.set_online(gone, false);
        same(
            "a CPU that is gone holds nothing",
            freehold.cpu_holdings(id).map_or(0, |(free, _)| free),
            0,
        )?;
        let refused = freehold.on(id).alloc(request) == Err(AllocError::CpuOffline { cpu: id });
        holds("a CPU that is gone allocates nothing", refused)?;
        // What it allocated goes home to its blocks, whoever has them now.
        let here = freehold.on(CpuId::new(0));
        let mut theirs = Chain::from_word(chain.into_inner());
        let mut freed = 0;
        while let Some((pfn, order, _)) = theirs.pop(machine)? {
            succeeds(machine, "a frame cannot be freed", here.free(pfn, order))?;
            freed += 1;
        }
        same("all were freed", freed, 700)?;
        machine.set_online(gone, true);
        let again = freehold.on(id).alloc(request);
        let pfn = succeeds(machine, "a CPU that is back allocates", again)?;
        succeeds(machine, "and frees", freehold.on(id).free(pfn, Order::ZERO))?;
    }
    machine.print(format_args!("    {} CPUs, one after the other", machine.cpus() - 1));
    Ok(())
}
