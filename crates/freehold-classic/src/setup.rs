//! From a machine that a set-up has used to one that begins: what was allocated stays, and nothing
//! else.
//!
//! ```text
//!   new ──> set-up: allocations for what is in use at first ──> forget_setup ──>
//!             leaves in use or free: frames, pageblocks' types and owners
//!             leaves behind: CPUs' lists, tuning, BELOW_HIGH, boosts, counts
//!                            └─ all of it goes
//!       ──> frees to lists, set_tuning ──> reset_stats
//!           as observed elsewhere
//! ```
//!
//! A set-up that takes a whole zone and gives most of it back finds memory short on the way. What
//! the allocator concludes from that (a zone below its high mark, boosted marks, CPUs that only
//! ever allocate) says nothing of the workload that follows, and would change how much each refill
//! and drain moves.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use freehold::CpuId;

use crate::Classic;
use crate::Counts;
use crate::pcp::PcpInner;
use crate::stats::{ListFlow, PcpCounters};
use crate::tune::Tuning;

impl Classic {
    /// Ends a set-up: CPUs give back what they hold and are tuned as at boot, and the zone does not
    /// remember having been short of memory. What is allocated, and the pageblocks' types and
    /// owners, stay; so do the counts, until [`reset_stats`](Self::reset_stats). Nobody else may
    /// use the allocator meanwhile.
    pub fn forget_setup(&self) {
        self.drain_all();
        let zone = &self.zone;
        // Relaxed, here and below: nobody else is using the allocator.
        zone.below_high.store(false, Relaxed);
        zone.reclaim.store(false, Relaxed);
        zone.boost.store(0, Relaxed);
        for pcp in &zone.pcps {
            pcp.look().tuning = PcpInner::BOOT_TUNING;
        }
        self.retune();
    }

    /// Puts a CPU's PCP into a state observed elsewhere, for instance in `/proc/zoneinfo`.
    pub fn set_tuning(&self, cpu: CpuId, tuning: Tuning) {
        if let Some(pcp) = self.zone.pcps.get(cpu.index()) {
            pcp.look().tuning = tuning;
        }
    }

    /// Forgets everything counted so far. Nobody else may use the allocator meanwhile.
    pub fn reset_stats(&self) {
        for pcp in &self.zone.pcps {
            let mut inner = pcp.look();
            inner.counters = PcpCounters::default();
            inner.flow = ListFlow::default();
        }
        self.zone.forget_counts();
        let Counts {
            failed,
            kept,
            pcp_busy,
            remote_pcp_waits,
            remote_queued,
            drain_all,
            range_visits,
            cpus_asked,
        } = &self.counts;
        let calls = [failed, kept, remote_queued];
        let visits = [drain_all, range_visits, cpus_asked];
        let locks = [pcp_busy, remote_pcp_waits];
        for count in calls.into_iter().chain(visits).chain(locks) {
            // SeqCst like the other rare accesses; nothing depends on the order.
            count.store(0, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Design, Stats};

    /// What only happens beside another thread as well.
    #[test]
    fn every_count_begins_anew() {
        let design = Design::parse("7.2").unwrap();
        let classic = Classic::new(Config::single_zone(design, 1, 1 << 10)).unwrap();
        let all = &classic.counts;
        for count in [&all.pcp_busy, &all.remote_pcp_waits, &all.failed] {
            count.store(7, SeqCst);
        }
        for count in [&all.kept, &all.remote_queued, &all.drain_all, &all.range_visits] {
            count.store(7, SeqCst);
        }
        all.cpus_asked.store(7, SeqCst);
        assert_eq!(classic.stats().remote_pcp_waits, 7);
        classic.reset_stats();
        assert_eq!(format!("{:?}", classic.stats()), format!("{:?}", Stats::default()));
    }
}
