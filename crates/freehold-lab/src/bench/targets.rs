//! What the flagship is to reach, and whether it did in this run.

use super::catalogue::THREADS;
use super::engines::{BUDDY_SYSTEM, FREEHOLD};
use super::memory;
use super::result::{Report, Row};

/// What is to be reached.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Goal {
    /// At most so many atomic read-modify-writes of the same run.
    Rmw(f64),
    /// At most so many nanoseconds, on a machine where a read-modify-write takes about five.
    Ns(f64),
    /// At least so many times faster than `buddy_system_allocator` in the same run.
    TimesPeer(f64),
    /// At most so much more, as a share, than another metric of the same benchmark.
    Over(&'static str, f64),
    /// The same with 16 threads; with fewer it is shown and not judged.
    OverWithSixteen(&'static str, f64),
    /// Not something that this command can measure: where it is measured.
    Elsewhere(&'static str),
}

/// What a metric is to reach; the goals of virtual memory are of their own kind.
pub(super) struct Target<G> {
    pub(super) work: &'static str,
    pub(super) benchmark: &'static str,
    pub(super) metric: &'static str,
    pub(super) goal: G,
}

pub(super) const fn target<G: Copy>(
    work: &'static str,
    benchmark: &'static str,
    metric: &'static str,
    goal: G,
) -> Target<G> {
    Target { work, benchmark, metric, goal }
}

const TARGETS: [Target<Goal>; 20] = [
    target("order-0 pair, one thread", "pair", "ns_per_pair_order0", Goal::Rmw(0.8)),
    target("order-9 pair", "pair", "ns_per_pair_order9", Goal::Rmw(2.0)),
    target("1 GiB in single frames: allocation", "bulk", "ns_per_alloc", Goal::Rmw(0.6)),
    target("  freed in order", "bulk", "ns_per_free", Goal::Rmw(0.6)),
    target("  freed in reverse", "bulk", "ns_per_free_reversed", Goal::Rmw(0.6)),
    target("  freed in random order", "random-free", "ns_per_free", Goal::Rmw(0.6)),
    target("bulk calls of 64: allocation, a frame", "bulk", "ns_per_frame_bulk_alloc", Goal::Rmw(0.15)),
    target("  free, a frame", "bulk", "ns_per_frame_bulk_free", Goal::Rmw(0.15)),
    target("a block freed as 512 single frames", "order9-split", "ns_per_group", Goal::TimesPeer(8.0)),
    target("a split block freed by one range", "contig", "ns_per_group", Goal::Rmw(15.0)),
    target("producer to consumer, a frame", "producer-consumer", "ns_per_frame", Goal::Ns(8.0)),
    target("  by bulk calls", "producer-consumer", "ns_per_frame_bulk", Goal::Ns(4.0)),
    target("  beside the peer", "producer-consumer", "ns_per_frame", Goal::TimesPeer(8.0)),
    target("remote frees, in sequence", "remote-free", "ns_per_free_sequential", Goal::Rmw(0.7)),
    target("remote frees, scattered", "remote-free", "ns_per_free_scattered", Goal::Rmw(1.3)),
    target(
        "two threads, the slower of them",
        "two-threads",
        "ns_per_pair_order0",
        Goal::Over("ns_per_pair_order0_alone", 0.15),
    ),
    target(
        "16 threads, the slowest of them",
        "sixteen-threads",
        "ns_per_pair_order0",
        Goal::OverWithSixteen("ns_per_pair_order0_alone", 0.25),
    ),
    target(
        "one allocator, 15 freers, a frame",
        "sixteen-threads",
        "ns_per_frame",
        Goal::OverWithSixteen("ns_per_frame_one_freer", 0.0),
    ),
    target("instructions of an order-0 pair: 60", "", "", Goal::Elsewhere("scripts/count-instructions")),
    target("distinct frames, wholly free blocks", "", "", Goal::Elsewhere("tests/bench_counts.rs")),
];

/// What came of one target.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// The work.
    pub work: &'static str,
    /// What is to be reached.
    pub target: String,
    /// What was measured, median; where it is measured, or that it was not.
    pub measured: String,
    /// The same of the best run, which a busy machine disturbs least.
    pub best: String,
    /// Whether the median reached it; `None` where it was not measured.
    pub met: Option<bool>,
}

/// Every target, from one run's figures.
#[must_use]
pub fn verdicts(report: &Report) -> Vec<Verdict> {
    TARGETS.iter().map(|target| verdict(target, report)).chain(memory::targets::verdicts(report)).collect()
}

fn verdict(target: &Target<Goal>, report: &Report) -> Verdict {
    let row = report.row(target.benchmark, target.metric, FREEHOLD);
    let peer = report.row(target.benchmark, target.metric, BUDDY_SYSTEM);
    let (text, figures) = match target.goal {
        Goal::Rmw(most) => (format!("at most {most} RMW"), of_rmw(report, row, most)),
        Goal::Ns(most) => {
            let text = |ns: f64| format!("{ns:.2} ns");
            (format!("at most {most} ns"), row.map(|row| (text(row.median), text(row.min), row.median <= most)))
        }
        Goal::TimesPeer(least) => {
            let text = |times: f64| format!("{times:.1} times");
            let figures = row.zip(peer).map(|(row, peer)| {
                let times = peer.median / row.median;
                (text(times), text(peer.min / row.min), times >= least)
            });
            (format!("at least {least} times the peer's speed"), figures)
        }
        Goal::Over(other, most) => {
            let text = format!("at most {:.0} % over one thread alone", most * 100.0);
            (text, over(report, target, row, other, most))
        }
        Goal::OverWithSixteen(other, most) => {
            let text = match most {
                0.0 => "at least as fast as with one freer".to_owned(),
                most => format!("at most {:.0} % over one thread alone", most * 100.0),
            };
            let figures = over(report, target, row, other, most);
            let threads = report.row(target.benchmark, THREADS, FREEHOLD).map(|row| row.median);
            if let (Some((measured, best, _)), Some(threads)) = (&figures, threads.filter(|&threads| threads < 16.0)) {
                let measured = format!("{measured} with {threads:.0} threads: not judged");
                return Verdict { work: target.work, target: text, measured, best: best.clone(), met: None };
            }
            (text, figures)
        }
        Goal::Elsewhere(place) => {
            return Verdict {
                work: target.work,
                target: String::new(),
                measured: format!("see {place}"),
                best: String::new(),
                met: None,
            };
        }
    };
    let (measured, best, met) = match figures {
        Some((median, best, met)) => (median, best, Some(met)),
        None => ("not measured".to_owned(), String::new(), None),
    };
    Verdict { work: target.work, target: text, measured, best, met }
}

/// How much more than the metric `other` of the same benchmark.
fn over(
    report: &Report,
    target: &Target<Goal>,
    row: Option<&Row>,
    other: &str,
    most: f64,
) -> Option<(String, String, bool)> {
    let (row, other) = (row?, report.row(target.benchmark, other, FREEHOLD)?);
    let text = |over: f64| format!("{:+.1} %", over * 100.0);
    let over = row.median / other.median - 1.0;
    Some((text(over), text(row.min / other.min - 1.0), over <= most))
}

fn of_rmw(report: &Report, row: Option<&Row>, most: f64) -> Option<(String, String, bool)> {
    let (row, median, min) = (row?, report.rmw.median()?, report.rmw.min()?);
    let text = |rmw: f64, ns: f64| format!("{rmw:.2} RMW ({ns:.2} ns)");
    Some((text(row.median / median, row.median), text(row.min / min, row.min), row.median / median <= most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Kind;
    use crate::bench::catalogue::Better;

    #[test]
    fn every_target_names_a_metric() {
        for target in &TARGETS {
            let names = |metric| {
                Kind::ALL.iter().any(|kind| {
                    kind.name() == target.benchmark && kind.about().metrics.iter().any(|known| known.name == metric)
                })
            };
            match target.goal {
                Goal::Elsewhere(_) => assert_eq!(target.benchmark, ""),
                Goal::Over(other, _) | Goal::OverWithSixteen(other, _) => {
                    assert!(names(target.metric) && names(other));
                }
                _ => assert!(names(target.metric), "{}", target.work),
            }
        }
    }

    #[test]
    fn figures_are_compared_within_their_run() {
        let mut report = Report::default();
        report.rmw.add(5.0);
        let row = |engine: &str, benchmark, metric, median| Row {
            benchmark,
            engine: engine.to_owned(),
            metric,
            unit: "ns",
            median,
            min: median,
            max: median,
            values: Vec::new(),
            runs: 1,
            better: Better::Less,
            comparison: None,
            histogram: None,
        };
        report.rows.push(row(FREEHOLD, "pair", "ns_per_pair_order0", 4.0));
        report.rows.push(row(FREEHOLD, "pair", "ns_per_pair_order9", 10.1));
        report.rows.push(row(FREEHOLD, "order9-split", "ns_per_group", 1000.0));
        report.rows.push(row(BUDDY_SYSTEM, "order9-split", "ns_per_group", 8000.0));
        let verdicts = verdicts(&report);
        let met = |work: &str| verdicts.iter().find(|verdict| verdict.work.contains(work)).map(|verdict| verdict.met);
        assert_eq!(met("order-0 pair, one"), Some(Some(true)));
        assert_eq!(met("order-9 pair"), Some(Some(false)));
        assert_eq!(met("512 single"), Some(Some(true)));
        assert_eq!(met("one range"), Some(None));
    }

    #[test]
    fn sixteen_threads_are_judged_where_there_are_sixteen() {
        let verdict = |threads: f64, slowest: f64| {
            let mut report = Report::default();
            let figures = [("ns_per_pair_order0", slowest), ("ns_per_pair_order0_alone", 4.0), (THREADS, threads)];
            report.rows.extend(figures.map(|(metric, median)| Row {
                benchmark: "sixteen-threads",
                engine: FREEHOLD.to_owned(),
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
            }));
            verdicts(&report).into_iter().find(|verdict| verdict.work.contains("slowest")).unwrap()
        };
        assert_eq!((verdict(16.0, 4.9).met, verdict(16.0, 5.1).met), (Some(true), Some(false)));
        let few = verdict(2.0, 5.1);
        assert_eq!((few.met, few.measured.as_str()), (None, "+27.5 % with 2 threads: not judged"));
    }
}
