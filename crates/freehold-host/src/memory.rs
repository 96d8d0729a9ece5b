//! The frames themselves: a range of addresses, the pages that back it, and how they are given
//! back.
//!
//! A frame's PFN is its address divided by 4096. So the arithmetic between the two is a shift, a
//! chunk that is naturally aligned in the allocator is so in memory too (the base is a multiple of
//! the largest chunk), and a PFN of another arena is outside this one, where the allocator refuses
//! it.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use freehold::{FRAME_SIZE, FrameRange, PAGEBLOCK_FRAMES, Pfn};
use rustix::io::Errno;
use rustix::mm::MprotectFlags;
use rustix::param::page_size;

use crate::Error;
use crate::descriptors::File;
use crate::mapping::Mapping;
use crate::numa::Topology;
use crate::sys::{self, Advice, Bytes, MAX_VECTORS, Placement};

/// What the frames are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Backing {
    /// Private anonymous memory: a third of a memfd's price to give back (240 against 740 ns a
    /// page), and the only kind for which the kernel takes several ranges back with one flush. The
    /// default.
    #[default]
    Private,
    /// A memfd, so that a frame can be mapped a second time, at another address or in another
    /// process.
    Memfd,
    /// Private anonymous memory that the kernel may back with huge pages (`MADV_HUGEPAGE`): an
    /// eighteenth of the price to give back (13.5 ns for each 4 KiB), fewer TLB misses; but the
    /// first byte touched in a block takes 2 MiB of memory.
    HugePages,
}

/// What a forked child finds at the arena's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum OnFork {
    /// Its own copy, made page by page as either side writes (private memory only). The default:
    /// children that go on to read what the parent has prepared work.
    #[default]
    Copy,
    /// Nothing: touching a frame is a segmentation fault. Spares the kernel copying the page tables
    /// (about 2 MiB of them for each GiB in use), which is what makes `fork` of a large process
    /// slow. Memfd arenas always do this: their memory is shared, so a child's write would reach
    /// the parent.
    Unmapped,
}

/// See the module's documentation.
pub(crate) struct Memory {
    mapping: ManuallyDrop<Mapping>,
    backing: Backing,
    on_fork: OnFork,
    file: Option<File>,
    /// The kernel takes several ranges back in one call, as far as is known.
    vectors: AtomicBool,
    /// This is a forked child that has no such mapping.
    absent: AtomicBool,
    /// All of it was shut at first: see `guard`.
    shut: AtomicBool,
}

const GIB: usize = 1 << 30;

impl Memory {
    /// `blocks` blocks of address space, backed by nothing yet.
    pub(crate) fn reserve(blocks: u64, backing: Backing, on_fork: OnFork) -> Result<Self, Error> {
        let len = (blocks * PAGEBLOCK_FRAMES * FRAME_SIZE) as usize;
        // The largest chunk is 1 GiB.
        let align = len.checked_next_power_of_two().unwrap_or(GIB).min(GIB);
        let memfd = backing == Backing::Memfd;
        let fd = if memfd { Some(sys::sealed_memfd(len as u64)?) } else { None };
        let mapping = Mapping::aligned(len, align, fd.as_ref().map(AsFd::as_fd))?;
        let file = fd.map(File::new).transpose();
        let file = file.map_err(|errno| Error::os("fstat of the memfd", errno, len as u64, ""))?;
        let this = Self {
            mapping: ManuallyDrop::new(mapping),
            backing,
            on_fork: if memfd { OnFork::Unmapped } else { on_fork },
            file,
            // Shared memory is given back range by range: see `release_run`.
            vectors: AtomicBool::new(!memfd),
            absent: AtomicBool::new(false),
            shut: AtomicBool::new(false),
        };
        if backing == Backing::HugePages {
            let hint = "this kernel has no transparent huge pages; use Backing::Private";
            this.advise(this.range(), Advice::LinuxHugepage, "madvise(MADV_HUGEPAGE)", hint)?;
        }
        this.keep_from_children(this.range())?;
        Ok(this)
    }

    /// Of memory that children do not have.
    fn keep_from_children(&self, range: FrameRange) -> Result<(), Error> {
        if self.on_fork == OnFork::Copy {
            return Ok(());
        }
        let hint = "Linux 2.6.16 or later is needed";
        self.advise(range, Advice::LinuxDontFork, "madvise(MADV_DONTFORK)", hint)
    }

    /// Places each zone's part on its node, before anything is touched. What is only preferred is
    /// no reason to fail: containers forbid the call, their sets of CPUs leave nodes out, and
    /// kernels without memory nodes do not know it.
    pub(crate) fn bind(
        &self,
        topology: &Topology,
        parts: &[FrameRange],
        placement: Placement,
    ) -> Result<(), Error> {
        if topology.node_count() < 2 {
            return Ok(());
        }
        let hint =
            "this process may not use that node (see numactl --show), or ask for Numa::Ignore";
        for ((node, _), &part) in topology.nodes().zip(parts) {
            let bytes = self.bytes(part);
            let bound = sys::bind(bytes, node, placement);
            if placement == Placement::Bound {
                bound.map_err(|errno| Error::os("mbind", errno, bytes.1 as u64, hint))?;
            }
        }
        Ok(())
    }

    pub(crate) fn backing(&self) -> Backing {
        self.backing
    }

    pub(crate) fn on_fork(&self) -> OnFork {
        self.on_fork
    }

    /// The memfd, unless the program has closed its descriptor.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref()?.get()
    }

    pub(crate) fn first(&self) -> Pfn {
        Pfn::new(self.mapping.base().addr().get() as u64 / FRAME_SIZE)
    }

    /// All frames there are.
    #[inline]
    pub(crate) fn range(&self) -> FrameRange {
        let first = self.first();
        FrameRange {
            start: first,
            end: Pfn::new(first.get() + self.mapping.len() as u64 / FRAME_SIZE),
        }
    }

    /// Where a frame is. The pointer is good for the arena's frames; for others it must not be
    /// used.
    #[inline(always)]
    pub(crate) fn pointer(&self, pfn: Pfn) -> *mut u8 {
        self.mapping.base().as_ptr().with_addr((pfn.get() * FRAME_SIZE) as usize)
    }

    /// A range of the arena's frames, as memory.
    pub(crate) fn bytes(&self, range: FrameRange) -> Bytes {
        let base = NonNull::new(self.pointer(range.start)).unwrap_or(self.mapping.base());
        (base, (range.len() * FRAME_SIZE) as usize)
    }

    /// Advice that destroys nothing.
    fn advise(
        &self,
        range: FrameRange,
        advice: Advice,
        call: &'static str,
        hint: &'static str,
    ) -> Result<(), Error> {
        let bytes = self.bytes(range);
        let room = |errno| {
            if advice == Advice::LinuxPopulateWrite { hint } else { sys::no_room_or(hint, errno) }
        };
        // SAFETY: the range is ours, and none of the callers' advice changes what is in it.
        unsafe { sys::advise(bytes, advice) }
            .map_err(|errno| Error::os(call, errno, bytes.1 as u64, room(errno)))
    }

    /// Lets frames be accessed, or not; `false` where the kernel has no room to note that, or they
    /// are no whole pages.
    pub(crate) fn set_access(&self, range: FrameRange, open: bool) -> bool {
        let (base, len) = self.bytes(range);
        if (base.addr().get() | len) % page_size() != 0 {
            return false;
        }
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        let access = if open { access } else { MprotectFlags::empty() };
        // SAFETY: the range is ours; whoever has a slice of it is handed out, and open.
        unsafe { rustix::mm::mprotect(base.as_ptr().cast(), len, access) }.is_ok()
    }

    /// Nobody has access until frames are opened.
    pub(crate) fn shut(&self) {
        // Relaxed: what is handed out to others later is ordered after it.
        self.shut.store(true, Ordering::Relaxed);
        self.set_access(self.range(), false);
    }

    /// Has the kernel back all of it, before anybody has a frame. Where it has no call for that a
    /// touch does it, which ends the process if memory is missing.
    pub(crate) fn populate_new(&self) -> Result<(), Error> {
        if !sys::NEW_PAGES {
            return self.populate(self.range());
        }
        let (base, len) = self.bytes(self.range());
        for at in (0..len).step_by(4096) {
            // SAFETY: within the memory. Nobody else has it, and it is zero.
            unsafe { base.add(at).write_volatile(0) };
        }
        Ok(())
    }

    /// Has the kernel back these frames now, so that it is here that it says if it cannot.
    pub(crate) fn populate(&self, range: FrameRange) -> Result<(), Error> {
        let hint = "the system, the control group, the huge-page pool or the file has no more; \
                    Linux 5.14 is needed";
        loop {
            match self.advise(
                range,
                Advice::LinuxPopulateWrite,
                "madvise(MADV_POPULATE_WRITE)",
                hint,
            ) {
                // A signal came in between; what is populated stays so.
                Err(Error::Os { errno, .. }) if errno == Errno::INTR.raw_os_error() => {}
                result => return result,
            }
        }
    }

    /// Calls `f` with each frame of a range that the kernel has in memory, counted from its start.
    pub(crate) fn each_in_memory(
        &self,
        range: FrameRange,
        mut f: impl FnMut(u64),
    ) -> Result<(), Error> {
        let bytes = self.bytes(range);
        sys::each_page_in_memory(bytes, |page| f(page as u64))
            .map_err(|errno| Error::os("mincore", errno, bytes.1 as u64, "try again"))
    }

    /// Frames that the kernel has in memory.
    pub(crate) fn in_memory(&self, range: FrameRange) -> Result<u64, Error> {
        let mut frames = 0;
        self.each_in_memory(range, |_| frames += 1)?;
        Ok(frames)
    }

    /// Gives runs of frames back to the OS: they are zero, and cost no memory, until they are
    /// touched again. `done` is called with the index of each run that is; the first error is
    /// returned after all have been tried. `calls` counts the system calls.
    ///
    /// # Safety
    ///
    /// The caller has all of these frames, and nobody uses what is in them.
    pub(crate) unsafe fn release(
        &self,
        runs: &[FrameRange],
        calls: &mut u64,
        mut done: impl FnMut(usize),
    ) -> Result<(), Error> {
        let mut first = 0;
        if runs.len() > 1 {
            for vectors in runs.chunks(MAX_VECTORS) {
                // SAFETY: the caller's promise.
                let whole = unsafe { self.release_vectors(vectors, calls) };
                (first..first + whole).for_each(&mut done);
                first += whole;
                if whole < vectors.len() {
                    break;
                }
            }
        }
        let mut result = Ok(());
        for (index, &run) in runs.iter().enumerate().skip(first) {
            *calls += 1;
            // SAFETY: the caller's promise.
            match unsafe { self.release_run(run) } {
                Ok(()) => done(index),
                Err(error) if result.is_ok() => result = Err(error),
                Err(_) => {}
            }
        }
        result
    }

    /// Several runs in one call, where the kernel can; returns how many runs from the first on are
    /// done.
    ///
    /// # Safety
    ///
    /// As [`Self::release`].
    unsafe fn release_vectors(&self, runs: &[FrameRange], calls: &mut u64) -> usize {
        // Relaxed: whoever reads an old value finds out by itself.
        if !self.vectors.load(Ordering::Relaxed) {
            return 0;
        }
        let ranges: Vec<Bytes> = runs.iter().map(|&run| self.bytes(run)).collect();
        *calls += 1;
        // SAFETY: the caller's promise.
        match unsafe { sys::dont_need_vectors(&ranges) } {
            Ok(mut bytes) => ranges
                .iter()
                .take_while(|(_, len)| {
                    let whole = bytes >= *len;
                    bytes = bytes.saturating_sub(*len);
                    whole
                })
                .count(),
            Err(errno) => {
                // Before Linux 6.13 the advice that destroys is not allowed here, not even to the
                // process itself. And a program may have no descriptor left.
                if matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::MFILE) {
                    self.vectors.store(false, Ordering::Relaxed);
                }
                0
            }
        }
    }

    /// One run.
    ///
    /// # Safety
    ///
    /// As [`Self::release`].
    unsafe fn release_run(&self, run: FrameRange) -> Result<(), Error> {
        let bytes = self.bytes(run);
        // SAFETY: the range is ours, and the caller promises that nobody uses what is in it.
        unsafe { sys::give_back(bytes, self.file.is_some()) }
            .map_err(|(errno, call)| Error::os(call, errno, bytes.1 as u64, kept(errno)))?;
        if sys::NEW_PAGES {
            // Relaxed: see `shut`.
            if self.shut.load(Ordering::Relaxed) {
                self.set_access(run, false);
            }
            self.keep_from_children(run)?;
        }
        Ok(())
    }

    /// In a forked child that does not have the frames: something else may be at their addresses by
    /// now, which is not to be unmapped.
    pub(crate) fn forked(&self) {
        // Relaxed: read by the drop, which whoever drops has ordered after this.
        self.absent.store(self.on_fork == OnFork::Unmapped, Ordering::Relaxed);
    }
}

/// What to do where the kernel does not take memory back.
fn kept(errno: Errno) -> &'static str {
    match errno {
        Errno::INVAL => "memory that is locked (mlock) stays; unlock it first",
        Errno::NOMEM => "something in this process has unmapped or replaced the memory",
        Errno::PERM | Errno::ACCESS | Errno::NOSYS => {
            "allow madvise, which a seccomp filter refuses"
        }
        _ => "try again; the memory stays until then",
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !*self.absent.get_mut() {
            // SAFETY: dropped here and nowhere else, and not used any more.
            unsafe { ManuallyDrop::drop(&mut self.mapping) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(memory: &Memory, blocks: &[u64]) -> Vec<FrameRange> {
        let first = memory.first().get();
        blocks
            .iter()
            .filter_map(|block| {
                FrameRange::new(Pfn::new(first + block * PAGEBLOCK_FRAMES), PAGEBLOCK_FRAMES)
            })
            .collect()
    }

    fn released(memory: &Memory, runs: &[FrameRange]) -> (u64, Vec<usize>, Result<(), Error>) {
        let (mut calls, mut done) = (0, Vec::new());
        // SAFETY: nobody else knows of this memory.
        let result = unsafe { memory.release(runs, &mut calls, |run| done.push(run)) };
        (calls, done, result)
    }

    /// One byte in each of these blocks.
    fn touch(memory: &Memory, runs: &[FrameRange]) {
        for run in runs {
            // SAFETY: within the memory, which nobody else knows.
            unsafe { memory.pointer(run.start).write(1) };
        }
        assert_eq!(memory.in_memory(memory.range()), Ok(runs.len() as u64));
    }

    #[test]
    fn runs_are_released_one_by_one_where_vectors_do_not_work() {
        let memory = Memory::reserve(8, Backing::Private, OnFork::Copy).unwrap();
        let runs = runs(&memory, &[1, 3, 6]);
        memory.vectors.store(false, Ordering::Relaxed);
        touch(&memory, &runs);
        assert_eq!(released(&memory, &runs), (3, vec![0, 1, 2], Ok(())));
        assert_eq!(memory.in_memory(memory.range()), Ok(0));
    }

    /// What is unmapped, or refused by a filter, is not locked.
    #[test]
    fn a_refusal_is_explained_by_its_own_reason() {
        assert!(kept(Errno::INVAL).contains("mlock"));
        for errno in [Errno::NOMEM, Errno::PERM, Errno::NOSYS, Errno::AGAIN, Errno::IO] {
            assert!(!kept(errno).contains("mlock"), "{errno}");
        }
        let memory = Memory::reserve(1, Backing::Private, OnFork::Copy).unwrap();
        let runs = runs(&memory, &[0]);
        memory.vectors.store(false, Ordering::Relaxed);
        // SAFETY: our own memory, which nothing uses and which is not touched any more.
        unsafe { libc::munmap(memory.pointer(runs[0].start).cast(), 4096) };
        let (_, _, result) = released(&memory, &runs);
        let refused = result.unwrap_err();
        assert!(
            matches!(refused, Error::Os { hint, .. } if hint.contains("unmapped")),
            "{refused}"
        );
    }

    #[test]
    fn numbers_and_addresses_are_each_others_shift() {
        let memory = Memory::reserve(3, Backing::Private, OnFork::Copy).unwrap();
        let range = memory.range();
        assert_eq!(range.len(), 3 * PAGEBLOCK_FRAMES);
        assert_eq!(memory.pointer(range.start).addr() as u64, range.start.get() << 12);
        assert_eq!(
            range.start.get() % (4 * PAGEBLOCK_FRAMES),
            0,
            "aligned to the next power of two"
        );
    }
}
