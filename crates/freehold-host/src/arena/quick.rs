//! The short way of [`Frames`](crate::Frames): a power of two of frames, up to a block, from the calling thread's own CPU.
//!
//! ```text
//! count   1          the allocator's code for a single frame, where the call is
//!         2 to 32    its code for runs, compiled once for each order
//!         64 to 256  its code for any order
//!         512        its code for blocks
//!         others     the long way
//! ```
//!
//! What is known of the order when the program is compiled is worth a third of the instructions, and callers mostly do not know
//! it. All of it stays in registers: results that are gathered in memory cost more than the allocation itself.

use freehold::{FrameRange, Order, PAGEBLOCK_FRAMES, Pfn};

use super::Arena;
use crate::core::OwnedCpu;
use crate::request::FrameRequest;
use crate::thread;

/// The order that so many frames are a chunk of, up to a block.
#[inline(always)]
fn chunk(frames: u64) -> Option<Order> {
    let small = frames.is_power_of_two() && frames <= PAGEBLOCK_FRAMES;
    if small { Order::new(frames.trailing_zeros() as u8) } else { None }
}

#[inline(always)]
fn alloc(cpu: &OwnedCpu, order: Order) -> Option<Pfn> {
    cpu.alloc(FrameRequest::new(order).request()).ok()
}

/// The same, compiled for one order.
#[inline(never)]
fn alloc_run<const ORDER: u8>(cpu: &OwnedCpu) -> Option<Pfn> {
    alloc(cpu, const { order(ORDER) })
}

/// Frees a chunk of one order; `false` where the allocator refuses.
#[inline(never)]
fn free_run<const ORDER: u8>(cpu: &OwnedCpu, pfn: Pfn) -> bool {
    cpu.free(pfn, const { order(ORDER) }).is_ok()
}

const fn order(order: u8) -> Order {
    match Order::new(order) {
        Some(order) => order,
        None => Order::ZERO,
    }
}

impl Arena {
    /// So many neighbouring frames, where the calling thread's own CPU has them at hand.
    #[inline(always)]
    pub(crate) fn quick(&self, count: u64) -> Option<Pfn> {
        let cpu = thread::fast(&self.key)?;
        if count == 1 {
            let pfn = alloc(cpu, Order::ZERO)?;
            if self.inner.notes.is_news(pfn, 1) {
                self.note(pfn, Order::ZERO);
            }
            return Some(pfn);
        }
        let pfn = match count {
            2 => alloc_run::<1>(cpu),
            4 => alloc_run::<2>(cpu),
            8 => alloc_run::<3>(cpu),
            16 => alloc_run::<4>(cpu),
            32 => alloc_run::<5>(cpu),
            512 => alloc_run::<9>(cpu),
            _ => alloc(cpu, chunk(count)?),
        }?;
        if self.inner.notes.is_news(pfn, count) {
            self.note(pfn, chunk(count)?);
        }
        Some(pfn)
    }

    /// Frees what [`quick`](Self::quick) may have allocated; `false` where that is not it, or the allocator refuses.
    #[inline(always)]
    pub(crate) fn give_quick(&self, range: FrameRange) -> bool {
        let (start, count) = (range.start, range.end.get().wrapping_sub(range.start.get()));
        let Some(cpu) = thread::fast(&self.key) else { return false };
        if count == 1 {
            return cpu.free(start, Order::ZERO).is_ok();
        }
        // A part of what was allocated may lie anywhere.
        if start.get() & count.wrapping_sub(1) != 0 {
            return false;
        }
        match count {
            2 => free_run::<1>(cpu, start),
            4 => free_run::<2>(cpu, start),
            8 => free_run::<3>(cpu, start),
            16 => free_run::<4>(cpu, start),
            32 => free_run::<5>(cpu, start),
            512 => free_run::<9>(cpu, start),
            _ => chunk(count).is_some_and(|order| cpu.free(start, order).is_ok()),
        }
    }
}
