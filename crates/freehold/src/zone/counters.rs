//! What a zone counts: statistics, each an atomic addition by a thread that did it.

use crate::primitive::AtomicU64;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct ZoneCounters {
    pub(crate) fallbacks: AtomicU64,
    pub(crate) mixed: AtomicU64,
    /// Writes to what all CPUs share that no CPU counts.
    pub(crate) shared_writes: AtomicU64,
    /// Sums of free frames over all CPUs.
    #[cfg(test)]
    pub(crate) sums: AtomicU64,
}

/// What threads in no CPU's state count and mark, on several lines: not all of them write one.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct Outside {
    pub(crate) frees: AtomicU64,
    /// Calls that have frames on the way; see [`moving`](crate::zone::moving).
    pub(crate) moving: AtomicU64,
}

/// Lines of them that a zone has.
pub(crate) const OUTSIDE: usize = if cfg!(loom) { 1 } else { 8 };

/// Frames that are free, and nobody's hand has.
#[derive(Clone, Copy, Default)]
pub(crate) struct Free {
    pub(crate) all: u64,
    pub(crate) high_atomic: u64,
    pub(crate) cma: u64,
}

impl Free {
    /// Of these, what a request may count on: not HIGHATOMIC frames unless it may use reserves, nor
    /// CMA frames unless those will do.
    pub(crate) fn usable(self, reserves: bool, cma: bool) -> u64 {
        let reserved = if reserves { 0 } else { self.high_atomic };
        self.all.saturating_sub(reserved + if cma { 0 } else { self.cma })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::OUTSIDE;
    use crate::tests::testing::*;

    /// Frees outside every door write as many lines as there are, by their blocks; those by a door
    /// that is free write their CPU's own.
    #[test]
    fn frees_of_different_blocks_write_different_lines() {
        let fh = machine(1, 512 * 4 * OUTSIDE as u64);
        let cpu = fh.here();
        let block = movable(9);
        let blocks: Vec<_> = (0..OUTSIDE).map(|_| cpu.alloc(block).unwrap()).collect();
        let lines = || fh.zones[0].outside.each_ref().map(|line| line.frees.get());
        for pfn in &blocks {
            cpu.free(*pfn, Order::ZERO).unwrap();
        }
        assert_eq!(lines(), [0; OUTSIDE]);
        assert_eq!(fh.totals().unattributed_frees, 0);
        for pfn in &blocks {
            Freeing::of(&fh, None).word(pfn.get() / 64, 1 << 1, 1).unwrap();
        }
        assert_eq!(lines(), [1; OUTSIDE]);
        assert_eq!(fh.totals().unattributed_frees, OUTSIDE as u64);
        fh.validate().unwrap();
    }
}
