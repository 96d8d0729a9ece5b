//! How much of a zone stays free: the min, low and high watermarks, and who may go below them.
//!
//! ```text
//!   free frames of a zone
//!   ├──────────── high ─ above: CPUs may grow their lists
//!   ├──────────── low ── ordinary requests must leave this much free
//!   ├──────────── min ── requests that find nothing above low
//!   │  the reserve: MIN_RESERVE half, NON_BLOCK a quarter more, OOM half of what is left
//!   └──────────── 0
//! ```

use freehold::{AllocFlags, Order};

/// The three marks of a zone, in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watermarks {
    /// Below this only reserves are left.
    pub min: u64,
    /// Ordinary requests stay above this.
    pub low: u64,
    /// Below this a zone counts as short, and CPUs stop growing their lists.
    pub high: u64,
}

/// Which mark an attempt has to respect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    Min,
    Low,
    High,
}

impl Watermarks {
    /// The kernel's defaults for a machine of one zone of `managed` frames.
    ///
    /// `min_free_kbytes = clamp(isqrt(16 * lowmem_kB), 128, 262144)`, raised where transparent huge
    /// pages are on to 11 pageblocks, but to no more than 5 % of memory; `low` and `high` follow at
    /// a distance of `max(min / 4, managed / 1000)`. Source: Linux 7.3,
    /// `__setup_per_zone_wmarks` and khugepaged's `set_recommended_min_free_kbytes`.
    ///
    /// ```
    /// use freehold_classic::Watermarks;
    ///
    /// // 32 GiB without huge pages.
    /// let marks = Watermarks::kernel_default(8 << 20, false);
    /// assert_eq!((marks.min, marks.low, marks.high), (5792, 14180, 22568));
    /// ```
    #[must_use]
    pub fn kernel_default(managed: u64, huge_pages: bool) -> Self {
        let mut min = (16 * managed * 4).isqrt().clamp(128, 262_144) / 4;
        if huge_pages {
            min = min.max(((2 + 9) * 512).min(managed / 20));
        }
        let gap = (min / 4).max(managed / 1000);
        Self { min, low: min + gap, high: min + 2 * gap }
    }

    pub(crate) fn get(&self, mark: Mark) -> u64 {
        match mark {
            Mark::Min => self.min,
            Mark::Low => self.low,
            Mark::High => self.high,
        }
    }
}

/// What opens a reserve below the min mark (`ALLOC_RESERVES`).
pub(crate) const RESERVES: AllocFlags = AllocFlags::NON_BLOCK
    .union(AllocFlags::MIN_RESERVE)
    .union(AllocFlags::HIGH_ATOMIC)
    .union(AllocFlags::OOM);

/// What the check needs to know of a zone's free memory, in frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FreeFrames {
    pub(crate) free: u64,
    pub(crate) high_atomic: u64,
    pub(crate) cma: u64,
    /// Kept from requests that a higher zone could serve.
    pub(crate) lowmem_reserve: u64,
}

/// Whether `free` frames leave `mark` intact after an allocation of `order`, counting frames only:
/// whether there is a chunk of that order at all is the caller's second question. Source: Linux
/// 7.3, `__zone_watermark_ok`.
///
/// HIGHATOMIC frames count for everybody who may go below `min` at all. No relaxation of the mark
/// touches what is kept for requests that can go nowhere else.
pub(crate) fn enough(
    mut mark: u64,
    order: Order,
    flags: AllocFlags,
    may_cma: bool,
    free: FreeFrames,
) -> bool {
    let reserves = flags.intersects(RESERVES);
    let unusable = (order.frames() - 1)
        + if reserves { 0 } else { free.high_atomic }
        + if may_cma { 0 } else { free.cma };
    if flags.contains(AllocFlags::MIN_RESERVE) {
        mark -= mark / 2;
        if flags.contains(AllocFlags::NON_BLOCK) {
            mark -= mark / 4;
        }
    }
    if flags.contains(AllocFlags::OOM) {
        mark -= mark / 2;
    }
    free.free.saturating_sub(unusable) > mark.saturating_add(free.lowmem_reserve)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: FreeFrames =
        FreeFrames { free: 1000, high_atomic: 100, cma: 200, lowmem_reserve: 0 };

    fn least(flags: AllocFlags, may_cma: bool) -> u64 {
        (0..2000).find(|&mark| !enough(mark, Order::ZERO, flags, may_cma, FREE)).unwrap()
    }

    #[test]
    fn reserved_and_cma_frames_do_not_count_for_everybody() {
        assert_eq!(least(AllocFlags::empty(), false), 700);
        assert_eq!(least(AllocFlags::empty(), true), 900);
        for reserve in [AllocFlags::HIGH_ATOMIC, AllocFlags::NON_BLOCK] {
            assert_eq!(least(reserve, true), 1000);
        }
    }

    #[test]
    fn both_relaxations_together_leave_three_eighths_of_the_mark() {
        let flags = AllocFlags::MIN_RESERVE | AllocFlags::NON_BLOCK;
        let free = |free| FreeFrames { free, ..FreeFrames::default() };
        assert!(!enough(800, Order::ZERO, flags, true, free(300)));
        assert!(enough(800, Order::ZERO, flags, true, free(301)));
        let kept = |free| FreeFrames { free, lowmem_reserve: 50, ..FreeFrames::default() };
        assert!(!enough(800, Order::ZERO, flags, true, kept(350)));
        assert!(enough(800, Order::ZERO, flags, true, kept(351)));
        // NON_BLOCK alone opens no reserve: only callers that are also important may use it.
        assert!(!enough(800, Order::ZERO, AllocFlags::NON_BLOCK, true, free(800)));
    }

    #[test]
    fn small_machines_and_huge_pages() {
        assert_eq!(Watermarks::kernel_default(256, false).min, 32);
        // 11 pageblocks for huge pages, but never more than 5 %.
        let with = |managed| Watermarks::kernel_default(managed, true).min;
        assert_eq!(with(8 << 20), 5792);
        assert_eq!(with(1 << 20), 5632);
        assert_eq!(with(10_000), 500);
    }
}
