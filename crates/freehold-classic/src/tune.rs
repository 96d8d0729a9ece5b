//! How much a CPU takes at once, how much it may keep, and how much it gives back: the formulae of
//! the PCP.
//!
//! All of them are pure functions of a [`Tuning`], so that each can be checked by hand. Two
//! generations:
//!
//! * 5.17 to 6.6: one `high` mark; `free_factor` doubles the amount given back with every drain
//!   that no allocation interrupts, as long as the amount is below what `high` leaves: 32 batches
//!   are the most only since 6.7.
//! * 6.7 and later (switch `auto-high`): `high` moves between `high_min` and `high_max`;
//!   `alloc_factor` doubles refills while a CPU only allocates, `free_count` remembers how many
//!   frames it freed in a row.
//!
//! All amounts are in frames unless said otherwise.

use crate::switches::{Switch, Switches};

/// The largest shift of the batch (`CONFIG_PCP_BATCH_SCALE_MAX`).
pub const SCALE_MAX: u32 = 5;

/// The batch of a zone of `managed` frames.
///
/// Zones of 1 GiB and more have 63.
///
/// ```
/// use freehold_classic::batch_size;
///
/// assert_eq!(batch_size(8 << 20), 63); // 32 GiB
/// assert_eq!(batch_size(512 << 8), 31); // 512 MiB
/// assert_eq!(batch_size(100), 1);
/// ```
#[must_use]
pub fn batch_size(managed: u64) -> u32 {
    let batch = (managed >> 12).min(64) as u32;
    if batch <= 1 {
        return 1;
    }
    let below = batch + batch / 2;
    (1 << below.ilog2()) - 1
}

/// The range of the high mark: `(high_min, high_max)`.
///
/// `max(low / cpus, 4 * batch)` and `max(managed / 8 / cpus, 4 * batch)`. In a zone of which more
/// than an eighth is watermark the range is upside down. Source: Linux 6.7, `zone_highsize`.
///
/// ```
/// use freehold_classic::high_range;
///
/// // The specification's worked example: 32 GiB, 32 CPUs, low watermark 14180.
/// assert_eq!(high_range(8 << 20, 14180, 63, 32), (443, 32768));
/// ```
#[must_use]
pub fn high_range(managed: u64, low_watermark: u64, batch: u32, cpus: u16) -> (u32, u32) {
    let cpus = u64::from(cpus.max(1));
    let floor = u64::from(4 * batch);
    let mark = |frames: u64| (frames / cpus).max(floor).min(u64::from(u32::MAX / 2)) as u32;
    (mark(low_watermark), mark(managed / 8))
}

/// The kernel's `clamp`, of which std's is a part: a range that is upside down is allowed, and what
/// is in it or above counts as its `high`. Source: Linux 6.1, `include/linux/minmax.h`.
pub(crate) fn clamp(value: u32, low: u32, high: u32) -> u32 {
    match value {
        _ if value >= high => high,
        _ if value <= low => low,
        _ => value,
    }
}

/// The tuning state of one CPU in one zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// Frames moved at once.
    pub batch: u32,
    /// The mark above which frames are given back.
    pub high: u32,
    /// The lowest it may go.
    pub high_min: u32,
    /// The highest it may go.
    pub high_max: u32,
    /// Refills are `batch << alloc_factor`.
    pub alloc_factor: u32,
    /// 5.17 to 6.6: drains are `batch << free_factor`.
    pub free_factor: u32,
    /// Frames freed in a row, halved by every allocation.
    pub free_count: u32,
    /// The previous free was of order 1 to 3.
    pub previous_free_high_order: bool,
    /// High-order pages may wait until a whole batch has gathered, because the CPU's cache is large
    /// enough.
    pub free_high_batch: bool,
}

/// What the zone says at the moment of a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pressure {
    /// Free memory is below the high watermark (`ZONE_BELOW_HIGH`).
    pub below_high: bool,
    /// Memory is being reclaimed (`ZONE_RECLAIM_ACTIVE`).
    pub reclaim: bool,
}

impl Tuning {
    /// The state of a CPU that has seen nothing yet.
    #[must_use]
    pub const fn new(batch: u32, high_min: u32, high_max: u32, free_high_batch: bool) -> Self {
        Self {
            batch,
            high: high_min,
            high_min,
            high_max,
            alloc_factor: 0,
            free_factor: 0,
            free_count: 0,
            previous_free_high_order: false,
            free_high_batch,
        }
    }

    /// `high` within its range.
    fn in_range(&self, high: u32) -> u32 {
        clamp(high, self.high_min, self.high_max)
    }

    /// An allocation from the PCP breaks the row of frees.
    #[inline]
    pub fn note_alloc(&mut self, on: Switches) {
        if on.has(Switch::AutoHigh) {
            self.free_count >>= 1;
        } else {
            self.free_factor >>= 1;
        }
    }

    /// Chunks of `order` to refill an empty list with, `count` frames being on the PCP already.
    ///
    /// 5.17 to 6.6: `max(batch >> order, 2)`. Later: order 0 ramps up by doubling while only
    /// allocations are seen, within what `high` leaves; larger orders get a batch's worth of
    /// frames, at least 2 chunks. Source: Linux 6.7, `nr_pcp_alloc`.
    #[inline]
    pub fn refill(&mut self, on: Switches, order: u8, count: u32, pressure: Pressure) -> u32 {
        if !on.has(Switch::AutoHigh) {
            return if self.batch > 1 { (self.batch >> order).max(2) } else { self.batch };
        }
        let batch = self.batch;
        self.high = self.in_range(self.high);
        let mut high = self.high;
        if high < batch {
            return 1;
        }
        let mut chunks = if order == 0 { batch << self.alloc_factor.min(SCALE_MAX) } else { batch };
        if self.high_min != self.high_max && !pressure.below_high {
            high = (high + chunks).min(self.high_max);
            self.high = high;
        }
        if order == 0 {
            let cap = high.saturating_sub(count).saturating_sub(batch).max(batch);
            if chunks <= cap && self.alloc_factor < SCALE_MAX {
                self.alloc_factor += 1;
            }
            chunks = chunks.min(cap);
        }
        if chunks > 1 { (chunks >> order).max(2) } else { chunks }
    }

    /// Notes a free of `order` and says whether high-order frames have to leave now (`free_high`).
    ///
    /// 5.18 to 6.6: at once when a drain has just happened. 6.7: after a batch of frees in a row;
    /// 6.16: after `batch + high_min / 2`, which with orders 1 to 3 alone is never on a zone whose
    /// `high_min` is above 62 batches, since `free_count` stops past 32. Never in 5.17.
    #[inline]
    pub fn note_free(&mut self, on: Switches, order: u8, count: u32) -> bool {
        let high_order = (1..=3).contains(&order);
        if !on.has(Switch::AutoHigh) {
            return on.has(Switch::HighOrderLimit) && high_order && self.free_factor > 0;
        }
        self.alloc_factor >>= 1;
        let mut free_high = false;
        if high_order {
            let threshold =
                self.batch + if on.has(Switch::FreeHighHalf) { self.high_min / 2 } else { 0 };
            free_high = on.has(Switch::HighOrderLimit)
                && self.free_count >= threshold
                && self.previous_free_high_order
                && (!self.free_high_batch || count >= self.batch);
        }
        self.previous_free_high_order = high_order;
        if self.free_count < self.batch << SCALE_MAX {
            self.free_count += 1 << order;
        }
        free_high
    }

    /// The mark that `count` is held against after a free. Source: `nr_pcp_high` of 5.17 and of
    /// 6.7.
    #[inline]
    pub fn high_after_free(
        &mut self,
        on: Switches,
        count: u32,
        free_high: bool,
        pressure: Pressure,
    ) -> u32 {
        if !on.has(Switch::AutoHigh) {
            return match self.high {
                0 => 0,
                _ if free_high => 0,
                high if pressure.reclaim => high.min(self.batch << 2),
                high => high,
            };
        }
        self.high = self.in_range(self.high);
        let high = self.high;
        if high == 0 {
            return 0;
        }
        let lowered = |by: u32| high.saturating_sub(by).max(self.high_min);
        if free_high {
            self.high = lowered(self.batch << SCALE_MAX);
            return 0;
        }
        if pressure.reclaim {
            self.high = lowered(self.free_count.max(self.batch));
            return self.high.min(self.batch << 2);
        }
        if self.high_min == self.high_max {
            return high;
        }
        if pressure.below_high {
            self.high = lowered(self.free_count.max(self.batch));
            return count.max(self.high_min);
        }
        if count >= high {
            let need = self.free_count + self.batch;
            if high < need {
                self.high = self.in_range(need);
            }
        }
        high
    }

    /// Frames to give back once `count` has reached `high`: a batch is to be left, even where that
    /// means to give back less than a batch, or nothing. Source: `nr_pcp_free` of 5.17 and of 6.7.
    #[inline]
    pub fn drain(&mut self, on: Switches, count: u32, high: u32, free_high: bool) -> u32 {
        if !on.has(Switch::AutoHigh) {
            if free_high {
                return count;
            }
            if high < self.batch {
                return 1;
            }
            let most = high - self.batch;
            // A shift by 32 or more is out of reach of any batch but 0.
            let scaled = self.batch.checked_shl(self.free_factor).unwrap_or(u32::MAX);
            if scaled < most {
                self.free_factor += 1;
            }
            return clamp(scaled, self.batch, most);
        }
        if free_high {
            return count.min(self.batch << SCALE_MAX);
        }
        if high < self.batch {
            return 1;
        }
        clamp(self.free_count, self.batch, high - self.batch)
    }

    /// Lets the high mark sink when idle and says how many of `count` frames are above it then.
    /// Source: Linux 6.7, `decay_pcp_high`; about once a second and CPU.
    pub fn decay(&mut self, on: Switches, count: u32) -> u32 {
        if !on.has(Switch::AutoHigh) {
            return 0;
        }
        if self.high > self.high_min {
            let by_count = count.saturating_sub(self.batch << SCALE_MAX);
            self.high = by_count.max(self.high - (self.high >> 3)).max(self.high_min);
        }
        count.saturating_sub(self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Design;

    fn on(name: &str) -> Switches {
        Design::parse(name).unwrap().switches
    }

    /// 32 GiB, 32 CPUs.
    fn tuning() -> Tuning {
        Tuning::new(63, 443, 32768, false)
    }

    #[test]
    fn batches_by_zone_size() {
        assert_eq!(batch_size(0), 1);
        assert_eq!(batch_size(1 << 18), 63);
        assert_eq!(batch_size(1 << 17), 31);
        assert_eq!(batch_size(8191), 1);
        // The default watermarks of 1 MiB: low is 40 frames, an eighth of the zone 32.
        assert_eq!(high_range(256, 40, 1, 1), (40, 32));
    }

    #[test]
    fn an_upside_down_range_counts_as_its_upper_end() {
        let mut tuning = Tuning::new(1, 40, 32, false);
        assert_eq!(tuning.high, 40);
        assert_eq!(tuning.high_after_free(on("6.18"), 1, false, Pressure::default()), 32);
        // Only what is below both comes up to the lower.
        assert_eq!([31, 32, 36, 40, 41].map(|high| tuning.in_range(high)), [40, 32, 32, 32, 32]);
    }

    #[test]
    fn a_drain_leaves_a_batch_where_the_mark_is_less_than_two() {
        let mut tuning = tuning();
        for name in ["5.17", "5.18"] {
            assert_eq!(
                [126, 100, 63].map(|high| tuning.drain(on(name), 500, high, false)),
                [63, 37, 0],
                "{name}"
            );
        }
        tuning.free_count = 500;
        assert_eq!(
            [126, 100, 63, 62].map(|high| tuning.drain(on("6.18"), 500, high, false)),
            [63, 37, 0, 1]
        );
    }

    #[test]
    fn a_free_halves_the_next_refills() {
        let mut tuning = tuning();
        let refill = |tuning: &mut Tuning| tuning.refill(on("6.18"), 0, 0, Pressure::default());
        assert_eq!([0; 3].map(|_| refill(&mut tuning)), [63, 126, 252]);
        tuning.note_free(on("6.18"), 0, 0);
        assert_eq!([0; 2].map(|_| refill(&mut tuning)), [126, 252], "not 504");
    }

    #[test]
    fn a_refill_leaves_a_batch_below_the_high_mark() {
        let mut tuning = Tuning { high_max: 443, alloc_factor: 5, ..tuning() };
        assert_eq!(tuning.refill(on("6.18"), 0, 200, Pressure::default()), 443 - 200 - 63);
        assert_eq!(tuning.refill(on("6.18"), 0, 440, Pressure::default()), 63);
    }

    #[test]
    fn below_the_high_watermark_nothing_grows() {
        let mut tuning = tuning();
        let pressure = Pressure { below_high: true, ..Pressure::default() };
        tuning.refill(on("6.18"), 0, 0, pressure);
        assert_eq!(tuning.high, 443);
        tuning.high = 1000;
        assert_eq!(tuning.high_after_free(on("6.18"), 700, false, pressure), 700);
        assert_eq!(tuning.high, 1000 - 63);
    }

    #[test]
    fn drains_of_5_18_double_until_an_allocation() {
        let mut tuning = tuning();
        let drains: Vec<u32> = (0..5).map(|_| tuning.drain(on("5.18"), 443, 443, false)).collect();
        assert_eq!(drains, [63, 126, 252, 380, 380]);
        tuning.note_alloc(on("5.18"));
        assert_eq!(tuning.drain(on("5.18"), 443, 443, false), 126);
    }

    #[test]
    fn before_6_7_nothing_but_the_high_mark_stops_the_doubling() {
        for name in ["5.17", "5.18"] {
            let mut tuning = tuning();
            let drains: Vec<u32> =
                (0..10).map(|_| tuning.drain(on(name), 10_000, 10_000, false)).collect();
            assert_eq!(drains, [63, 126, 252, 504, 1008, 2016, 4032, 8064, 9937, 9937], "{name}");
            assert_eq!(tuning.free_factor, 8, "{name}: the first that was too much");
        }
        // Whatever state somebody sets: no overflow.
        let mut tuning = Tuning { batch: 0, free_factor: 31, ..tuning() };
        (0..4).for_each(|_| _ = tuning.drain(on("5.18"), 443, 443, false));
        let mut tuning = Tuning { alloc_factor: 40, ..tuning };
        tuning.refill(on("6.18"), 0, 0, Pressure::default());
    }

    #[test]
    fn only_frees_raise_the_high_mark_once_it_is_reached() {
        let mut tuning = Tuning { free_count: 900, ..tuning() };
        assert_eq!(tuning.high_after_free(on("6.18"), 443, false, Pressure::default()), 443);
        assert_eq!(tuning.high, 963);
        let pressure = Pressure { reclaim: true, ..Pressure::default() };
        assert_eq!(tuning.high_after_free(on("6.18"), 443, false, pressure), 252);
        assert_eq!(tuning.high, 443);
    }

    #[test]
    fn free_high_gives_everything_back_in_5_18_and_32_batches_since_6_7() {
        let mut tuning = tuning();
        assert_eq!(tuning.drain(on("5.18"), 9000, 0, true), 9000);
        assert_eq!(tuning.drain(on("6.18"), 9000, 0, true), 2016);
        tuning.high = 5000;
        assert_eq!(tuning.high_after_free(on("6.18"), 100, true, Pressure::default()), 0);
        assert_eq!(tuning.high, 5000 - 2016);
    }

    #[test]
    fn an_idle_cpu_sinks_by_an_eighth_a_second_down_to_high_min() {
        let mut tuning = Tuning { high: 4000, ..tuning() };
        assert_eq!(tuning.decay(on("6.18"), 3600), 100);
        assert_eq!(tuning.high, 3500);
        // A large stock falls by at most 32 batches at once.
        tuning.high = 30_000;
        assert_eq!(tuning.decay(on("6.18"), 30_000), 2016);
        for _ in 0..50 {
            tuning.decay(on("6.18"), 0);
        }
        assert_eq!(tuning.high, 443);
        assert_eq!(tuning.decay(on("5.18"), 9000), 0);
    }
}
