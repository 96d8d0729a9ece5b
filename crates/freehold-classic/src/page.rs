//! What is known about each frame, and how the lists run through it.
//!
//! The kernel keeps a 64-byte `struct page` a frame; here are the parts of it that the page
//! allocator reads, 12 bytes:
//!
//! ```text
//!   next: u32   prev: u32   state: u32
//!                           31........16 15....12 11...8 7....4 3..0
//!                           reference    unused   migra- order  kind
//!                           count                 tetype
//! ```
//!
//! Only the first frame of a chunk (its **head**) carries a state other than [`Kind::Tail`];
//! whatever a frame is part of can therefore be found by looking at the at most eleven places where
//! its head could be. That rule is what makes wrong frees detectable: see [`Frames::classify`].
//!
//! Every field is an atomic, so that a frame may be looked at without the lock that protects it
//! (the kernel does so all the time, with `READ_ONCE`). Nearly all accesses are `Relaxed`: the
//! fields of a chunk are only written by whoever owns the chunk, and ownership passes through a
//! lock, or the caller's own hand-over between threads. The exception is the reference count, which
//! is itself a hand-over: see [`Frames::put`]. Two threads freeing the same chunk are told apart by
//! the atomicity of its compare-exchange.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use freehold::{FreeError, Migratetype, Order, Pfn};

use crate::list::Links;

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
///             └──────────────────────────┴─── Queued <────── Freeing
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
    /// Free, on a list of the CPU that owns the pageblock: may merge there (pcp-buddy proposal).
    PcpBuddy = 4,
    /// In use.
    Allocated = 5,
    /// Its last reference is gone; the thread that dropped it is putting it somewhere.
    Freeing = 6,
    /// Free, on the list of what others free, waiting for somebody with the right lock.
    Queued = 7,
}

/// A head's state word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(u32);

impl State {
    pub(crate) const TAIL: Self = Self(0);
    const REFERENCE: u32 = 1 << 16;
    /// A count that has arrived here is not trusted any more and stays: leaking a frame is better
    /// than freeing one that is in use (as the kernel's `refcount_t` does).
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

    pub(crate) const fn references(self) -> u32 {
        self.0 >> 16
    }

    pub(crate) const fn is_free(self) -> bool {
        matches!(self.kind(), Kind::Buddy | Kind::Pcp | Kind::PcpBuddy | Kind::Queued)
    }
}

/// One frame's record.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Page {
    /// The next chunk on whatever list this head is on, or [`NIL`].
    pub(crate) next: AtomicU32,
    /// The previous chunk, or [`NIL`].
    prev: AtomicU32,
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
    /// One bit a frame: has ever been handed out. Tells a double free from a free of something
    /// never allocated.
    touched: Box<[AtomicU64]>,
    base: u64,
}

impl Links for Frames {
    #[inline]
    fn links(&self, frame: u32) -> (&AtomicU32, &AtomicU32) {
        let page = self.page(frame);
        (&page.next, &page.prev)
    }
}

impl Frames {
    /// `count` records, all tails of nothing, for the frames from `base` on; both multiples of the
    /// largest chunk, so that a chunk's buddy always has a record. What is no memory is to be made
    /// a hole.
    ///
    /// All zeros: the system gives such memory without anybody writing it, and an optimised build
    /// turns each record into what it is by doing nothing. A machine of 4 TiB has 12 GiB of
    /// records, of which only those are ever touched that stand for the head of a chunk.
    pub(crate) fn new(base: u64, count: u32) -> Self {
        debug_assert!(base % (1 << MAX_ORDER) == 0 && count % (1 << MAX_ORDER) == 0);
        let page = |[next, prev, state]: [u32; 3]| Page {
            next: AtomicU32::new(next),
            prev: AtomicU32::new(prev),
            state: AtomicU32::new(state),
        };
        let pages = vec![[0; 3]; count as usize].into_iter().map(page).collect();
        let touched =
            vec![0; count.div_ceil(64) as usize].into_iter().map(AtomicU64::new).collect();
        Self { pages, touched, base }
    }

    /// Says that there is no memory in `frames`.
    pub(crate) fn set_holes(&self, frames: core::ops::Range<u32>) {
        for frame in frames {
            self.set(frame, State::new(Kind::Hole, 0, Migratetype::Unmovable));
        }
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
        let (words, mask) = if order >= 6 {
            (1usize << (order - 6), u64::MAX)
        } else {
            (1, ((1u64 << (1u32 << order)) - 1) << bit)
        };
        for touched in &self.touched[word..word + words] {
            // Load first: in the steady state the bits are set and no write is needed.
            if touched.load(Relaxed) & mask != mask {
                touched.fetch_or(mask, Relaxed);
            }
        }
    }

    /// The chunk that `frame` is part of: its head, and what the head said when it was looked at.
    /// Looking a second time may give another answer, perhaps of a chunk that does not contain
    /// `frame`, unless something holds it still.
    ///
    /// At most 11 records are looked at. `None` only while another thread is changing the chunk.
    pub(crate) fn chunk(&self, frame: u32) -> Option<(u32, State)> {
        (0..=MAX_ORDER)
            .map(|order| frame & !((1u32 << order) - 1))
            .map(|head| (head, self.state(head)))
            .find(|&(head, state)| {
                state.kind() != Kind::Tail && head + (1 << state.order()) > frame
            })
    }

    /// Why `frame` cannot be freed with `order`: the distinct error for each mistake.
    #[cold]
    pub(crate) fn classify(&self, frame: u32, order: u8) -> FreeError {
        let pfn = self.pfn(frame);
        let Some((head, state)) = self.chunk(frame) else { return FreeError::DoubleFree { pfn } };
        match state.kind() {
            Kind::Hole => FreeError::Hole { pfn },
            Kind::Allocated if head != frame => {
                FreeError::InsideAllocation { pfn, head: self.pfn(head) }
            }
            // With the right order it was somebody else's free that came first, and it is in use
            // again by now.
            Kind::Allocated if state.order() != order => FreeError::WrongOrder {
                pfn,
                allocated: to_order(state.order()),
                freed: to_order(order),
            },
            _ if self.touched[(frame / 64) as usize].load(Relaxed) >> (frame % 64) & 1 == 0 => {
                FreeError::NeverAllocated { pfn }
            }
            _ => FreeError::DoubleFree { pfn },
        }
    }

    /// Drops one reference of the chunk of `order` at `frame`; for the last one the chunk becomes
    /// `Freeing` and is the caller's.
    ///
    /// One compare-exchange, as the kernel's `put_page_testzero` is one atomic operation: of two
    /// threads that free the same chunk exactly one gets it, the other an error.
    #[inline]
    pub(crate) fn put(&self, frame: u32, order: u8) -> Result<Put, FreeError> {
        let word = &self.pages[frame as usize].state;
        let mut now = word.load(Relaxed);
        loop {
            let state = State(now);
            if state.kind() != Kind::Allocated || state.order() != order {
                return Err(self.classify(frame, order));
            }
            let (next, put) = match state.references() {
                State::SATURATED => (now, Put::Kept),
                2.. => (now - State::REFERENCE, Put::Kept),
                _ => (Self::freeing(now), Put::Freed),
            };
            // Release: what this holder did with the memory comes before the chunk's next life.
            // Acquire: so does what the other holders did that let go before the last one.
            match word.compare_exchange_weak(now, next, AcqRel, Relaxed) {
                Ok(_) => return Ok(put),
                Err(changed) => now = changed,
            }
        }
    }

    /// Takes hold of the chunk of `order` at `frame` if there is only one reference: it becomes
    /// `Freeing` and is the caller's, to go on with or to [let go](Self::let_go) again. Otherwise
    /// nothing changes. Returns how many references there are.
    ///
    /// For what must be all or nothing: a reference that others share cannot be dropped and taken
    /// back later, since the others may let go in between and the chunk would be gone.
    pub(crate) fn seize(&self, frame: u32, order: u8) -> Result<u32, FreeError> {
        let word = &self.pages[frame as usize].state;
        let mut now = word.load(Relaxed);
        loop {
            let state = State(now);
            if state.kind() != Kind::Allocated || state.order() != order {
                return Err(self.classify(frame, order));
            }
            if state.references() != 1 {
                return Ok(state.references());
            }
            // Acquire: after what former holders did, as in `put`.
            match word.compare_exchange_weak(now, Self::freeing(now), Acquire, Relaxed) {
                Ok(_) => return Ok(1),
                Err(changed) => now = changed,
            }
        }
    }

    /// Takes back [`seize`](Self::seize), or a [`put`](Self::put) that returned [`Put::Freed`].
    pub(crate) fn let_go(&self, frame: u32) {
        let word = &self.pages[frame as usize].state;
        let now = word.load(Relaxed);
        // A plain store: nobody else writes the record of a chunk that is `Freeing`. Release: hands
        // on what `seize` acquired.
        word.store(now + State::REFERENCE + Kind::Allocated as u32 - Kind::Freeing as u32, Release);
    }

    /// The word of an allocated chunk whose only reference is dropped.
    fn freeing(word: u32) -> u32 {
        word - State::REFERENCE - Kind::Allocated as u32 + Kind::Freeing as u32
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
            let next =
                if state.references() == State::SATURATED { now } else { now + State::REFERENCE };
            // Relaxed: whoever asks for one more reference has one already, or got the frame's
            // number from somebody who has; as with `Arc::clone`, that hand-over is where the
            // ordering comes from.
            match word.compare_exchange_weak(now, next, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(changed) => now = changed,
            }
        }
    }
}

/// A chunk's order as a public value.
pub(crate) fn to_order(order: u8) -> Order {
    Order::new(order).unwrap_or(Order::MAX)
}

#[cfg(test)]
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
        let head = |frame| frames.chunk(frame).map(|(head, _)| head);
        assert_eq!((head(511), head(512), head(1023)), (Some(0), Some(512), Some(512)));
    }

    #[test]
    fn only_a_single_reference_can_be_seized() {
        let frames = frames();
        frames.get(512).unwrap();
        assert_eq!(frames.seize(512, 9), Ok(2));
        assert_eq!(frames.put(512, 9), Ok(Put::Kept));
        assert_eq!(frames.seize(512, 9), Ok(1));
        assert_eq!(frames.get(512), Err(FreeError::DoubleFree { pfn: Pfn::new(0x1200) }));
        frames.let_go(512);
        assert_eq!(frames.put(512, 9), Ok(Put::Freed));
    }
}
