//! Folios: what is known about each frame, and about the folio it is part of.
//!
//! A **folio** is `2^order` frames (orders 0 to 9) that are allocated, counted, reclaimed and freed
//! as one. Its first frame's record, the head's, speaks for all:
//!
//! ```text
//!   frame   | 0: head, order 2 | 1: tail, 1 back | 2: tail, 2 back | 3: tail, 3 back |
//!   state   flags               -                 -                 -
//!   refs    7                   -                 -                 -  references
//!   maps    6                   -                 -                 -  entries that show any of
//!                                                                      its frames
//!   page_maps  1                2                 2                 1  entries that show this
//!                                                                      frame
//! ```
//!
//! Every mapped entry has a reference; so has everybody who uses the folio otherwise: whoever
//! allocated it, reclaim while it has the folio off its list, who pins it for I/O. A folio without
//! a reference is free. So `refs` above `maps` plus one's own says that somebody else is using the
//! contents behind the page tables' back.
//!
//! The **folio lock** guards everything but `refs` and the flags: the order, all map counts, the
//! reverse map. Lock order: folio, then page table, then what is taken for a moment only (lists,
//! VMAs, the pending flush). Who holds a page table may only *try* for a folio.

use freehold::{FrameRange, Order, Pfn};

use crate::lock;
use crate::primitive::{AtomicBool, AtomicU32, Ordering, Plain, fence};

/// "No frame", "no node".
pub(crate) const NIL: u32 = u32::MAX;

const KIND: u32 = 0b11;
const KIND_NONE: u32 = 0;
const KIND_HEAD: u32 = 1;
const KIND_TAIL: u32 = 2;
const ORDER_SHIFT: u32 = 2;
const ORDER_MASK: u32 = 0b1111;
const BACK_SHIFT: u32 = 16;

/// Flags of a folio, in its head's state word.
pub(crate) mod flag {
    /// Written to in a way that no entry tells: by an entry that is gone, or through a pin.
    pub(crate) const DIRTY: u32 = 1 << 8;
    /// The contents matter. An anonymous folio without it is lazyfree: unless written to it may be
    /// dropped.
    pub(crate) const SWAP_BACKED: u32 = 1 << 10;
    /// On the list of lazyfree folios. Changed under that list's lock.
    pub(crate) const ON_LRU: u32 = 1 << 13;
    /// On the deferred-split queue. Changed under that list's lock.
    pub(crate) const DEFERRED: u32 = 1 << 14;
    /// What a piece inherits when a folio is split.
    pub(crate) const INHERITED: u32 = DIRTY | SWAP_BACKED;
}

/// Where a head stands in a list.
pub(crate) struct Links {
    pub(crate) next: AtomicU32,
    pub(crate) prev: AtomicU32,
}

impl Links {
    fn new() -> Self {
        Self { next: AtomicU32::new(NIL), prev: AtomicU32::new(NIL) }
    }
}

/// The record of one frame: 44 bytes, so that a frame of 4 KiB costs 1.1 %. The caller hands over a
/// slice of them, one for each frame that may become part of a folio.
pub struct Frame {
    /// Kind, order or distance to the head, flags.
    pub(crate) state: AtomicU32,
    pub(crate) refs: AtomicU32,
    pub(crate) maps: AtomicU32,
    /// How many of the folio's frames have a `page_maps` above 0.
    pub(crate) mapped_pages: AtomicU32,
    pub(crate) page_maps: AtomicU32,
    /// The first record of the reverse map.
    pub(crate) rmap: AtomicU32,
    pub(crate) lru: Links,
    pub(crate) deferred: Links,
    locked: AtomicBool,
}

impl Frame {
    /// A frame that is part of no folio.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: AtomicU32::new(KIND_NONE),
            refs: AtomicU32::new(0),
            maps: AtomicU32::new(0),
            mapped_pages: AtomicU32::new(0),
            page_maps: AtomicU32::new(0),
            rmap: AtomicU32::new(NIL),
            lru: Links::new(),
            deferred: Links::new(),
            locked: AtomicBool::new(false),
        }
    }

    pub(crate) fn has(&self, flags: u32) -> bool {
        // Relaxed: flags that matter together with something else are ordered by what orders that.
        self.state.load(Ordering::Relaxed) & flags == flags
    }

    pub(crate) fn set_flags(&self, flags: u32) {
        // Release: who sees the flag sees what it was set for.
        self.state.fetch_or(flags, Ordering::Release);
    }

    pub(crate) fn clear_flags(&self, flags: u32) {
        // Release: as `set_flags`.
        self.state.fetch_and(!flags, Ordering::Release);
    }

    /// For the head of a folio.
    pub(crate) fn order(&self) -> Order {
        Order::new((self.state.get() >> ORDER_SHIFT & ORDER_MASK) as u8).unwrap_or(Order::ZERO)
    }

    /// For the head of a folio.
    pub(crate) fn pages(&self) -> u32 {
        self.order().frames() as u32
    }

    pub(crate) fn is_lazyfree(&self) -> bool {
        let state = self.state.get();
        state & KIND == KIND_HEAD && state & flag::SWAP_BACKED == 0
    }

    pub(crate) fn try_lock(&self) -> bool {
        lock::try_acquire(&self.locked)
    }

    pub(crate) fn unlock(&self) {
        lock::release(&self.locked);
    }

    /// Takes a reference unless there is none left. What follows must not assume anything about the
    /// folio before it has looked again: the frame may have become part of another one.
    pub(crate) fn try_get(&self) -> bool {
        let up = |refs| if refs == 0 { None } else { Some(refs + 1) };
        // Acquire: pairs with the Release of `freeze`'s undoing and of `publish`, whose stores make
        // the folio what it is. Relaxed where it fails: nothing was learnt.
        self.refs.fetch_update(Ordering::Acquire, Ordering::Relaxed, up).is_ok()
    }

    /// Another reference, by someone who has one.
    pub(crate) fn get(&self, n: u32) {
        // Relaxed: the folio cannot go away meanwhile.
        self.refs.fetch_add(n, Ordering::Relaxed);
    }

    /// Gives references back; whether they were the last. Then the folio is the caller's alone.
    #[must_use]
    pub(crate) fn drop_refs(&self, n: u32) -> bool {
        // Release: everything done with the folio comes before its being freed, and a DIRTY set
        // before (by unpinning) is seen by whoever sees the count without this reference.
        let before = self.refs.fetch_sub(n, Ordering::Release);
        debug_assert!(before >= n, "more references dropped than there were");
        if before != n {
            return false;
        }
        // Acquire: pairs with the Release of all others that dropped theirs.
        fence(Ordering::Acquire);
        true
    }

    /// Takes all references at once, if there are exactly `expected`: nobody can get one any more.
    pub(crate) fn freeze(&self, expected: u32) -> bool {
        // AcqRel: Acquire as in `drop_refs`; Release so that whoever fails to get a reference from
        // now on and sees that sees all that was done before. Relaxed where it fails.
        self.refs.compare_exchange(expected, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// All records.
pub(crate) struct Folios<'m> {
    first: u64,
    frames: &'m [Frame],
}

impl<'m> Folios<'m> {
    pub(crate) fn new(first: Pfn, frames: &'m [Frame]) -> Self {
        Self { first: first.get(), frames }
    }

    pub(crate) fn frame(&self, index: u32) -> &'m Frame {
        &self.frames[index as usize]
    }

    pub(crate) fn index(&self, pfn: Pfn) -> Option<u32> {
        let index = pfn.get().checked_sub(self.first)?;
        (index < self.frames.len() as u64).then_some(index as u32)
    }

    pub(crate) fn pfn(&self, index: u32) -> Pfn {
        Pfn::new(self.first + u64::from(index))
    }

    pub(crate) fn range(&self, index: u32, len: u32) -> FrameRange {
        FrameRange { start: self.pfn(index), end: self.pfn(index + len) }
    }

    /// The head of the folio that a frame is part of at this moment, if any.
    pub(crate) fn head(&self, index: u32) -> Option<u32> {
        // Acquire: pairs with `publish`.
        let state = self.frame(index).state.load(Ordering::Acquire);
        match state & KIND {
            KIND_HEAD => Some(index),
            KIND_TAIL => Some(index - (state >> BACK_SHIFT)),
            _ => None,
        }
    }

    /// Locks the folio that a frame is part of, for someone with a reference to it, waiting. Its
    /// head.
    pub(crate) fn lock(&self, index: u32, relax: impl Fn()) -> u32 {
        loop {
            if let Some(head) = self.head(index).filter(|&head| self.try_lock(head, index)) {
                return head;
            }
            relax();
        }
    }

    /// Locks the folio of that head if nobody has; not where the frame is no part of it any more,
    /// but of what it was split into.
    pub(crate) fn try_lock(&self, head: u32, index: u32) -> bool {
        let frame = self.frame(head);
        if !frame.try_lock() {
            return false;
        }
        let same = self.head(index) == Some(head);
        if !same {
            frame.unlock();
        }
        same
    }

    /// Notes that a frame was written to, for someone with a reference to its folio but not its
    /// lock. Its head.
    pub(crate) fn set_dirty(&self, index: u32, relax: impl Fn()) -> u32 {
        loop {
            if let Some(head) = self.head(index) {
                let frame = self.frame(head);
                frame.set_flags(flag::DIRTY);
                // SeqCst fence: pairs with the one in `Vm::split_locked`. There the references are
                // frozen and then the flags are read; here a flag is set and then the references
                // are looked at. At least one of the two sees the other. Acquire: who sees the
                // first piece's references sees the other pieces.
                fence(Ordering::SeqCst);
                if frame.refs.load(Ordering::Acquire) > 0 && self.head(index) == Some(head) {
                    return head;
                }
            }
            // It is being split. Who does that waits for nobody's page table.
            relax();
        }
    }

    /// Makes free frames a folio with that many references and no mapping.
    pub(crate) fn publish(&self, head: u32, order: Order, flags: u32, refs: u32) {
        for i in 1..order.frames() as u32 {
            let tail = self.frame(head + i);
            tail.page_maps.set(0);
            // Release: pairs with `head`. A tail that is seen before its head finds a frame without
            // references there.
            tail.state.store(KIND_TAIL | i << BACK_SHIFT, Ordering::Release);
        }
        let frame = self.frame(head);
        frame.maps.set(0);
        frame.mapped_pages.set(0);
        frame.page_maps.set(0);
        frame.rmap.set(NIL);
        // Release, both: pairs with `head` and with `try_get`.
        frame
            .state
            .store(KIND_HEAD | u32::from(order.get()) << ORDER_SHIFT | flags, Ordering::Release);
        frame.refs.store(refs, Ordering::Release);
    }

    /// Makes one frame of a frozen folio, its `first` or another, a folio of its own, mapped as it
    /// was. Its reverse map must be in place. The first keeps the flags that it has.
    pub(crate) fn publish_piece(&self, index: u32, first: bool, flags: u32, refs: u32) {
        let frame = self.frame(index);
        let maps = frame.page_maps.get();
        frame.maps.set(maps);
        frame.mapped_pages.set(maps.min(1));
        if first {
            // Release, both: pairs with `try_get`. In this order: it is a head already, so whoever
            // gets a reference must find it as small as it is.
            frame.state.fetch_and(!(ORDER_MASK << ORDER_SHIFT), Ordering::Release);
            frame.refs.store(refs, Ordering::Release);
            return;
        }
        // Release: pairs with `try_get`. Nobody looks for references in a tail, but those who have
        // some give them back to whatever is a head: so this comes before the state.
        frame.refs.store(refs, Ordering::Release);
        // Release: pairs with `head`: who finds the piece finds it complete.
        frame.state.store(KIND_HEAD | flags, Ordering::Release);
    }

    /// Makes the frames of a folio without references part of none.
    pub(crate) fn retire(&self, head: u32, pages: u32) {
        for i in (0..pages).rev() {
            // Release: who sees this does not see an older state again.
            self.frame(head + i).state.store(KIND_NONE, Ordering::Release);
        }
    }

    /// Counts `n` more entries that show the frames from number `first` of the folio on. Under the
    /// folio lock.
    pub(crate) fn add_maps(&self, head: u32, first: u32, n: u32) {
        let frame = self.frame(head);
        let mut newly = 0;
        for i in first..first + n {
            let page_maps = &self.frame(head + i).page_maps;
            newly += u32::from(page_maps.get() == 0);
            page_maps.set(page_maps.get() + 1);
        }
        frame.maps.set(frame.maps.get() + n);
        frame.mapped_pages.set(frame.mapped_pages.get() + newly);
    }

    /// Counts one entry less for each of these frames, in their own records only; returns how many
    /// are shown by no entry any more. [`Folios::update_map_counts`] must follow before the folio
    /// lock is given back.
    pub(crate) fn remove_page_maps(&self, head: u32, first: u32, n: u32) -> u32 {
        let mut gone = 0;
        for i in first..first + n {
            let page_maps = &self.frame(head + i).page_maps;
            debug_assert!(page_maps.get() > 0, "unmapped more often than mapped");
            page_maps.set(page_maps.get() - 1);
            gone += u32::from(page_maps.get() == 0);
        }
        gone
    }

    /// Brings the folio's own counts up to date with what [`Folios::remove_page_maps`] did.
    pub(crate) fn update_map_counts(&self, head: u32, removed: u32, gone: u32) {
        let frame = self.frame(head);
        frame.maps.set(frame.maps.get() - removed);
        frame.mapped_pages.set(frame.mapped_pages.get() - gone);
    }
}

/// Which list: the links of a head for it, and the flag that says that it is on it.
pub(crate) trait Queue {
    const FLAG: u32;
    fn links(frame: &Frame) -> &Links;
}

/// Lazyfree folios, those freed last at the front.
pub(crate) struct Lru;
/// Folios of which only part is mapped.
pub(crate) struct DeferredSplit;

impl Queue for Lru {
    const FLAG: u32 = flag::ON_LRU;
    fn links(frame: &Frame) -> &Links {
        &frame.lru
    }
}

impl Queue for DeferredSplit {
    const FLAG: u32 = flag::DEFERRED;
    fn links(frame: &Frame) -> &Links {
        &frame.deferred
    }
}

/// A list of folios through their heads. Lives in a lock.
pub(crate) struct List<Q> {
    front: u32,
    back: u32,
    len: u64,
    queue: core::marker::PhantomData<Q>,
}

impl<Q: Queue> List<Q> {
    pub(crate) fn new() -> Self {
        Self { front: NIL, back: NIL, len: 0, queue: core::marker::PhantomData }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Takes the folio at the back off, with a reference.
    pub(crate) fn take_back(&mut self, folios: &Folios<'_>) -> Option<u32> {
        while self.back != NIL {
            let head = self.back;
            self.remove(folios, head);
            // One without references is being freed.
            if folios.frame(head).try_get() {
                return Some(head);
            }
        }
        None
    }

    /// Puts a folio at the front; `false` where it is on the list already.
    pub(crate) fn push(&mut self, folios: &Folios<'_>, head: u32) -> bool {
        let frame = folios.frame(head);
        if frame.has(Q::FLAG) {
            return false;
        }
        frame.set_flags(Q::FLAG);
        let links = Q::links(frame);
        links.next.set(self.front);
        links.prev.set(NIL);
        if self.front == NIL {
            self.back = head;
        } else {
            Q::links(folios.frame(self.front)).prev.set(head);
        }
        self.front = head;
        self.len += 1;
        true
    }

    /// Takes a folio off; `false` where it is not on the list.
    pub(crate) fn remove(&mut self, folios: &Folios<'_>, head: u32) -> bool {
        let frame = folios.frame(head);
        if !frame.has(Q::FLAG) {
            return false;
        }
        frame.clear_flags(Q::FLAG);
        let (next, prev) = (Q::links(frame).next.get(), Q::links(frame).prev.get());
        if prev == NIL {
            self.front = next;
        } else {
            Q::links(folios.frame(prev)).next.set(next);
        }
        if next == NIL {
            self.back = prev;
        } else {
            Q::links(folios.frame(next)).prev.set(prev);
        }
        self.len -= 1;
        true
    }
}
