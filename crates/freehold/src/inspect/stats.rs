//! Statistics: counters as they are, and one walk over a zone's blocks. Read without a lock: single
//! values are exact at the moment of reading, sums are exact while nothing runs.
//!
//! | | looks at | of 1 TiB |
//! |---|---|---|
//! | [`Freehold::zone_stats`] | counters of the zone and of each CPU, and each CPU's hand | microseconds |
//! | [`Freehold::zone_blocks`] | each block | a tenth of a second |
//!
//! A host that asks often, such as a kernel that decides whether to compact, asks the first, and
//! [`Freehold::listed_chunks`] for an estimate of the second.

use crate::block::words::{CLASS_NONE, CLASS_WHOLE, EMPTY, class_of, count_of};
use crate::block::{
    ABSENT, Block, CMA, FRAMES, HIGH_ATOMIC, HOLES, ISOLATED, MOVABLE, SPLIT, Tag, WHOLE, WORDS,
    bits,
};
use crate::cpu::lease::SLOTS;
use crate::cpu::{Cpu, CpuCounters};
use crate::primitive::Relaxed;
use crate::zone::Zone;
use crate::{CpuId, FrameRange, Freehold, Migratetype, ORDERS, On, Order, Pfn, Platform};

impl CpuStats {
    /// Adds what a CPU has counted.
    fn add(&mut self, cpu: &CpuCounters) {
        let allocs = self.allocs.iter_mut().flatten().zip(cpu.allocs.iter().flatten());
        let by_phase = self.refills_by_phase.iter_mut().zip(&cpu.by_phase);
        let others = [
            (&mut self.local_frees, &cpu.local_frees),
            (&mut self.remote_frees, &cpu.remote_frees),
            (&mut self.failed, &cpu.failed),
            (&mut self.slow, &cpu.slow),
            (&mut self.refills, &cpu.refills),
            (&mut self.refilled_frames, &cpu.refilled_frames),
            (&mut self.recalls, &cpu.recalls),
            (&mut self.shared_writes, &cpu.shared_writes),
        ];
        allocs.chain(by_phase).chain(others).for_each(|(sum, count)| *sum += count.get());
    }
}

/// What one CPU has done since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuStats {
    /// Allocations by requested migratetype (unmovable, movable, reclaimable), then by order; each
    /// frame of a bulk allocation counts as one of order 0.
    pub allocs: [[u64; ORDERS]; 3],
    /// Frees (calls, or frames of bulk calls) into words that this CPU leases.
    pub local_frees: u64,
    /// Other frees. Frees made while this CPU's state was in use by somebody else
    /// are counted in [`Totals::unattributed_frees`](crate::Totals) only.
    pub remote_frees: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Allocations that needed more than what the CPU had in hand.
    pub slow: u64,
    /// Times it looked for the next block.
    pub refills: u64,
    /// Refills by phase that gave something; see [`RefillPhase`](crate::RefillPhase).
    pub refills_by_phase: [u64; 3],
    /// Frames of the words that it leased.
    pub refilled_frames: u64,
    /// Times it asked all other CPUs for what they had in hand, for want of anything else.
    pub recalls: u64,
    /// Writes to memory that all CPUs of a zone write: rows of the board and their summaries, words
    /// of the bitmap of whole blocks, blocks' classes, counts of free frames.
    pub shared_writes: u64,
}

impl CpuStats {
    /// All allocations.
    #[must_use]
    pub fn total_allocs(&self) -> u64 {
        self.allocs.iter().flatten().sum()
    }
}

/// The state and the history of one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZoneStats {
    /// Frames there are.
    pub managed: u64,
    /// Frames free, wherever they are: in the zone and in CPUs' hands.
    pub free: u64,
    /// Of these, in nobody's hand.
    pub free_in_zone: u64,
    /// Of these, in CPUs' hands: in words that they lease, and in whole blocks that they keep.
    pub free_in_cpus: u64,
    /// Free frames in CMA blocks.
    pub free_cma: u64,
    /// Free frames in HIGHATOMIC blocks.
    pub free_high_atomic: u64,
    /// Watermarks now, in frames: min, low, high.
    pub watermarks: [u64; 3],
    /// Whole blocks that nobody has; of CMA and HIGHATOMIC blocks none counts.
    pub whole_blocks: u64,
    /// Whole blocks that CPUs keep.
    pub blocks_in_cpus: u64,
    /// Allocations that fell back to another migratetype.
    pub fallbacks: u64,
    /// Of these, allocations placed inside a block that kept its other type.
    pub mixed: u64,
    /// Writes to memory that all CPUs of the zone write, made in no CPU's state; see
    /// [`CpuStats::shared_writes`].
    pub shared_writes: u64,
}

/// What a walk over one zone's blocks finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZoneBlocks {
    /// Blocks by migratetype (isolated ones count as [`Migratetype::Isolate`]).
    pub blocks_by_type: [u64; Migratetype::ALL.len()],
    /// Blocks of which no frame is in use, wherever they are held.
    pub free_blocks: u64,
    /// Blocks by largest free order: index 0 = nothing free, k = order k - 1.
    pub blocks_by_largest_order: [u64; 11],
    /// The fewest naturally aligned chunks that the free frames form, by order, wherever they are.
    pub free_chunks: [u64; ORDERS],
}

impl ZoneBlocks {
    /// The largest order of which a chunk is free, wherever it is held.
    #[must_use]
    pub fn largest_free_order(&self) -> Option<Order> {
        let order = self.free_chunks.iter().rposition(|&n| n > 0)?;
        Order::new(order as u8)
    }
}

/// Sums over all CPUs and zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Sums over all CPUs.
    pub cpus: CpuStats,
    /// Frees made while the CPU's own state was in use by somebody else; no CPU counts them.
    pub unattributed_frees: u64,
    /// Double frees that no call could see; each was told to [`Platform::late_double_free`].
    pub late_double_frees: u64,
    /// Writes to memory that all CPUs of a zone write, by a thread that made them; see
    /// [`CpuStats::shared_writes`].
    pub shared_writes: u64,
}

impl<P: Platform> On<'_, '_, P> {
    /// What the CPU has done; `None` where there is no such CPU. Takes no lock.
    #[must_use]
    pub fn stats(&self) -> Option<CpuStats> {
        let mut stats = CpuStats::default();
        stats.add(&self.fh.cpus.get(self.id.index())?.counters);
        Some(stats)
    }

    /// Free frames that the CPU has in hand, and the most that it may lease. Takes no lock.
    #[must_use]
    pub fn holdings(&self) -> Option<(u64, u64)> {
        let state = self.fh.cpu(self.fh.cpus.get(self.id.index())?);
        let leased: u64 = state.leased_frames().map(|(_, frames)| frames).sum();
        let kept = state.kept_blocks() * FRAMES as u64;
        Some((leased + kept, u64::from(state.leases.limit.get().max(1)) * 64))
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Sums over all CPUs and zones. Takes no lock; does not walk.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals =
            Totals { late_double_frees: self.late_double_frees.get(), ..Totals::default() };
        self.cpus.iter().for_each(|cpu| totals.cpus.add(&cpu.counters));
        totals.shared_writes = totals.cpus.shared_writes;
        for zone in self.zones {
            totals.shared_writes += zone.counters.shared_writes.get();
            totals.unattributed_frees +=
                zone.outside.iter().map(|outside| outside.frees.get()).sum::<u64>();
        }
        totals
    }

    /// The state and history of a zone; `None` where there is no such zone. Takes no lock, and time
    /// that grows with the number of CPUs, not with the memory. Exact while nothing runs, but for
    /// which of the free frames are HIGHATOMIC ones, where a block has become one or ceased to be
    /// one beside an allocation from it.
    #[must_use]
    pub fn zone_stats(&self, zone: usize) -> Option<ZoneStats> {
        let z = self.zones.get(zone)?;
        let mut stats = ZoneStats {
            managed: z.managed.get(),
            watermarks: [z.min.get(), z.low.get(), z.high.get()],
            whole_blocks: z.wholes(),
            fallbacks: z.counters.fallbacks.get(),
            mixed: z.counters.mixed.get(),
            shared_writes: z.counters.shared_writes.get(),
            ..ZoneStats::default()
        };
        let free = z.free(self);
        (stats.free_in_zone, stats.free_cma, stats.free_high_atomic) =
            (free.all, free.cma, free.high_atomic);
        for cpu in self.cpus.iter().map(|cpu| self.cpu(cpu)).filter(|cpu| cpu.is_home(zone)) {
            for (migratetype, frames) in cpu.leased_frames() {
                stats.free_in_cpus += frames;
                match migratetype {
                    CMA => stats.free_cma += frames,
                    HIGH_ATOMIC => stats.free_high_atomic += frames,
                    _ => {}
                }
            }
            stats.blocks_in_cpus += cpu.kept_blocks();
        }
        stats.free_in_cpus += stats.blocks_in_cpus * FRAMES as u64;
        stats.free = stats.free_in_zone + stats.free_in_cpus;
        Some(stats)
    }

    /// What each block of a zone is, summed up; `None` where there is no such zone. Takes no lock;
    /// walks all of its blocks that were ever used, and the bitmap of the others. Exact while
    /// nothing runs.
    #[must_use]
    pub fn zone_blocks(&self, zone: usize) -> Option<ZoneBlocks> {
        let mut stats = ZoneBlocks::default();
        let mut chunks = Chunks::default();
        self.zones.get(zone)?.each_block(self, |base, tag, words| {
            stats.blocks_by_type[type_told(tag)] += 1;
            stats.free_blocks += u64::from(count_of(words) as usize == FRAMES);
            let class = chunks.add(base, words);
            stats.blocks_by_largest_order[class as usize] += 1;
        });
        stats.free_chunks = chunks.end();
        Some(stats)
    }

    /// The fewest naturally aligned chunks that the free frames of a zone's blocks of one type
    /// form, by order; those of isolated blocks are of type `Isolate`. `None` where there is no
    /// such zone. Takes no lock; walks like [`zone_blocks`](Self::zone_blocks).
    #[must_use]
    pub fn free_chunks(&self, zone: usize, migratetype: Migratetype) -> Option<[u64; ORDERS]> {
        let mut chunks = Chunks::default();
        self.zones.get(zone)?.each_block(self, |base, tag, words| {
            if type_told(tag) == migratetype as usize {
                chunks.add(base, words);
            }
        });
        Some(chunks.end())
    }
}

impl<'m, P: Platform> Cpu<'_, 'm, P> {
    /// The migratetype of each word that it leases, and how many free frames of it are in hand. Of
    /// the home zone, as all that it has in hand.
    fn leased_frames(self) -> impl Iterator<Item = (usize, u64)> {
        let held = self.leases.held.get();
        let slots = (0..SLOTS).filter(move |slot| held >> slot & 1 == 1);
        slots.map(move |slot| {
            let lease = self.leases.slot(slot);
            let migratetype = lease
                .seen_place(&self.fh.map.blocks)
                .map(|(block, _)| block.tag.get().migratetype());
            (migratetype.unwrap_or_default(), u64::from(lease.all().count_ones()))
        })
    }

    /// Whole blocks that it keeps.
    fn kept_blocks(self) -> u64 {
        self.kept.iter().filter(|kept| !kept.is_none()).count() as u64
    }
}

impl<'m> Block<'m> {
    /// The free frames of a block, in its words, in hands, or all of it.
    pub(crate) fn free_words(self, fh: &Freehold<'m, impl Platform>, tag: Tag) -> [u64; WORDS] {
        match tag.state() {
            WHOLE => [!0; WORDS],
            SPLIT => core::array::from_fn(|w| self.line.word(w) | self.leased_frames(fh, w)),
            _ => [0; WORDS],
        }
    }
}

impl<'m> Zone<'m> {
    /// Every block of a zone that has memory, by rising address: its first frame, its tag, its free
    /// frames wherever they are. Blocks never used are found by the bitmap.
    pub(crate) fn each_block(
        &'m self,
        fh: &Freehold<'m, impl Platform>,
        mut see: impl FnMut(Pfn, Tag, &[u64; WORDS]),
    ) {
        for number in self.block_numbers(fh) {
            if let Some((_, tag, words)) = self.look_at(fh, number) {
                see(Pfn::new(number << 9), tag, &words);
            }
        }
    }

    /// The block of that number, if it is one of the zone that has memory: its metadata where it was
    /// ever used, its tag, its free frames wherever they are.
    pub(crate) fn look_at(
        &self,
        fh: &Freehold<'m, impl Platform>,
        number: u64,
    ) -> Option<(Option<Block<'m>>, Tag, [u64; WORDS])> {
        let found = fh.map.locate_block(number).map(|block| (block, block.tag.get()));
        let (block, tag, words) = match found.filter(|(_, tag)| tag.state() != ABSENT) {
            Some((block, tag)) => (Some(block), tag, block.free_words(fh, tag)),
            None if self.bitmap.contains(number - self.first_block) => {
                (None, Tag::new(WHOLE, MOVABLE, self.id), [!0; WORDS])
            }
            None => return None,
        };
        (tag.zone() == usize::from(self.id)).then_some((block, tag, words))
    }

    /// The numbers of the blocks of a zone that are set up or in its bitmap, rising: where neither
    /// is, a span may be as large as the number space and takes no longer.
    pub(crate) fn block_numbers<P: Platform>(
        &'m self,
        fh: &Freehold<'m, P>,
    ) -> impl Iterator<Item = u64> {
        let (mut next, end) = (self.span.start.get() >> 9, self.span.end.get() >> 9);
        core::iter::from_fn(move || {
            if next < end && fh.map.locate_block(next).is_none() {
                let bit = self.bitmap.next(next - self.first_block);
                let whole = bit.map_or(end, |bit| self.first_block + bit).min(end);
                next = fh.map.next_set_up(next, whole).unwrap_or(whole);
            }
            let number = next;
            next += 1;
            (number < end).then_some(number)
        })
    }
}

/// The type that a block is told as: `Isolate` while it is isolated, whatever it was.
fn type_told(tag: Tag) -> usize {
    if tag.has(ISOLATED) { Migratetype::Isolate as usize } else { tag.migratetype() }
}

/// The fewest naturally aligned chunks that the free frames of blocks form, by order. Wholly free
/// blocks side by side are one run, as long as it grows.
#[derive(Default)]
struct Chunks {
    counts: [u64; ORDERS],
    /// That run's first frame and its end.
    run: FrameRange,
}

impl Chunks {
    /// Adds a block's free frames, by rising address; returns the block's class.
    fn add(&mut self, base: Pfn, words: &[u64; WORDS]) -> u8 {
        if count_of(words) as usize != FRAMES {
            count_chunks(words, &mut self.counts);
            return class_of(CLASS_NONE, |w| words[w], |_| true);
        }
        if self.run.end != base {
            self.count_run();
            self.run = FrameRange { start: base, end: base };
        }
        self.run.end = Pfn::new(base.get() + FRAMES as u64);
        CLASS_WHOLE
    }

    fn count_run(&mut self) {
        for (_, order) in self.run.chunks(Order::MAX) {
            self.counts[order.index()] += 1;
        }
    }

    /// All of them, once no block comes any more.
    fn end(mut self) -> [u64; ORDERS] {
        self.count_run();
        self.counts
    }
}

/// Adds the largest aligned chunks that the set bits form to the counts, up to all of them.
pub(super) fn count_chunks(words: &[u64; WORDS], chunks: &mut [u64]) {
    let mut end = 0;
    loop {
        let start = bits::next(words, end, true);
        if start == FRAMES {
            return;
        }
        end = bits::next(words, start, false);
        let run = FrameRange { start: Pfn::new(start as u64), end: Pfn::new(end as u64) };
        run.chunks(Order::PAGEBLOCK).for_each(|(_, order)| chunks[order.index()] += 1);
    }
}

/// The state of one pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageblockState {
    /// Its first frame (of the block, which may be a hole).
    pub start: Pfn,
    /// The first CPU that leases words of it; `None` where there is none.
    pub holder: Option<CpuId>,
    /// Its migratetype; [`Migratetype::Isolate`] while it is isolated.
    pub migratetype: Migratetype,
    /// Frames that exist, at most 512.
    pub frames: u16,
    /// Of these, frames free, wherever they are.
    pub free: u16,
    /// Which these are: bit 0 of the first word is the block's first frame.
    pub free_frames: [u64; WORDS],
}

impl<P: Platform> Freehold<'_, P> {
    /// A zone's pageblocks that have memory, by rising address; none where there is no such zone.
    ///
    /// Takes no lock; time proportional to the zone. Exact while nothing runs: the free frames add
    /// up to [`ZoneStats::free`](crate::ZoneStats::free).
    pub fn pageblocks(&self, zone: usize) -> impl Iterator<Item = PageblockState> + '_ {
        let zone = self.zones.get(zone);
        let states = zone.map(|zone| {
            zone.block_numbers(self).filter_map(|number| zone.state_of_block(self, number))
        });
        states.into_iter().flatten()
    }

    /// The pageblock that a frame lies in; `None` where there is no memory.
    ///
    /// Takes no lock. Exact while nothing runs.
    #[must_use]
    pub fn pageblock(&self, pfn: Pfn) -> Option<PageblockState> {
        let zone = self.zones.iter().find(|zone| zone.span.contains(pfn))?;
        zone.state_of_block(self, pfn.get() >> 9)
    }
}

impl<'m> Zone<'m> {
    fn state_of_block(
        &self,
        fh: &Freehold<'m, impl Platform>,
        number: u64,
    ) -> Option<PageblockState> {
        let (block, tag, free_frames) = self.look_at(fh, number)?;
        let frames = match block {
            Some(block) if tag.has(HOLES) => count_of(&fh.map.present(block)),
            _ => FRAMES as u32,
        };
        let leases = block.iter().flat_map(|block| (0..WORDS).map(|w| block.lease(w) & !EMPTY));
        let holder = leases.filter_map(|lease| lease.checked_sub(1).map(CpuId::new)).min();
        let migratetype = Migratetype::from_index(tag.migratetype()).filter(|_| !tag.has(ISOLATED));
        Some(PageblockState {
            start: Pfn::new(number << 9),
            holder,
            migratetype: migratetype.unwrap_or(Migratetype::Isolate),
            frames: frames as u16,
            free: count_of(&free_frames) as u16,
            free_frames,
        })
    }
}
