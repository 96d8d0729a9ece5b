//! The shape of Asterinas OSTD's `GlobalFrameAllocator`.
//!
//! OSTD is a kernel: its crate needs unstable features and a bare-metal target, so the trait itself
//! is not implemented here. In a kernel over OSTD, implement it for a type that holds
//! [`GlobalFrames`] and calls these methods by the same names, with interrupts off. `os/ostd` in
//! the repository is one: OSTD's own tests run on it.
//!
//! ```text
//! add_free_memory  |#### a large piece ####|metadata|      the first that is large enough
//!                  |## a small one ##|  |## others ##|     all of the rest is free memory
//! ```
//!
//! OSTD brings no memory for metadata, and its heap is made of what this allocates. So the metadata
//! is taken from the end of the first piece that has room for it; smaller pieces before it wait. It
//! is made for memory up to `limit`: 112 bytes for each 2 MiB below it (0.0053 %), so set it to
//! where memory may end, not to where addresses do.

use core::alloc::Layout;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{
    Config, FRAME_SIZE, FrameRange, FreeError, Freehold, HotplugError, Migratetype, NodeId, Order,
    PAGEBLOCK_FRAMES, Pfn, Platform, Request, Watermarks, ZoneConfig,
};
use spin::{Mutex, Once};

/// A physical address.
pub type Paddr = usize;

/// What has to be known before there is memory.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many CPUs there can be.
    pub cpus: u16,
    /// Where physical memory ends at most, in bytes; rounded up to 128 MiB.
    pub limit: Paddr,
    /// How many pieces of memory there can be that are not neighbours. 24 bytes each.
    pub pieces: u16,
    /// What to hold back.
    pub watermarks: Watermarks,
    /// Where a physical address is mapped.
    pub direct_map: fn(Paddr) -> *mut u8,
}

impl Settings {
    /// 128 pieces, and the kernel's watermarks.
    #[must_use]
    pub const fn new(cpus: u16, limit: Paddr, direct_map: fn(Paddr) -> *mut u8) -> Self {
        Self { cpus, limit, pieces: 128, watermarks: Watermarks::Kernel, direct_map }
    }
}

/// Pieces too small for the metadata, until there is a larger one.
struct Waiting {
    pieces: [FrameRange; 32],
    len: usize,
}

/// A global frame allocator that starts without memory; see the [module's documentation](self).
pub struct GlobalFrames<P: Platform + 'static> {
    settings: Settings,
    platform: fn() -> P,
    engine: Once<Freehold<'static, P>>,
    metadata: Once<FrameRange>,
    waiting: Mutex<Waiting>,
    unused: AtomicU64,
}

/// 128 MiB.
const SECTION_FRAMES: u64 = 1 << 15;

impl<P: Platform + Send + Sync> GlobalFrames<P> {
    /// An allocator without memory, for a `static`. The platform is made together with the
    /// metadata.
    ///
    /// # Safety
    ///
    /// `direct_map` returns where a physical address of memory that is added is mapped, to be read
    /// and written, in one piece for each piece of memory; and nobody else uses memory that is
    /// added, but for what [`Self::alloc`] returns.
    #[must_use]
    pub const unsafe fn new(settings: Settings, platform: fn() -> P) -> Self {
        let waiting =
            Waiting { pieces: [FrameRange { start: Pfn::new(0), end: Pfn::new(0) }; 32], len: 0 };
        Self {
            settings,
            platform,
            engine: Once::new(),
            metadata: Once::new(),
            waiting: Mutex::new(waiting),
            unused: AtomicU64::new(0),
        }
    }

    /// Where memory ends at most, as a range of frames.
    #[must_use]
    pub fn limit(&self) -> FrameRange {
        let frames = (self.settings.limit as u64 / FRAME_SIZE).next_multiple_of(SECTION_FRAMES);
        FrameRange { start: Pfn::new(0), end: Pfn::new(frames) }
    }

    /// The allocator, once there is memory: for handles of CPUs, statistics, draining.
    #[must_use]
    pub fn engine(&self) -> Option<&Freehold<'static, P>> {
        self.engine.get()
    }

    /// Frames that were added but are not used: above the limit, of more pieces than there can be,
    /// or still waiting for a piece that is large enough for the metadata.
    #[must_use]
    pub fn unused_frames(&self) -> u64 {
        let waiting = self.waiting.lock();
        let frames: u64 = waiting.pieces[..waiting.len].iter().map(FrameRange::len).sum();
        // Relaxed: a statistic.
        frames + self.unused.load(Ordering::Relaxed)
    }

    /// Allocates exactly as many frames as the layout's size needs, aligned as it says. `None`
    /// where there are none, for no frames, and for an alignment beyond 1 GiB.
    ///
    /// A power of two of frames is a chunk; what is none, or has to be found elsewhere, takes a
    /// search.
    pub fn alloc(&self, layout: Layout) -> Option<Paddr> {
        let engine = self.engine.get()?;
        let frames = (layout.size() as u64).div_ceil(FRAME_SIZE);
        let chunk = |frames| Order::fitting(frames).filter(|order| order.frames() == frames);
        let align = chunk((layout.align() as u64).div_ceil(FRAME_SIZE))?;
        let near = match chunk(frames) {
            Some(order) => {
                let request = Request::new(order, Migratetype::Unmovable);
                let aligned = if align > order { request.align(align) } else { request };
                engine.here().alloc(aligned).ok()
            }
            None if align == Order::ZERO => {
                engine.here().alloc_run(frames).ok().map(|range| range.start)
            }
            None => None,
        };
        let far = || engine.alloc_contig_free(frames, align, self.limit()).ok();
        let start = near.or_else(|| far().map(|range| range.start))?;
        Some((start.get() * FRAME_SIZE) as Paddr)
    }

    /// Frees `size` bytes from `addr` on. What was never added is added by it: OSTD takes some
    /// frames before there is an allocator, for its first page tables, and does not add them; later
    /// it drops them as any others.
    ///
    /// # Panics
    ///
    /// Where the address or the size is no multiple of a frame's, and where some of the frames are
    /// free already, were never handed out or have the metadata in them, or were added and others
    /// of them were not; nothing has changed then.
    pub fn dealloc(&self, addr: Paddr, size: usize) {
        match self.try_dealloc(addr, size) {
            Err(FreeError::Hole { .. }) if self.adopt(addr, size) => {}
            Err(error) => panic!("dealloc({addr:#x}, {size:#x}): {error}"),
            Ok(()) => {}
        }
    }

    /// Adds frames that were used before there was an allocator. False where they cannot be such.
    fn adopt(&self, addr: Paddr, size: usize) -> bool {
        let Some(piece) =
            FrameRange::new(Pfn::new(addr as u64 / FRAME_SIZE), size as u64 / FRAME_SIZE)
        else {
            return false;
        };
        let apart = |taken: &FrameRange| piece.end <= taken.start || taken.end <= piece.start;
        if !self.metadata.get().is_some_and(apart) {
            return false;
        }
        match self.engine.get().map(|engine| engine.add_memory(piece)) {
            Some(Ok(())) => true,
            Some(Err(HotplugError::NoRoom)) => {
                self.leave(piece.len());
                true
            }
            _ => false,
        }
    }

    /// As [`Self::dealloc`], but says why not, and adds nothing.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; [`FreeError::Misaligned`] for an address or an end inside a frame.
    pub fn try_dealloc(&self, addr: Paddr, size: usize) -> Result<(), FreeError> {
        let start = Pfn::new(addr as u64 / FRAME_SIZE);
        if (addr | size) as u64 % FRAME_SIZE != 0 {
            return Err(FreeError::Misaligned { pfn: start, order: Order::ZERO });
        }
        let outside = FreeError::OutOfZone { pfn: start };
        let range = FrameRange::new(start, size as u64 / FRAME_SIZE).ok_or(outside)?;
        self.engine.get().ok_or(outside)?.here().free_range(range)
    }

    /// Adds memory; parts of frames at its ends are left alone.
    ///
    /// # Panics
    ///
    /// Where some of it was added before.
    pub fn add_free_memory(&self, addr: Paddr, size: usize) {
        let end = (addr as u64).saturating_add(size as u64) / FRAME_SIZE;
        let start = (addr as u64).div_ceil(FRAME_SIZE);
        let below = end.min(self.limit().end.get());
        let piece = FrameRange { start: Pfn::new(start), end: Pfn::new(below) };
        self.leave(end.saturating_sub(start).saturating_sub(piece.len()));
        if piece.is_empty() {
            return;
        }
        // Held while the allocator is made, so that no piece waits that nobody will look for.
        let mut waiting = self.waiting.lock();
        if let Some(engine) = self.engine.get() {
            drop(waiting);
            return self.add(engine, piece);
        }
        let Some(rest) = self.begin(piece) else {
            let len = waiting.len;
            match waiting.pieces.get_mut(len) {
                Some(free) => {
                    *free = piece;
                    waiting.len += 1;
                }
                None => self.leave(piece.len()),
            }
            return;
        };
        let (pieces, len) = (waiting.pieces, core::mem::take(&mut waiting.len));
        drop(waiting);
        if let Some(engine) = self.engine.get() {
            pieces[..len]
                .iter()
                .chain(&[rest])
                .filter(|piece| !piece.is_empty())
                .for_each(|&piece| self.add(engine, piece));
        }
    }

    fn leave(&self, frames: u64) {
        // Relaxed: a statistic.
        self.unused.fetch_add(frames, Ordering::Relaxed);
    }

    fn add(&self, engine: &Freehold<'static, P>, piece: FrameRange) {
        match engine.add_memory(piece) {
            Ok(()) => {}
            Err(HotplugError::NoRoom) => self.leave(piece.len()),
            Err(error) => panic!("add_free_memory: {error}"),
        }
    }

    /// Makes the allocator, with its metadata at the end of this piece; returns the rest of it.
    /// `None` where it is too small.
    fn begin(&self, piece: FrameRange) -> Option<FrameRange> {
        let span = self.limit();
        let zone = ZoneConfig {
            node: NodeId::new(0),
            span,
            memory: &[],
            cma: &[],
            spare_sections: (span.len() / SECTION_FRAMES) as u32,
            watermarks: self.settings.watermarks,
        };
        let zones = [zone];
        let config = Config {
            extra_ranges: self.settings.pieces,
            ..Config::new(self.settings.cpus, &zones)
        };
        let needed = match config.metadata_size() {
            Ok(size) => (size as u64).div_ceil(FRAME_SIZE),
            Err(error) => panic!("add_free_memory: these settings cannot be served: {error}"),
        };
        if piece.len() < needed + PAGEBLOCK_FRAMES {
            return None;
        }
        let rest = FrameRange { start: piece.start, end: Pfn::new(piece.end.get() - needed) };
        let at = (self.settings.direct_map)((rest.end.get() * FRAME_SIZE) as Paddr)
            .cast::<MaybeUninit<u8>>();
        // SAFETY: `new` demands that added memory is mapped there and nobody else's. These frames
        // are not given to the allocator, so nobody will get them.
        let metadata =
            unsafe { core::slice::from_raw_parts_mut(at, (needed * FRAME_SIZE) as usize) };
        self.metadata.call_once(|| FrameRange { start: rest.end, end: piece.end });
        self.engine.call_once(|| match Freehold::new(&config, metadata, (self.platform)()) {
            Ok(engine) => engine,
            Err(error) => panic!("add_free_memory: these settings cannot be served: {error}"),
        });
        Some(rest)
    }
}

impl<P: Platform> fmt::Debug for GlobalFrames<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalFrames").field("settings", &self.settings).finish_non_exhaustive()
    }
}
