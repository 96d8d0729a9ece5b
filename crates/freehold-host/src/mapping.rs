//! Mappings that unmap themselves: address space and memory of this crate's own, between guards.
//!
//! ```text
//! |  guard  | base ...                         base + len |  guard  |
//!   64 KiB     frames                                       64 KiB     no access on either side
//! ```
//!
//! A program that writes beyond its last frame, or before its first, is ended by a signal instead
//! of writing into what the kernel happened to map there.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::Error;
use crate::sys::NO_ROOM;

/// Bytes without access at both ends: the largest page that Linux has on any machine.
const GUARD: usize = 64 << 10;

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
        // SAFETY: the caller gives up what is in the range.
        let _ = unsafe { rustix::mm::madvise(base.cast(), len, Advice::LinuxDontNeed) };
    }
}

fn too_large(len: usize) -> Error {
    Error::Knob { knob: "size", value: len as u64, allowed: "within the address space" }
}

/// New anonymous memory, at that address if the kernel has it free.
fn map_near(
    hint: *mut c_void,
    len: usize,
    prot: ProtFlags,
    flags: MapFlags,
) -> Result<NonNull<u8>, Error> {
    // SAFETY: the address is a wish, so nothing that exists is replaced.
    let base = unsafe { rustix::mm::mmap_anonymous(hint, len, prot, MapFlags::PRIVATE | flags) };
    let refused = |errno| Error::os("mmap", errno, len as u64, NO_ROOM);
    // The kernel maps nothing at address 0 unless asked to.
    NonNull::new(base.map_err(refused)?.cast()).ok_or(refused(Errno::NOMEM))
}

/// Reserves `len` bytes and their guards at whatever address the kernel has, aligned: more is
/// reserved, and the ends are given up.
fn reserve(len: usize, around: usize, align: usize, flags: MapFlags) -> Result<NonNull<u8>, Error> {
    let more = around.checked_add(align).ok_or(too_large(len))?;
    let start = map_near(ptr::null_mut(), more, ProtFlags::empty(), flags)?.as_ptr();
    let skip = (start.addr() + GUARD).next_multiple_of(align) - GUARD - start.addr();
    let kept = start.wrapping_add(skip);
    for (from, bytes) in [(start, skip), (kept.wrapping_add(around), more - skip - around)] {
        if bytes > 0 {
            // SAFETY: these pages were mapped just now, nobody knows of them, and the rest does
            // not include them.
            unsafe { unmap(from, bytes) };
        }
    }
    let refused = Error::os("mmap", Errno::NOMEM, len as u64, NO_ROOM);
    NonNull::new(kept.wrapping_add(GUARD)).ok_or(refused)
}

/// Anonymous memory of its own, unmapped when dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// Bytes without access on each side, which are this mapping's too.
    guard: usize,
}

// SAFETY: a mapping is only an address range that this value owns; what is done with the memory is
// its users' affair.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives out the same address, nothing else.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed private memory of at least `len` bytes; pages come into being when they are touched.
    pub(crate) fn zeroed(len: usize) -> Result<Self, Error> {
        Self::anonymous(len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::NORESERVE)
    }

    /// Address space, or memory, of at least `len` bytes.
    pub(crate) fn anonymous(len: usize, prot: ProtFlags, flags: MapFlags) -> Result<Self, Error> {
        let len = len.max(1).checked_next_multiple_of(4096).ok_or(too_large(len))?;
        Ok(Self { base: map_near(ptr::null_mut(), len, prot, flags)?, len, guard: 0 })
    }

    /// Address space, or memory, of `len` bytes from a multiple of `align` (a power of two) on,
    /// with a guard on each side.
    pub(crate) fn aligned(
        len: usize,
        align: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Self, Error> {
        let around = len.checked_add(2 * GUARD).ok_or(too_large(len))?;
        let base = reserve(len, around, align, flags)?;
        let this = Self { base, len, guard: GUARD };
        if !prot.is_empty() {
            let at = base.as_ptr().cast();
            // SAFETY: within what was reserved just now, which nobody knows of. A failure drops
            // `this` and with it the reservation.
            unsafe {
                rustix::mm::mmap_anonymous(
                    at,
                    len,
                    prot,
                    MapFlags::PRIVATE | MapFlags::FIXED | flags,
                )
            }
            .map_err(|errno| Error::os("mmap", errno, len as u64, NO_ROOM))?;
        }
        Ok(this)
    }

    /// Puts the whole of a file there instead.
    pub(crate) fn replace_with_file(
        &mut self,
        fd: std::os::fd::BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the range replaced is this mapping's, of which `&mut self` shows that nobody uses
        // it.
        let mapped =
            unsafe { rustix::mm::mmap(self.base.as_ptr().cast(), self.len, prot, flags, fd, 0) };
        mapped
            .map(drop)
            .map_err(|errno| Error::os("mmap of the memfd", errno, self.len as u64, NO_ROOM))
    }

    /// Puts huge pages of 2 MiB there instead, all of them set aside for this mapping at once.
    pub(crate) fn replace_with_huge_pages(&mut self) -> Result<(), Error> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // Not NORESERVE: that would put the error off to the first touch, where it is a SIGBUS.
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        // SAFETY: the range replaced is this mapping's, which `&mut self` shows to be unused.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(self.base.as_ptr().cast(), self.len, prot, flags) };
        let hint = "set huge pages aside first: vm.nr_hugepages must have one to spare for each \
                    2 MiB of the arena";
        mapped
            .map(drop)
            .map_err(|errno| Error::os("mmap(MAP_HUGETLB)", errno, self.len as u64, hint))
    }

    /// Keeps the kernel from using huge pages here, where it has any.
    pub(crate) fn no_huge_pages(&self) {
        let advice = Advice::LinuxNoHugepage;
        // SAFETY: our own range, in which nothing changes. A kernel without huge pages refuses the
        // advice, which is as good.
        let _ = unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, advice) };
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
            unmap(self.base.as_ptr().wrapping_sub(self.guard), self.len + 2 * self.guard);
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
            let rw = ProtFlags::READ | ProtFlags::WRITE;
            let mapping = Mapping::aligned(len, 2 << 20, rw, MapFlags::NORESERVE).unwrap();
            assert_eq!((mapping.base().addr().get() % (2 << 20), mapping.len()), (0, len));
            // SAFETY: within the mapping, which nobody else knows.
            unsafe { mapping.base().add(len - 1).write(1) };
            assert_eq!(pages_in_memory((mapping.base(), len)), Ok(1));
        }
        assert!(Mapping::aligned(usize::MAX, 4096, ProtFlags::empty(), MapFlags::empty()).is_err());
        assert!(Mapping::zeroed(usize::MAX).is_err());
    }

    #[test]
    fn mappings_are_guarded_on_both_sides() {
        let all: Vec<_> = (0..4)
            .map(|_| {
                let rw = ProtFlags::READ | ProtFlags::WRITE;
                Mapping::aligned(2 << 20, 1 << 30, rw, MapFlags::NORESERVE).unwrap()
            })
            .collect();
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
