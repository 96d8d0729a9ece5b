//! What can be named after `--engine`: an engine, or a bound to put beside the engines.

use std::str::FromStr;

use super::bound::{Bound, Bounding};
use crate::engines::{EngineError, EngineSpec, MachineConfig};
use crate::trials::simulated::{Simulated, with_simulated};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GridEngine {
    /// Freehold, or a kernel's design with its changes.
    Design(EngineSpec),
    Bound(Bound),
}

impl GridEngine {
    pub fn name(&self) -> &str {
        match self {
            Self::Design(spec) => spec.name(),
            Self::Bound(bound) => bound.name(),
        }
    }

    pub(super) fn guesses(&self) -> Option<&'static str> {
        match self {
            Self::Design(_) => None,
            Self::Bound(bound) => bound.guesses(),
        }
    }

    /// Builds it and lends it.
    pub(super) fn with<R>(
        &self,
        machine: &MachineConfig,
        run: impl FnOnce(&dyn Simulated) -> R,
    ) -> Result<R, EngineError> {
        match self {
            Self::Design(spec) => with_simulated(spec, machine, run),
            Self::Bound(bound) => Ok(run(&Bounding::new(*bound, machine))),
        }
    }
}

impl std::fmt::Display for GridEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for GridEngine {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, EngineError> {
        let design = || text.parse().map(Self::Design);
        text.parse().map(Self::Bound).or_else(|_| design())
    }
}
