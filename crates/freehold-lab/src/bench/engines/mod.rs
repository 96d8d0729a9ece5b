//! The engines that can be measured, each behind [`super::calls`].

mod buddy_system;
mod classic;
mod freehold;
mod ring_alone;
mod stamped;

pub use self::freehold::{FreeholdCpu, FreeholdMachine, HostThreads, InitialThread};
pub use buddy_system::{BuddySystem, BuddySystemCpu};
pub use classic::{ClassicCpu, ClassicMachine};
pub use ring_alone::{RingAlone, RingAloneCpu};
pub use stamped::{Stamped, StampedCpu};

use std::fmt;
use std::str::FromStr;

use crate::engines::{EngineError, EngineSpec};

/// The flagship's name.
pub const FREEHOLD: &str = "freehold";
/// The peer's name.
pub const BUDDY_SYSTEM: &str = "buddy_system_allocator";

/// An engine as the user names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BenchEngine {
    /// `freehold`.
    Freehold,
    /// `buddy_system_allocator`.
    BuddySystem,
    /// A kernel's design, with changes switched on or off.
    Classic(EngineSpec),
}

impl BenchEngine {
    /// The name as written.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Freehold => FREEHOLD,
            Self::BuddySystem => BUDDY_SYSTEM,
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
        match text {
            FREEHOLD => Ok(Self::Freehold),
            BUDDY_SYSTEM => Ok(Self::BuddySystem),
            _ => text.parse().map(Self::Classic).map_err(|error| match error {
                EngineError::UnknownEngine { name, suggestion: None } => {
                    let known = [FREEHOLD, BUDDY_SYSTEM].into_iter();
                    let near = known.max_by(|a, b| strsim::jaro(&name, a).total_cmp(&strsim::jaro(&name, b)));
                    let suggestion = near.filter(|near| strsim::jaro(&name, near) > 0.7).map(str::to_owned);
                    EngineError::UnknownEngine { name, suggestion }
                }
                other => other,
            }),
        }
    }
}
