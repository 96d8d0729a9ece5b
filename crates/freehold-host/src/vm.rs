//! A ready [`Vm`] on real memory: everything that [`Vm::new`] wants to be given, owned in one
//! place.

use std::ptr::NonNull;

use freehold::FRAME_SIZE;
use freehold_vm::{
    Access, Frame, IntervalNode, Mapping, PageTable, Space, SpaceId, TABLE_ENTRIES, Vm, Vma, Vpn,
    VpnRange,
};

use crate::{Arena, ArenaFrames, Error, HostMmu};

/// VMAs that the address space can have. Each call that changes a part of one may take two.
const VMAS: usize = 1024;

/// Folios with a reverse map, lazyfree and reclaim, in one address space of real pages.
///
/// Pages that a device or an io_uring is told of must be pinned first ([`Vm::pin`]), and unpinned
/// as dirty: reclaim sees what programs and system calls write, and not what is written through
/// pages that were registered. See "I/O into frames" in the [crate's documentation](crate).
///
/// ```
/// use freehold_host::HostVm;
/// use freehold_host::freehold::Order;
/// use freehold_host::freehold_vm::Access;
/// # if let Err(error) = HostVm::new(4096) { eprintln!("SKIPPED: {error}"); return Ok(()) }
///
/// let host = HostVm::new(8 << 20)?;
/// let (vm, frames, pages) = (host.vm(), host.frames(), host.pages(0, 16).unwrap());
/// vm.map_new(&frames, HostVm::SPACE, pages.start, Order::new(4).unwrap(), Access::ReadWrite)?;
/// // Ordinary memory, to any thread and any system call.
/// let word = &vm.mmu().words(HostVm::SPACE, pages.start).unwrap()[0];
/// word.store(42, std::sync::atomic::Ordering::Relaxed);
/// // What is in it is needed no more; it may be dropped until it is written to again.
/// vm.madvise_free(&frames, HostVm::SPACE, pages)?;
/// assert_eq!(vm.madvise_pageout(&frames, HostVm::SPACE, pages)?, 16);
/// assert_eq!(word.load(std::sync::atomic::Ordering::Relaxed), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HostVm {
    // Before what it refers to, which is dropped after it.
    vm: Vm<'static, HostMmu>,
    _frames: Owned<Frame>,
    _mappings: Owned<Mapping>,
    _spaces: Owned<Space<'static>>,
    _tables: Owned<PageTable>,
    _vmas: Owned<IntervalNode<Vma>>,
    arena: Arena,
}

/// A slice that others refer to: freed when dropped, and not moved until then.
struct Owned<T>(NonNull<[T]>);

// SAFETY: it is a box of them.
unsafe impl<T: Send> Send for Owned<T> {}
// SAFETY: it is a box of them. It gives no access to them.
unsafe impl<T: Sync> Sync for Owned<T> {}

impl<T> Owned<T> {
    fn new(len: usize, make: impl FnMut() -> T) -> Result<Self, Error> {
        Ok(Self(NonNull::from(Box::leak(crate::mmu::boxed(len, make)?))))
    }

    /// # Safety
    ///
    /// It must be dropped after the last use of the reference, and nobody may have an exclusive
    /// one.
    unsafe fn shared(&self) -> &'static [T] {
        // SAFETY: a box's, which lives until this is dropped; the rest is the caller's promise.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made of a box, and dropped once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl HostVm {
    /// The address space.
    pub const SPACE: SpaceId = SpaceId::new(0);
    /// The first page: the start of a page table.
    const FIRST: Vpn = Vpn::new(TABLE_ENTRIES);

    /// At least that many bytes of pages, with as many frames, in one area that may be read and
    /// written. Memory comes with the first touch of a page; what is kept about each page takes
    /// some 150 bytes from the start.
    ///
    /// # Errors
    ///
    /// As [`HostMmu::new`] and [`Arena::with_size`].
    pub fn new(bytes: u64) -> Result<Self, Error> {
        let tables = bytes.div_ceil(FRAME_SIZE * TABLE_ENTRIES).max(1);
        let pages = tables * TABLE_ENTRIES;
        let too_many =
            Error::Knob { knob: "bytes", value: bytes, allowed: "within the address space" };
        let range = VpnRange::new(Self::FIRST, pages).ok_or(too_many)?;
        // Frames by number: the pages have memory of their own, so that the arena's is never
        // touched.
        let arena = Arena::with_size(pages.saturating_mul(FRAME_SIZE))?;
        let mmu = HostMmu::new(1, range)?;
        let frames = Owned::new(pages as usize, Frame::new)?;
        let mappings = Owned::new(pages as usize, Mapping::new)?;
        let page_tables = Owned::new(tables as usize, PageTable::new)?;
        let mut vmas = Owned::new(VMAS, IntervalNode::new)?;
        // SAFETY: the tables are dropped after the space, which is dropped after `vm`; the nodes as
        // well, and nobody else refers to them.
        let (tables, nodes) = unsafe { (page_tables.shared(), vmas.0.as_mut()) };
        let mut space = Some(Space::new(Self::SPACE, Self::FIRST, tables, nodes));
        let spaces = Owned::new(1, || match space.take() {
            Some(space) => space,
            None => unreachable!("one space is asked for"),
        })?;
        // SAFETY: all three are dropped after `vm`, and nobody has an exclusive reference.
        let vm = unsafe {
            Vm::new(mmu, arena.range().start, frames.shared(), mappings.shared(), spaces.shared())
        };
        let all = Vma { access: Access::ReadWrite, droppable: false };
        if vm.add_vma(Self::SPACE, range, all).is_err() {
            // An empty space has room for one; nothing else is wrong with a range that its own
            // tables cover.
            return Err(too_many);
        }
        Ok(Self {
            vm,
            _frames: frames,
            _mappings: mappings,
            _spaces: spaces,
            _tables: page_tables,
            _vmas: vmas,
            arena,
        })
    }

    /// The mechanisms.
    #[must_use]
    pub fn vm(&self) -> &Vm<'_, HostMmu> {
        // SAFETY: only the lifetime of what `vm` refers to is made shorter, down to that of `self`,
        // which keeps it. No call of `Vm` stores a reference that it is given, so nothing
        // shorter-lived can get in.
        unsafe { std::mem::transmute::<&Vm<'static, HostMmu>, &Vm<'_, HostMmu>>(&self.vm) }
    }

    /// Where its frames come from, for the calls that want to be told.
    #[must_use]
    pub fn frames(&self) -> ArenaFrames<'_> {
        // SAFETY: nobody else can get at the arena, and frames by number are all that is used of
        // it.
        unsafe { self.arena.frame_allocator() }
    }

    /// So many pages from a number on; `None` where there are not so many, or for none.
    #[must_use]
    pub fn pages(&self, first: u64, pages: u64) -> Option<VpnRange> {
        let all = self.vm.mmu().range();
        let start = all.start.get().checked_add(first)?;
        VpnRange::new(Vpn::new(start), pages).filter(|range| range.end <= all.end)
    }

    /// Frames that no folio has.
    #[must_use]
    pub fn free_frames(&self) -> u64 {
        self.arena.free_frames()
    }
}
