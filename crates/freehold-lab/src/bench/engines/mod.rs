//! The engines that can be measured, each behind [`super::calls`].

mod buddy_system;
mod classic;
mod freehold;
// `dealloc` is unsafe to call.
#[cfg(any(test, feature = "peers"))]
#[allow(unsafe_code)]
mod heap;
// LLFree, which is C.
#[cfg(feature = "llfree")]
#[allow(unsafe_code)]
mod llfree;
mod peer;

pub use self::freehold::{ByDoor, FreeholdCpu, FreeholdMachine, OnCpu};
pub use crate::trials::threads::{HostThreads, InitialThread};
pub use buddy_system::BuddySystem;
pub use classic::{ClassicCpu, ClassicMachine};
#[cfg(any(test, feature = "peers"))]
pub use heap::HeapMachine;
#[cfg(feature = "llfree")]
pub use llfree::{LlfreeCpu, LlfreeMachine};
pub use peer::Peer;

use std::str::FromStr;

pub use crate::engines::FREEHOLD;
use crate::engines::{EngineError, EngineSpec};
use crate::nearest::nearest;

/// An engine as the user names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BenchEngine {
    Peer(Peer),
    /// Freehold, or a kernel's design; with options and changes.
    Design(EngineSpec),
}

impl BenchEngine {
    pub fn name(&self) -> &str {
        match self {
            Self::Peer(peer) => peer.name(),
            Self::Design(spec) => spec.name(),
        }
    }
}

impl FromStr for BenchEngine {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let design = || text.parse().map(Self::Design);
        text.parse().map(Self::Peer).or_else(|_| design()).map_err(|error| match error {
            // The name of a peer, where no design is like it.
            EngineError::UnknownEngine { name, suggestion: None } => {
                let suggestion = nearest(&name, Peer::ALL.map(Peer::name)).map(str::to_owned);
                EngineError::UnknownEngine { name, suggestion }
            }
            other => other,
        })
    }
}
