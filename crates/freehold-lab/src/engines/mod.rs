//! The engines a command line can name, and how a name becomes an engine.
//!
//! A name is a preset or a kernel's version and, after commas, single changes switched on or off:
//! `pcp-buddy-fixed,-merge`, `6.12,+contig-free`; `freehold` has no switches.

mod classic;
mod freehold;
mod machine;
mod platform;

pub use self::classic::{ClassicEngine, config as classic_config};
pub use self::freehold::{
    FreeholdEngine, NAME as FREEHOLD, leaked as leaked_freehold, own_all,
    with_config as with_freehold_config,
};
pub use self::platform::{Barriers, Counting};
pub use machine::{ListFill, MachineConfig, RecordedZone, ZONE};

use std::fmt;
use std::str::FromStr;

use freehold_classic::{Design, DesignError};
use freehold_trace::kernel::Kernel;
use serde::Serialize;

use crate::engine::Engine;
use crate::nearest::{did_you_mean, nearest};

/// The baseline of a replay whose recording kernel is not known, or is no engine.
pub const NEWEST: &str = "vanilla";

/// The engines that a replay compares with the kernel that recorded the trace, unless told
/// otherwise.
pub const COMPARED: [&str; 4] = [NEWEST, "pcp-buddy", "pcp-buddy-fixed", "freehold"];

/// A design that can be named, or a change that can be switched on or off in one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Entry {
    /// What to write on the command line.
    pub name: String,
    pub summary: String,
    /// The proposal, kernel version or paper it comes from.
    pub source: String,
}

/// Everything that can be named.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Catalogue {
    pub presets: Vec<Entry>,
    pub switches: Vec<Entry>,
    /// The oldest and the newest release of Linux; every one between them is an engine, too.
    pub kernels: [String; 2],
}

/// What can be named: the one list that parsing, suggestions and `freehold engines` use.
pub fn catalogue() -> Catalogue {
    let mut catalogue = classic::catalogue();
    catalogue.presets.push(freehold::entry());
    catalogue
}

/// An engine as the user names it: checked, not yet built.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EngineSpec {
    text: String,
}

impl EngineSpec {
    pub fn name(&self) -> &str {
        &self.text
    }

    /// Why the engine cannot be built.
    pub fn unbuildable(&self, reason: String) -> EngineError {
        EngineError::Unbuildable { name: self.text.clone(), reason }
    }
}

impl fmt::Display for EngineSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a name is no engine, or an engine cannot be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No preset has that name.
    #[error("there is no engine '{name}'{}{LISTED}", did_you_mean(.suggestion.as_deref()))]
    UnknownEngine {
        name: String,
        /// The most similar one there is, if any is similar.
        suggestion: Option<String>,
    },
    /// A version of Linux or a switch that there is not, or a switch without a sign; in words.
    #[error("{0}{LISTED}")]
    NoDesign(String),
    /// The machine does not suit the engine, or the switches do not go together.
    #[error("engine '{name}' cannot be built: {reason}")]
    Unbuildable { name: String, reason: String },
}

const LISTED: &str = " ('freehold engines' lists them all)";

impl FromStr for EngineSpec {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // What `uname -r` prints, 6.18.2-4-amd64, is the engine 6.18; commas are behind it.
        let (name, rest) = text.split_at(text.find(',').unwrap_or(text.len()));
        // 5.17+2 is no release: some engines have names that look like one.
        let is_release = name.starts_with(|c: char| c.is_ascii_digit())
            && !catalogue().presets.iter().any(|preset| preset.name == name);
        let release = is_release.then(|| Kernel::parse(name)).flatten();
        let release = release.map(|kernel| format!("{}.{}{rest}", kernel.major, kernel.minor));
        let text = release.as_deref().unwrap_or(text);
        let named = || Self { text: text.to_owned() };
        if text == FREEHOLD {
            return Ok(named());
        }
        if let Some((freehold::NAME, option)) = text.split_once(',') {
            let none = format!("freehold has no switch '{option}', nor any other");
            return Err(EngineError::NoDesign(none));
        }
        Design::parse(text).map(|_| named()).map_err(|error| match error {
            DesignError::UnknownPreset(name) => {
                let suggestion = similar(&name, &catalogue().presets);
                EngineError::UnknownEngine { name, suggestion }
            }
            DesignError::UnknownSwitch(name) => {
                let suggestion = similar(&name, &catalogue().switches);
                let else_named = did_you_mean(suggestion.as_deref());
                EngineError::NoDesign(format!("there is no switch '{name}'{else_named}"))
            }
            DesignError::NoSign(part) => EngineError::NoDesign(format!(
                "write '+{part}' to switch it on or '-{part}' to switch it off"
            )),
            other => EngineError::NoDesign(other.to_string()),
        })
    }
}

/// Builds an engine that one thread calls.
///
/// # Errors
///
/// [`EngineError::Unbuildable`] where the machine does not suit it or its switches do not go
/// together.
pub fn build(spec: &EngineSpec, machine: &MachineConfig) -> Result<Box<dyn Engine>, EngineError> {
    let built = match spec.name() {
        FREEHOLD => freehold::build(machine),
        _ => ClassicEngine::new(spec.name(), machine)
            .map(|engine| Box::new(engine) as Box<dyn Engine>),
    };
    built.map_err(|reason| spec.unbuildable(reason))
}

/// The name of an entry that is most like `name`, unless none is much like it.
fn similar(name: &str, entries: &[Entry]) -> Option<String> {
    nearest(name, entries.iter().map(|entry| entry.name.as_str())).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 5.17+2 is one of them: as a release it would be 5.17.
    #[test]
    fn every_engine_that_is_listed_is_had_by_its_name() {
        for preset in catalogue().presets {
            let spec: EngineSpec = preset.name.parse().expect("a listed engine");
            assert_eq!(spec.name(), preset.name);
        }
    }

    /// A lowest zone keeps more than it has from those that a higher one could serve.
    #[test]
    fn what_is_kept_leaves_something() {
        let zone = |managed| {
            let protection = vec![0, 3019, 13_259];
            machine::RecordedZone { managed, protection, ..Default::default() }
        };
        let kept = [3840, 500_000].map(|managed| machine::lowmem_reserve(&zone(managed)));
        assert_eq!(kept, [0, 13_259]);
    }
}
