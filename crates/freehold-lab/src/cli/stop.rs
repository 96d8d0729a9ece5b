//! Ending in order when the user says so.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::output;

/// What a shell reports of a program that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// A flag that Ctrl-C, SIGTERM and SIGHUP set; with `again` the second of them ends the process at
/// once.
pub fn on_signals(again: bool) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Handlers run in the order in which they are registered: the first signal finds the flag
        // unset.
        let ends = if again {
            flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop)).err()
        } else {
            None
        };
        // Where there can be no handler, a signal ends the process as ever, which is no reason not
        // to begin.
        if let Some(error) = ends.or(flag::register(signal, Arc::clone(&stop)).err()) {
            output::complain(&format!(
                "warning: Ctrl-C and SIGTERM will not stop cleanly: {error}"
            ));
            break;
        }
    }
    stop
}
