//! Looking at all of memory: what is where, and whether every structure agrees with every other.

use core::hint::black_box;
use core::sync::atomic::Ordering::Relaxed;

use freehold::Migratetype;

use crate::Classic;
use crate::page::{Kind, PAGEBLOCK};
use crate::stats::{MemoryMap, Stats};
use crate::switches::Switch;
use crate::zone::Zone;

/// How many frames the walk over chunks looks ahead: eight of the largest chunks.
const AHEAD: u32 = 8 << 10;

/// Which frames of a zone a list says that a chunk starts at.
struct Listed<'a> {
    zone: &'a Zone,
    frames: Vec<bool>,
}

impl Listed<'_> {
    /// A chunk found on a list where only such ones may be: how many frames it has. On one list
    /// only.
    fn put(&mut self, frame: u32, kinds: &[Kind], place: &str) -> Result<u64, String> {
        let state = self.zone.frames.state(frame);
        let (pfn, kind) = (self.zone.frames.pfn(frame), state.kind());
        holds(kinds.contains(&kind), || format!("{pfn} is on {place} but its state is {kind:?}"))?;
        let twice = core::mem::replace(&mut self.frames[frame as usize], true);
        holds(!twice, || format!("{pfn} is on two lists"))?;
        Ok(1u64 << state.order())
    }
}

/// An error in these words, unless it holds.
fn holds(it: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if it { Ok(()) } else { Err(otherwise()) }
}

impl Classic {
    /// Everything counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for pcp in &self.zone.pcps {
            let inner = pcp.look();
            stats.pcp.add(&inner.counters);
            stats.flow.add(&inner.flow);
        }
        {
            let zone = self.zone.look();
            stats.zone = zone.counters;
            stats.zone_lock = zone.histogram.clone();
        }
        let counts = &self.counts;
        stats.failed = counts.failed.load(Relaxed);
        stats.kept = counts.kept.load(Relaxed);
        stats.pcp_busy = counts.pcp_busy.load(Relaxed);
        stats.remote_pcp_waits = counts.remote_pcp_waits.load(Relaxed);
        stats.drain_all = counts.drain_all.load(Relaxed);
        stats.range_visits = counts.range_visits.load(Relaxed);
        stats.cpus_asked = counts.cpus_asked.load(Relaxed);
        // Frees left for the owner are frees from the moment they are there.
        let queued = counts.remote_queued.load(Relaxed);
        stats.pcp.frees += queued;
        stats.pcp.remote_frees += queued;
        stats
    }

    /// What is free and where, by a walk that looks at one record a chunk.
    #[must_use]
    pub fn memory_map(&self) -> MemoryMap {
        let zone = &self.zone;
        let mut map = MemoryMap {
            managed: zone.managed,
            blocks_by_owner: vec![0; zone.pcps.len() + 1],
            ..MemoryMap::default()
        };
        // What the block at hand holds so far: free frames, all frames, requested types in use.
        let mut block = u32::MAX;
        let (mut free, mut memory, mut types) = (0, 0, 0u8);
        // The free frames that end where the walk is.
        let (mut run, mut run_end) = (0, 0);
        let finish = |map: &mut MemoryMap, free: u32, memory: u32, types: u8| {
            map.free_blocks += u64::from(memory > 0 && free == memory && memory == PAGEBLOCK);
            map.mixed_blocks += u64::from(types.count_ones() > 1);
        };
        let mut at = 0;
        while at < zone.frames.len() {
            // Each record says where the next one is, and is not in the cache: of the largest
            // chunks, that of some further ones is asked for meanwhile.
            black_box(zone.frames.state(at.saturating_add(AHEAD).min(zone.frames.len() - 1)));
            let state = zone.frames.state(at);
            let size = 1u32 << state.order();
            let this = zone.block_of(at);
            if this != block {
                finish(&mut map, free, memory, types);
                (block, free, memory, types) = (this, 0, 0, 0);
            }
            match state.kind() {
                Kind::Hole | Kind::Tail => {}
                kind if state.is_free() => {
                    map.free += u64::from(size);
                    map.chunks[state.order() as usize] += 1;
                    let pfn = zone.frames.pfn(at).get();
                    if pfn != run_end {
                        map.add_run(run, run_end);
                        run = pfn;
                    }
                    run_end = pfn + u64::from(size);
                    if kind == Kind::Buddy {
                        map.zone_chunks[state.order() as usize] += 1;
                    } else {
                        map.on_pcp += u64::from(size);
                    }
                    free += size.min(PAGEBLOCK);
                    memory += size.min(PAGEBLOCK);
                    // A chunk of two blocks: both are free.
                    map.free_blocks += u64::from(size / PAGEBLOCK).saturating_sub(1);
                }
                Kind::Allocated => {
                    memory += size;
                    types |= 1 << state.migratetype().index();
                }
                _ => memory += size,
            }
            at += size;
        }
        finish(&mut map, free, memory, types);
        map.add_run(run, run_end);
        for block in zone.block_of(zone.start)..=zone.block_of(zone.end - 1) {
            map.blocks_by_type[zone.blocks.migratetype(block).index()] += 1;
            map.blocks_by_owner[zone.blocks.owner(block).map_or(0, |cpu| cpu as usize + 1)] += 1;
        }
        map
    }

    /// Checks every structure against every other. Nobody else may use the allocator meanwhile.
    ///
    /// # Errors
    ///
    /// The first contradiction, in words.
    pub fn validate(&self) -> Result<(), String> {
        let zone = &self.zone;
        let mut listed = Listed { zone, frames: vec![false; zone.frames.len() as usize] };
        for cpu in 0..zone.pcps.len() {
            self.validate_pcp(cpu, &mut listed)?;
        }
        Self::validate_free_lists(&mut listed)?;
        Self::validate_isolated(zone)?;
        Self::validate_cover(zone, &listed.frames)?;
        Self::validate_owned(zone)
    }

    /// A CPU's lists and its count, and what others have left to it.
    fn validate_pcp(&self, cpu: usize, listed: &mut Listed<'_>) -> Result<(), String> {
        let zone = listed.zone;
        let (pcp, frames) = (&zone.pcps[cpu], &zone.frames);
        let inner = pcp.look();
        let mut count = 0;
        for index in 0..self.layout.lists() {
            for frame in inner.lists[index].iter(frames) {
                let state = frames.state(frame);
                count += listed.put(frame, &[Kind::Pcp, Kind::PcpBuddy], "a PCP list")?;
                let pfn = frames.pfn(frame);
                let fits = state.order() == self.layout.order(index);
                holds(fits, || format!("{pfn} is on a PCP list of another order"))?;
                let owner = zone.blocks.owner(zone.block_of(frame));
                let own = state.kind() != Kind::PcpBuddy || owner == Some(cpu as u32);
                holds(own, || format!("{pfn} is marked on CPU {cpu} but owned by {owner:?}"))?;
            }
        }
        let counted = inner.count;
        let words = || format!("CPU {cpu} counts {counted} frames and has {count}");
        holds(count == u64::from(counted), words)?;
        for &frame in pcp.remote().iter() {
            listed.put(frame, &[Kind::Queued], "a list of remote frees")?;
        }
        Ok(())
    }

    /// The zone's lists, and its counts of them.
    fn validate_free_lists(listed: &mut Listed<'_>) -> Result<(), String> {
        let zone = listed.zone;
        let (areas, mut free) = (zone.look().areas, [0u64; Migratetype::ALL.len()]);
        for (order, area) in areas.iter().enumerate() {
            let mut chunks = 0;
            for migratetype in Migratetype::ALL {
                for frame in area.lists[migratetype.index()].iter(&zone.frames) {
                    free[migratetype.index()] +=
                        listed.put(frame, &[Kind::Buddy], "a zone list")?;
                    chunks += 1;
                    Self::validate_free_chunk(zone, frame, order, migratetype)?;
                }
            }
            let counted = area.free;
            let words = || format!("order {order} counts {counted} free chunks and has {chunks}");
            holds(chunks == counted, words)?;
        }
        let counted = zone.free_frames();
        let [.., high_atomic, cma, isolate] = free;
        let total: u64 = free.iter().sum::<u64>() - isolate;
        let agrees = (counted.free, counted.high_atomic, counted.cma) == (total, high_atomic, cma);
        let words = || format!("the zone counts {counted:?} and has {total}, {high_atomic}, {cma}");
        holds(agrees, words)
    }

    /// A chunk on the zone's list of that order and type: is it, and is its buddy in use?
    fn validate_free_chunk(
        zone: &Zone,
        frame: u32,
        order: usize,
        migratetype: Migratetype,
    ) -> Result<(), String> {
        let frames = &zone.frames;
        let (state, pfn) = (frames.state(frame), frames.pfn(frame));
        let fits = state.order() as usize == order && state.migratetype() == migratetype;
        holds(fits, || format!("{pfn} is on the wrong zone list"))?;
        // Above that, types may keep buddies apart, and a chunk of the largest order has none.
        let buddy = (order < 9).then(|| frames.state(frame ^ (1 << order)));
        let apart = buddy.is_none_or(|it| it.kind() != Kind::Buddy || it.order() as usize != order);
        holds(apart, || format!("{pfn} and its buddy of order {order} are both free"))?;
        let block = zone.type_of(frame);
        let clean = !zone.on.has(Switch::TypeHygiene) || block == migratetype;
        let words =
            || format!("{pfn} is on a list of type {migratetype} in a block of type {block}");
        holds(clean, words)
    }

    /// Every frame belongs to exactly one chunk, and every free chunk is on a list.
    fn validate_cover(zone: &Zone, listed: &[bool]) -> Result<(), String> {
        let frames = &zone.frames;
        let mut at = 0;
        let mut memory = 0;
        while at < frames.len() {
            let state = frames.state(at);
            let pfn = frames.pfn(at);
            let order = if state.kind() == Kind::Hole { 0 } else { state.order() };
            let (free, kind) = (state.is_free(), state.kind());
            let not = if free { "not " } else { "" };
            holds(free == listed[at as usize], || format!("{pfn} is {kind:?} but {not}on a list"))?;
            match state.kind() {
                Kind::Tail => return Err(format!("{pfn} belongs to no chunk")),
                Kind::Freeing => return Err(format!("{pfn} is on its way and never arrived")),
                Kind::Hole => {}
                _ => memory += 1u64 << order,
            }
            let words =
                || format!("{pfn} starts a chunk of order {order} and is not aligned to it");
            holds(at & ((1 << order) - 1) == 0, words)?;
            let mut tails = at + 1..at + (1 << order);
            if let Some(tail) = tails.find(|&tail| frames.state(tail).kind() != Kind::Tail) {
                let tail = frames.pfn(tail);
                return Err(format!("{tail} starts a chunk inside the chunk at {pfn}"));
            }
            at += 1 << order;
        }
        let managed = zone.managed;
        holds(memory == managed, || format!("chunks cover {memory} frames of {managed}"))
    }

    /// Drains before 6.10 go by the count of isolated blocks.
    fn validate_isolated(zone: &Zone) -> Result<(), String> {
        let is_isolated = |block: &u32| zone.blocks.migratetype(*block) == Migratetype::Isolate;
        let blocks = (0..zone.blocks.len()).filter(is_isolated).count();
        let counted = zone.look().isolated_blocks;
        let words = || format!("{blocks} blocks are isolated, and {counted} are counted");
        holds(counted as usize == blocks, words)
    }

    /// Listed blocks are owned by the CPU on whose list they are, and are not whole in the zone.
    fn validate_owned(zone: &Zone) -> Result<(), String> {
        for (cpu, lists) in zone.look().owned.iter().enumerate() {
            for block in lists.iter().flat_map(|list| list.iter(&zone.blocks)) {
                let owner = zone.blocks.owner(block);
                let words =
                    || format!("block {block} is on CPU {cpu}'s list and owned by {owner:?}");
                holds(owner == Some(cpu as u32), words)?;
                let state = zone.frames.state(block * PAGEBLOCK);
                let words = || format!("block {block} is whole and still on CPU {cpu}'s list");
                holds(state.kind() != Kind::Buddy || state.order() < 9, words)?;
            }
        }
        Ok(())
    }
}
