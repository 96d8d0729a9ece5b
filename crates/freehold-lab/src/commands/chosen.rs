//! Which engines a replay is of.

use super::replay_args::Common;
use crate::cli::error::CliError;
use crate::cli::input::TraceFile;
use crate::cli::{given, output};
use crate::engines::{self, EngineSpec};

/// The engines of a replay, and what there is to say of the choice once the trace has been read: a
/// file that is no trace has no kernel either.
pub struct Chosen {
    pub specs: Vec<EngineSpec>,
    note: Option<String>,
}

impl Chosen {
    pub fn say(&self) {
        self.note.iter().for_each(|note| output::complain(note));
    }
}

/// The engines that were asked for; else the kernel that recorded the trace, the baseline, and what
/// a replay compares it with.
pub fn engines_of(
    common: &Common,
    trace: &TraceFile,
    compared: &[&str],
) -> Result<Chosen, CliError> {
    if !common.engines.is_empty() {
        return Ok(Chosen { specs: given::engines(&common.engines, &[])?, note: None });
    }
    let own: Result<EngineSpec, String> = match trace.kernel() {
        None => Err(format!("{}: the trace does not say which kernel recorded it", trace.shown())),
        Some(kernel) => format!("{}.{}", kernel.major, kernel.minor).parse().map_err(|error| {
            format!("{}: the kernel that recorded it is not an engine: {error}", trace.shown())
        }),
    };
    let newest = engines::NEWEST;
    let note = own
        .as_ref()
        .err()
        .map(|why| format!("{why}; {newest} is the baseline (--kernel VERSION names the kernel)"));
    let own = own.map_or(newest.to_owned(), |spec| spec.name().to_owned());
    let all: Vec<&str> = std::iter::once(own.as_str()).chain(compared.iter().copied()).collect();
    Ok(Chosen { specs: given::engines(&[], &all)?, note })
}
