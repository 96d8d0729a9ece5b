//! Mappings that unmap themselves: address space and memory of this crate's own, between guards.
//!
//! ```text
//! |  guard  | base ...                         base + len |  guard  |
//!   64 KiB     frames                                       64 KiB     no access on either side
//! ```
//!
//! A program that writes beyond its last frame, or before its first, is ended by a signal instead
//! of writing into what the kernel happened to map there.
//!
//! A process may have 65,530 mappings. So guards of little arenas are as wide as the gaps that
//! alignment leaves, and become one with their neighbours'; and metadata of a few pages is from the
//! heap.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::Error;
use crate::sys::{self, Advice, NO_ROOM};

const RW: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Bytes without access at both ends: the largest page that Linux has on any machine.
const GUARD: usize = 64 << 10;

/// Where memory is aligned to more than this, address space is worth more than a mapping.
const WIDE_GUARDS: usize = 64 << 20;

/// Metadata of more bytes than this has a mapping.
const HEAP: usize = 64 << 10;

/// Unmaps a range, or at least gives back what is in it: where it has become part of a larger
/// mapping, which would have to be cut in two, and the process has as many as it may have. Then
/// only addresses are lost.
///
/// # Safety
///
/// The range is a mapping that the caller owns and gives up.
unsafe fn unmap(base: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    if unsafe { rustix::mm::munmap(base.cast(), len) }.is_err() {
        let Some(base) = NonNull::new(base) else { return };
        // SAFETY: the caller gives up what is in the range.
        let _ = unsafe { sys::give_back((base, len), false) };
    }
}

fn too_large(len: usize) -> Error {
    Error::Knob { knob: "size", value: len as u64, allowed: "within the address space" }
}

/// New anonymous memory.
fn map(len: usize, prot: ProtFlags) -> Result<NonNull<u8>, Error> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: at whatever address is free, so nothing that exists is replaced.
    let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, prot, flags) };
    let refused = |errno| Error::os("mmap", errno, len as u64, NO_ROOM);
    // The kernel maps nothing at address 0 unless asked to.
    NonNull::new(base.map_err(refused)?.cast()).ok_or(refused(Errno::NOMEM))
}

/// Anonymous memory of its own, unmapped when dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// Bytes without access before it and behind it, which are this mapping's too.
    guards: (usize, usize),
}

// SAFETY: a mapping is only an address range that this value owns; what is done with the memory is
// its users' affair.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives out the same address, nothing else.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed private memory of at least `len` bytes; pages come into being when they are touched.
    pub(crate) fn zeroed(len: usize) -> Result<Self, Error> {
        let len = len.max(1).checked_next_multiple_of(4096).ok_or(too_large(len))?;
        Ok(Self { base: map(len, RW)?, len, guards: (0, 0) })
    }

    /// `len` bytes from a multiple of `align` (a power of two) on, with a guard on each side:
    /// memory of its own, or a file's.
    pub(crate) fn aligned(
        len: usize,
        align: usize,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<Self, Error> {
        let around = len.checked_add(2 * GUARD).and_then(|len| len.checked_add(align));
        let around = around.ok_or(too_large(len))?;
        let start = map(around, ProtFlags::empty())?;
        let before = (start.addr().get() + GUARD).next_multiple_of(align) - start.addr().get();
        let guards = (before, around - before - len);
        // SAFETY: within what was mapped.
        let mut this = Self { base: unsafe { start.add(before) }, len, guards };
        if align > WIDE_GUARDS {
            this.narrow();
        }
        let at = this.base.as_ptr().cast();
        let flags = MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: within what was reserved just now, which nobody knows of. A failure drops `this`
        // and with it the reservation.
        let (call, mapped) = unsafe {
            match file {
                Some(fd) => (
                    "mmap of the memfd",
                    rustix::mm::mmap(at, len, RW, flags | MapFlags::SHARED, fd, 0),
                ),
                None => {
                    ("mmap", rustix::mm::mmap_anonymous(at, len, RW, flags | MapFlags::PRIVATE))
                }
            }
        };
        mapped.map_err(|errno| Error::os(call, errno, len as u64, NO_ROOM))?;
        Ok(this)
    }

    /// Gives up what its guards have beyond what they need.
    fn narrow(&mut self) {
        let (before, behind) = std::mem::replace(&mut self.guards, (GUARD, GUARD));
        let (start, end) = (self.base.as_ptr().wrapping_sub(before), self.base.as_ptr());
        let end = end.wrapping_add(self.len + GUARD);
        for (from, bytes) in [(start, before - GUARD), (end, behind - GUARD)] {
            if bytes > 0 {
                // SAFETY: nobody knows of these pages, which are this mapping's no longer.
                unsafe { unmap(from, bytes) };
            }
        }
    }

    /// Keeps the kernel from using huge pages here, where it has any.
    pub(crate) fn no_huge_pages(&self) {
        // SAFETY: our own range, in which nothing changes. A kernel without huge pages refuses the
        // advice, which is as good.
        let _ = unsafe { sys::advise((self.base, self.len), Advice::LinuxNoHugepage) };
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own; whoever drops it has made sure that nothing points
        // there any more.
        unsafe {
            let (before, behind) = self.guards;
            unmap(self.base.as_ptr().wrapping_sub(before), before + self.len + behind);
        }
    }
}

/// Zeroed memory for metadata, from a multiple of [`ALIGN`](Self::ALIGN) on.
pub(crate) enum Metadata {
    Mapped(Mapping),
    Heap { base: NonNull<u8>, len: usize, _of: Vec<u128> },
}

// SAFETY: as a `Mapping`: the vector is never looked at again.
unsafe impl Send for Metadata {}
// SAFETY: as a `Mapping`.
unsafe impl Sync for Metadata {}

impl Metadata {
    const ALIGN: usize = 64;

    pub(crate) fn new(len: usize) -> Result<Self, Error> {
        if len > HEAP {
            let mapping = Mapping::zeroed(len)?;
            // A huge page would be 2 MiB for the first block that is used.
            mapping.no_huge_pages();
            return Ok(Self::Mapped(mapping));
        }
        // Of this alignment the C library has zeroed memory without touching it.
        let mut of = vec![0u128; (len + Self::ALIGN).div_ceil(size_of::<u128>())];
        let start = NonNull::from(of.as_mut_slice()).cast::<u8>();
        let skip = start.addr().get().next_multiple_of(Self::ALIGN) - start.addr().get();
        // SAFETY: it is as much longer.
        Ok(Self::Heap { base: unsafe { start.add(skip) }, len, _of: of })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        match self {
            Self::Mapped(mapping) => mapping.base(),
            Self::Heap { base, .. } => *base,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Mapped(mapping) => mapping.len(),
            Self::Heap { len, .. } => *len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Placement, bind, pages_in_memory};

    #[test]
    fn aligned_mappings_are_and_can_be_written_to_the_last_byte() {
        for len in [4096, 1 << 20, 3 << 20] {
            let mapping = Mapping::aligned(len, 2 << 20, None).unwrap();
            assert_eq!((mapping.base().addr().get() % (2 << 20), mapping.len()), (0, len));
            // SAFETY: within the mapping, which nobody else knows.
            unsafe { mapping.base().add(len - 1).write(1) };
            assert_eq!(pages_in_memory((mapping.base(), len)), Ok(1));
        }
        assert!(Mapping::aligned(usize::MAX, 4096, None).is_err());
        assert!(Mapping::zeroed(usize::MAX).is_err());
    }

    #[test]
    fn mappings_are_guarded_on_both_sides() {
        let all: Vec<_> =
            (0..4).map(|_| Mapping::aligned(2 << 20, 1 << 30, None).unwrap()).collect();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let rights = |address: usize| {
            let line = maps.lines().find(|line| {
                let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
                let parse = |text| usize::from_str_radix(text, 16).unwrap();
                (parse(start)..parse(end)).contains(&address)
            });
            line.map(|line| line.split(' ').nth(1).unwrap().to_owned())
        };
        for mapping in &all {
            let base = mapping.base().addr().get();
            assert_eq!(rights(base).as_deref(), Some("rw-p"));
            for beside in [base - 1, base - GUARD, base + mapping.len()] {
                assert_eq!(rights(beside).as_deref(), Some("---p"), "beside {base:#x}");
            }
        }
    }

    #[test]
    fn binding_to_a_node_that_there_is_and_to_one_that_there_is_not() {
        let mapping = Mapping::zeroed(4096).unwrap();
        let range = (mapping.base(), mapping.len());
        for placement in [Placement::Preferred, Placement::Bound] {
            match bind(range, 0, placement) {
                // A kernel without NUMA support, or a sandbox.
                Err(Errno::NOSYS | Errno::PERM) => return,
                bound => assert_eq!(bound, Ok(())),
            }
            assert!(bind(range, 1000, placement).is_err());
            assert_eq!(
                bind(range, 5000, placement),
                Err(Errno::INVAL),
                "more nodes than the mask has room for"
            );
        }
        // SAFETY: within the mapping, which nobody else knows.
        unsafe { mapping.base().write(1) };
        assert_eq!(pages_in_memory(range), Ok(1));
    }
}
