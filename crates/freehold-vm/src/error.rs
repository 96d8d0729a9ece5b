//! What can go wrong with folios and address spaces.

use core::fmt;

use freehold::{AllocError, FreeError, Order, Pfn};

use crate::{Fault, MapError, SpaceId, Vpn, VpnRange};

/// Why a call of [`Vm`](crate::Vm) failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum VmError {
    /// There is no such address space.
    NoSpace {
        /// The space named in the call.
        space: SpaceId,
    },
    /// The pages are none, or not all covered by the space's page tables.
    OutOfSpace {
        /// The pages.
        range: VpnRange,
    },
    /// No VMA covers the page.
    NoVma {
        /// The page.
        vpn: Vpn,
    },
    /// Another VMA lies in the range.
    VmaOverlap {
        /// The range.
        range: VpnRange,
    },
    /// Something is mapped there already.
    Occupied {
        /// The page.
        vpn: Vpn,
    },
    /// The frame is not part of a folio.
    NotAFolio {
        /// The frame.
        pfn: Pfn,
    },
    /// A folio has at most 512 frames.
    OrderTooLarge {
        /// What was asked for.
        order: Order,
    },
    /// Frames that the folio does not have.
    OutOfFolio {
        /// The folio's frames.
        pages: u32,
    },
    /// Somebody else is using the folio: pinned, locked, or mapped where that does not go with the
    /// call.
    Busy {
        /// The folio's first frame.
        pfn: Pfn,
    },
    /// The caller's nodes, of VMAs or of mappings, are all in use.
    NoNodes,
    /// The access is not allowed.
    Fault(Fault),
    /// There are not enough frames.
    Alloc(AllocError),
    /// The host could not map them.
    Map(MapError),
    /// The page allocator refused a frame: somebody else has freed it.
    Free(FreeError),
}

impl fmt::Display for VmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace { space } => write!(f, "there is no {space}"),
            Self::OutOfSpace { range } => {
                write!(f, "{range} is empty or not covered by the page tables")
            }
            Self::NoVma { vpn } => write!(f, "no VMA covers {vpn}"),
            Self::VmaOverlap { range } => write!(f, "another VMA lies in {range}"),
            Self::Occupied { vpn } => {
                write!(f, "something is mapped at {vpn} already; unmap it first")
            }
            Self::NotAFolio { pfn } => write!(f, "{pfn} is not part of a folio"),
            Self::OrderTooLarge { order } => {
                write!(f, "a folio cannot be of {order}: the largest is order 9")
            }
            Self::OutOfFolio { pages } => write!(f, "the folio has {pages} frames only"),
            Self::Busy { pfn } => {
                write!(f, "the folio at {pfn} is in use by somebody else; try again")
            }
            Self::NoNodes => {
                f.write_str("all nodes for VMAs or mappings are in use; hand over larger slices")
            }
            Self::Fault(fault) => write!(f, "{fault}"),
            Self::Alloc(error) => write!(f, "{error}"),
            Self::Map(error) => write!(f, "{error}"),
            Self::Free(error) => write!(f, "a frame cannot be freed: {error}"),
        }
    }
}

impl core::error::Error for VmError {}

impl From<Fault> for VmError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
