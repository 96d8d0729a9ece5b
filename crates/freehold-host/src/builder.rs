//! The knobs of an arena, each with its default and why one would turn it.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use freehold::{
    Config, FRAME_SIZE, FrameRange, Order, PAGEBLOCK_FRAMES, Pfn, Watermarks, ZoneConfig,
};

use crate::Error;
use crate::arena::Arena;
use crate::background::Background;
use crate::checks::Checks;
use crate::core::Core;
use crate::extent::{Extent, STEP};
use crate::host::Host;
use crate::inner::Inner;
use crate::memory::{Backing, Memory, OnFork};
use crate::notes::Notes;
use crate::numa::{Numa, Topology};
use crate::pins::Pins;
use crate::release::Release;
use crate::slots::Slots;
use crate::sys::Placement;
use crate::watch::{Exhausted, Pressure, Watch};

/// Frames of the allocator's sections, whose metadata is set up together: 128 MiB.
const SECTION: u64 = 1 << 15;

/// How a thread gets at the state of the CPU it has for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Lock {
    /// With plain stores and loads, where the kernel has `membarrier(2)`: others who reach in pay
    /// for a barrier on every core (0.2 us alone, about 10 us with other cores running). With an
    /// ordinary lock elsewhere. The default.
    #[default]
    Biased,
    /// With an ordinary lock: one atomic read-modify-write more for each call, but nobody
    /// interrupts other cores. For programs in which threads mostly reach into each other's CPUs,
    /// and for tests.
    Ordinary,
}

/// Bytes of a block.
const BLOCK: u64 = PAGEBLOCK_FRAMES * FRAME_SIZE;

/// Makes an [`Arena`].
///
/// ```
/// use freehold_host::{Arena, Backing};
/// use std::time::Duration;
///
/// let arena = Arena::builder(64 << 20)
///     .backing(Backing::Memfd)
///     .decay(Duration::from_secs(1))
///     .build()?;
/// assert_eq!(arena.stats().frames, 64 << 20 >> 12);
/// # Ok::<(), freehold_host::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    bytes: u64,
    reserve: u64,
    backing: Backing,
    on_fork: OnFork,
    lock: Lock,
    slots: Option<u16>,
    shared_slots: Option<u16>,
    numa: Numa,
    topology: Option<Topology>,
    watermarks: Watermarks,
    populate: bool,
    pinned: bool,
    checked: bool,
    zero_on_free: bool,
    watch: Watch,
    dont_dump: bool,
    locked: bool,
    decay: Duration,
    budget: u64,
    batch: u64,
    least_run: u64,
    background: bool,
}

impl Arena {
    /// An arena of at least that many bytes of private memory, with every knob at its default.
    ///
    /// In a process that has called `mlockall(MCL_FUTURE)` the kernel backs and locks all of it at
    /// once: see [`Builder::new`].
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
    pub fn with_size(bytes: u64) -> Result<Self, Error> {
        Self::builder(bytes).build()
    }

    /// The knobs.
    pub fn builder(bytes: u64) -> Builder {
        Builder::new(bytes)
    }
}

impl Builder {
    /// An arena of at least that many bytes, in whole blocks of 2 MiB.
    ///
    /// It may be larger than the machine's memory: only what is used counts. An arena too large
    /// costs 180 bytes for each 2 MiB of it that is used (0.0086 %); one too small grows as far as
    /// [`reserve`](Self::reserve) has set addresses aside. For a moment it takes up to 1 GiB more
    /// of addresses, to start at a multiple of the largest chunk.
    ///
    /// In a process that has called `mlockall(MCL_FUTURE)` the kernel backs and locks all of it at
    /// once, as it does with every mapping then: make the arena before that call, or as small as it
    /// has to be. Locked memory is not given back.
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            reserve: 0,
            backing: Backing::default(),
            on_fork: OnFork::default(),
            lock: Lock::default(),
            slots: None,
            shared_slots: None,
            numa: Numa::default(),
            topology: None,
            watermarks: Watermarks::None,
            populate: false,
            pinned: false,
            checked: cfg!(debug_assertions),
            zero_on_free: false,
            watch: Watch::default(),
            dont_dump: false,
            locked: false,
            decay: Duration::from_secs(10),
            budget: 512,
            batch: 32,
            least_run: 8,
            background: false,
        }
    }

    /// Sets addresses aside for so many bytes in all, so that the arena can [grow](Arena::grow).
    ///
    /// Default: as many as it has. What is not used costs nothing, whatever its size. Not for
    /// [`Backing::Hugetlb`], whose huge pages are set aside with their addresses.
    pub fn reserve(mut self, bytes: u64) -> Self {
        self.reserve = bytes;
        self
    }

    /// What the frames are made of: see [`Backing`].
    pub fn backing(mut self, backing: Backing) -> Self {
        self.backing = backing;
        self
    }

    /// What a forked child finds: see [`OnFork`].
    pub fn on_fork(mut self, on_fork: OnFork) -> Self {
        self.on_fork = on_fork;
        self
    }

    /// How threads get at their CPUs: see [`Lock`].
    pub fn lock(mut self, lock: Lock) -> Self {
        self.lock = lock;
        self
    }

    /// How many threads can have a CPU for themselves at once; later ones share.
    ///
    /// Default: four for each of the machine's CPUs, but no more than one for each 16 blocks of the
    /// arena. A slot costs some 5 KiB, and 160 bytes for each zone beyond the first, and nothing
    /// else while no thread has it. More is worth it for programs with many threads that all
    /// allocate.
    pub fn slots(mut self, slots: u16) -> Self {
        self.slots = Some(slots);
        self
    }

    /// How many CPUs the threads beyond [`slots`](Self::slots) share, each under its lock.
    ///
    /// Default: one for each of the machine's CPUs, at most 8: more threads than that cannot run at
    /// once.
    pub fn shared_slots(mut self, slots: u16) -> Self {
        self.shared_slots = Some(slots);
        self
    }

    /// What to do where there is more than one memory node: see [`Numa`].
    pub fn numa(mut self, numa: Numa) -> Self {
        self.numa = numa;
        self
    }

    /// Takes the machine to be that, instead of asking the kernel: for containers whose `/sys`
    /// lies, and for tests.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = Some(topology);
        self
    }

    /// How much each zone holds back for requests that may not fail.
    ///
    /// Default: nothing. A kernel holds memory back because giving memory back needs memory; here
    /// it does not.
    pub fn watermarks(mut self, watermarks: Watermarks) -> Self {
        self.watermarks = watermarks;
        self
    }

    /// Has the kernel back the whole arena while it is built, so that running out of memory is an
    /// error there.
    ///
    /// Default: no. Nothing is touched until it is used.
    pub fn populate(mut self, populate: bool) -> Self {
        self.populate = populate;
        self
    }

    /// Never gives memory back, for arenas that a device or the kernel knows the pages of: as a
    /// [`Pin`](crate::Pin) on all frames that there are and will be.
    ///
    /// Default: no.
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = pinned;
        self
    }

    /// Notes where allocations start and what is in use, so that a free of more frames than were
    /// allocated is refused at once ([`Error::WrongOrder`]), where its tail would be somebody
    /// else's, and of two frees of one frame at the same moment the second. Two bits a frame.
    ///
    /// Default: in builds with debug assertions of this crate. Where it is off it costs nothing;
    /// where it is on in an optimised build, every call takes the slow way. Frees by
    /// [`Arena::free`] are checked; those of handles cannot be wrong, and [`Arena::free_range`] is
    /// there to free several allocations at once.
    pub fn checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }

    /// Writes zeros over frames that are freed, so that nothing of what was in them is there for
    /// their next user, or for whoever reads the process's memory. What a refused free names stays
    /// as it is, also where two threads free one frame at the same moment.
    ///
    /// Default: no. Takes the time to write as much memory, the slow way of every call, and one bit
    /// a frame.
    pub fn zero_on_free(mut self, zero: bool) -> Self {
        self.zero_on_free = zero;
        self
    }

    /// How long a block must have been wholly free before a [pass](Arena::pass) of the background
    /// thread gives it back.
    ///
    /// Default: 10 s, as other allocators do: memory that is used again within that time costs no
    /// page faults (240 ns to give a page back, and as much again to fault it in), and what is not
    /// is missed by nobody. A block goes when a pass has found it free and the next one finds that
    /// nothing was taken from it since, so after one to two of these. The background thread takes
    /// less than 100 ms to be that: looking for blocks has its price.
    pub fn decay(mut self, decay: Duration) -> Self {
        self.decay = decay;
        self
    }

    /// The most blocks that one pass gives back.
    ///
    /// Default: 512 (1 GiB), which takes about 65 ms in 4 KiB pages: so the background thread uses
    /// less than 1 % of a core at the default decay. [`Arena::trim`] knows no budget.
    pub fn budget(mut self, blocks: u64) -> Self {
        self.budget = blocks;
        self
    }

    /// How many blocks are out of the allocator's hands at a time while they are given back.
    ///
    /// Default: 32 (64 MiB, about 4 ms). More means fewer system calls where free blocks are not
    /// neighbours; but an allocation that fails meanwhile has to wait for them.
    pub fn batch(mut self, blocks: u64) -> Self {
        self.batch = blocks;
        self
    }

    /// The least run of free frames, a power of two, that a [pass](Arena::pass) or a
    /// [trim](Arena::trim) gives back out of a block in use.
    ///
    /// Default: 8 (32 KiB): for less, the call costs more than the memory. A program that goes idle
    /// and comes back has fewer page faults with more: with 512 only wholly free blocks go.
    pub fn least_run(mut self, frames: u64) -> Self {
        self.least_run = frames;
        self
    }

    /// Starts a thread that makes a [pass](Arena::pass) each [`decay`](Self::decay).
    ///
    /// Default: no; call [`Arena::pass`] from a timer of your own, or [`Arena::trim`] when the
    /// program goes quiet. Of
    /// [`Backing::Hugetlb`] it gives away what was set aside: see there.
    pub fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// The most bytes that the OS may back of the arena, counted in blocks of 2 MiB: what is handed
    /// out of a block that it does not back yet, where it backs so many, is preceded by a
    /// [trim](Arena::trim), and refused ([`Error::Limit`]) where that was not enough. Threads that
    /// allocate at the same moment may exceed it by a block each.
    ///
    /// Default: none. [`ControlGroup`](crate::ControlGroup) tells what the system allows.
    pub fn resident_limit(mut self, bytes: u64) -> Self {
        self.watch.limit = Some(bytes / (PAGEBLOCK_FRAMES * FRAME_SIZE));
        self
    }

    /// Called before an allocation fails for want of free frames, with how many are wanted. It says
    /// whether it has freed something: then the allocation is tried again, 15 times at most.
    ///
    /// It runs on the thread that allocates, which holds no lock of the arena: it may free,
    /// allocate and trim. What it allocates itself calls no callback.
    pub fn on_exhausted(
        mut self,
        callback: impl Fn(Exhausted) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.watch.on_exhausted = Some(Arc::new(callback));
        self
    }

    /// Called where the [limit](Self::resident_limit) on resident memory is reached, before the
    /// arena is trimmed for an allocation: what the callback frees is given back then. It runs as
    /// that of [`on_exhausted`](Self::on_exhausted) does.
    pub fn on_pressure(mut self, callback: impl Fn(Pressure) + Send + Sync + 'static) -> Self {
        self.watch.on_pressure = Some(Arc::new(callback));
        self
    }

    /// Leaves the arena out of core dumps (`MADV_DONTDUMP`): they are smaller, and tell nobody what
    /// was in it.
    ///
    /// Default: no.
    pub fn dont_dump(mut self, dont_dump: bool) -> Self {
        self.dont_dump = dont_dump;
        self
    }

    /// Keeps every page in memory from its first touch on (`mlock2` with `MLOCK_ONFAULT`, what
    /// `mlockall` calls `MCL_ONFAULT`): never swapped, and nothing backed before it is touched.
    /// Nothing is given back of such an arena. All of its addresses, [reserved](Self::reserve) ones
    /// too, count for `RLIMIT_MEMLOCK`.
    ///
    /// Default: no.
    pub fn locked(mut self, locked: bool) -> Self {
        self.locked = locked;
        self
    }

    /// Makes the arena.
    ///
    /// Takes about a millisecond, whatever its size (16 TiB: 1.2): what is known of a block is
    /// written when it is used.
    ///
    /// # Errors
    ///
    /// [`Error::Knob`] for a knob out of its range; [`Error::Os`] where the kernel has no address space, no huge pages or
    /// no memory; [`Error::PageSize`]; [`Error::Config`].
    pub fn build(&self) -> Result<Arena, Error> {
        let least = self.check_knobs()?;
        let whole = if self.backing == Backing::Hugetlb1G { 1 << 30 } else { BLOCK };
        let blocks = self.bytes.div_ceil(whole) * (whole / BLOCK);
        let topology = match self.numa {
            Numa::Ignore => Topology::single(),
            _ => self.topology.clone().unwrap_or_else(Topology::detect),
        };
        // A zone must have a block; and the allocator has at most 64 zones.
        let topology = topology.at_most(blocks.min(64) as usize);
        let nodes = topology.node_count();
        let most = blocks.max(self.reserve.div_ceil(BLOCK));
        let slots = self.slot_table(most, nodes, &topology)?;

        let memory = Memory::reserve(most, self.backing, self.on_fork)?;
        memory.set_end(Pfn::new(memory.first().get() + blocks * PAGEBLOCK_FRAMES));
        let (core, notes, extent) = self.assemble(&memory, slots, &topology)?;
        if self.dont_dump {
            memory.dont_dump()?;
        }
        if self.locked {
            memory.lock_on_fault()?;
        }
        // Of a page of 1 GiB no block can be given back; nor what is locked.
        let pinned = self.pinned || self.locked || self.backing == Backing::Hugetlb1G;
        let pins = Pins::new(memory.first().get() / PAGEBLOCK_FRAMES, most, pinned)?;
        let checks = Checks::new(memory.reserved(), self.checked, self.zero_on_free)?;
        let inner = Arc::new(Inner {
            core: Arc::new(core),
            notes,
            memory,
            pins,
            checks,
            watch: self.watch.clone(),
            release: Release::new(self.budget, self.batch, least),
            extent,
        });
        let background =
            if self.background { Some(Background::start(&inner, self.decay)?) } else { None };
        Ok(Arena::new(inner, background))
    }

    /// An error for a knob out of its range; and the order of the least run.
    fn check_knobs(&self) -> Result<Order, Error> {
        let page = rustix::param::page_size();
        if page as u64 != FRAME_SIZE {
            return Err(Error::PageSize { bytes: page });
        }
        let knob = |right: bool, knob: &'static str, value: u64, allowed: &'static str| match right
        {
            true => Ok(()),
            false => Err(Error::Knob { knob, value, allowed }),
        };
        // 2^46 bytes: half of what a process can address on x86-64.
        let size = (1..=1 << 46).contains(&self.bytes);
        knob(size, "size", self.bytes, "1 byte to 64 TiB")?;
        knob(self.reserve <= 1 << 46, "reserve", self.reserve, "at most 64 TiB")?;
        let set_aside = matches!(self.backing, Backing::Hugetlb | Backing::Hugetlb1G);
        let reserve = !set_aside || self.reserve <= self.bytes;
        knob(reserve, "reserve", self.reserve, "0 for huge pages set aside")?;
        let batch = (1..=1 << 20).contains(&self.batch);
        knob(batch, "batch", self.batch, "1 to 1048576 blocks")?;
        let limit = self.watch.limit != Some(0);
        knob(limit, "resident_limit", 0, "at least a block of 2 MiB")?;
        Order::fitting(self.least_run)
            .filter(|order| order.frames() == self.least_run && *order <= Order::PAGEBLOCK)
            .ok_or(Error::Knob {
                knob: "least_run",
                value: self.least_run,
                allowed: "a power of two, 1 to 512 frames",
            })
    }

    fn slot_table(&self, blocks: u64, nodes: u16, topology: &Topology) -> Result<Slots, Error> {
        let machine = available_parallelism().map_or(1, |n| n.get() as u64);
        let exclusive = match self.slots {
            Some(slots) => slots,
            None => (4 * machine).min(blocks / 16).clamp(1, 1024) as u16,
        };
        let shared = self.shared_slots.unwrap_or(machine.min(8) as u16).max(nodes);
        if exclusive > 30_000 {
            return Err(Error::Knob {
                knob: "slots",
                value: exclusive.into(),
                allowed: "at most 30000",
            });
        }
        if shared == 0 || shared > 30_000 {
            return Err(Error::Knob {
                knob: "shared_slots",
                value: shared.into(),
                allowed: "1 to 30000",
            });
        }
        Ok(Slots::new(exclusive, shared, topology))
    }

    /// The allocator over that memory, the notes about it, and what of the last node's part it is
    /// told of.
    fn assemble(
        &self,
        memory: &Memory,
        slots: Slots,
        topology: &Topology,
    ) -> Result<(Core, Arc<Notes>, Extent), Error> {
        let mut start = memory.first();
        let mut parts: Vec<FrameRange> = topology
            .divide(memory.range().len() / PAGEBLOCK_FRAMES)
            .into_iter()
            .map(|blocks| {
                let part =
                    FrameRange { start, end: Pfn::new(start.get() + blocks * PAGEBLOCK_FRAMES) };
                start = part.end;
                part
            })
            .collect();
        // What is added later is the last node's.
        let last = parts.len().saturating_sub(1);
        let span = |node: usize, part: FrameRange| match node == last {
            true => FrameRange { start: part.start, end: memory.reserved().end },
            false => part,
        };
        let spans: Vec<FrameRange> =
            parts.iter().enumerate().map(|(node, &part)| span(node, part)).collect();
        match self.numa {
            Numa::Prefer => memory.bind(topology, &spans, Placement::Preferred)?,
            Numa::Bind => memory.bind(topology, &spans, Placement::Bound)?,
            Numa::ZonesOnly | Numa::Ignore => {}
        }
        if self.populate {
            memory.populate(memory.range())?;
        }
        // Of what may never be wanted it is told later: each block that it knows of is a bit that
        // is written.
        if let Some(part) = parts.last_mut().filter(|part| part.len() > STEP) {
            part.end = Pfn::new(part.start.get() + STEP);
        }
        let zones: Vec<ZoneConfig<'_>> = parts
            .iter()
            .enumerate()
            .map(|(node, part)| ZoneConfig {
                node: freehold::NodeId::new(node as u8),
                watermarks: self.watermarks,
                span: spans[node],
                spare_sections: (spans[node].len() - part.len()).div_ceil(SECTION) as u32,
                ..ZoneConfig::new(std::slice::from_ref(part))
            })
            .collect();
        let cpu_nodes = slots.cpu_nodes();
        // CPUs come online as threads come.
        let config = Config {
            online: 0,
            extra_ranges: 1,
            cpu_nodes: &cpu_nodes,
            ..Config::new(slots.cpus(), &zones)
        };
        let core = Core::new(&config, Host::new(self.lock == Lock::Biased), slots)?;
        let (first, blocks) =
            (memory.first().get() / PAGEBLOCK_FRAMES, memory.reserved().len() / PAGEBLOCK_FRAMES);
        let small = matches!(self.backing, Backing::Private | Backing::Memfd);
        let notes = Arc::new(Notes::new(first, blocks, !small)?);
        core.engine.platform().set_notes(&notes);
        if self.populate {
            notes.backed(memory.range());
        }
        Ok((core, notes, Extent::new(parts[last], self.populate)))
    }
}
