//! What visits all CPUs: drains, their periodic work, their shares of a zone.

use core::sync::atomic::Ordering::Relaxed;

use freehold::CpuId;

use crate::Classic;
use crate::switches::Switch;
use crate::tune::{Tuning, batch_size, clamp, high_range};

impl Classic {
    /// Gives everything that CPUs hold back to the zone (`drain_all_pages`).
    pub fn drain_all(&self) {
        self.counts.drain_all.fetch_add(1, Relaxed);
        self.drain_cpus();
    }

    /// As [`drain_all`](Self::drain_all), and counts as none. CPUs that hold nothing are passed
    /// over after a look at their count.
    pub(crate) fn drain_cpus(&self) {
        for cpu in 0..self.zone.pcps.len() {
            self.zone.drain_pcp(cpu, self.layout);
        }
    }

    /// The periodic work of one CPU, about once a second: its high mark sinks when idle, and a
    /// boost of the watermarks ends. In the kernel kswapd ends it, some milliseconds after it was
    /// woken for it; who knows of kswapd says [`set_reclaim`](Self::set_reclaim).
    pub fn tick(&self, cpu: CpuId) {
        self.zone.boost.store(0, Relaxed);
        if cpu.index() < self.zone.pcps.len() {
            self.zone.decay(cpu.index(), self.layout);
        }
    }

    /// The periodic work of a CPU for which the zone is another node's: a batch goes back. Source:
    /// Linux, `drain_zone_pages`, called after three ticks without use.
    pub fn tick_remote_node(&self, cpu: CpuId) {
        if cpu.index() < self.zone.pcps.len() {
            self.zone.drain_remote_node(cpu.index(), self.layout);
        }
    }

    /// Sets every PCP's batch and range by the formulae, for all CPUs.
    pub(crate) fn retune(&self) {
        let zone = &self.zone;
        let batch = batch_size(zone.managed);
        let cpus = zone.pcps.len() as u16;
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
