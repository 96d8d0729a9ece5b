//! When the periodic work of a CPU's page lists ran: a file beside a trace.
//!
//! About once a second the kernel's `vmstat_update` lowers the mark of a CPU's lists by an eighth
//! and drains what is above it. Nothing in the events of memory says when: its timer does not wake
//! an idle CPU, so that it comes late or not at all there, and sometimes twice. The file says it, a
//! line for each time:
//!
//! ```text
//! # ns of the trace's clock, CPU
//! 66878072050000 1
//! 66878072051000 0
//! ```

use freehold::CpuId;

use crate::StateError;
use crate::line::prefix;

/// The file's kind: `NAME.ticks.txt` lies beside `NAME.parquet`.
pub const KIND: &str = "ticks";
/// The first line.
const HEAD: &str = "# ns of the trace's clock, CPU\n";

/// The periodic work ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tick {
    /// When, on the trace's clock.
    pub ts_ns: u64,
    /// On which CPU.
    pub cpu: CpuId,
}

/// Reads such a file.
///
/// # Errors
///
/// [`StateError::BadLine`].
pub fn parse(text: &str) -> Result<Vec<Tick>, StateError> {
    let mut ticks: Vec<Tick> = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#')) {
        let bad = |why: String| StateError::bad_line(KIND, number, why);
        let words =
            line.split_once(' ').and_then(|(ts, cpu)| Some((ts.parse().ok()?, cpu.parse().ok()?)));
        let (ts_ns, cpu) = words.ok_or_else(|| bad(format!("'{line}' is not a time and CPU")))?;
        if ticks.last().is_some_and(|last| last.ts_ns > ts_ns) {
            return Err(bad(format!("{ts_ns} is before the line above it")));
        }
        ticks.push(Tick { ts_ns, cpu: CpuId::new(cpu) });
    }
    Ok(ticks)
}

/// Writes such a file.
#[must_use]
pub fn written(ticks: &[Tick]) -> String {
    let lines = ticks.iter().map(|tick| format!("{} {}\n", tick.ts_ns, tick.cpu.get()));
    std::iter::once(HEAD.to_owned()).chain(lines).collect()
}

/// What runs then.
pub(crate) const FUNCTION: &str = "vmstat_update";

/// The tick that a line of tracefs' text is.
pub(crate) fn in_line(line: &[u8]) -> Option<Tick> {
    let found = prefix(line).ok().filter(|found| found.event == b"workqueue_execute_start")?;
    let (_, function) = std::str::from_utf8(found.fields).ok()?.rsplit_once(' ')?;
    (function == FUNCTION).then_some(Tick { ts_ns: found.ts_ns, cpu: found.cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "     kworker/0:0-32365   [000] ..... 66878.072049: workqueue_execute_start: work struct 000000001ea3a331: function vmstat_update
              dd-200     [000] ..... 66878.100000: mm_page_free: page=0x1 pfn=0x1 order=0
     kworker/1:0-19581   [001] ..... 66878.072050: workqueue_execute_start: work struct 000000001c827567: function vmstat_update
     kworker/0:0-32365   [000] ..... 66879.072049: workqueue_execute_start: work struct 000000001ea3a331: function vmstat_shepherd
";

    #[test]
    fn ticks_are_found_among_other_events_and_come_back_as_written() {
        let ticks: Vec<Tick> = TEXT.lines().filter_map(|line| in_line(line.as_bytes())).collect();
        let tick = |ts_ns, cpu| Tick { ts_ns, cpu: CpuId::new(cpu) };
        assert_eq!(ticks, [tick(66_878_072_049_000, 0), tick(66_878_072_050_000, 1)]);
        assert_eq!(parse(&written(&ticks)).unwrap(), ticks);
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn a_bad_line_says_where() {
        for (text, line) in [("1 0\nx\n", 2), ("1\n", 1), ("5 0\n4 0\n", 2), ("1 99999\n", 1)] {
            let Err(StateError::BadLine { line: at, .. }) = parse(text) else { panic!("{text}") };
            assert_eq!(at, line, "{text}");
        }
    }
}
