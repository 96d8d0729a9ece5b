//! Real memory behind frame numbers, for the benchmarks that write what they allocate.
//!
//! An engine that knows only numbers gets one anonymous mapping behind them, the same for all of
//! them: they take turns. It is filled before anything is timed, in huge pages where the system has
//! them, as a kernel's own mapping of memory is. An engine that hands out addresses (malloc
//! families, mmap) is used over its own memory, page faults included, because that is what its
//! users get.
//!
//! ```text
//!   frame START + n  ──>  base + n * 4096          a frame of a malloc family:  frame n ──> address n * 4096
//! ```

use std::ptr::null_mut;

use freehold::{Order, Pfn};
use rustix::io::Errno;

use super::calls::START;
use super::mapping::{Mapping, PAGE};

pub const FRAME: usize = PAGE;

/// A mapping of so many frames from [`START`] on.
#[derive(Debug)]
pub struct Backing {
    mapping: Mapping,
    frames: u64,
}

impl Backing {
    /// Maps and fills it.
    pub fn new(frames: u64) -> Result<Self, Errno> {
        let bytes = frames as usize * FRAME;
        let mapping = Mapping::new(bytes)?;
        // Without huge pages it is slower and as right.
        let _ = mapping.advise(bytes, rustix::mm::Advice::LinuxHugepage);
        mapping.touch(bytes);
        Ok(Self { mapping, frames })
    }

    pub fn frames(&self) -> u64 {
        self.frames
    }

    pub fn memory(&self) -> Memory {
        Memory { base: self.mapping.base(), first: START.get(), frames: self.frames }
    }
}

/// From a frame's number to its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    base: *mut u8,
    first: u64,
    frames: u64,
}

// SAFETY: an address range; who may write what of it is for those who use it to know.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Of engines whose frame numbers are addresses.
    pub fn of_addresses() -> Self {
        Self { base: null_mut(), first: 0, frames: 1 << 52 }
    }

    /// The first of so many bytes. Panics where they are not inside the memory: the warm-up has
    /// found any engine that hands out such frames.
    #[inline(always)]
    fn at(self, pfn: Pfn, bytes: usize) -> *mut u8 {
        let frame = pfn.get().wrapping_sub(self.first);
        let count = bytes.div_ceil(FRAME) as u64;
        assert!(
            frame < self.frames && count <= self.frames - frame,
            "{pfn} is outside the memory of the benchmark"
        );
        if self.base.is_null() {
            std::ptr::with_exposed_provenance_mut(pfn.get() as usize * FRAME)
        } else {
            self.base.wrapping_add(frame as usize * FRAME)
        }
    }

    /// Writes `byte` over the first `bytes` of an allocated chunk.
    #[inline(always)]
    pub fn fill(self, pfn: Pfn, byte: u8, bytes: usize) {
        let at = self.at(pfn, bytes);
        // SAFETY: inside the mapping (checked), or the engine's own address of a block of that
        // size. It is this thread's alone from the allocation to the free; an engine that gives it
        // to two does not pass the warm-up.
        unsafe { at.write_bytes(byte, bytes) };
    }

    /// Copies a frame's contents to another frame.
    #[inline(always)]
    pub fn copy(self, from: Pfn, to: Pfn) {
        let (from, to) = (self.at(from, FRAME), self.at(to, FRAME));
        // SAFETY: as in `fill`; two frames that are in use at the same time do not overlap.
        unsafe { to.copy_from_nonoverlapping(from, FRAME) };
    }

    /// Reads a chunk that was filled, a word of each 8 bytes.
    #[inline(always)]
    pub fn sum(self, pfn: Pfn, order: Order) -> u64 {
        let bytes = order.frames() as usize * FRAME;
        let at = self.at(pfn, bytes).cast::<u64>();
        // SAFETY: as in `fill`; a frame's address is aligned for words, and all of the chunk has
        // been written.
        let words = unsafe { std::slice::from_raw_parts(at, bytes / 8) };
        words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_their_own_bytes() {
        let backing = Backing::new(64).unwrap();
        let memory = backing.memory();
        let frame = |n: u64| Pfn::new(START.get() + n);
        memory.fill(frame(8), 3, 8 * FRAME);
        memory.fill(frame(16), 5, FRAME);
        let three = u64::from_ne_bytes([3; 8]);
        assert_eq!(memory.sum(frame(8), Order::new(3).unwrap()), three.wrapping_mul(8 * 512));
        memory.copy(frame(16), frame(63));
        assert_eq!(
            memory.sum(frame(63), Order::ZERO),
            u64::from_ne_bytes([5; 8]).wrapping_mul(512)
        );
    }

    #[test]
    #[should_panic(expected = "outside the memory")]
    fn beyond_the_end() {
        Backing::new(64).unwrap().memory().fill(Pfn::new(START.get() + 63), 0, 2 * FRAME);
    }
}
