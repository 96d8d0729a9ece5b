//! How much is done in a run: what published figures are of, and less.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    pub(super) frames: usize,
    pub(super) yardstick: u64,
    /// Pairs of each depth of `depth` and of each order of `orders`; steps of each of `used`.
    pub(super) steady_pairs: u64,
    pub(super) churn_steps: u64,
    pub(super) mixed_steps: u64,
    /// Allocations of each thread of `tails`.
    pub(super) tail_allocs: u64,
}

impl Scale {
    /// What published figures are of.
    pub const FULL: Self = Self {
        frames: 262_144,
        yardstick: 500_000,
        steady_pairs: 400_000,
        churn_steps: 1_000_000,
        mixed_steps: 300_000,
        tail_allocs: 400_000,
    };

    /// As many frames, but what repeats itself repeats itself less.
    pub const QUICK: Self = Self {
        yardstick: 200_000,
        steady_pairs: 40_000,
        churn_steps: 100_000,
        mixed_steps: 30_000,
        tail_allocs: 50_000,
        ..Self::FULL
    };

    /// For the warm-up: every frame is used once, which is what matters.
    pub(super) const WARM_UP: Self = Self {
        steady_pairs: 4_000,
        churn_steps: 10_000,
        mixed_steps: 4_000,
        tail_allocs: 10_000,
        ..Self::QUICK
    };
}
