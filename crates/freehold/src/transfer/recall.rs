//! Every CPU's leases end, so that whoever needs the memory finds it: before a request fails, before a range is isolated.
//!
//! ```text
//! knock at every CPU that has something   (its owner stays out from now on, or is inside still)
//! one heavy barrier for all of them
//! for each: wait until its owner has left, end its leases, let it in again
//! ```

use crate::block::NONE;
use crate::cpu::inside::Inside;
use crate::cpu::state::CpuState;
use crate::primitive::{Ordering, Plain, acquire_fence};
use crate::transfer::refill::COLLECT;
use crate::{CpuId, Freehold, Platform};

/// Frees of a CPU that was asked which lease nothing: otherwise the next one takes in hand again what has just come back, before
/// the asker has looked.
const AFTER_RECALL: u32 = 64;

impl<'m, P: Platform> Freehold<'m, P> {
    /// Ends the leases of all CPUs but `but`, and takes the whole blocks that they keep, as far as a glance shows that
    /// there are any; returns how many CPUs were asked. Costs one heavy barrier, or none. The caller is inside no CPU's
    /// state and holds no lock.
    pub(crate) fn recall(&self, but: Option<CpuId>) -> u32 {
        // Acquire: whoever has taken what we have looked for in vain was inside its CPU's state then.
        acquire_fence();
        self.recall_where(but, |cpu| {
            // Who is inside may have taken frames that are in no slot yet.
            let moving = cpu.door.is_occupied();
            moving || cpu.leases.held() != 0 || cpu.kept.iter().any(|kept| kept.get() != NONE)
        })
    }

    /// The same for the CPUs that `wanted` picks.
    pub(crate) fn recall_where(&self, but: Option<CpuId>, wanted: impl Fn(&CpuState<'m>) -> bool) -> u32 {
        // Relaxed: only that no two of us have the same number matters. 0 is nobody.
        let us = self.recalls.fetch_add(1, Ordering::Relaxed) | 1 << 31;
        let (mut asked, mut owned) = (0, false);
        for (number, cpu) in self.cpus.iter().enumerate() {
            if but.is_some_and(|but| but.index() == number) || !wanted(cpu) {
                continue;
            }
            // By rising number, so that two of us cannot wait for each other.
            loop {
                if let Some(has_owner) = cpu.door.knock() {
                    owned |= has_owner;
                    break;
                }
                self.platform.relax();
            }
            cpu.asked_by.set(us);
            asked += 1;
        }
        if owned {
            self.platform.heavy_barrier();
        }
        if asked == 0 {
            return 0;
        }
        for (number, cpu) in self.cpus.iter().enumerate() {
            if cpu.asked_by.get() == us {
                cpu.door.await_owner(|| self.platform.relax());
                let inside = Inside::already(self, cpu, CpuId::new(number as u16), false);
                cpu.asked_by.set(0);
                inside.give_back_all();
                cpu.after_recall.set(AFTER_RECALL);
            }
        }
        asked
    }

    /// Ends all leases, and has every holder look at what was announced to it.
    pub(crate) fn recall_and_collect(&self) {
        self.recall(None);
        self.collect_everywhere();
    }

    /// Has every holder look at what was announced to it. A block that has changed hands since it was announced waits with
    /// its former holder, who sends it on: so everybody looks twice.
    pub(crate) fn collect_everywhere(&self) {
        for zone in self.zones.iter().chain(self.zones) {
            for group in 0..=zone.groups.len() as u16 {
                if !zone.stock(group).inbox.is_empty() {
                    while self.hold(zone, group).collect(COLLECT) {}
                }
            }
        }
    }
}
