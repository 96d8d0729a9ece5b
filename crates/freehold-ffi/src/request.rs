//! What to ask for.

use core::mem::{align_of, offset_of};
use core::ptr;

use freehold::{AllocFlags, Migratetype as Engine, NodeId, Pfn, Request as EngineRequest};

use crate::arguments;
use crate::error::Failure;

/// The caller may not wait (atomic context): part of the reserves may be used.
pub const FREEHOLD_ALLOC_NON_BLOCK: u16 = 1;
/// The caller is important: half of the min watermark may be used.
pub const FREEHOLD_ALLOC_MIN_RESERVE: u16 = 2;
/// A high-order request that may not wait: HIGHATOMIC blocks first.
pub const FREEHOLD_ALLOC_HIGH_ATOMIC: u16 = 4;
/// The request is the way out of an out-of-memory condition: half of what is left may be used.
pub const FREEHOLD_ALLOC_OOM: u16 = 8;
/// The caller may already hold any lock (NMI): locks are only tried, never waited for.
pub const FREEHOLD_ALLOC_NO_LOCK: u16 = 16;
/// Prefer failing a zone to mixing migratetypes within a pageblock.
pub const FREEHOLD_ALLOC_NO_FRAGMENT: u16 = 32;
/// Frames of CMA pageblocks will do; meaningful for movable requests only.
pub const FREEHOLD_ALLOC_CMA: u16 = 64;
/// Ignore the watermarks altogether.
pub const FREEHOLD_ALLOC_NO_WATERMARKS: u16 = 128;

const _: () = {
    assert!(FREEHOLD_ALLOC_NON_BLOCK == AllocFlags::NON_BLOCK.bits());
    assert!(FREEHOLD_ALLOC_MIN_RESERVE == AllocFlags::MIN_RESERVE.bits());
    assert!(FREEHOLD_ALLOC_HIGH_ATOMIC == AllocFlags::HIGH_ATOMIC.bits());
    assert!(FREEHOLD_ALLOC_OOM == AllocFlags::OOM.bits());
    assert!(FREEHOLD_ALLOC_NO_LOCK == AllocFlags::NO_LOCK.bits());
    assert!(FREEHOLD_ALLOC_NO_FRAGMENT == AllocFlags::NO_FRAGMENT.bits());
    assert!(FREEHOLD_ALLOC_CMA == AllocFlags::CMA.bits());
    assert!(FREEHOLD_ALLOC_NO_WATERMARKS == AllocFlags::NO_WATERMARKS.bits());
};

/// What a pageblock is meant for. Requests name one of the first three; the others are states of
/// a pageblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Migratetype {
    /// Stays where it is until freed: kernel objects, page tables.
    Unmovable = 0,
    /// Can be migrated elsewhere: user memory, page cache.
    Movable = 1,
    /// Cannot be moved but can be dropped under pressure: inode and dentry caches.
    Reclaimable = 2,
    /// Kept back for high-order requests that may not wait.
    HighAtomic = 3,
    /// Lent to movable requests until a device claims it.
    Cma = 4,
    /// Being emptied: nothing may be allocated from it.
    Isolate = 5,
}

const _: () = {
    assert!(Migratetype::Unmovable as usize == Engine::Unmovable.index());
    assert!(Migratetype::Movable as usize == Engine::Movable.index());
    assert!(Migratetype::Reclaimable as usize == Engine::Reclaimable.index());
    assert!(Migratetype::HighAtomic as usize == Engine::HighAtomic.index());
    assert!(Migratetype::Cma as usize == Engine::Cma.index());
    assert!(Migratetype::Isolate as usize == Engine::Isolate.index());
};

/// A request for `2^order` neighbouring, naturally aligned frames. All zero is one unmovable
/// frame, anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Request {
    /// How much: `2^order` frames. 0 to 18 (1 GiB).
    pub order: u8,
    /// A `freehold_migratetype`: unmovable, movable or reclaimable.
    pub migratetype: u8,
    /// `FREEHOLD_ALLOC_*`, ored together.
    pub flags: u16,
    /// The chunk has to start at a multiple of `2^align` frames, where that is more than its own
    /// order asks for. At most 18.
    pub align: u8,
    /// Not zero: look on `node` first. Zero: on the CPU's own.
    pub use_node: u8,
    /// The node to look on first; others follow.
    pub node: u8,
    /// Every frame has to lie below this one; 0 for no limit.
    pub below: u64,
    /// No frame may lie below this one; 0 for no limit.
    pub from: u64,
}

// As `Request::head` reads it.
const _: () = {
    assert!(
        offset_of!(Request, order) == 0
            && offset_of!(Request, migratetype) == 1
            && offset_of!(Request, flags) == 2
    );
    assert!(align_of::<Request>() >= align_of::<u32>());
};

impl Request {
    /// As the allocator takes it.
    #[inline(always)]
    pub(crate) fn engine(&self) -> Result<EngineRequest, Failure> {
        let order = arguments::order(self.order)?;
        let migratetype = arguments::migratetype(self.migratetype, Engine::Reclaimable)?;
        let flags = AllocFlags::from_bits(self.flags).ok_or(Failure::Argument {
            what: "flags",
            value: self.flags.into(),
            allowed: "FREEHOLD_ALLOC_* ored together",
        })?;
        let request = EngineRequest::new(order, migratetype).flags(flags);
        if self.is_plain() { Ok(request) } else { self.special(request) }
    }

    /// The migratetype of a single frame for which nothing else is asked: what most requests
    /// are. Told by one comparison and two for zero.
    #[inline(always)]
    pub(crate) fn single(&self) -> Option<Engine> {
        // The migratetype is lowest, so that a small number says that all above it is zero, the
        // order too.
        self.plain(self.head().rotate_right(8))
    }

    /// The request for a chunk whose order the caller knows.
    #[inline(always)]
    pub(crate) fn chunk(&self) -> Option<Engine> {
        self.plain(self.head() >> 8)
    }

    #[inline(always)]
    fn plain(&self, migratetype: u32) -> Option<Engine> {
        match migratetype {
            0..3 if !self.is_plain() => None,
            0 => Some(Engine::Unmovable),
            1 => Some(Engine::Movable),
            2 => Some(Engine::Reclaimable),
            _ => None,
        }
    }

    /// Order, migratetype and flags, as they lie in memory: a load instead of three.
    #[inline(always)]
    fn head(&self) -> u32 {
        // SAFETY: the first four bytes are these three, without a gap, at an address that is right
        // for a u32.
        u32::from_le(unsafe { ptr::from_ref(self).cast::<u32>().read() })
    }

    /// Nothing asked for but order, type and flags: what the allocator's fast paths serve.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        self.align | self.use_node == 0 && self.below | self.from == 0
    }

    #[cold]
    fn special(&self, mut request: EngineRequest) -> Result<EngineRequest, Failure> {
        if self.align > self.order {
            request = request.align(arguments::order(self.align)?);
        }
        if self.use_node != 0 {
            request = request.node(NodeId::new(self.node));
        }
        if self.below != 0 {
            request = request.below(Pfn::new(self.below));
        }
        if self.from != 0 {
            request = request.from(Pfn::new(self.from));
        }
        Ok(request)
    }
}
