//! Mappings that unmap themselves: address space and memory of this crate's own, between guards
//! and at addresses that nobody can guess.
//!
//! ```text
//! |  guard  | base ...                         base + len |  guard  |
//!   64 KiB     frames, or addresses for areas               64 KiB     no access on either side
//! ```
//!
//! A program that writes beyond its last frame, or before its first, is ended by a signal instead
//! of writing into what the kernel happened to map there. The base is drawn at random from 48 TiB
//! in steps of the alignment: at 1 GiB, the largest, that is 15 bits. The kernel's own choice has
//! at that alignment 10 at most, and puts one mapping next to the other.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::Error;
use crate::sys::{NO_ROOM, each_page_in_memory};

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

/// Reserves `len` bytes and their guards at an address drawn at random; `None` where there is no
/// randomness, or where it was not to be: a debugger has turned it off, the machine has fewer
/// addresses, or four draws met something.
fn reserve_anywhere(len: usize, align: usize, flags: MapFlags) -> Option<NonNull<u8>> {
    // Above what a position-independent program's code and the shadows of sanitizers take, below
    // the kernel's own choices, on machines with 47 bits of addresses.
    const WINDOW: std::ops::Range<u64> = 0x2000_0000_0000..0x5000_0000_0000;
    // SAFETY: it asks, and changes nothing.
    let fixed = unsafe { libc::personality(0xffff_ffff) } & libc::ADDR_NO_RANDOMIZE != 0;
    if fixed {
        return None;
    }
    let steps = (WINDOW.end - WINDOW.start).checked_sub(len as u64)? / align as u64;
    (0..4).find_map(|_| {
        let mut random = [0; 8];
        // SAFETY: eight bytes for the answer.
        let got = unsafe { libc::getrandom(random.as_mut_ptr().cast(), 8, libc::GRND_NONBLOCK) };
        if got != 8 || steps == 0 {
            return None;
        }
        let draw = u64::from_ne_bytes(random) % steps;
        let wish = usize::try_from(WINDOW.start + draw * align as u64).ok()?;
        let hint = ptr::without_provenance_mut(wish - GUARD);
        let around = len + 2 * GUARD;
        let start = map_near(hint, around, ProtFlags::empty(), flags).ok()?.as_ptr();
        if start.addr() + GUARD == wish {
            return NonNull::new(start.wrapping_add(GUARD));
        }
        // SAFETY: mapped just now, and nobody knows of it.
        unsafe { unmap(start, around) };
        None
    })
}

/// Reserves `len` bytes and their guards at whatever address the kernel has, aligned: more is
/// reserved, and the ends are given up.
fn reserve_where_the_kernel_likes(
    len: usize,
    around: usize,
    align: usize,
    flags: MapFlags,
) -> Result<NonNull<u8>, Error> {
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
        let base = match reserve_anywhere(len, align, flags) {
            Some(base) => base,
            None => reserve_where_the_kernel_likes(len, around, align, flags)?,
        };
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

    /// Puts huge pages there instead, all of them set aside for this mapping at once.
    pub(crate) fn replace_with_huge_pages(&mut self, of_1_gib: bool) -> Result<(), Error> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // Not NORESERVE: that would put the error off to the first touch, where it is a SIGBUS.
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::HUGETLB;
        let flags = flags | if of_1_gib { MapFlags::HUGE_1GB } else { MapFlags::HUGE_2MB };
        // SAFETY: the range replaced is this mapping's, which `&mut self` shows to be unused.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(self.base.as_ptr().cast(), self.len, prot, flags) };
        let hint = if of_1_gib {
            "set huge pages of 1 GiB aside first, at boot: hugepagesz=1G hugepages=N"
        } else {
            "set huge pages aside first: vm.nr_hugepages must have one to spare for each 2 MiB of the arena"
        };
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

    /// Gives pages that are in memory and hold nothing but zeros back to the OS: they read as zeros
    /// without being there.
    ///
    /// # Safety
    ///
    /// Private anonymous memory, all of it readable, into which nobody writes meanwhile.
    pub(crate) unsafe fn forget_zeros(&self) {
        let mut run = (0, 0);
        let forget = |(start, end): (usize, usize)| {
            if start < end {
                // SAFETY: within the mapping; these pages are zeros before and after, by the
                // caller's promise. What cannot be given back stays.
                let _ = unsafe {
                    let from = self.base.add(start * 4096).as_ptr().cast();
                    rustix::mm::madvise(from, (end - start) * 4096, Advice::LinuxDontNeed)
                };
            }
        };
        let done = each_page_in_memory((self.base, self.len), |page| {
            // SAFETY: within the mapping, which is aligned to pages; the caller promises that
            // nobody writes.
            let words = unsafe {
                std::slice::from_raw_parts(self.base.add(page * 4096).cast::<u64>().as_ptr(), 512)
            };
            if words.iter().any(|&word| word != 0) {
                return;
            }
            if run.1 != page {
                forget(run);
                run.0 = page;
            }
            run.1 = page + 1;
        });
        // Where the kernel does not say, all stays.
        if done.is_ok() {
            forget(run);
        }
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
    use crate::sys::pages_in_memory;

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
    fn pages_of_zeros_go_and_others_stay() {
        let mapping = Mapping::zeroed(64 * 4096).unwrap();
        for page in 0..64 {
            let value = if page % 5 == 0 { 7 } else { 0 };
            // SAFETY: within the mapping, which nobody else knows.
            unsafe { mapping.base().add(page * 4096 + 4095).write(value) };
        }
        let range = (mapping.base(), mapping.len());
        assert_eq!(pages_in_memory(range), Ok(64));
        // SAFETY: nobody else knows of it.
        unsafe { mapping.forget_zeros() };
        assert_eq!(pages_in_memory(range), Ok(13));
        for page in 0..64 {
            // SAFETY: within the mapping, which nobody else knows.
            let last = unsafe { mapping.base().add(page * 4096 + 4095).read() };
            assert_eq!(last, if page % 5 == 0 { 7 } else { 0 });
        }
    }

    #[test]
    fn bases_are_of_more_than_ten_bits_and_guarded_on_both_sides() {
        let all: Vec<_> = (0..40)
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
        // SAFETY: it asks, and changes nothing.
        if unsafe { libc::personality(0xffff_ffff) } & libc::ADDR_NO_RANDOMIZE != 0 {
            return; // Under a debugger that turns it off.
        }
        let mut bases: Vec<_> = all.iter().map(|one| one.base().addr().get() >> 30).collect();
        bases.sort_unstable();
        let spread = bases[39] - bases[0];
        assert!(spread > 4 << 10, "40 bases lie within {spread} GiB");
    }
}
