//! The words of the interface: which frames, how many, of what kind, on which CPU, in which
//! machine, and what went wrong.

pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod migratetype;
pub(crate) mod pfn;
pub(crate) mod request;

use core::fmt;

/// CPUs that there can be: a lease names each in 15 bits, and has two values left for others.
pub(crate) const MAX_CPUS: u16 = (1 << 15) - 2;

/// A CPU, counted from 0.
///
/// A number of its own, because the kernel's designs store `cpu + 1` in places where 0 means
/// "nobody" and mixing the two up is the classic mistake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct CpuId(u16);

impl CpuId {
    /// The CPU number `cpu`.
    #[inline]
    #[must_use]
    pub const fn new(cpu: u16) -> Self {
        Self(cpu)
    }

    /// The bare number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The number as an index into a table with one entry a CPU.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}", self.0)
    }
}

/// A memory node (NUMA), counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct NodeId(u8);

impl NodeId {
    /// The node number `node`.
    #[inline]
    #[must_use]
    pub const fn new(node: u8) -> Self {
        Self(node)
    }

    /// The bare number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}
