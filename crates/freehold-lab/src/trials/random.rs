//! The numbers that workloads draw: few instructions, and the same on every machine.

/// Marsaglia's xorshift: the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed; 0, which xorshift never leaves, counts as 1.
    pub const fn new(seed: u64) -> Self {
        Self(if seed == 0 { 1 } else { seed })
    }

    /// From part `part` of a seed: neighbouring seeds and parts do not begin with neighbouring
    /// numbers.
    pub fn split(seed: u64, part: u64) -> Self {
        let mixed =
            (seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mut random = Self::new(mixed ^ (mixed >> 31));
        random.step();
        random
    }

    /// A number below `limit`; 0 for a limit of 0. Uneven by at most `limit` in 2^64.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.step().checked_rem(limit).unwrap_or(0)
    }

    /// A number below `limit` without a division, for loops that are timed: made from the upper
    /// bits.
    #[inline(always)]
    pub fn scaled(&mut self, limit: u64) -> u64 {
        ((u128::from(self.step()) * u128::from(limit)) >> 64) as u64
    }

    /// The next number, of 64 bits; never 0.
    #[inline(always)]
    pub fn step(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
