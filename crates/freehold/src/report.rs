//! Reading the statistics: counters as they are, and one walk over a zone's blocks.

use crate::block::{CLASS_FULL, FLAG_ISOLATED, FRAMES, WORDS};
use crate::holder::Holder;
use crate::map::{SECTION_BLOCKS, SECTION_SHIFT};
use crate::percpu::{CMA, NO_KEY};
use crate::primitive::Plain;
use crate::stats::{CpuStats, ZoneStats};
use crate::zone::HIGH_ATOMIC;
use crate::{CpuId, FrameRange, Freehold, Migratetype, Order, Pfn, Platform};

/// Sums over all CPUs and zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Sums over all CPUs.
    pub cpus: CpuStats,
    /// Frees made while the CPU's own state was in use by somebody else; no CPU counts them.
    pub unattributed_frees: u64,
    /// Zone-lock acquisitions over all zones.
    pub lock_acquisitions: u64,
    /// Steps of work under zone locks.
    pub lock_work: u64,
    /// The most steps in one hold.
    pub lock_work_max: u64,
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// What a CPU has done; `None` where there is no such CPU. Takes no lock.
    #[must_use]
    pub fn cpu_stats(&self, cpu: CpuId) -> Option<CpuStats> {
        let mut stats = self.cpu_state(cpu)?.counters.read();
        // What the fast paths have not booked yet.
        let owner = &self.cpu_state(cpu)?.owner;
        stats.local_frees += owner.frees() + owner.block_frees.get();
        let waiting: u64 = self.cpu_state(cpu)?.combine.iter().map(|entry| u64::from(entry.frees.get())).sum();
        stats.remote_frees += owner.remote_frees.get() + waiting;
        for (m, allocs) in stats.allocs.iter_mut().enumerate() {
            allocs[Order::ZERO.index()] += owner.allocs_of(m);
            allocs[Order::PAGEBLOCK.index()] += owner.block_allocs[m].get();
        }
        Some(stats)
    }

    /// Free frames that a CPU has in hand, over all zones, and its present high marks. Takes no lock.
    #[must_use]
    pub fn cpu_holdings(&self, cpu: CpuId) -> Option<(u64, u64)> {
        let owner = &self.cpu_state(cpu)?.owner;
        let first = self.first_zone(cpu.index());
        let sum = (0..self.zones.len()).fold((0, 0), |(n, high), z| {
            let pcp = self.pcp(cpu.index(), z);
            let count = pcp.count_with((z == first).then_some(owner));
            (n + u64::from(count), high + u64::from(pcp.high.get()))
        });
        Some(sum)
    }

    /// The CPU that holds the block of a frame; `None` where the zone does, or where there is no frame. Takes no lock.
    #[must_use]
    pub fn holder_of(&self, pfn: Pfn) -> Option<CpuId> {
        self.map.blocks[self.map.locate(pfn.get())? as usize].holder().as_cpu()
    }

    /// How many blocks each holder has: the zone where `cpu` is `None`. Takes no lock; walks all blocks.
    #[must_use]
    pub fn blocks_held(&self, cpu: Option<CpuId>) -> u64 {
        let holder = cpu.map_or(Holder::ZONE, Holder::cpu);
        self.map.all().iter().filter(|b| b.holder() == holder).count() as u64
    }

    /// Sums over all CPUs and zones. Takes no lock; does not walk.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals { unattributed_frees: self.unattributed_frees.get(), ..Totals::default() };
        let sum = &mut totals.cpus;
        for cpu in 0..self.cpus.len() {
            let Some(cpu) = self.cpu_stats(CpuId::new(cpu as u16)) else { continue };
            for (into, from) in sum.allocs.iter_mut().flatten().zip(cpu.allocs.iter().flatten()) {
                *into += from;
            }
            for (into, from) in sum.refills_by_phase.iter_mut().zip(cpu.refills_by_phase) {
                *into += from;
            }
            sum.local_frees += cpu.local_frees;
            sum.remote_frees += cpu.remote_frees;
            sum.failed += cpu.failed;
            sum.slow += cpu.slow;
            sum.refills += cpu.refills;
            sum.refilled_frames += cpu.refilled_frames;
            sum.drains += cpu.drains;
            sum.drained_frames += cpu.drained_frames;
            sum.steals += cpu.steals;
            sum.collected_blocks += cpu.collected_blocks;
            sum.collected_frames += cpu.collected_frames;
            sum.late_double_frees += cpu.late_double_frees;
        }
        for zone in self.zones {
            totals.lock_acquisitions += zone.counters.acquisitions.get();
            totals.lock_work += zone.counters.work.get();
            totals.lock_work_max = totals.lock_work_max.max(zone.counters.work_max.get());
            totals.cpus.late_double_frees += zone.counters.late_double_frees.get();
        }
        totals
    }

    /// Times a zone's lock was taken, and the steps done under it; `None` where there is no such zone. Takes no lock and
    /// does not walk: to be compared before and after a call. Exact while nothing runs.
    #[must_use]
    pub fn zone_lock_counts(&self, zone: usize) -> Option<(u64, u64)> {
        let counters = &self.zones.get(zone)?.counters;
        Some((counters.acquisitions.get(), counters.work.get()))
    }

    /// The state and history of a zone; `None` where there is no such zone. Takes no lock; walks all of its blocks, so
    /// it takes time proportional to the zone. Exact while nothing runs.
    #[must_use]
    pub fn zone_stats(&self, zone: usize) -> Option<ZoneStats> {
        let z = self.zones.get(zone)?;
        let c = &z.counters;
        let mut stats = ZoneStats {
            managed: z.managed.get(),
            watermarks: [z.min.get(), z.low.get(), z.high.get()],
            lock_acquisitions: c.acquisitions.get(),
            lock_work: c.work.get(),
            lock_work_max: c.work_max.get(),
            lock_work_histogram: core::array::from_fn(|b| c.work_histogram[b].get()),
            fallbacks: c.fallbacks.get(),
            mixed: c.mixed.get(),
            splits: c.splits.get(),
            collected_blocks: c.collected_blocks.get(),
            collected_frames: c.collected_frames.get(),
            late_double_frees: c.late_double_frees.get(),
            ..ZoneStats::default()
        };
        for entry in self.cpus.iter().flat_map(|cpu| &cpu.combine) {
            let ours = self.map.blocks.get(entry.block.get() as usize).is_some_and(|b| b.zone() as usize == zone);
            if entry.key.get() != NO_KEY && ours {
                stats.free_uncollected += u64::from(entry.mask.get().count_ones());
            }
        }
        // A run of wholly free blocks that is still growing: its first frame and its end.
        let mut run = FrameRange::default();
        let count_run = |run: FrameRange, chunks: &mut [u64]| {
            for (_, order) in run.chunks(Order::MAX) {
                chunks[order.index()] += 1;
            }
        };
        let first = z.span.start.get() >> SECTION_SHIFT;
        let last = (z.span.end.get() - 1) >> SECTION_SHIFT;
        for section in first..=last {
            for i in 0..SECTION_BLOCKS {
                let Some(index) = self.map.locate_block(section * SECTION_BLOCKS + i) else { break };
                let block = &self.map.blocks[index as usize];
                let holder = block.holder();
                if block.zone() as usize != zone || holder == Holder::NOBODY {
                    continue;
                }
                let isolated = block.has_flag(FLAG_ISOLATED);
                let migratetype = if isolated { Migratetype::Isolate as u8 } else { block.migratetype() };
                stats.blocks_by_type[migratetype as usize] += 1;
                let mut words = [0u64; WORDS];
                let (mut free, mut remote) = (0u64, 0u64);
                for (w, word) in words.iter_mut().enumerate() {
                    let (mine, others) = (self.free_or_held(block, w), block.remote_word(w));
                    *word = mine | others;
                    free += u64::from(mine.count_ones());
                    remote += u64::from(others.count_ones());
                }
                stats.free_uncollected += remote;
                if holder == Holder::ZONE {
                    stats.blocks_in_zone += 1;
                    stats.free_in_zone += free;
                } else {
                    stats.blocks_in_cpus += 1;
                    stats.free_in_cpus += free;
                }
                match migratetype {
                    CMA => stats.free_cma += free + remote,
                    HIGH_ATOMIC => stats.free_high_atomic += free + remote,
                    _ => {}
                }
                let base = Pfn::new(block.base());
                if free + remote == FRAMES as u64 {
                    stats.free_blocks += 1;
                    stats.blocks_by_largest_order[10] += 1;
                    if run.end != base {
                        count_run(run, &mut stats.free_chunks);
                        run = FrameRange { start: base, end: base };
                    }
                    run.end = Pfn::new(base.get() + FRAMES as u64);
                    continue;
                }
                let class = count_chunks(&words, &mut stats.free_chunks);
                stats.blocks_by_largest_order[class as usize] += 1;
            }
        }
        count_run(run, &mut stats.free_chunks);
        stats.free = stats.free_in_zone + stats.free_in_cpus + stats.free_uncollected;
        Some(stats)
    }
}

/// Adds the largest aligned chunks of a partly free block to the counts; returns its class.
fn count_chunks(words: &[u64; WORDS], chunks: &mut [u64]) -> u8 {
    let mut class = CLASS_FULL;
    let mut left = *words;
    // Words in fours, pairs and alone, then runs within a word, each taken out once counted.
    for (len, order) in [(4usize, 8usize), (2, 7), (1, 6)] {
        for start in (0..WORDS).step_by(len) {
            if left[start..start + len].iter().all(|&w| w == !0) {
                left[start..start + len].fill(0);
                chunks[order] += 1;
                class = class.max(order as u8 + 1);
            }
        }
    }
    for mut word in left {
        for order in (0..6u32).rev() {
            let starts = crate::bits::runs(word, order);
            for start in crate::bits::each(starts) {
                word &= !crate::bits::mask(start, 1 << order);
                chunks[order as usize] += 1;
                class = class.max(order as u8 + 1);
            }
        }
    }
    class
}
