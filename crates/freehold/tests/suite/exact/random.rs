//! Random numbers: of a seed, which always draws the same, or spelt by bytes, so that a fuzzer can
//! make them up and a file can keep them.

pub(crate) enum Random {
    Seed(fastrand::Rng),
    /// What is not read yet.
    Bytes(Vec<u8>),
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self::Seed(fastrand::Rng::with_seed(seed))
    }

    /// Any string spells numbers; behind its end all are 0.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.iter().rev().copied().collect())
    }

    /// Whether the bytes are used up; a seed never is.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Bytes(left) if left.is_empty())
    }

    /// A number below `limit`; 0 for a limit of 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        let limit = limit.max(1);
        match self {
            Self::Seed(random) => random.u64(0..limit),
            // As many bytes as the limit has: one for nearly all.
            Self::Bytes(left) => {
                let count = (u64::BITS - (limit - 1).leading_zeros()).div_ceil(8);
                let next = |n, _| n << 8 | u64::from(left.pop().unwrap_or(0));
                (0..count).fold(0, next) % limit
            }
        }
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}
