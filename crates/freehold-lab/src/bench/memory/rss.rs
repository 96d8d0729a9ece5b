//! How much memory this process has, as the kernel counts it.

use std::fs;

/// Bytes in memory. Exact: the kernel walks the page tables for it, which takes time in proportion
/// to what is there.
pub(super) fn resident() -> Result<u64, String> {
    // Where the kernel is older than 4.14 there is only the estimate.
    let exact = field("/proc/self/smaps_rollup", "Rss:");
    exact.or_else(|_| field("/proc/self/status", "VmRSS:"))
}

/// From now on the most that was there at once is counted anew.
pub(super) fn forget_peak() -> Result<(), String> {
    fs::write("/proc/self/clear_refs", "5")
        .map_err(|error| format!("/proc/self/clear_refs: {error}"))
}

/// The most bytes that were there at once since [`forget_peak`].
pub(super) fn peak() -> Result<u64, String> {
    field("/proc/self/status", "VmHWM:")
}

fn field(path: &str, name: &str) -> Result<u64, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next());
    let kib: Option<u64> = kib.and_then(|kib| kib.parse().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| format!("{path} has no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_touched_is_counted_and_the_peak_remembers_it() {
        const BYTES: usize = 64 << 20;
        let before = resident().unwrap();
        let memory = crate::bench::mapping::Mapping::new(BYTES).unwrap();
        memory.touch(BYTES);
        let touched = resident().unwrap();
        assert!(touched >= before + (BYTES as u64 * 9 / 10), "{before} {touched}");
        drop(memory);
        if let Err(why) = forget_peak() {
            let _ = std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("SKIPPED the peak: {why}\n"),
            );
            return;
        }
        // Other tests run in this process.
        let memory = crate::bench::mapping::Mapping::new(BYTES).unwrap();
        memory.touch(BYTES);
        drop(memory);
        assert!(peak().unwrap() >= BYTES as u64);
    }
}
