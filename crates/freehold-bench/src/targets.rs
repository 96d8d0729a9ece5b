//! What Freehold is to reach, and whether it did in this run.

use super::engines::{FREEHOLD, Peer};
use super::result::{Report, Row};

/// A row is called slower with contiguous freeing on where the median of its ratios is below this:
/// single pages, which have nothing contiguous, take the same path either way, and their ratios
/// scatter by a few per cent around 1.
const SLOWER: f64 = 0.97;

/// What is to be reached.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Goal {
    /// At most so many atomic read-modify-writes of the same run.
    Rmw(f64),
    /// At least so many times faster than that engine in the same run.
    TimesPeer(Peer, f64),
    /// At least so many times, of a metric that is a ratio.
    Times(f64),
    /// No metric of the benchmark that ends so is less than [`SLOWER`].
    NoneSlower(&'static str),
    Is(f64),
    /// At most, in the metric's own unit.
    AtMost(f64),
}

struct Target {
    work: &'static str,
    benchmark: &'static str,
    metric: &'static str,
    goal: Goal,
}

const fn target(
    work: &'static str,
    benchmark: &'static str,
    metric: &'static str,
    goal: Goal,
) -> Target {
    Target { work, benchmark, metric, goal }
}

/// A pair of order 0 to 9, beside mimalloc's for the same size.
const fn pair(work: &'static str, metric: &'static str, times: f64) -> Target {
    target(work, "orders", metric, Goal::TimesPeer(Peer::Mimalloc, times))
}

const TARGETS: [Target; 38] = [
    pair("a pair of order 0", "ns_per_pair_order0", 5.0),
    pair("  order 1", "ns_per_pair_order1", 2.0),
    pair("  order 2", "ns_per_pair_order2", 2.0),
    pair("  order 3", "ns_per_pair_order3", 2.0),
    pair("  order 4", "ns_per_pair_order4", 2.0),
    pair("  order 5", "ns_per_pair_order5", 2.0),
    pair("  order 6", "ns_per_pair_order6", 2.0),
    pair("  order 7", "ns_per_pair_order7", 2.0),
    pair("  order 8", "ns_per_pair_order8", 2.0),
    pair("  order 9", "ns_per_pair_order9", 20.0),
    target(
        "  order 0, owned, no heavy barrier",
        "doors",
        "ns_per_pair_owned_no_barrier",
        Goal::Rmw(2.5),
    ),
    target("  order 0, by a call that names its CPU", "doors", "ns_per_pair_on", Goal::Rmw(2.5)),
    target(
        "producer to consumer, a frame",
        "producer-consumer",
        "ns_per_frame",
        Goal::TimesPeer(Peer::BuddySystem, 8.0),
    ),
    target(
        "orders 0 to 9, 90 % held: failures of 1,000",
        "mixed",
        "failures_per_1000_90",
        Goal::AtMost(0.7),
    ),
    target("made for 1 TiB, ms", "start-up", "ms_per_tib", Goal::AtMost(10.0)),
    target("  for 64 TiB, ms", "start-up", "ms_64_tib", Goal::AtMost(100.0)),
    target(
        "vmalloc: contiguous free on, 512 pages",
        "vmalloc",
        "fix_size_alloc_test_p512_h0_contig_free_speedup",
        Goal::Times(4.0),
    ),
    target(
        "  huge",
        "vmalloc",
        "fix_size_alloc_test_p512_h1_contig_free_speedup",
        Goal::Times(4.0),
    ),
    target("  every row", "vmalloc", "", Goal::NoneSlower("_contig_free_speedup")),
    target(
        "lazyfree: batched beside page by page",
        "lazyfree",
        "batched_speedup",
        Goal::Times(4.0),
    ),
    target(
        "  beside page by page, flushes collected",
        "lazyfree",
        "batched_speedup_over_deferred",
        Goal::Times(2.4),
    ),
    target(
        "  with a second thread",
        "lazyfree",
        "batched_speedup_second_thread",
        Goal::Times(12.0),
    ),
    target(
        "  deferred splits page by page",
        "lazyfree",
        "deferred_splits_page_by_page",
        Goal::Is(2048.0),
    ),
    target("  deferred splits batched", "lazyfree", "deferred_splits_batched", Goal::Is(0.0)),
    target("  system calls a folio", "lazyfree", "syscalls_per_folio_batched", Goal::AtMost(0.1)),
    target("giving 1 GiB back", "give-back", "ratio_to_one_madvise", Goal::AtMost(1.2)),
    target("  in huge pages", "give-back", "ratio_to_one_madvise_huge", Goal::AtMost(1.2)),
    target("an arena's frames, 4 KiB, ns", "arena", "ns_per_pair_4k", Goal::AtMost(8.0)),
    target("  64 KiB, ns", "arena", "ns_per_pair_64k", Goal::AtMost(10.0)),
    target("  2 MiB, ns", "arena", "ns_per_pair_2m", Goal::AtMost(8.0)),
    target(
        "  a GiB purged, 1 frame in 1,000 kept, MiB",
        "arena",
        "mib_after_purge_4k",
        Goal::AtMost(20.0),
    ),
    target(
        "  1 in 64 pieces of 64 KiB kept, MiB",
        "arena",
        "mib_after_purge_64k",
        Goal::AtMost(20.0),
    ),
    target("  an empty arena of 1 TiB, KiB", "arena", "kib_empty_1t", Goal::AtMost(1024.0)),
    target("  made in, ms", "arena", "ms_empty_1t", Goal::AtMost(5.0)),
    target("  an empty arena of 16 TiB, KiB", "arena", "kib_empty_16t", Goal::AtMost(1024.0)),
    target("  made in, ms", "arena", "ms_empty_16t", Goal::AtMost(5.0)),
    target(
        "  a buffer doubled to 512 MiB, peak, MiB",
        "arena",
        "mib_peak_doubled",
        Goal::AtMost(520.0),
    ),
    target("  in huge pages, ms", "arena", "ms_doubled_huge", Goal::AtMost(30.0)),
];

pub struct Verdict {
    pub work: &'static str,
    /// What is to be reached.
    pub target: String,
    /// `None` where it was not measured.
    pub found: Option<Found>,
}

pub struct Found {
    pub median: String,
    /// The same of the best run, which a busy machine disturbs least.
    pub best: String,
    /// Whether the median reached it.
    pub met: bool,
}

pub fn verdicts(report: &Report) -> Vec<Verdict> {
    TARGETS.iter().map(|target| verdict(target, report)).collect()
}

fn verdict(goal: &Target, report: &Report) -> Verdict {
    let row = report.row(goal.benchmark, goal.metric, FREEHOLD);
    // Of a metric as it is: by its median, and the least or the greatest run.
    let plain = |text: fn(f64) -> String, best: fn(&Row) -> f64, met: &dyn Fn(&Row) -> bool| {
        row.map(|row| Found { median: text(row.median), best: text(best(row)), met: met(row) })
    };
    let times = |times: f64| format!("{times:.1} times");
    let (target, found) = match goal.goal {
        Goal::Rmw(most) => {
            (format!("at most {most} RMW"), row.and_then(|row| of_rmw(report, row, most)))
        }
        Goal::TimesPeer(peer, least) => {
            let peer = peer.name();
            let found =
                row.zip(report.row(goal.benchmark, goal.metric, peer)).map(|(row, peer)| {
                    let faster = peer.median / row.median;
                    Found {
                        median: times(faster),
                        best: times(peer.min / row.min),
                        met: faster >= least,
                    }
                });
            (format!("at least {least} times {peer}'s speed"), found)
        }
        Goal::Times(least) => (
            format!("at least {least} times faster"),
            plain(times, |row| row.max, &|row| row.median >= least),
        ),
        Goal::NoneSlower(suffix) => {
            let ours = |row: &&Row| row.benchmark == goal.benchmark && row.engine == FREEHOLD;
            let rows = report.rows.iter().filter(ours).filter(|row| row.metric.ends_with(suffix));
            let least = rows.min_by(|a, b| a.median.total_cmp(&b.median));
            let text = |row: &Row, times: f64| {
                format!("{times:.2} times: {}", row.metric.trim_end_matches(suffix))
            };
            let found = least.map(|row| Found {
                median: text(row, row.median),
                best: text(row, row.max),
                met: row.median >= SLOWER,
            });
            (format!("none slower (by more than {:.0} %)", (1.0 - SLOWER) * 100.0), found)
        }
        Goal::Is(exactly) => {
            let met = |row: &Row| row.min == exactly && row.max == exactly;
            (format!("{exactly:.0}"), plain(|n| format!("{n:.0}"), |row| row.min, &met))
        }
        Goal::AtMost(most) => (
            format!("at most {most}"),
            plain(|n| format!("{n:.3}"), |row| row.min, &|row| row.median <= most),
        ),
    };
    Verdict { work: goal.work, target, found }
}

fn of_rmw(report: &Report, row: &Row, most: f64) -> Option<Found> {
    let (median, min) = (report.yardstick.rmw.median()?, report.yardstick.rmw.min()?);
    let text = |rmw: f64, ns: f64| format!("{rmw:.2} RMW ({ns:.2} ns)");
    let best = text(row.min / min, row.min);
    Some(Found {
        median: text(row.median / median, row.median),
        best,
        met: row.median / median <= most,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;
    use freehold_labkit::better::Better;

    fn row(engine: &str, benchmark: &'static str, metric: &'static str, median: f64) -> Row {
        Row {
            benchmark,
            engine: engine.to_owned(),
            metric,
            unit: "",
            median,
            min: median,
            max: median,
            values: Vec::new(),
            runs: 1,
            exact: false,
            samples_shared: None,
            better: Better::Less,
            comparison: None,
            histogram: None,
        }
    }

    fn met(report: &Report, work: &str) -> Option<Option<bool>> {
        verdicts(report)
            .into_iter()
            .find(|verdict| verdict.work.contains(work))
            .map(|verdict| verdict.found.map(|found| found.met))
    }

    #[test]
    fn every_target_names_a_metric() {
        for target in &TARGETS {
            let names = |is: &dyn Fn(&str) -> bool| {
                let own = Kind::ALL.iter().filter(|kind| kind.name() == target.benchmark);
                own.flat_map(|kind| kind.about().metrics).any(|known| is(known.name))
            };
            let named = |metric: &'static str| names(&|known| known == metric);
            let known = match target.goal {
                Goal::NoneSlower(suffix) => names(&|known| known.ends_with(suffix)),
                _ => named(target.metric),
            };
            assert!(known, "{}", target.work);
        }
    }

    #[test]
    fn figures_are_compared_within_their_run() {
        let mut report = Report::default();
        report.yardstick.rmw.add(4.0);
        report.rows.push(row(FREEHOLD, "doors", "ns_per_pair_owned_no_barrier", 10.0));
        report.rows.push(row(FREEHOLD, "doors", "ns_per_pair_on", 10.1));
        report.rows.push(row(FREEHOLD, "orders", "ns_per_pair_order9", 10.0));
        report.rows.push(row(Peer::Mimalloc.name(), "orders", "ns_per_pair_order9", 200.0));
        report.rows.push(row(FREEHOLD, "orders", "ns_per_pair_order7", 10.0));
        report.rows.push(row(Peer::Mimalloc.name(), "orders", "ns_per_pair_order7", 19.9));
        report.rows.push(row(FREEHOLD, "orders", "ns_per_pair_order3", 1.0));
        assert_eq!(met(&report, "no heavy barrier"), Some(Some(true)));
        assert_eq!(met(&report, "names its CPU"), Some(Some(false)));
        assert_eq!(met(&report, "order 9"), Some(Some(true)));
        assert_eq!(met(&report, "order 7"), Some(Some(false)));
        assert_eq!(met(&report, "order 3"), Some(None), "the peer was not measured");
    }

    #[test]
    fn one_slow_row_is_enough() {
        let mut report = Report::default();
        report.rows.push(row(
            FREEHOLD,
            "vmalloc",
            "fix_size_alloc_test_p512_h0_contig_free_speedup",
            8.0,
        ));
        assert_eq!(met(&report, "every row"), Some(Some(true)));
        report.rows.push(row(
            FREEHOLD,
            "vmalloc",
            "vm_map_ram_test_p1_h0_contig_free_speedup",
            0.9,
        ));
        assert_eq!(
            (met(&report, "every row"), met(&report, "512 pages")),
            (Some(Some(false)), Some(Some(true)))
        );
        assert_eq!(met(&report, "system calls"), Some(None), "not measured");
    }
}
