//! CPUs that come and go, and drains that visit all of them.

use freehold::CpuId;

use crate::Classic;
use crate::page::PAGEBLOCK;
use crate::pageblock::{BlockList, STALE};
use crate::primitive::Ordering::{Relaxed, SeqCst};
use crate::switches::Switch;
use crate::tune::{Tuning, batch_size, clamp, high_range};
use crate::zone::Zone;

/// Pageblocks disowned in one hold of the zone lock when a CPU goes offline.
const DISOWN_AT_ONCE: u32 = 64;

/// There is no such CPU, or it is not in the state the call needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuStateError {
    /// The CPU named in the call.
    pub cpu: CpuId,
}

impl core::fmt::Display for CpuStateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{} does not exist, is already in that state, or is the last one online",
            self.cpu
        )
    }
}

impl core::error::Error for CpuStateError {}

impl Classic {
    /// Takes a CPU offline: what it holds goes back to the zones, and the other CPUs' shares grow.
    ///
    /// Nobody may be making a call on that CPU at the moment; frees by others of what it owns are
    /// fine.
    ///
    /// # Errors
    ///
    /// The CPU does not exist, is offline, or is the last one online.
    pub fn cpu_dead(&self, cpu: CpuId) -> Result<(), CpuStateError> {
        let error = CpuStateError { cpu };
        let disabled = self.hotplug();
        if self.online_cpus() == 1
            || !self.online.get(cpu.index()).is_some_and(|online| online.swap(false, SeqCst))
        {
            return Err(error);
        }
        for zone in &self.zones {
            let pcp = &zone.pcps[cpu.index()];
            pcp.lock().dead = true;
            // Relaxed: emptying the list of remote frees publishes it; see `llist`.
            pcp.dead.store(true, Relaxed);
            zone.drain_pcp(cpu.index(), self.layout);
            if self.on.has(Switch::Ownership) {
                zone.forget_owner(u32::from(cpu.get()));
            }
        }
        if !*disabled {
            self.retune();
        }
        Ok(())
    }

    /// Brings a CPU back online, with empty lists.
    ///
    /// # Errors
    ///
    /// The CPU does not exist or is online.
    pub fn cpu_online(&self, cpu: CpuId) -> Result<(), CpuStateError> {
        let error = CpuStateError { cpu };
        let disabled = self.hotplug();
        let online = self.online.get(cpu.index()).ok_or(error)?;
        if online.load(SeqCst) {
            return Err(error);
        }
        for zone in &self.zones {
            let pcp = &zone.pcps[cpu.index()];
            let mut inner = pcp.lock();
            inner.dead = false;
            // Relaxed: whoever still sees it raised takes the detour to the zone.
            pcp.dead.store(false, Relaxed);
        }
        online.store(true, SeqCst);
        if !*disabled {
            self.retune();
        }
        Ok(())
    }

    /// How many CPUs are online.
    #[must_use]
    pub fn online_cpus(&self) -> u16 {
        self.online.iter().filter(|online| online.load(SeqCst)).count() as u16
    }

    /// Among how many CPUs a zone's memory is shared out: those of its node that are online; all
    /// where it has none.
    fn cpus_for(&self, node: u8) -> u16 {
        let online =
            self.online.iter().zip(&self.cpu_nodes).filter(|(online, _)| online.load(SeqCst));
        match online.filter(|(_, of)| **of == node).count() as u16 {
            0 => self.online_cpus(),
            own => own,
        }
    }

    /// Gives everything that CPUs hold back to the zones (`drain_all_pages`).
    pub fn drain_all(&self) {
        self.counts.drain_all.fetch_add(1, Relaxed);
        for zone in 0..self.zones.len() {
            self.drain_zone(zone);
        }
    }

    /// Gives everything that CPUs hold of one zone back to it. CPUs that hold nothing are passed
    /// over after a look at their count.
    pub(crate) fn drain_zone(&self, zone: usize) {
        let zone = &self.zones[zone];
        for cpu in 0..zone.pcps.len() {
            zone.drain_pcp(cpu, self.layout);
        }
    }

    /// The periodic work of one CPU, about once a second: its high mark sinks when idle, and a
    /// boost of the watermarks ends (in the kernel when kswapd has made room; there is no reclaim
    /// here).
    pub fn tick(&self, cpu: CpuId) {
        for zone in &self.zones {
            zone.boost.store(0, Relaxed);
            if cpu.index() < zone.pcps.len() {
                zone.decay(cpu.index(), self.layout);
            }
        }
    }

    /// The periodic work of a CPU that holds frames of a remote node: a batch goes back. Source:
    /// Linux, `drain_zone_pages`, called after three ticks without use.
    pub fn tick_remote_node(&self, cpu: CpuId) {
        for zone in &self.zones {
            if cpu.index() < zone.pcps.len() {
                zone.drain_remote_node(cpu.index(), self.layout);
            }
        }
    }

    /// Turns the PCPs off, as memory hot-unplug does: every free goes out at once. Source: Linux,
    /// `zone_pcp_disable`.
    ///
    /// Stays so when CPUs come or go (the kernel makes hotplug wait until
    /// [`pcp_enable`](Self::pcp_enable)).
    pub fn pcp_disable(&self) {
        let mut disabled = self.hotplug();
        *disabled = true;
        for zone in &self.zones {
            for pcp in &zone.pcps {
                pcp.look().tuning = Tuning::new(1, 0, 0, false);
            }
        }
        drop(disabled);
        self.drain_all();
    }

    /// Turns the PCPs on again with the shares that the formulae give.
    pub fn pcp_enable(&self) {
        let mut disabled = self.hotplug();
        *disabled = false;
        self.retune();
    }

    /// Sets every PCP's batch and range by the formulae, for the CPUs that are online now.
    pub(crate) fn retune(&self) {
        for zone in &self.zones {
            let cpus = self.cpus_for(zone.node);
            let batch = batch_size(zone.managed, self.on.has(Switch::BatchQuarterMebi));
            let (high_min, high_max) = high_range(zone.managed, zone.marks.low, batch, cpus);
            let free_high_batch = self.cache_slice > u64::from(3 * batch);
            for pcp in &zone.pcps {
                // The kernel sets these without the lock.
                let mut inner = pcp.look();
                let high = clamp(inner.tuning.high, high_min, high_max);
                let high = if self.on.has(Switch::AutoHigh) { high } else { high_min };
                inner.tuning =
                    Tuning { batch, high, high_min, high_max, free_high_batch, ..inner.tuning };
            }
        }
    }
}

impl Zone {
    /// A CPU has gone: its blocks have no owner any more.
    ///
    /// The RFC only resets the list head under the zone lock and leaves the blocks linked (a later
    /// unlink of the first or last of them writes through the new head) and owned. That is modelled
    /// without the memory corruption: the blocks are marked, never recovered, and each late unlink
    /// is counted.
    fn forget_owner(&self, cpu: u32) {
        if !self.on.has(Switch::UnlinkDead) {
            let mut locked = self.lock();
            for (i, list) in locked.owned[cpu as usize].into_iter().enumerate() {
                for block in list.iter(&self.blocks) {
                    if let Some(data) = self.blocks.data(block) {
                        data.list.store(STALE, Relaxed);
                        locked.work += 1;
                    }
                }
                locked.owned[cpu as usize][i] = BlockList::new(cpu * 6 + i as u32);
            }
            return;
        }
        for first in (0..self.blocks.len()).step_by(DISOWN_AT_ONCE as usize) {
            let last = (first + DISOWN_AT_ONCE).min(self.blocks.len());
            if !(first..last).any(|block| self.blocks.owner(block) == Some(cpu)) {
                continue;
            }
            let mut locked = self.lock();
            for block in first..last {
                locked.work += 1;
                if self.blocks.owner(block) == Some(cpu) {
                    locked.disown(block * PAGEBLOCK);
                }
            }
        }
    }
}
