//! Below how many free frames a zone serves whom, and when the host hears of it.
//!
//! The frames that count are those in the zone's own hand: what groups and CPUs have is small, and
//! is used before anybody asks the zone. The pressure level counts the groups' as well, since they
//! are free memory.

use super::Zone;
use crate::AllocFlags;
use crate::block::tag::{CMA, HIGH_ATOMIC};
use crate::primitive::{Ordering, Plain};

impl Zone<'_> {
    /// Free frames in the zone's own hand.
    pub(crate) fn free(&self) -> u64 {
        self.whole_blocks.get() * 512 + self.stock.free()
    }

    /// Frames of this zone that a request may count on: free ones, less those of HIGHATOMIC blocks
    /// unless it may use reserves, and of CMA blocks unless those will do.
    pub(crate) fn usable(&self, flags: AllocFlags, cma: bool) -> u64 {
        let mut usable = self.free();
        if !flags.intersects(AllocFlags::HIGH_ATOMIC | AllocFlags::OOM | AllocFlags::NON_BLOCK) {
            usable = usable.saturating_sub(self.stock.free_of(HIGH_ATOMIC));
        }
        if !cma {
            usable = usable.saturating_sub(self.stock.free_of(CMA));
        }
        usable
    }

    /// The min watermark as far as the request's flags lower it (Linux 7.3): MIN_RESERVE takes half
    /// off, NON_BLOCK a further quarter, OOM half of what is left, NO_WATERMARKS all.
    pub(crate) fn min_mark(&self, flags: AllocFlags) -> Option<u64> {
        if flags.contains(AllocFlags::NO_WATERMARKS) {
            return None;
        }
        let mut min = self.min.get();
        if flags.contains(AllocFlags::MIN_RESERVE) {
            min -= min / 2;
        }
        if flags.contains(AllocFlags::NON_BLOCK) {
            min -= min / 4;
        }
        if flags.contains(AllocFlags::OOM) {
            min -= min / 2;
        }
        Some(min)
    }

    /// Whether the zone may hand out `frames` and keep more than the mark of these flags.
    pub(crate) fn allows(&self, frames: u64, flags: AllocFlags, cma: bool) -> bool {
        let usable = self.usable(flags, cma);
        match self.min_mark(flags) {
            None => usable >= frames,
            Some(mark) => usable >= frames && usable - frames >= mark,
        }
    }

    /// The same where HIGHATOMIC frames do not count, whatever the flags: for who does not take
    /// any.
    pub(crate) fn leaves_mark(&self, frames: u64, flags: AllocFlags, cma: bool) -> bool {
        let usable = self.usable(AllocFlags::empty(), cma);
        usable >= frames && usable - frames >= self.min_mark(flags).unwrap_or(0)
    }

    /// Whether over half of the zone's own free frames are CMA frames: such requests take those
    /// first.
    pub(crate) fn cma_comes_first(&self) -> bool {
        self.stock.free_of(CMA) > self.free() / 2
    }

    /// Compares the free frames with the marks; a change is told later, without locks. Under the
    /// zone's lock.
    pub(crate) fn update_level(&self) {
        let mut free = self.free();
        if free <= self.high.get() {
            free = self.groups.iter().fold(free, |sum, group| sum.wrapping_add(group.stock.free()));
        }
        let level = if free < self.min.get() {
            2
        } else if free < self.low.get() {
            1
        } else if free > self.high.get() || self.high.get() == 0 {
            0
        } else {
            // Between low and high: whatever was last told stays true, except that below-min is
            // over.
            self.level.get().min(1)
        };
        if level != self.level.get() {
            self.level.set(level);
            // Release: see `tell_pressure`.
            self.level_changed.store(true, Ordering::Release);
        }
    }
}

/// min, low and high of a zone, in frames; see [`Watermarks::Kernel`](crate::Watermarks::Kernel).
pub(crate) fn kernel_watermarks(managed: u64, total: u64) -> [u64; 3] {
    if total == 0 {
        return [0; 3];
    }
    let min_kib = (total * 4 * 16).isqrt().clamp(128, 262_144);
    let min = (u128::from(min_kib / 4) * u128::from(managed) / u128::from(total)) as u64;
    let gap = (min / 4).max(managed / 1000);
    [min, min + gap, min + 2 * gap]
}
