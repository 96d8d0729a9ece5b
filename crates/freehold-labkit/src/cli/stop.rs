//! Ending in order when the user says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::output;

/// A flag that Ctrl-C, SIGTERM and SIGHUP set; with `again` the second of them ends the process at
/// once.
pub(super) fn on_signals(again: bool) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let handler = move || {
        // Relaxed: a flag that carries nothing.
        if flag.swap(true, Ordering::Relaxed) && again {
            std::process::exit(130);
        }
    };
    // Where there can be no handler, a signal ends the process as ever, which is no reason not to
    // begin.
    if let Err(error) = ctrlc::set_handler(handler) {
        output::complain(&format!("warning: Ctrl-C and SIGTERM will not stop cleanly: {error}"));
    }
    stop
}
