//! What the allocator must look like from outside: a set of chunks in use, and nothing else.
//!
//! The model knows no lists, no CPUs' shares and no watermarks. It says for every call which error
//! it must give, or that it may succeed; when it does, the model checks that what was handed out
//! was free, and takes it over.

pub(crate) mod machine;
pub(crate) mod steps;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use freehold::{
    AllocError, CpuId, FrameRange, FreeError, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn,
};
use freehold_classic::{Classic, Config, ZoneConfig};

/// A chunk in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chunk {
    pub(crate) order: Order,
    pub(crate) migratetype: Migratetype,
    pub(crate) references: u32,
}

/// What is known from outside.
pub(crate) struct Model {
    pub(crate) zones: Vec<ZoneConfig>,
    pub(crate) live: BTreeMap<u64, Chunk>,
    /// Frames that were part of an allocation at some time.
    pub(crate) ever: BTreeSet<u64>,
    /// Zone and number of isolated pageblocks.
    pub(crate) isolated: BTreeSet<(usize, u64)>,
    pub(crate) online: Vec<bool>,
}

impl Model {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            zones: config.zones.clone(),
            live: BTreeMap::new(),
            ever: BTreeSet::new(),
            isolated: BTreeSet::new(),
            online: vec![true; usize::from(config.cpus)],
        }
    }

    pub(crate) fn managed(&self) -> u64 {
        self.zones.iter().map(ZoneConfig::managed).sum()
    }

    pub(crate) fn in_use(&self) -> u64 {
        self.live.values().map(|chunk| chunk.order.frames()).sum()
    }

    pub(crate) fn is_online(&self, cpu: CpuId) -> bool {
        self.online.get(cpu.index()).copied().unwrap_or(false)
    }

    /// The zone of a frame, or why there is none.
    pub(crate) fn zone_of(&self, pfn: Pfn) -> Result<usize, FreeError> {
        let zone = self
            .zones
            .iter()
            .position(|zone| zone.range.contains(pfn))
            .ok_or(FreeError::OutOfZone { pfn })?;
        if self.zones[zone].holes.iter().any(|hole| hole.contains(pfn)) {
            return Err(FreeError::Hole { pfn });
        }
        Ok(zone)
    }

    /// Where the memory that a zone begins ends: zones side by side are one piece.
    pub(crate) fn memory_end(&self, zone: usize) -> Pfn {
        let beside =
            self.zones[zone..].windows(2).take_while(|two| two[0].range.end == two[1].range.start);
        self.zones[zone + beside.count()].range.end
    }

    /// The chunk in use that `pfn` is part of.
    pub(crate) fn chunk_of(&self, pfn: Pfn) -> Option<(Pfn, Chunk)> {
        let (&head, &chunk) = self.live.range(..=pfn.get()).next_back()?;
        (head + chunk.order.frames() > pfn.get()).then_some((Pfn::new(head), chunk))
    }

    /// The chunks in use that touch `range`.
    pub(crate) fn chunks_in(&self, range: FrameRange) -> Vec<(Pfn, Chunk)> {
        let mut found: Vec<_> = self.chunk_of(range.start).into_iter().collect();
        let rest =
            self.live.range(range.start.get() + 1..range.end.get().max(range.start.get() + 1));
        found.extend(rest.map(|(&pfn, &chunk)| (Pfn::new(pfn), chunk)));
        found
    }

    /// The chunk at `pfn` if one starts there, whatever its order; otherwise the mistake.
    pub(crate) fn head(&self, pfn: Pfn) -> Result<Chunk, FreeError> {
        match self.chunk_of(pfn) {
            Some((head, chunk)) if head == pfn => Ok(chunk),
            Some((head, _)) => Err(FreeError::InsideAllocation { pfn, head }),
            None if self.ever.contains(&pfn.get()) => Err(FreeError::DoubleFree { pfn }),
            None => Err(FreeError::NeverAllocated { pfn }),
        }
    }

    /// Where a chunk of `order` could be.
    pub(crate) fn locate(&self, pfn: Pfn, order: Order) -> Result<usize, FreeError> {
        if order > Order::LINUX_MAX {
            return Err(FreeError::OrderTooLarge { order, max: Order::LINUX_MAX });
        }
        let zone = self.zone_of(pfn)?;
        if !pfn.is_aligned(order) {
            return Err(FreeError::Misaligned { pfn, order });
        }
        Ok(zone)
    }

    /// What a free of one chunk must say.
    pub(crate) fn exact(&self, pfn: Pfn, order: Order) -> Result<Chunk, FreeError> {
        self.locate(pfn, order)?;
        let chunk = self.head(pfn)?;
        if chunk.order != order {
            return Err(FreeError::WrongOrder { pfn, allocated: chunk.order, freed: order });
        }
        Ok(chunk)
    }

    /// What a free of several chunks at once must say: the first mistake, duplicates counted.
    pub(crate) fn exact_all(&self, chunks: &[(Pfn, Order)]) -> Result<(), FreeError> {
        let mut seen: HashMap<Pfn, u32> = HashMap::new();
        let mut gone: Vec<FrameRange> = Vec::new();
        for &(pfn, order) in chunks {
            let result = self.exact(pfn, order);
            // A chunk whose only reference an earlier element has dropped is gone for this one
            // already.
            let is_gone = gone.iter().any(|range| range.contains(pfn));
            if is_gone
                && !matches!(
                    result,
                    Err(FreeError::OrderTooLarge { .. } | FreeError::Misaligned { .. })
                )
            {
                return Err(FreeError::DoubleFree { pfn });
            }
            let chunk = result?;
            let seen = seen.entry(pfn).or_default();
            *seen += 1;
            if *seen > chunk.references {
                return Err(FreeError::DoubleFree { pfn });
            }
            if chunk.references == 1 {
                gone.push(FrameRange::new(pfn, order.frames()).unwrap());
            }
        }
        Ok(())
    }

    /// Drops one reference; returns whether it was the last.
    pub(crate) fn put(&mut self, pfn: Pfn) -> bool {
        let chunk = self.live.get_mut(&pfn.get()).unwrap();
        chunk.references -= 1;
        if chunk.references > 0 {
            return false;
        }
        self.live.remove(&pfn.get()).unwrap();
        true
    }

    /// Takes over a chunk that was handed out, which must be memory that nobody has.
    pub(crate) fn handed_out(&mut self, pfn: Pfn, order: Order, migratetype: Migratetype) {
        let range = FrameRange::new(pfn, order.frames()).unwrap();
        assert!(pfn.is_aligned(order), "{pfn} is not aligned to {order}");
        let zone = self.zone_of(pfn).unwrap_or_else(|error| panic!("handed out: {error}"));
        let config = &self.zones[zone];
        assert!(range.end <= config.range.end, "{range} leaves zone {}", config.name);
        let hole =
            config.holes.iter().find(|hole| hole.start < range.end && range.start < hole.end);
        assert!(hole.is_none(), "{range} covers the hole {hole:?}");
        let overlap = self.chunks_in(range);
        assert!(overlap.is_empty(), "{range} overlaps {overlap:?}");
        let isolated = Self::blocks(range).find(|block| self.isolated.contains(&(zone, *block)));
        assert!(isolated.is_none(), "{range} lies in the isolated block {isolated:?}");
        self.insert(pfn, order, migratetype);
    }

    pub(crate) fn insert(&mut self, pfn: Pfn, order: Order, migratetype: Migratetype) {
        self.live.insert(pfn.get(), Chunk { order, migratetype, references: 1 });
        self.ever.extend(pfn.get()..pfn.get() + order.frames());
    }

    pub(crate) fn blocks(range: FrameRange) -> impl Iterator<Item = u64> {
        range.start.get() / PAGEBLOCK_FRAMES..=(range.end.get() - 1) / PAGEBLOCK_FRAMES
    }

    /// The zone that a range lies in, or what a range call must say. Holes inside are not looked
    /// for.
    pub(crate) fn range_zone(&self, range: FrameRange) -> Result<usize, AllocError> {
        if range.is_empty() {
            return Err(AllocError::ZeroLength);
        }
        let zone =
            self.zone_of(range.start).map_err(|_| AllocError::BadRange { pfn: range.start })?;
        let end = self.zones[zone].range.end;
        if range.end > end { Err(AllocError::BadRange { pfn: end }) } else { Ok(zone) }
    }

    /// Whether something in `range` keeps it from being isolated.
    pub(crate) fn pinned(&self, range: FrameRange) -> bool {
        self.chunks_in(range).iter().any(|(_, chunk)| chunk.migratetype != Migratetype::Movable)
    }

    /// The allocator agrees with itself and with the model.
    pub(crate) fn check(&self, classic: &Classic) {
        classic.validate().unwrap();
        self.check_sums(classic);
    }

    /// The cheap part of [`check`](Self::check): nothing lost, nothing there twice.
    pub(crate) fn check_sums(&self, classic: &Classic) {
        let map = classic.memory_map();
        assert_eq!(map.managed, self.managed());
        assert_eq!(map.managed - map.free, self.in_use(), "frames were lost or doubled");
    }

    /// Everything has been freed and drained: every block must be whole.
    pub(crate) fn check_whole(&self, classic: &Classic) {
        assert!(self.live.is_empty() && self.isolated.is_empty());
        self.check(classic);
        let map = classic.memory_map();
        assert_eq!(map.on_pcp, 0, "drained, and still on a CPU's lists");
        let mut whole = 0;
        for zone in &self.zones {
            for block in Self::blocks(zone.range) {
                let range =
                    FrameRange::new(Pfn::new(block * PAGEBLOCK_FRAMES), PAGEBLOCK_FRAMES).unwrap();
                let inside = zone.range.start <= range.start && range.end <= zone.range.end;
                let hole =
                    zone.holes.iter().any(|hole| hole.start < range.end && range.start < hole.end);
                whole += u64::from(inside && !hole);
            }
        }
        assert_eq!(map.free_blocks, whole);
        assert_eq!(
            map.zone_chunks[9] + 2 * map.zone_chunks[10],
            whole,
            "a free block is in pieces"
        );
    }
}
