//! How hard memory is asked for: rates out of `/proc/vmstat`, and PSI.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Figures by name: a second between two looks, or per cent.
pub(crate) type Pressure = BTreeMap<&'static str, f64>;

/// What is summed up: the name of a rate, and how counters of it begin.
pub(super) const RATES: [(&str, &str); 8] = [
    ("allocstall", "allocstall"),
    ("compact_stall", "compact_stall"),
    ("compact_fail", "compact_fail"),
    ("compact_success", "compact_success"),
    ("thp_fault_alloc", "thp_fault_alloc"),
    ("thp_fallback", "thp_fault_fallback"),
    ("direct_reclaim", "pgsteal_direct"),
    ("swap_out", "pswpout"),
];

#[derive(Debug)]
pub(crate) struct Counters {
    taken: Instant,
    /// None of those that the kernel does not have.
    counts: [Option<u64>; RATES.len()],
}

impl Counters {
    /// Those of a folder like `/proc`; `None` without a vmstat.
    pub(crate) fn read(proc: &Path) -> Option<Self> {
        let text = fs::read_to_string(proc.join("vmstat")).ok()?;
        Some(Self { taken: Instant::now(), counts: counts(&text) })
    }
}

fn counts(vmstat: &str) -> [Option<u64>; RATES.len()] {
    let lines: Vec<(&str, u64)> = vmstat
        .lines()
        .filter_map(|line| line.split_once(' ').and_then(|(name, n)| Some((name, n.parse().ok()?))))
        .collect();
    RATES.map(|(_, begins)| {
        // Of every zone (`allocstall_normal`, `pgsteal_direct_normal` until 4.7), but not of what
        // only begins like it (`thp_fault_fallback_charge` counts the same faults once more).
        let is = |name: &str| {
            let is_by_zone = matches!(begins, "allocstall" | "pgsteal_direct");
            let rest = name.strip_prefix(begins);
            rest.is_some_and(|rest| rest.is_empty() || is_by_zone && rest.starts_with('_'))
        };
        let found = lines.iter().filter(|(name, _)| is(name)).map(|(_, n)| *n);
        found.reduce(|all, n| all.saturating_add(n))
    })
}

/// The rates between two looks, and PSI; empty where nothing is known.
pub(crate) fn of(proc: &Path, now: Option<&Counters>, before: Option<&Counters>) -> Pressure {
    let mut all = Pressure::new();
    if let Some((now, before)) = now.zip(before) {
        let seconds = now.taken.duration_since(before.taken).as_secs_f64().max(1e-3);
        for ((name, _), (n, was)) in RATES.iter().zip(now.counts.iter().zip(before.counts)) {
            if let Some((n, was)) = n.zip(was) {
                all.insert(name, n.saturating_sub(was) as f64 / seconds);
            }
        }
    }
    if let Ok(text) = fs::read_to_string(proc.join("pressure/memory")) {
        all.extend(psi(&text));
    }
    all
}

/// `some avg10=0.12 avg60=...`: per cent of the last 10 s.
fn psi(text: &str) -> impl Iterator<Item = (&'static str, f64)> {
    let of = |line: &'static str| {
        let found = text.lines().find_map(|text| text.strip_prefix(line))?;
        found.trim().strip_prefix("avg10=")?.split_whitespace().next()?.parse().ok()
    };
    let found = [("memory_some", of("some")), ("memory_full", of("full"))];
    found.into_iter().filter_map(|(name, value)| Some((name, value?)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rates_are_of_the_time_between_and_of_all_zones() {
        let text = |n: u64| {
            format!(
                "allocstall_dma32 {n}\nallocstall_normal 5\nthp_fault_fallback {n}\n\
                 thp_fault_fallback_charge 77\ncompact_fail 3\nnr_free_pages 9\n"
            )
        };
        let taken = Instant::now();
        let before = Counters { taken, counts: counts(&text(1)) };
        let now = Counters { taken: taken + Duration::from_secs(2), counts: counts(&text(11)) };
        let folder = tempfile::tempdir().unwrap();
        let found = of(folder.path(), Some(&now), Some(&before));
        assert_eq!((found["allocstall"], found["thp_fallback"]), (5.0, 5.0));
        assert_eq!(found["compact_fail"], 0.0);
        assert!(!found.contains_key("compact_stall"), "the kernel does not count it");
        let by_zone = counts("pgsteal_direct_normal 7\npgsteal_direct_dma32 1\n");
        assert_eq!(by_zone.iter().flatten().collect::<Vec<_>>(), [&8]);
        assert_eq!(of(folder.path(), Some(&now), None), Pressure::new(), "one look has no rate");
        fs::create_dir(folder.path().join("pressure")).unwrap();
        let psi = "some avg10=1.50 avg60=0.2 total=9\nfull avg10=0.25 avg60=0.1 total=3\n";
        fs::write(folder.path().join("pressure/memory"), psi).unwrap();
        let found = of(folder.path(), None, None);
        assert_eq!((found["memory_some"], found["memory_full"]), (1.5, 0.25));
    }
}
