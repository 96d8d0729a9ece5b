//! Which virtual pages: a page's number, ranges of them, whose they are and what may be done with
//! them.

use core::fmt;

/// A virtual page number: the virtual address divided by [`freehold::FRAME_SIZE`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Vpn(u64);

impl Vpn {
    /// The page number `vpn`.
    #[must_use]
    pub const fn new(vpn: u64) -> Self {
        Self(vpn)
    }

    /// The bare number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The page `pages` further on, within a range that is known to exist.
    pub(crate) const fn plus(self, pages: u64) -> Self {
        Self(self.0 + pages)
    }
}

impl fmt::Debug for Vpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vpn({:#x})", self.0)
    }
}

impl fmt::Display for Vpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vpn {:#x}", self.0)
    }
}

/// Neighbouring virtual pages, `start` included, `end` not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct VpnRange {
    /// The first page.
    pub start: Vpn,
    /// The page after the last.
    pub end: Vpn,
}

impl VpnRange {
    /// `pages` pages from `start` on, or `None` where that passes the end of the number space.
    #[must_use]
    pub const fn new(start: Vpn, pages: u64) -> Option<Self> {
        match start.0.checked_add(pages) {
            Some(end) => Some(Self { start, end: Vpn(end) }),
            None => None,
        }
    }

    /// How many pages; 0 where `end` is not after `start`.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Whether there is no page in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `vpn` lies in it.
    #[must_use]
    pub const fn contains(&self, vpn: Vpn) -> bool {
        self.start.0 <= vpn.0 && vpn.0 < self.end.0
    }
}

impl fmt::Display for VpnRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vpn {:#x}..{:#x}", self.start.0, self.end.0)
    }
}

/// An address space, as an index into those that a [`Vm`](crate::Vm) was given, or whatever the
/// host's [`Mmu`](crate::Mmu) takes it for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct SpaceId(u16);

impl SpaceId {
    /// The address space `id`.
    #[must_use]
    pub const fn new(id: u16) -> Self {
        Self(id)
    }

    /// The bare number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "address space {}", self.0)
    }
}

/// What a mapping lets its users do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Access {
    /// Nothing: every access faults, though the frame stays where it is (`PROT_NONE`, NUMA
    /// hinting).
    None,
    /// Reading.
    Read,
    /// Reading and writing.
    ReadWrite,
}

impl Access {
    /// Whether writing is allowed.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::ReadWrite)
    }
}
