//! What is known about each frame, and how the lists run through it.
//!
//! The kernel keeps a 64-byte `struct page` a frame; here are the parts of it that the page allocator reads, 12 bytes:
//!
//! ```text
//!   next: u32   prev: u32   state: u32
//!                           31........16 15....13 12 11...8 7....4 3..0
//!                           reference    unused   |  migra- order  kind
//!                           count                 |  tetype
//!                                                 hardware-poisoned
//! ```
//!
//! Only the first frame of a chunk (its **head**) carries a state other than [`Kind::Tail`]; whatever a frame is part
//! of can therefore be found by looking at the at most eleven places where its head could be. That rule is what makes
//! wrong frees detectable: see [`Frames::classify`].
//!
//! Every field is an atomic, so that a frame may be looked at without the lock that protects it (the kernel does so all
//! the time, with `READ_ONCE`). All accesses are `Relaxed`: the fields of a chunk are only written by whoever owns the
//! chunk, and ownership always passes through a lock, a lock-free list's Release/Acquire pair, or the caller's own
//! hand-over between threads. The one race that must be decided, two threads freeing the same chunk, is decided by the
//! atomicity of the compare-exchange in [`Frames::put`] alone.

use freehold::{FreeError, Migratetype, Order, Pfn};

use crate::primitive::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// "No frame": the end of a list.
pub(crate) const NIL: u32 = u32::MAX;

/// The largest order on the zone's lists, as on x86-64.
pub(crate) const MAX_ORDER: u8 = 10;

/// Orders on the zone's lists: 0 to 10.
pub(crate) const ORDERS: usize = 11;

/// log2 of the frames in a pageblock.
pub(crate) const PAGEBLOCK_ORDER: u8 = 9;

/// Frames in a pageblock.
pub(crate) const PAGEBLOCK: u32 = 1 << PAGEBLOCK_ORDER;

/// What a chunk's head says about the chunk.
///
/// ```text
///                    zone lock                  PCP lock
///   Hole    Buddy <───────────────> Pcp, PcpBuddy <──────> Allocated
///             ^                          ^                     │ put: last reference
///             │ zone lock                │ owner absorbs       v
///             └──────────────────────────┴─── Queued <────── Freeing ──> Poisoned (never freed)
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Not a head: part of a chunk that starts at a lower frame.
    Tail = 0,
    /// No memory here.
    Hole = 1,
    /// Free, on a list of the zone.
    Buddy = 2,
    /// Free, on a list of a CPU.
    Pcp = 3,
    /// Free, on a list of the CPU that owns the pageblock: may merge there (pcp-buddy thread).
    PcpBuddy = 4,
    /// In use.
    Allocated = 5,
    /// Its last reference is gone; the thread that dropped it is putting it somewhere.
    Freeing = 6,
    /// Bad memory, kept away from everybody.
    Poisoned = 7,
    /// Free, on a lock-free list, waiting for somebody with the right lock.
    Queued = 8,
}

/// A head's state word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(u32);

impl State {
    pub(crate) const TAIL: Self = Self(0);
    const POISON: u32 = 1 << 12;
    const REFERENCE: u32 = 1 << 16;
    /// A reference count that has overflowed once and is never changed again.
    const SATURATED: u32 = 0xffff;

    pub(crate) const fn new(kind: Kind, order: u8, migratetype: Migratetype) -> Self {
        Self(kind as u32 | (order as u32) << 4 | (migratetype as u32) << 8)
    }

    pub(crate) const fn allocated(order: u8, requested: Migratetype) -> Self {
        Self(Self::new(Kind::Allocated, order, requested).0 | Self::REFERENCE)
    }

    pub(crate) const fn kind(self) -> Kind {
        match self.0 & 0xf {
            0 => Kind::Tail,
            1 => Kind::Hole,
            2 => Kind::Buddy,
            3 => Kind::Pcp,
            4 => Kind::PcpBuddy,
            5 => Kind::Allocated,
            6 => Kind::Freeing,
            7 => Kind::Poisoned,
            _ => Kind::Queued,
        }
    }

    pub(crate) const fn order(self) -> u8 {
        (self.0 >> 4 & 0xf) as u8
    }

    /// For a free chunk the list it is on; for a chunk in use the type that was asked for.
    pub(crate) const fn migratetype(self) -> Migratetype {
        match self.0 >> 8 & 7 {
            0 => Migratetype::Unmovable,
            1 => Migratetype::Movable,
            2 => Migratetype::Reclaimable,
            3 => Migratetype::HighAtomic,
            4 => Migratetype::Cma,
            _ => Migratetype::Isolate,
        }
    }

    pub(crate) const fn is_poisoned(self) -> bool {
        self.0 & Self::POISON != 0
    }

    pub(crate) const fn references(self) -> u32 {
        self.0 >> 16
    }

    pub(crate) const fn is_free(self) -> bool {
        matches!(self.kind(), Kind::Buddy | Kind::Pcp | Kind::PcpBuddy | Kind::Queued)
    }
}

/// One frame's record.
#[derive(Default)]
pub(crate) struct Page {
    /// The next chunk on whatever list this head is on, or [`NIL`].
    pub(crate) next: AtomicU32,
    /// The previous chunk, or [`NIL`].
    pub(crate) prev: AtomicU32,
    state: AtomicU32,
}

/// What dropping a reference came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Put {
    /// It was the last one: the chunk has been freed.
    Freed,
    /// Others still hold references: the chunk stays allocated.
    Kept,
}

/// The records of one zone's frames, indexed by distance from the zone's base.
pub(crate) struct Frames {
    pages: Box<[Page]>,
    /// One bit a frame: has ever been handed out. Tells a double free from a free of something never allocated.
    touched: Box<[AtomicU64]>,
    base: u64,
}

impl Frames {
    /// `count` records, all holes, for the frames from `base` on; both multiples of the largest chunk, so that a
    /// chunk's buddy always has a record.
    pub(crate) fn new(base: u64, count: u32) -> Self {
        debug_assert!(base % (1 << MAX_ORDER) == 0 && count % (1 << MAX_ORDER) == 0);
        let hole = State::new(Kind::Hole, 0, Migratetype::Unmovable);
        let pages = (0..count)
            .map(|_| Page { next: AtomicU32::new(NIL), prev: AtomicU32::new(NIL), state: AtomicU32::new(hole.0) })
            .collect();
        let touched = (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { pages, touched, base }
    }

    pub(crate) fn len(&self) -> u32 {
        self.pages.len() as u32
    }

    pub(crate) fn pfn(&self, frame: u32) -> Pfn {
        Pfn::new(self.base + u64::from(frame))
    }

    #[inline]
    pub(crate) fn page(&self, frame: u32) -> &Page {
        &self.pages[frame as usize]
    }

    #[inline]
    pub(crate) fn state(&self, frame: u32) -> State {
        State(self.pages[frame as usize].state.load(Relaxed))
    }

    #[inline]
    pub(crate) fn set(&self, frame: u32, state: State) {
        self.pages[frame as usize].state.store(state.0, Relaxed);
    }

    /// Hands a chunk out: one reference, and its frames are known to have been in use once.
    #[inline]
    pub(crate) fn set_allocated(&self, frame: u32, order: u8, requested: Migratetype) {
        self.set(frame, State::allocated(order, requested));
        let (word, bit) = ((frame / 64) as usize, frame % 64);
        let (words, mask) =
            if order >= 6 { (1usize << (order - 6), u64::MAX) } else { (1, ((1u64 << (1u32 << order)) - 1) << bit) };
        for touched in &self.touched[word..word + words] {
            // Load first: in the steady state the bits are set and no write is needed.
            if touched.load(Relaxed) & mask != mask {
                touched.fetch_or(mask, Relaxed);
            }
        }
    }

    /// The head of the chunk that `frame` is part of, itself included.
    ///
    /// At most 11 records are looked at. `None` only while another thread is changing the chunk.
    pub(crate) fn head(&self, frame: u32) -> Option<u32> {
        (0..=MAX_ORDER).map(|order| frame & !((1u32 << order) - 1)).find(|&head| {
            let state = self.state(head);
            state.kind() != Kind::Tail && head + (1 << state.order()) > frame
        })
    }

    /// Why `frame` cannot be freed with `order`: the distinct error for each mistake.
    #[cold]
    pub(crate) fn classify(&self, frame: u32, order: u8) -> FreeError {
        let pfn = self.pfn(frame);
        let Some(head) = self.head(frame) else { return FreeError::DoubleFree { pfn } };
        let state = self.state(head);
        match state.kind() {
            Kind::Hole => FreeError::Hole { pfn },
            Kind::Allocated | Kind::Poisoned if head != frame => {
                FreeError::InsideAllocation { pfn, head: self.pfn(head) }
            }
            Kind::Allocated => {
                FreeError::WrongOrder { pfn, allocated: to_order(state.order()), freed: to_order(order) }
            }
            _ if self.touched[(frame / 64) as usize].load(Relaxed) >> (frame % 64) & 1 == 0 => {
                FreeError::NeverAllocated { pfn }
            }
            _ => FreeError::DoubleFree { pfn },
        }
    }

    /// Drops one reference of the chunk of `order` at `frame`; for the last one the chunk becomes `Freeing` and is the
    /// caller's.
    ///
    /// One compare-exchange, as the kernel's `put_page_testzero` is one atomic operation: of two threads that free the
    /// same chunk exactly one gets it, the other an error.
    #[inline]
    pub(crate) fn put(&self, frame: u32, order: u8) -> Result<Put, FreeError> {
        let word = &self.pages[frame as usize].state;
        let mut now = word.load(Relaxed);
        loop {
            let state = State(now);
            if state.kind() != Kind::Allocated || state.order() != order {
                return Err(self.classify(frame, order));
            }
            let (next, put) = if state.references() == State::SATURATED {
                (now, Put::Kept)
            } else if state.references() > 1 {
                (now - State::REFERENCE, Put::Kept)
            } else {
                (now - State::REFERENCE - Kind::Allocated as u32 + Kind::Freeing as u32, Put::Freed)
            };
            match word.compare_exchange_weak(now, next, Relaxed, Relaxed) {
                Ok(_) => return Ok(put),
                Err(changed) => now = changed,
            }
        }
    }

    /// Takes back a [`put`](Self::put) that was made in vain because a later part of the same call was wrong.
    pub(crate) fn unput(&self, frame: u32, put: Put) {
        let word = &self.pages[frame as usize].state;
        match put {
            // Exactly what `get` does, saturation included; the frame is still allocated, so it cannot fail.
            Put::Kept => {
                let _ = self.get(frame);
            }
            Put::Freed => {
                let now = word.load(Relaxed);
                word.store(now + State::REFERENCE + Kind::Allocated as u32 - Kind::Freeing as u32, Relaxed);
            }
        }
    }

    /// Takes one more reference of the chunk at `frame`.
    pub(crate) fn get(&self, frame: u32) -> Result<(), FreeError> {
        let word = &self.pages[frame as usize].state;
        let mut now = word.load(Relaxed);
        loop {
            let state = State(now);
            if state.kind() != Kind::Allocated {
                return Err(self.classify(frame, 0));
            }
            // A count that has reached its end no longer says how many there are: it stays, and the frame leaks
            // rather than being freed early.
            let next = if state.references() == State::SATURATED { now } else { now + State::REFERENCE };
            match word.compare_exchange_weak(now, next, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(changed) => now = changed,
            }
        }
    }

    /// Marks a single allocated frame as bad memory: freeing it will set it aside.
    pub(crate) fn poison(&self, frame: u32) -> Result<(), FreeError> {
        let state = self.state(frame);
        if state.kind() != Kind::Allocated || state.order() != 0 {
            return Err(self.classify(frame, 0));
        }
        self.pages[frame as usize].state.fetch_or(State::POISON, Relaxed);
        Ok(())
    }
}

/// A chunk's order as a public value.
pub(crate) fn to_order(order: u8) -> Order {
    Order::new(order).unwrap_or(Order::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn frames() -> Frames {
        let frames = Frames::new(0x1000, 1024);
        for frame in 0..1024 {
            frames.set(frame, State::TAIL);
        }
        frames.set(0, State::new(Kind::Buddy, 9, Migratetype::Movable));
        frames.set_allocated(512, 9, Migratetype::Unmovable);
        frames
    }

    #[test]
    fn the_head_of_any_frame_is_found() {
        let frames = frames();
        assert_eq!(frames.head(511), Some(0));
        assert_eq!(frames.head(512), Some(512));
        assert_eq!(frames.head(1023), Some(512));
    }

    #[test]
    fn each_wrong_free_is_told_apart() {
        let frames = frames();
        let pfn = |frame: u64| Pfn::new(0x1000 + frame);
        assert_eq!(frames.put(7, 0), Err(FreeError::NeverAllocated { pfn: pfn(7) }));
        assert_eq!(
            frames.put(512, 3),
            Err(FreeError::WrongOrder { pfn: pfn(512), allocated: Order::PAGEBLOCK, freed: Order::COSTLY })
        );
        assert_eq!(frames.put(520, 3), Err(FreeError::InsideAllocation { pfn: pfn(520), head: pfn(512) }));
        assert_eq!(frames.put(512, 9), Ok(Put::Freed));
        assert_eq!(frames.put(512, 9), Err(FreeError::DoubleFree { pfn: pfn(512) }));
    }

    #[test]
    fn only_the_last_reference_frees() {
        let frames = frames();
        frames.get(512).unwrap();
        assert_eq!(frames.put(512, 9), Ok(Put::Kept));
        assert_eq!(frames.put(512, 9), Ok(Put::Freed));
        frames.unput(512, Put::Freed);
        assert_eq!(frames.state(512).references(), 1);
        assert_eq!(frames.put(512, 9), Ok(Put::Freed));
    }
}
