//! The engines that can be measured, each behind [`super::calls`].

#[cfg(feature = "peers")]
mod bitmap;
mod buddy_system;
mod classic;
mod freehold;
// `dealloc` and `munmap` are unsafe to call.
#[cfg(any(test, feature = "peers"))]
#[allow(unsafe_code)]
mod heap;
#[allow(unsafe_code)]
mod mmap;
mod peer;
mod ring_alone;
mod stamped;

pub use self::freehold::{ByDoor, FreeholdCpu, FreeholdMachine, InitialThread, OnCpu};
pub use crate::engines::HostThreads;
#[cfg(feature = "peers")]
pub use bitmap::{BitmapCpu, BitmapMachine};
pub use buddy_system::{BuddySystem, BuddySystemCpu};
pub use classic::{ClassicCpu, ClassicMachine};
#[cfg(any(test, feature = "peers"))]
pub use heap::{HeapCpu, HeapMachine};
pub use mmap::{MmapCpu, MmapMachine};
pub use peer::Peer;
pub use ring_alone::{RingAlone, RingAloneCpu};
pub use stamped::{Stamped, StampedCpu};

use std::fmt;
use std::str::FromStr;

use crate::engines::{EngineError, EngineSpec};
use crate::nearest::nearest;

pub const FREEHOLD: &str = "freehold";
pub const BUDDY_SYSTEM: &str = "buddy_system_allocator";
pub const MMAP: &str = "mmap";

/// An engine as the user names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BenchEngine {
    Freehold,
    BuddySystem,
    Mmap,
    /// A peer that needs a feature of this crate.
    Peer(Peer),
    /// A kernel's design, with changes switched on or off; or Freehold with options.
    Classic(EngineSpec),
}

impl BenchEngine {
    pub fn name(&self) -> &str {
        match self {
            Self::Freehold => FREEHOLD,
            Self::BuddySystem => BUDDY_SYSTEM,
            Self::Mmap => MMAP,
            Self::Peer(peer) => peer.name(),
            Self::Classic(spec) => spec.name(),
        }
    }
}

impl fmt::Display for BenchEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BenchEngine {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = match text {
            FREEHOLD => Some(Self::Freehold),
            BUDDY_SYSTEM => Some(Self::BuddySystem),
            MMAP => Some(Self::Mmap),
            _ => text.parse().ok().map(Self::Peer),
        };
        known.map_or_else(|| text.parse().map(Self::Classic).map_err(suggest), Ok)
    }
}

/// The name of another kind of engine, where no design is like it.
fn suggest(error: EngineError) -> EngineError {
    match error {
        EngineError::UnknownEngine { name, suggestion: None } => {
            let known = [FREEHOLD, BUDDY_SYSTEM, MMAP].into_iter().chain(Peer::ALL.map(Peer::name));
            let suggestion = nearest(&name, known).map(str::to_owned);
            EngineError::UnknownEngine { name, suggestion }
        }
        other => other,
    }
}
