//! A progress bar on standard error, for people only: none where standard error is no terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressState, ProgressStyle};

use crate::tables::number::per_second;

/// A bar of that template; hidden if `quiet` or nobody watches.
fn bar(what: &str, length: Option<u64>, template: &str, quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr_with_hz(10));
    bar.set_style(styled(template));
    bar.set_prefix(what.to_owned());
    bar
}

fn styled(template: &str) -> ProgressStyle {
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let rate = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        // A bar that cannot be written is nobody's loss.
        let _ = text.write_str(&per_second(state.per_sec()));
    };
    style.with_key("rate", rate).progress_chars("=> ")
}

/// A bar for so many steps that take about as long as each other.
pub fn turns(what: &str, length: usize, quiet: bool) -> ProgressBar {
    bar(what, Some(length as u64), "{prefix} [{bar:30}] {pos}/{len}, {eta} left, {msg}", quiet)
}

/// Progress of one pass over one trace.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for the pass `what`. `events` is how many will come, if known.
    pub fn new(what: &str, events: Option<u64>, quiet: bool) -> Self {
        let template = if events.is_some() {
            "{prefix} [{bar:30}] {human_pos}/{human_len} events, {rate}, {eta} left"
        } else {
            "{prefix} {spinner} {human_pos} events, {rate}, {msg}"
        };
        let bar = bar(what, events, template, quiet).with_finish(ProgressFinish::AndClear);
        // Below a second nothing is worth drawing; the bar appears with the first update after
        // that.
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    /// So many events are done; the reader's own progress says how far that is where their number
    /// is not known.
    pub fn update(&self, events: u64, (done, total): (u64, u64)) {
        if self.bar.is_hidden() {
            return;
        }
        if self.bar.length().is_none() && total > 0 {
            self.bar.set_message(format!("{}% read", done.min(total) * 100 / total));
        }
        if self.bar.length() == Some(events) {
            // All are read, and engines go on for a while.
            self.bar.set_style(styled("{prefix} {human_pos} events are read, engines go on"));
        }
        self.bar.set_position(events);
    }
}
