//! The knobs of an arena, each with its default and why one would turn it.

use std::sync::Arc;
use std::thread::available_parallelism;

use freehold::{
    Config, FRAME_SIZE, FrameRange, Order, PAGEBLOCK_FRAMES, Pfn, Watermarks, ZoneConfig,
};

use crate::Error;
use crate::arena::Arena;
use crate::arena::Inner;
use crate::core::Core;
use crate::guard::Guard;
use crate::host::Host;
use crate::memory::{Backing, Memory, OnFork};
use crate::notes::Notes;
use crate::numa::{Numa, Topology};
use crate::release::Release;
use crate::slots::Slots;
use crate::sys::{self, Placement};
use crate::watch::{Exhausted, Pressure, Watch};

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
///
/// let arena = Arena::builder(64 << 20)
///     .backing(Backing::Memfd)
///     .slots(4)
///     .build()?;
/// assert_eq!(arena.stats().frames, 64 << 20 >> 12);
/// # Ok::<(), freehold_host::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    bytes: u64,
    backing: Backing,
    on_fork: OnFork,
    lock: Lock,
    slots: Option<u16>,
    numa: Numa,
    topology: Option<Topology>,
    populate: bool,
    pinned: bool,
    watch: Watch,
    /// In bytes.
    resident_limit: Option<u64>,
    least_run: u64,
    guard: bool,
}

impl Arena {
    /// An arena of at least that many bytes of private memory, with every knob at its default: see
    /// [`Builder::new`].
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
    /// It may be larger than the machine's memory: only what is used counts. An arena does not
    /// grow, so make it as large as it may ever have to be: one too large costs 296 bytes for each
    /// 2 MiB of it that is used (0.0141 %). For a moment it takes up to 1 GiB more of addresses, to
    /// start at a multiple of the largest chunk.
    ///
    /// In a process that has called `mlockall(MCL_FUTURE)` the kernel backs and locks all of it at
    /// once, as it does with every mapping then: make the arena before that call, or as small as it
    /// has to be. Locked memory is not given back.
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            backing: Backing::default(),
            on_fork: OnFork::default(),
            lock: Lock::default(),
            slots: None,
            numa: Numa::default(),
            topology: None,
            populate: false,
            pinned: false,
            watch: Watch::default(),
            resident_limit: None,
            least_run: 4,
            guard: std::env::var_os("FREEHOLD_GUARD").is_some_and(|value| value == "1"),
        }
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

    /// How many threads can have a CPU for themselves at once; later ones share others, each under
    /// its lock: one for each of the machine's CPUs, at most 8.
    ///
    /// Default: four for each of the machine's CPUs, but no more than one for each 16 blocks of the
    /// arena. A slot costs some 5 KiB, and 160 bytes for each zone beyond the first, and nothing
    /// else while no thread has it; then 20 KiB more, for where it has freed runs. More is worth it
    /// for programs with many threads that all allocate.
    pub fn slots(mut self, slots: u16) -> Self {
        self.slots = Some(slots);
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

    /// Has the kernel back the whole arena while it is built, so that running out of memory is an
    /// error there.
    ///
    /// Default: no. Nothing is touched until it is used.
    pub fn populate(mut self, populate: bool) -> Self {
        self.populate = populate;
        self
    }

    /// Never gives memory back, for arenas that a device or the kernel knows the pages of: see "I/O
    /// into frames" in the [crate's documentation](crate).
    ///
    /// Default: no.
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = pinned;
        self
    }

    /// The least run of free frames, a power of two, that a [pass](Arena::pass) or a
    /// [trim](Arena::trim) gives back out of a block in use: aligned ones, and of a free run four
    /// times as long all, wherever it starts.
    ///
    /// Default: 4 (16 KiB), the shortest run that the allocator keeps together: single frames are
    /// taken from what is shorter, which is so in memory where not much is free. With 1 nothing
    /// that is free stays; a program that goes idle and comes back has fewer page faults with more:
    /// with 512 only wholly free blocks go, as ever where the system's pages are larger than 4 KiB.
    pub fn least_run(mut self, frames: u64) -> Self {
        self.least_run = frames;
        self
    }

    /// Finds mistakes with memory: a use of frames that were freed, or of what is beyond an
    /// allocation, ends the program, and AddressSanitizer and valgrind say who did it. Freed frames
    /// wait until 16 MiB do, and an allocation of [`frames`](Arena::frames) or
    /// [`zeroed`](Arena::zeroed) has frames behind it that nobody gets, so more memory is in use,
    /// and each call takes microseconds. Frames cannot be [extended](crate::Frames::try_extend).
    ///
    /// Default: no, unless the environment has `FREEHOLD_GUARD=1`.
    pub fn guard(mut self, guard: bool) -> Self {
        self.guard = guard;
        self
    }

    /// The most bytes that the OS may back of the arena, counted in blocks of 2 MiB: what is handed
    /// out of a block that it does not back yet, where it backs so many, is preceded by a
    /// [trim](Arena::trim), and refused ([`Error::Limit`]) where that was not enough. Threads that
    /// allocate at the same moment may exceed it by a block each.
    ///
    /// Default: none.
    pub fn resident_limit(mut self, bytes: u64) -> Self {
        self.resident_limit = Some(bytes);
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

    /// Makes the arena.
    ///
    /// Takes about a millisecond, whatever its size (16 TiB: 1.2): what is known of a block is
    /// written when it is used.
    ///
    /// # Errors
    ///
    /// [`Error::Knob`] for a knob out of its range; [`Error::Os`] where the kernel has no address
    /// space, no huge pages or no memory; [`Error::PageSize`]; [`Error::Config`].
    pub fn build(&self) -> Result<Arena, Error> {
        let least = self.check_knobs()?;
        let blocks = self.bytes.div_ceil(BLOCK);
        let topology = match self.numa {
            Numa::Ignore => Topology::single(),
            _ => self.topology.clone().unwrap_or_else(Topology::detect),
        };
        // A zone must have a block; and the allocator has at most 64 zones.
        let topology = topology.at_most(blocks.min(64) as usize);
        let nodes = topology.node_count();
        let slots = self.slot_table(blocks, nodes, &topology)?;

        let memory = Memory::reserve(blocks, self.backing, self.on_fork)?;
        let (core, notes) = self.assemble(&memory, slots, &topology)?;
        let inner = Box::new(Inner {
            guard: self.guard.then(|| Guard::new(&memory)),
            core: Arc::new(core),
            notes,
            memory,
            pinned: self.pinned,
            watch: Watch {
                limit: self.resident_limit.map(|bytes| bytes / BLOCK),
                ..self.watch.clone()
            },
            release: Release::new(least),
        });
        Ok(Arena::new(inner))
    }

    /// An error for a knob out of its range; and the order of the least run.
    fn check_knobs(&self) -> Result<Order, Error> {
        let knob = |right: bool, knob: &'static str, value: u64, allowed: &'static str| match right
        {
            true => Ok(()),
            false => Err(Error::Knob { knob, value, allowed }),
        };
        // 2^46 bytes: half of what a process can address on x86-64.
        let size = (1..=1 << 46).contains(&self.bytes);
        knob(size, "size", self.bytes, "1 byte to 64 TiB")?;
        let limit = self.resident_limit.unwrap_or(u64::MAX);
        knob(limit >= BLOCK, "resident_limit", limit, "at least a block of 2 MiB")?;
        let low = self.populate && limit / BLOCK < self.bytes.div_ceil(BLOCK);
        knob(!low, "resident_limit", limit, "all blocks of what is populated")?;
        let least = self.least_run;
        let right = least.is_power_of_two() && least <= PAGEBLOCK_FRAMES;
        knob(right, "least_run", least, "a power of two, 1 to 512 frames")?;
        // Parts of a page do not go back.
        let order = if sys::has_large_pages()? { None } else { Order::fitting(least) };
        Ok(order.unwrap_or(Order::PAGEBLOCK))
    }

    fn slot_table(&self, blocks: u64, nodes: u16, topology: &Topology) -> Result<Slots, Error> {
        let machine = available_parallelism().map_or(1, |n| n.get() as u64);
        let exclusive = match self.slots {
            Some(slots) => slots,
            None => (4 * machine).min(blocks / 16).clamp(1, 1024) as u16,
        };
        let shared = (machine.min(8) as u16).max(nodes);
        if exclusive > 30_000 {
            return Err(Error::Knob {
                knob: "slots",
                value: exclusive.into(),
                allowed: "at most 30000",
            });
        }
        Ok(Slots::new(exclusive, shared, topology))
    }

    /// The allocator over that memory, and the notes about it.
    fn assemble(
        &self,
        memory: &Memory,
        slots: Slots,
        topology: &Topology,
    ) -> Result<(Core, Arc<Notes>), Error> {
        let mut start = memory.first();
        let parts: Vec<FrameRange> = topology
            .divide(memory.range().len() / PAGEBLOCK_FRAMES)
            .into_iter()
            .map(|blocks| {
                let part =
                    FrameRange { start, end: Pfn::new(start.get() + blocks * PAGEBLOCK_FRAMES) };
                start = part.end;
                part
            })
            .collect();
        match self.numa {
            Numa::Prefer => memory.bind(topology, &parts, Placement::Preferred)?,
            Numa::Bind => memory.bind(topology, &parts, Placement::Bound)?,
            Numa::ZonesOnly | Numa::Ignore => {}
        }
        if self.populate {
            memory.populate_new()?;
        }
        let zones: Vec<ZoneConfig<'_>> = parts
            .iter()
            .enumerate()
            .map(|(node, part)| ZoneConfig {
                node: freehold::NodeId::new(node as u8),
                watermarks: Watermarks::None,
                ..ZoneConfig::new(std::slice::from_ref(part))
            })
            .collect();
        let cpu_nodes = slots.cpu_nodes();
        // CPUs come online as threads come.
        let config =
            Config { online: 0, cpu_nodes: &cpu_nodes, ..Config::new(slots.cpus(), &zones) };
        let core = Core::new(&config, Host::new(self.lock == Lock::Biased), slots, self.guard)?;
        let (first, blocks) =
            (memory.first().get() / PAGEBLOCK_FRAMES, memory.range().len() / PAGEBLOCK_FRAMES);
        let small = matches!(self.backing, Backing::Private | Backing::Memfd);
        let notes = Arc::new(Notes::new(first, blocks, !small)?);
        core.engine.platform().set_notes(&notes);
        if self.populate {
            notes.backed(memory.range());
        }
        Ok((core, notes))
    }
}
