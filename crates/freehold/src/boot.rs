//! From a boot memory map to an allocator in one call.
//!
//! A boot loader hands over pieces of free memory in bytes, in any order and of any alignment. The
//! allocator needs whole frames, a zone around them, and a region for its metadata. That region
//! comes out of the map itself: from the end of the largest piece, which is the one that notices
//! the loss least.
//!
//! ```text
//!  map          |--piece--|      |------------- the largest piece -------------|     |--piece--|
//!  whole frames  |-------|       |-------------------------------|             |      |-------|
//!                                                                |  metadata   |
//! ```
//!
//! One zone holds everything. A kernel that wants more (DMA below 16 MiB, nodes, memory that comes
//! later) makes its own [`Config`] and calls [`Freehold::new`]; `docs/kernels.md` shows both.

#![allow(unsafe_code)] // The metadata region is made from the address that the caller maps.

use core::fmt;
use core::mem::MaybeUninit;

use crate::{Config, ConfigError, FRAME_SIZE, FrameRange, Freehold, Pfn, Platform, ZoneConfig};

/// How many pieces of at least one frame a map may have.
const PIECES: usize = 128;

/// A boot memory map that no allocator can be made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BootError {
    /// No piece has a whole frame.
    NoFrame,
    /// No piece has room for the metadata and one frame.
    NoMemory {
        /// Bytes of metadata that the memory would need.
        needed: usize,
        /// Bytes of the largest piece, in whole frames.
        largest: u64,
    },
    /// The map has more than 128 pieces of a frame or more. Dropping some would be hard to notice.
    TooManyPieces {
        /// How many it has.
        pieces: usize,
    },
    /// A piece ends above the largest address.
    Wraps {
        /// Its first byte.
        start: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// The machine that the map describes cannot be served: pieces overlap, say.
    Config(ConfigError),
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFrame => f.write_str("the memory map has no whole frame of 4096 bytes"),
            Self::NoMemory { needed, largest } => write!(
                f,
                "the metadata needs {needed} bytes and one frame more; the largest piece of the \
                 map has {largest}"
            ),
            Self::TooManyPieces { pieces } => {
                write!(f, "the memory map has {pieces} pieces; at most {PIECES} can be taken")
            }
            Self::Wraps { start, bytes } => {
                write!(f, "{bytes} bytes from {start:#x} on end above the largest address")
            }
            Self::Config(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for BootError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            _ => None,
        }
    }
}

impl<P: Platform> Freehold<'static, P> {
    /// Makes an allocator of one zone from a boot memory map.
    ///
    /// `map` has the start and length of each piece of free memory, in bytes; pieces are cut to
    /// whole frames of 4 KiB, and those of less than one frame are left out. `phys_to_virt` is
    /// called once, with the physical address of the metadata, and says where the kernel has it
    /// mapped. All `cpus` are online. The metadata is taken from the end of the largest piece; all
    /// other frames are free afterwards.
    ///
    /// # Errors
    ///
    /// See [`BootError`]; no memory has been written then.
    ///
    /// # Safety
    ///
    /// Nobody else uses the memory of the map, now or later, but by allocating it from here. The
    /// address that `phys_to_virt` returns is mapped, readable and writable for as many bytes as
    /// [`Config::metadata_size`] tells, for ever, and the bytes there are those of the physical
    /// address that it was given.
    pub unsafe fn from_map(
        map: &[(u64, u64)],
        cpus: u16,
        phys_to_virt: impl FnOnce(u64) -> *mut u8,
        platform: P,
    ) -> Result<Self, BootError> {
        let mut frames = [FrameRange::default(); PIECES];
        let pieces = whole_frames(map, &mut frames)?;
        if pieces == 0 {
            return Err(BootError::NoFrame);
        }
        let frames = &mut frames[..pieces];
        // The size for all of the map: what the metadata itself takes away can only lower it.
        let needed = Config::new(cpus, &[ZoneConfig::new(frames)])
            .metadata_size()
            .map_err(BootError::Config)?;
        let taken = (needed as u64).div_ceil(FRAME_SIZE);
        let largest = frames.iter_mut().max_by_key(|piece| piece.len());
        let Some(largest) = largest.filter(|piece| piece.len() > taken) else {
            let largest = frames.iter().map(FrameRange::len).max().unwrap_or(0) * FRAME_SIZE;
            return Err(BootError::NoMemory { needed, largest });
        };
        largest.end = Pfn::new(largest.end.get() - taken);
        let address = phys_to_virt(largest.end.get() * FRAME_SIZE);
        // SAFETY: the caller maps these bytes for ever, and they lie behind the frames that are
        // handed out, so that nobody else uses them. `MaybeUninit` may hold anything.
        let metadata =
            unsafe { core::slice::from_raw_parts_mut(address.cast::<MaybeUninit<u8>>(), needed) };
        let zones = [ZoneConfig::new(frames)];
        Self::new(&Config::new(cpus, &zones), metadata, platform).map_err(BootError::Config)
    }
}

/// Cuts the pieces of `map` to whole frames, and says how many there are.
fn whole_frames(map: &[(u64, u64)], frames: &mut [FrameRange; PIECES]) -> Result<usize, BootError> {
    let mut pieces = 0;
    for &(start, bytes) in map {
        let end = start.checked_add(bytes).ok_or(BootError::Wraps { start, bytes })?;
        let (first, end) = (start.div_ceil(FRAME_SIZE), end / FRAME_SIZE);
        if first >= end {
            continue;
        }
        if let Some(piece) = frames.get_mut(pieces) {
            *piece = FrameRange { start: Pfn::new(first), end: Pfn::new(end) };
        }
        pieces += 1;
    }
    if pieces > PIECES { Err(BootError::TooManyPieces { pieces }) } else { Ok(pieces) }
}
