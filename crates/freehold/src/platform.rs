//! What only the host knows: which CPU this is, how to wait, how to see other CPUs' stores.

#[cfg(feature = "debug-poison")]
use crate::FrameRange;
use crate::Order;
#[cfg(feature = "debug-poison")]
use crate::block::bits;
use crate::primitive::full_fence;
use crate::{CpuId, Pfn};

/// How much memory a zone is short of. Told through [`Platform::pressure`] when the level changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pressure {
    /// The zone, as an index into the configuration.
    pub zone: usize,
    /// How bad it is.
    pub level: PressureLevel,
    /// Free frames in nobody's hand when the level was read.
    pub free: u64,
    /// The watermarks: min, low, high, in frames.
    pub watermarks: [u64; 3],
}

/// The bands between a zone's watermarks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PressureLevel {
    /// Above high, or above low after never having been below it.
    None,
    /// Below low and not above high since.
    Low,
    /// Below min: only requests with reserves are served from the zone.
    Min,
}

/// The host. Every method has a default that is right for a single CPU, or for threads that make
/// [explicit calls](crate::Freehold::on).
///
/// None but [`pressure`](Self::pressure) may call the allocator or panic: they may be called inside
/// a CPU's state, which would stay shut for good.
pub trait Platform: Sync {
    /// Which CPU the caller runs on: where the calls that name no CPU go. The answer may be stale
    /// by the time it is used; a CPU's state is locked either way.
    fn current_cpu(&self) -> CpuId {
        CpuId::new(0)
    }

    /// Whether there is a [`heavy_barrier`](Self::heavy_barrier). Read once, by
    /// [`Freehold::new`](crate::Freehold).
    fn has_heavy_barrier(&self) -> bool {
        false
    }

    /// Makes every CPU that may run a CPU's owner pass a full memory barrier before it returns:
    /// `membarrier(2)` with `MEMBARRIER_CMD_PRIVATE_EXPEDITED`, `FlushProcessWriteBuffers`, an
    /// inter-processor interrupt. Costly; called only when somebody reaches into a CPU's state that
    /// another party [owns](crate::Freehold::own).
    ///
    /// It need not order the caller's own accesses: the allocator has a fence before it, so that
    /// what the caller has stored is seen by a thread that passes the barrier, and one behind it.
    fn heavy_barrier(&self) {}

    /// Called in every turn of a wait for a lock.
    fn relax(&self) {
        core::hint::spin_loop();
    }

    /// A zone's pressure level has changed. Called without any lock held, by the call that sees it;
    /// never by one with [`NO_LOCK`](crate::AllocFlags::NO_LOCK), which may have interrupted this
    /// very function. May call the allocator, and may panic: what the call was about to return is
    /// free again then.
    fn pressure(&self, pressure: Pressure) {
        let _ = pressure;
    }

    /// A frame was freed twice in a way that the second call could not see (both ran at the same
    /// moment, one of them by the CPU that leases the frame's word). The frame is free once. May be
    /// called with locks held: record it, do not call the allocator. A panic ends the program.
    fn late_double_free(&self, pfn: Pfn) {
        let _ = pfn;
    }

    /// Which of the 64 frames from `first` on, a multiple of 64, have memory behind them, as far as
    /// is known: bit `i` for frame `first + i`. Of a host that takes the memory of free frames
    /// away. Where there is a choice, frames that have some are taken before others. May be called
    /// with locks held: look it up, do not call the allocator.
    ///
    /// Default: all have.
    fn in_memory(&self, first: Pfn) -> u64 {
        let _ = first;
        !0
    }

    /// Frames are being freed: fill them with a pattern. Feature `debug-poison`.
    #[cfg(feature = "debug-poison")]
    fn poison(&self, frames: FrameRange) {
        let _ = frames;
    }

    /// Frames are being handed out: check the pattern, which all memory must hold when it is first
    /// added. Feature `debug-poison`.
    #[cfg(feature = "debug-poison")]
    fn check_poison(&self, frames: FrameRange) {
        let _ = frames;
    }
}

/// Undoes something where the host panics in between; to be forgotten where it does not.
pub(crate) struct OnPanic<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// What this crate asks of a host, in its own terms.
pub(crate) trait PlatformExt: Platform + Sized {
    /// Makes every CPU pass a full memory barrier, this one too: what this one has written comes
    /// before it, and what it reads after it, which the platform's need not see to.
    fn barrier(&self) {
        full_fence();
        self.heavy_barrier();
        full_fence();
    }

    /// One turn of a wait.
    fn waited(&self) -> bool {
        self.relax();
        true
    }

    /// Which frames of a word of the block at `base` have memory, as far as the host knows.
    fn frames_in_memory(&self, base: u64, w: usize) -> u64 {
        self.in_memory(Pfn::new(base + 64 * w as u64))
    }

    /// Frames on their way out are checked.
    #[inline(always)]
    fn handed_out(&self, pfn: Pfn, order: Order) {
        #[cfg(feature = "debug-poison")]
        if let Some(frames) = FrameRange::new(pfn, order.frames()) {
            self.check_poison(frames);
        }
        #[cfg(not(feature = "debug-poison"))]
        let _ = (pfn, order);
    }

    /// Freed frames are filled.
    #[inline(always)]
    fn poisoned(&self, pfn: Pfn, frames: u64) {
        #[cfg(feature = "debug-poison")]
        if let Some(range) = FrameRange::new(pfn, frames) {
            self.poison(range);
        }
        #[cfg(not(feature = "debug-poison"))]
        let _ = (pfn, frames);
    }

    /// Freed frames of one word are filled.
    #[inline(always)]
    fn poisoned_word(&self, key: u64, frames: u64) {
        #[cfg(feature = "debug-poison")]
        for bit in bits::each(frames) {
            self.poisoned(Pfn::new(key * 64 + u64::from(bit)), 1);
        }
        #[cfg(not(feature = "debug-poison"))]
        let _ = (key, frames);
    }
}

impl<P: Platform> PlatformExt for P {}

/// One CPU, nothing else: for boot loaders and small kernels.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleCpu;

impl Platform for SingleCpu {}

/// Also of a host that is known only when the program runs, `&dyn Platform`: the allocator is
/// compiled once for all of those.
impl<P: Platform + ?Sized> Platform for &P {
    fn current_cpu(&self) -> CpuId {
        (**self).current_cpu()
    }
    fn has_heavy_barrier(&self) -> bool {
        (**self).has_heavy_barrier()
    }
    fn heavy_barrier(&self) {
        (**self).heavy_barrier();
    }
    fn relax(&self) {
        (**self).relax();
    }
    fn pressure(&self, pressure: Pressure) {
        (**self).pressure(pressure);
    }
    fn late_double_free(&self, pfn: Pfn) {
        (**self).late_double_free(pfn);
    }
    fn in_memory(&self, first: Pfn) -> u64 {
        (**self).in_memory(first)
    }
    #[cfg(feature = "debug-poison")]
    fn poison(&self, frames: FrameRange) {
        (**self).poison(frames);
    }
    #[cfg(feature = "debug-poison")]
    fn check_poison(&self, frames: FrameRange) {
        (**self).check_poison(frames);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::PlatformExt;
    use crate::Platform;
    use crate::primitive::{AtomicU64, Relaxed};
    use crate::tests::steps::fences;

    /// Notes how many fences came before its barrier, which orders nothing here.
    struct OfOthers(AtomicU64);

    impl Platform for OfOthers {
        fn heavy_barrier(&self) {
            self.0.set(fences());
        }
    }

    #[test]
    fn a_heavy_barrier_has_fences_on_both_sides() {
        let (host, before) = (OfOthers(AtomicU64::new(0)), fences());
        host.barrier();
        let at = host.0.get();
        assert_eq!((at - before, fences() - at), (1, 1));
    }
}
