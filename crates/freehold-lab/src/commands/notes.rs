//! What standard error says of a trace and of its replay, where something is not as it should be.

use crate::cli::output::{complain, error};
use crate::replay::{Oddities, Replay, Survey};
use crate::tables::thousands;

/// What is not as it should be in a trace.
pub(super) fn of_trace(name: &str, survey: &Survey) {
    let Oddities { skipped, first_skipped, long_gaps, first_long_gap, notes, .. } =
        &survey.oddities;
    notes.iter().for_each(|note| complain(&format!("warning: {name}: {note}")));
    if *skipped > 0 {
        let first =
            first_skipped.as_ref().map(|first| format!(", the first: {first}")).unwrap_or_default();
        complain(&format!("warning: {name}: {skipped} malformed rows or lines skipped{first}"));
    }
    if let Some(first) = first_long_gap {
        let gaps = thousands(*long_gaps);
        complain(&format!(
            "warning: {name}: {gaps} gaps are longer than an hour, the first at {first}: what \
             depends on time (samples, the periodic work) is wrong from there on"
        ));
    }
}

/// What went wrong in engines.
pub(super) fn of_engines(name: &str, replay: &Replay) {
    for engine in &replay.engines {
        if !engine.whole {
            error(format_args!(
                "{name}: engine {} lost frames or failed its checks",
                engine.engine
            ));
            engine.errors.iter().for_each(|finding| complain(&format!("  {finding}")));
        }
        if engine.set_up_failed > 0 {
            let (engine, failed) = (&engine.engine, thousands(engine.set_up_failed));
            complain(&format!(
                "warning: {name}: engine {engine} had no memory for {failed} of the allocations \
                 made before the recording \
                 began: this machine is too small for the trace, and the figures are of other work"
            ));
        }
    }
}
