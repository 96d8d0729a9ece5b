//! An Mmu around another one, with hooks: where another CPU could be doing something, and what the
//! machine refuses or forgets. For the tests of this crate, and for those of the host's.

use std::cell::RefCell;

use freehold::{FrameRange, Order};
use freehold_vm::{Access, Entry, Flush, FlushKind, MapError, Mmu, Slots, SpaceId, Vpn, VpnRange};

/// Where another CPU could be doing something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    BeforeClearing,
    /// Entries are taken: what becomes of their pages is not decided.
    Cleared,
    /// Entries allow less, and the CPUs have not been told.
    BeforeFlushOfChange,
    /// No CPU has a translation of what was unmapped.
    Flushed,
}

pub type Hook = Box<dyn FnMut(When)>;

thread_local! {
    /// What [`Hooked`] calls in this thread.
    pub static MEANWHILE: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

fn meanwhile(when: When) {
    let hook = MEANWHILE.with_borrow_mut(Option::take);
    if let Some(mut hook) = hook {
        hook(when);
        MEANWHILE.with_borrow_mut(|place| *place = Some(hook));
    }
}

/// An Mmu, with hooks in the middle of things.
pub struct Hooked<M> {
    pub inner: M,
    /// Whether mapping entries from this page on fails.
    pub refuses: fn(Vpn) -> bool,
    /// Whether a flush is forgotten.
    pub forgets: fn(&[Flush]) -> bool,
}

impl<M> Hooked<M> {
    /// Refuses and forgets nothing.
    pub fn new(inner: M) -> Self {
        Self { inner, refuses: |_| false, forgets: |_| false }
    }
}

impl<M: Mmu> Mmu for Hooked<M> {
    fn map(
        &self,
        space: SpaceId,
        at: Vpn,
        frames: FrameRange,
        access: Access,
        leaf: Order,
    ) -> Result<(), MapError> {
        self.inner.map(space, at, frames, access, leaf)
    }
    fn unmap(&self, space: SpaceId, range: VpnRange) {
        self.inner.unmap(space, range);
    }
    fn flush(&self, batch: &[Flush]) {
        if (self.forgets)(batch) {
            return;
        }
        let any = |kind| batch.iter().any(|flush| flush.kind == kind);
        if any(FlushKind::Changed) {
            meanwhile(When::BeforeFlushOfChange);
        }
        self.inner.flush(batch);
        if any(FlushKind::Unmapped) {
            meanwhile(When::Flushed);
        }
    }
    fn relax(&self) {
        self.inner.relax();
    }
    fn load(&self, slots: Slots<'_>) -> Entry {
        self.inner.load(slots)
    }
    fn map_entries(&self, slots: Slots<'_>, first: Entry) -> Result<(), MapError> {
        if (self.refuses)(slots.first()) {
            return Err(MapError::Host(12));
        }
        self.inner.map_entries(slots, first)
    }
    fn restore(&self, slots: Slots<'_>, first: Entry) {
        self.inner.restore(slots, first);
    }
    fn get_and_clear(&self, slots: Slots<'_>) -> Entry {
        meanwhile(When::BeforeClearing);
        let merged = self.inner.get_and_clear(slots);
        meanwhile(When::Cleared);
        merged
    }
    fn clear_bits(&self, slots: Slots<'_>, bits: Entry) -> Entry {
        self.inner.clear_bits(slots, bits)
    }
    fn replace(&self, slots: Slots<'_>, old: Entry, new: Entry) -> Result<(), Entry> {
        self.inner.replace(slots, old, new)
    }
}
