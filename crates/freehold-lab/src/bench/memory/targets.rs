//! What these benchmarks are to reach, and whether they did in this run.

use super::FREEHOLD;
use crate::bench::result::{Report, Row};
use crate::bench::targets::{Target, Verdict, target};

/// A row is called slower with contiguous freeing on where the median of its ratios is below this: single pages, which
/// have nothing contiguous, take the same path either way, and their ratios scatter by a few per cent around 1.
const SLOWER: f64 = 0.97;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Goal {
    /// At least so many times.
    Times(f64),
    /// No metric of the benchmark that ends so is less than [`SLOWER`].
    NoneSlower(&'static str),
    /// Exactly.
    Is(f64),
    /// At most, or below.
    AtMost(f64),
}

const TARGETS: &[Target<Goal>] = &[
    target("vmalloc: contiguous free on, 512 pages", "vmalloc", "fix_size_alloc_test_p512_h0_contig_free_speedup", {
        Goal::Times(4.0)
    }),
    target("  huge", "vmalloc", "fix_size_alloc_test_p512_h1_contig_free_speedup", Goal::Times(4.0)),
    target("  every row", "vmalloc", "", Goal::NoneSlower("_contig_free_speedup")),
    target("lazyfree: batched beside page by page", "lazyfree", "batched_speedup", Goal::Times(4.0)),
    target("  beside page by page, flushes collected", "lazyfree", "batched_speedup_over_deferred", Goal::Times(2.4)),
    target("  with a second thread", "lazyfree", "batched_speedup_second_thread", Goal::Times(12.0)),
    target("  deferred splits page by page", "lazyfree", "deferred_splits_page_by_page", Goal::Is(2048.0)),
    target("  deferred splits batched", "lazyfree", "deferred_splits_batched", Goal::Is(0.0)),
    target("  system calls a folio", "lazyfree", "syscalls_per_folio_batched", Goal::AtMost(0.1)),
    target("giving 1 GiB back", "give-back", "ratio_to_one_madvise", Goal::AtMost(1.2)),
    target("  in huge pages", "give-back", "ratio_to_one_madvise_huge", Goal::AtMost(1.2)),
    target("an arena's frames, 4 KiB, ns", "arena", "ns_per_pair_4k", Goal::AtMost(8.0)),
    target("  64 KiB, ns", "arena", "ns_per_pair_64k", Goal::AtMost(10.0)),
    target("  2 MiB, ns", "arena", "ns_per_pair_2m", Goal::AtMost(8.0)),
    target("  a GiB purged, 1 frame in 1,000 kept, MiB", "arena", "mib_after_purge_4k", Goal::AtMost(20.0)),
    target("  1 in 64 pieces of 64 KiB kept, MiB", "arena", "mib_after_purge_64k", Goal::AtMost(20.0)),
    target("  an empty arena of 1 TiB, KiB", "arena", "kib_empty_1t", Goal::AtMost(1024.0)),
    target("  made in, ms", "arena", "ms_empty_1t", Goal::AtMost(5.0)),
    target("  an empty arena of 16 TiB, KiB", "arena", "kib_empty_16t", Goal::AtMost(1024.0)),
    target("  made in, ms", "arena", "ms_empty_16t", Goal::AtMost(5.0)),
    target("  a buffer doubled to 512 MiB, peak, MiB", "arena", "mib_peak_doubled", Goal::AtMost(520.0)),
    target("  in huge pages, ms", "arena", "ms_doubled_huge", Goal::AtMost(30.0)),
];

/// Every target, from one run's figures.
pub(in crate::bench) fn verdicts(report: &Report) -> impl Iterator<Item = Verdict> + '_ {
    TARGETS.iter().map(|target| verdict(target, report))
}

fn verdict(target: &Target<Goal>, report: &Report) -> Verdict {
    let row = report.row(target.benchmark, target.metric, FREEHOLD);
    let (text, figures) = match target.goal {
        Goal::Times(least) => {
            let text = |times: f64| format!("{times:.1} times");
            let figures = row.map(|row| (text(row.median), text(row.max), row.median >= least));
            (format!("at least {least} times faster"), figures)
        }
        Goal::NoneSlower(suffix) => {
            let ours = |row: &&Row| row.benchmark == target.benchmark && row.engine == FREEHOLD;
            let rows = report.rows.iter().filter(ours).filter(|row| row.metric.ends_with(suffix));
            let least = rows.min_by(|a, b| a.median.total_cmp(&b.median));
            let text = |row: &Row, times: f64| format!("{times:.2} times: {}", row.metric.trim_end_matches(suffix));
            let figures = least.map(|row| (text(row, row.median), text(row, row.max), row.median >= SLOWER));
            (format!("none slower (by more than {:.0} %)", (1.0 - SLOWER) * 100.0), figures)
        }
        Goal::Is(exactly) => {
            let text = |n: f64| format!("{n:.0}");
            (text(exactly), row.map(|row| (text(row.median), text(row.min), row.min == exactly && row.max == exactly)))
        }
        Goal::AtMost(most) => {
            let text = |n: f64| format!("{n:.3}");
            (format!("at most {most}"), row.map(|row| (text(row.median), text(row.min), row.median <= most)))
        }
    };
    let (measured, best, met) = match figures {
        Some((median, best, met)) => (median, best, Some(met)),
        None => ("not measured".to_owned(), String::new(), None),
    };
    Verdict { work: target.work, target: text, measured, best, met }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Kind;
    use crate::bench::catalogue::Better;

    fn row(benchmark: &'static str, metric: &'static str, median: f64) -> Row {
        let engine = FREEHOLD.to_owned();
        Row {
            benchmark,
            engine,
            metric,
            unit: "",
            median,
            min: median,
            max: median,
            values: Vec::new(),
            runs: 1,
            better: Better::Less,
            comparison: None,
            histogram: None,
        }
    }

    #[test]
    fn every_target_names_a_metric() {
        for target in TARGETS {
            let is_it = |name: &str| match target.goal {
                Goal::NoneSlower(suffix) => name.ends_with(suffix),
                _ => name == target.metric,
            };
            let about = Kind::ALL.iter().map(|kind| kind.about()).find(|about| about.name == target.benchmark).unwrap();
            assert!(about.metrics.iter().any(|metric| is_it(metric.name)), "{}", target.work);
        }
    }

    #[test]
    fn one_slow_row_is_enough() {
        let mut report = Report::default();
        report.rows.push(row("vmalloc", "fix_size_alloc_test_p512_h0_contig_free_speedup", 8.0));
        let met = |report: &Report, work: &str| verdicts(report).find(|v| v.work.contains(work)).map(|v| v.met);
        assert_eq!(met(&report, "every row"), Some(Some(true)));
        report.rows.push(row("vmalloc", "vm_map_ram_test_p1_h0_contig_free_speedup", 0.9));
        assert_eq!((met(&report, "every row"), met(&report, "512 pages")), (Some(Some(false)), Some(Some(true))));
        assert_eq!(met(&report, "system calls"), Some(None), "not measured");
    }
}
