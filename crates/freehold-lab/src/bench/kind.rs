//! Which benchmarks there are, by name, in the order in which they are listed and run, and what
//! each is: the one list that `--help`, `--list`, the runner and the table use.

use crate::trials::kinds::names;

use super::metric::{About, Metric};
use super::workloads::{plain, producer_consumer, steady, tails};

names! {
    Kind, ("benchmark", "bench --list"):
    Bulk: "bulk",
    RandomFree: "random-free",
    ProducerConsumer: "producer-consumer",
    Depth: "depth",
    Churn: "churn",
    Mixed: "mixed",
    Orders: "orders",
    Used: "used",
    NearMark: "near-mark",
    NearMark1024: "near-mark-1024",
    Tails: "tails",
}

/// Frames of every engine's machine, but where a benchmark needs others: 4 GiB.
const FRAMES: u64 = 1 << 20;

impl Kind {
    pub const fn about(self) -> &'static About {
        match self {
            Self::Bulk => &plain::BULK,
            Self::RandomFree => &plain::RANDOM_FREE,
            Self::ProducerConsumer => &producer_consumer::ABOUT,
            Self::Depth => &steady::DEPTH,
            Self::Churn => &steady::CHURN,
            Self::Mixed => &steady::MIXED,
            Self::Orders => &steady::ORDERS,
            Self::Used => &steady::USED,
            Self::NearMark => &steady::NEAR_MARK,
            Self::NearMark1024 => &steady::NEAR_MARK_1024,
            Self::Tails => &tails::ABOUT,
        }
    }

    pub fn metrics(self) -> &'static [Metric] {
        self.about().metrics
    }

    /// Frames of every engine's machine.
    pub const fn frames(self) -> u64 {
        match self {
            Self::Churn | Self::Mixed | Self::NearMark => steady::FRAMES,
            Self::NearMark1024 => 2 * steady::FRAMES,
            Self::Used => steady::USED_FRAMES,
            _ => FRAMES,
        }
    }

    /// CPUs of every engine's machine when so many threads run.
    pub const fn cpus(self, threads: u16) -> u16 {
        match self {
            Self::NearMark1024 => 1024,
            Self::Tails => tails::THREADS,
            _ if threads < 2 => 2,
            _ => threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_no_benchmark_has_a_metric_twice() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            let names: std::collections::BTreeSet<_> =
                kind.metrics().iter().map(|metric| metric.name).collect();
            assert!(!names.is_empty());
            assert_eq!(names.len(), kind.metrics().len(), "{kind}: a metric twice");
        }
        assert!("bulc".parse::<Kind>().unwrap_err().to_string().contains("did you mean 'bulk'"));
    }
}
