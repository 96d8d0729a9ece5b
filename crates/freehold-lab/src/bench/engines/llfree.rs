//! LLFree, the design nearest to Freehold: no locks either, bits for frames, and trees of 16 MiB of
//! which each CPU reserves one. Its authors' implementation in C
//! (<https://github.com/luhsra/llfree-c>), compiled by `build.rs` out of a clone that the user has.
//!
//! Their implementation in Rust was tried, too: a pair took it 59 ns where C took 36, and 100
//! chunks held of orders 3 to 8 twice to five times as long. So C is what is measured.

use std::ptr::NonNull;

use freehold::{CpuId, FrameRange, FreeError, Order, Pfn};

use crate::bench::calls::{Calls, Machine, Refused, START};

/// What `llfree_calls.c` makes.
#[repr(C)]
struct Llfree {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn freehold_llfree_new(frames: usize, cpus: usize) -> *mut Llfree;
    fn freehold_llfree_free(llfree: *mut Llfree);
    fn freehold_llfree_get(llfree: *mut Llfree, order: u8, movable: bool, cpu: usize) -> u64;
    fn freehold_llfree_put(llfree: *mut Llfree, frame: u64, order: u8, cpu: usize) -> bool;
    fn freehold_llfree_drain(llfree: *mut Llfree);
    fn freehold_llfree_free_frames(llfree: *const Llfree) -> usize;
    fn freehold_llfree_free_in_trees(llfree: *const Llfree) -> usize;
}

/// Its class for huge frames begins here; a range is freed in such pieces.
const HUGE: Order = Order::PAGEBLOCK;

pub struct LlfreeMachine {
    llfree: NonNull<Llfree>,
    frames: u64,
    cpus: u16,
}

// SAFETY: its state is atomics; any thread may make any call, which is what it is for.
unsafe impl Send for LlfreeMachine {}
// SAFETY: as for `Send`.
unsafe impl Sync for LlfreeMachine {}

impl LlfreeMachine {
    pub fn new(cpus: u16, frames: u64) -> Result<Self, String> {
        // SAFETY: any sizes will do: it refuses those that it cannot manage.
        let llfree = unsafe { freehold_llfree_new(frames as usize, usize::from(cpus)) };
        let llfree = NonNull::new(llfree).ok_or("LLFree refuses that many frames")?;
        Ok(Self { llfree, frames, cpus })
    }
}

impl Drop for LlfreeMachine {
    fn drop(&mut self) {
        // SAFETY: made by `freehold_llfree_new`; CPUs borrow this, so nobody uses it any more.
        unsafe { freehold_llfree_free(self.llfree.as_ptr()) };
    }
}

impl Machine for LlfreeMachine {
    type Cpu<'a> = LlfreeCpu<'a>;

    fn cpu(&self, cpu: CpuId) -> Result<LlfreeCpu<'_>, Refused> {
        let slot = usize::from(cpu.get());
        if cpu.get() >= self.cpus {
            return Err(Refused::NoSuchCpu);
        }
        Ok(LlfreeCpu { machine: self, slot })
    }

    fn drain(&self) {
        // SAFETY: `llfree` lives as long as this.
        unsafe { freehold_llfree_drain(self.llfree.as_ptr()) };
    }

    fn check(&self, live: u64) -> Result<(), String> {
        let llfree = self.llfree.as_ptr();
        // SAFETY: `llfree` lives as long as this.
        let (bits, trees) =
            unsafe { (freehold_llfree_free_frames(llfree), freehold_llfree_free_in_trees(llfree)) };
        let wanted = self.frames - live;
        if [bits as u64, trees as u64] == [wanted; 2] {
            return Ok(());
        }
        Err(format!("{bits} frames are free by the bits and {trees} by the trees, not {wanted}"))
    }
}

/// One of its slots for each class.
pub struct LlfreeCpu<'a> {
    machine: &'a LlfreeMachine,
    slot: usize,
}

#[inline(always)]
fn frame(pfn: Pfn) -> u64 {
    pfn.get() - START.get()
}

impl LlfreeCpu<'_> {
    #[inline(always)]
    fn get(&self, order: Order, movable: bool) -> Result<Pfn, Refused> {
        let llfree = self.machine.llfree.as_ptr();
        // SAFETY: `llfree` lives as long as the machine, which has a slot of that number.
        match unsafe { freehold_llfree_get(llfree, order.get(), movable, self.slot) } {
            u64::MAX => Err(Refused::NoMemory),
            frame => Ok(Pfn::new(START.get() + frame)),
        }
    }
}

impl Calls for LlfreeCpu<'_> {
    #[inline(always)]
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused> {
        self.get(order, true)
    }

    #[inline(always)]
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        let llfree = self.machine.llfree.as_ptr();
        // SAFETY: `llfree` lives as long as the machine, which has a slot of that number; it
        // refuses frames that are not in use.
        let done = unsafe { freehold_llfree_put(llfree, frame(pfn), order.get(), self.slot) };
        if done { Ok(()) } else { Err(Refused::Free(FreeError::DoubleFree { pfn })) }
    }

    #[inline(always)]
    fn alloc_unmovable(&mut self, order: Order) -> Result<Pfn, Refused> {
        self.get(order, false)
    }

    /// It frees a huge frame whole, whether or not it was going to be freed in parts.
    #[inline(always)]
    fn free_range(&mut self, range: FrameRange) -> Result<(), Refused> {
        (range.start.get()..range.end.get())
            .step_by(HUGE.frames() as usize)
            .try_for_each(|first| self.free(Pfn::new(first), HUGE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::loops::{alloc_all, free_all, shuffle};

    /// 64 MiB.
    const FRAMES: u64 = 1 << 14;

    fn machine() -> LlfreeMachine {
        LlfreeMachine::new(2, FRAMES).expect("64 MiB")
    }

    /// Every frame once, of either CPU; freed by the other, each comes back.
    #[test]
    fn frames_are_exclusive_and_come_back() {
        let machine = machine();
        let cpus = [0, 1].map(|cpu| machine.cpu(CpuId::new(cpu)).expect("a slot"));
        let [mut first, mut second] = cpus;
        let mut frames = vec![Pfn::default(); FRAMES as usize];
        let (some, others) = frames.split_at_mut(FRAMES as usize / 3);
        alloc_all(&mut first, some).expect("frames");
        alloc_all(&mut second, others).expect("frames");
        let distinct: std::collections::BTreeSet<Pfn> = frames.iter().copied().collect();
        assert_eq!(distinct.len(), frames.len());
        assert_eq!(first.alloc(Order::ZERO), Err(Refused::NoMemory));
        assert_eq!(machine.check(FRAMES), Ok(()));
        shuffle(&mut frames, 1);
        free_all(&mut second, frames.iter()).expect("frees");
        machine.drain();
        assert_eq!(machine.check(0), Ok(()));
    }

    #[test]
    fn every_order_is_aligned_and_a_second_free_is_refused() {
        let machine = machine();
        let mut cpu = machine.cpu(CpuId::new(1)).expect("a slot");
        for order in (0..=10).map(|order| Order::new(order).expect("an order")) {
            for movable in [false, true] {
                let got = if movable { cpu.alloc(order) } else { cpu.alloc_unmovable(order) };
                let pfn = got.expect("a chunk");
                assert_eq!(pfn.get() % order.frames(), 0, "{order}");
                assert_eq!(machine.check(order.frames()), Ok(()));
                assert_eq!(cpu.free(pfn, order), Ok(()));
                let twice = Err(Refused::Free(FreeError::DoubleFree { pfn }));
                assert_eq!(cpu.free(pfn, order), twice, "{order}");
            }
        }
        assert_eq!(machine.check(0), Ok(()));
        assert!(machine.cpu(CpuId::new(2)).is_err(), "there are two");
    }

    #[test]
    fn ranges_are_given_back() {
        let machine = machine();
        let mut cpu = machine.cpu(CpuId::new(0)).expect("a slot");
        let start = cpu.alloc(HUGE).expect("a chunk");
        let range = FrameRange { start, end: Pfn::new(start.get() + HUGE.frames()) };
        assert_eq!(cpu.free_range(range), Ok(()));
        assert_eq!(machine.check(0), Ok(()));
        let start = cpu.alloc(HUGE).expect("a chunk");
        assert_eq!(cpu.free(start, Order::ZERO), Ok(()), "in parts, too");
        assert_eq!(machine.check(HUGE.frames() - 1), Ok(()));
    }
}
