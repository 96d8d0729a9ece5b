//! What can be measured: the one list that the command line, `--list`, the runner and the table use.

use serde::Serialize;

use super::memory;
use super::runner::FRAMES;
use super::workloads::{
    cma_range, doors, exit_avalanche, handoff, netperf, page_fault, producer_consumer, start_up, steady, tails, trunc,
};
use crate::kinds::kinds;

kinds! {
    Kind, About, ("benchmark", "bench --list"):
    Pair: PAIR,
    Bulk: BULK,
    RandomFree: RANDOM_FREE,
    Order9Split: ORDER9_SPLIT,
    Contig: CONTIG,
    ProducerConsumer: producer_consumer::ABOUT,
    RemoteFree: REMOTE_FREE,
    TwoThreads: TWO_THREADS,
    SixteenThreads: SIXTEEN_THREADS,
    Depth: steady::DEPTH,
    Churn: steady::CHURN,
    Mixed: steady::MIXED,
    Orders: steady::ORDERS,
    Doors: doors::ABOUT,
    Tails: tails::ABOUT,
    StartUp: start_up::ABOUT,
    CmaRange: cma_range::ABOUT,
    ManyAllocFewFree: handoff::MANY,
    FewAllocManyFree: handoff::FEW,
    NetperfLike: netperf::ABOUT,
    ExitAvalanche: exit_avalanche::ABOUT,
    PageFault1: page_fault::ONE,
    PageFault2: page_fault::TWO,
    Trunc: trunc::ABOUT,
    Vmalloc: memory::about::VMALLOC,
    Lazyfree: memory::about::LAZYFREE,
    GiveBack: memory::about::GIVE_BACK,
    Arena: memory::about::ARENA,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct About {
    pub name: &'static str,
    pub what: &'static str,
    /// Where it comes from and who publishes figures of it.
    pub source: &'static str,
    pub threads: u16,
    /// With how few it still runs where there are not so many CPUs.
    pub fewest_threads: u16,
    pub metrics: &'static [Metric],
}

impl About {
    /// What runs on one thread says nothing of threads.
    pub(super) const ONE_THREAD: Self =
        Self { name: "", what: "", source: "", threads: 1, fewest_threads: 1, metrics: &[] };
}

/// One figure of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
    /// What exactly is timed.
    pub what: &'static str,
}

impl Metric {
    /// What more of it means: that an engine is better, worse, or neither.
    pub fn better(&self) -> Better {
        match self.unit {
            THREADS => Better::Neither,
            "uses" | "operations/s" => Better::More,
            _ if self.name.ends_with("speedup") => Better::More,
            _ => Better::Less,
        }
    }

    /// Its name in tables, which have less room.
    pub fn label(&self) -> &'static str {
        match self.name {
            ZONE_LOCKS => "zone locks/1,000 frames",
            GROUP_LOCKS => "group locks/1,000 frames",
            ZONE_WORK => "zone work/1,000 frames",
            name => name,
        }
    }
}

/// What more of a metric means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// The engine is better.
    More,
    /// The engine is worse.
    Less,
    /// Neither: it says how it was measured.
    Neither,
}

pub(super) const fn ns(name: &'static str, what: &'static str) -> Metric {
    Metric { name, unit: "ns", what }
}

pub(super) const fn metric(name: &'static str, unit: &'static str, what: &'static str) -> Metric {
    Metric { name, unit, what }
}

/// The metric that says how often a zone lock was taken.
pub const ZONE_LOCKS: &str = "zone_lock_acquisitions_per_1000_frames";
/// The metric that says how often the lock of a group of CPUs was taken.
pub const GROUP_LOCKS: &str = "group_lock_acquisitions_per_1000_frames";
/// The metric that says how much was done under zone locks.
pub const ZONE_WORK: &str = "zone_lock_work_per_1000_frames";

pub(super) const ZONE_LOCKS_METRIC: Metric =
    metric(ZONE_LOCKS, "acquisitions", "zone-lock acquisitions for each 1,000 frames; engines that count them");
pub(super) const GROUP_LOCKS_METRIC: Metric = metric(
    GROUP_LOCKS,
    "acquisitions",
    "group-lock acquisitions for each 1,000 frames; a group is up to 16 CPUs, and only freehold has any",
);
pub(super) const ZONE_WORK_METRIC: Metric =
    metric(ZONE_WORK, "steps", "steps of work under zone locks for each 1,000 frames; engines that count them");

/// Metrics, those of locks behind them, and after `;` more that stand behind those.
macro_rules! with_locks {
    [$($metric:expr),* $(,)? $(; $more:expr)*] => {
        &[
            $($metric,)*
            $crate::bench::catalogue::ZONE_LOCKS_METRIC,
            $crate::bench::catalogue::GROUP_LOCKS_METRIC,
            $crate::bench::catalogue::ZONE_WORK_METRIC,
            $($more,)*
        ]
    };
}
pub(super) use with_locks;

pub(super) const THREADS_METRIC: Metric =
    Metric { name: THREADS, unit: THREADS, what: "how many there were: as many as CPUs, up to the most above" };

const PAIR: About = About {
    name: "pair",
    what: "One thread allocates a chunk and frees it, over and over.",
    source: "the repeat test of LLFree's authors (USENIX ATC 2023); page_alloc micro-benchmarks of the kernel",
    metrics: with_locks![
        ns("ns_per_pair_order0", "an allocation and its free, single frames"),
        ns("ns_per_pair_order9", "an allocation and its free, 2 MiB blocks"),
    ],
    ..About::ONE_THREAD
};

const BULK: About = About {
    name: "bulk",
    what: "One thread allocates 262,144 single frames (1 GiB) and frees them all.",
    source: "the bulk test of LLFree's authors (USENIX ATC 2023); the bulk calls are the kernel's \
             alloc_pages_bulk and free_pages_bulk and DPDK's mempool calls",
    metrics: with_locks![
        ns("ns_per_alloc", "a frame, allocated one by one"),
        ns("ns_per_free", "a frame, freed one by one in the order of allocation"),
        ns("ns_per_free_reversed", "a frame, freed one by one in the reverse order"),
        ns("ns_per_frame_bulk_alloc", "a frame, allocated 64 a call"),
        ns("ns_per_frame_bulk_free", "a frame, freed 64 a call in the order of allocation"),
    ],
    ..About::ONE_THREAD
};

const RANDOM_FREE: About = About {
    name: "random-free",
    what: "One thread frees 262,144 single frames (1 GiB) in random order; their allocation is not timed.",
    source: "the random test of LLFree's authors (USENIX ATC 2023)",
    metrics: with_locks![ns("ns_per_free", "a frame, freed one by one in random order")],
    ..About::ONE_THREAD
};

const ORDER9_SPLIT: About = About {
    name: "order9-split",
    what: "A 2 MiB block is allocated, split, and freed as 512 single frames; 64 blocks at a time.",
    source: "the contiguous-free thread's test before its change (split, then __free_page in a loop)",
    metrics: with_locks![ns("ns_per_group", "the 512 frees of a block; allocation and split are not timed")],
    ..About::ONE_THREAD
};

const CONTIG: About = About {
    name: "contig",
    what: "A 2 MiB block is allocated, split, and freed by one call for its range; 64 blocks at a time.",
    source: "the contiguous-free thread's test after its change (split, then free_contig_range)",
    metrics: with_locks![ns("ns_per_group", "the free of the range; allocation and split are not timed")],
    ..About::ONE_THREAD
};

const REMOTE_FREE: About = About {
    name: "remote-free",
    what: "A CPU allocates the frames of 960 blocks (491,520 single frames) and rests; another CPU frees them all. The \
           frees are timed.",
    source: "exit of a process on another CPU; larson and xmalloc-test of malloc families",
    threads: 2,
    fewest_threads: 2,
    metrics: with_locks![
        ns("ns_per_free_sequential", "a frame, freed in rising order of addresses"),
        ns("ns_per_free_scattered", "a frame, freed in random order"),
        ns("ns_per_free_scattered_bulk", "the same 64 a call"),
    ],
};

const TWO_THREADS: About = About {
    name: "two-threads",
    what: "Two threads on two CPUs run pairs of single frames at the same time, each by itself; then each holds 256 MiB \
           and replaces single frames at random.",
    source: "the scaling tests of LLFree's authors (USENIX ATC 2023) and of the kernel's will-it-scale page_fault1",
    threads: 2,
    fewest_threads: 2,
    metrics: &[
        ns("ns_per_pair_order0", "a pair, on the slower of the two threads"),
        ns("ns_per_pair_order0_alone", "a pair, of the first thread while the second CPU rests"),
        ns("ns_per_step_churn", "a free and an allocation of a single frame, on the slower of the two threads"),
    ],
};

const SIXTEEN_THREADS: About = About {
    name: "sixteen-threads",
    what: "Sixteen threads on sixteen CPUs, or as many as there are CPUs: pairs of single frames, each thread by \
           itself; then one thread allocates what all the others free, 64 a message, each through a ring of its own.",
    source: "the scaling tests of LLFree's authors (USENIX ATC 2023); larson and xmalloc-test of malloc families",
    threads: 16,
    fewest_threads: 2,
    metrics: &[
        ns("ns_per_pair_order0", "a pair, on the slowest of the threads"),
        ns("ns_per_pair_order0_alone", "a pair, of the first thread while the other CPUs rest"),
        ns("ns_per_frame", "a frame, from its allocation to its free by one of the others; rings included"),
        ns("ns_per_frame_one_freer", "the same with one thread that frees"),
        THREADS_METRIC,
    ],
};

/// The metric that says how many threads a benchmark had.
pub const THREADS: &str = "threads";

impl Kind {
    /// Whether its timed loops write to the frames they allocate.
    pub const fn writes_memory(self) -> bool {
        matches!(
            self,
            Self::ManyAllocFewFree
                | Self::FewAllocManyFree
                | Self::NetperfLike
                | Self::PageFault1
                | Self::PageFault2
                | Self::Trunc
        )
    }

    /// Frames of every engine's machine when so many threads run.
    pub const fn frames(self, threads: u16) -> u64 {
        match self {
            Self::CmaRange => cma_range::FRAMES,
            Self::Churn | Self::Mixed => steady::FRAMES,
            // Each thread's pages and its file's are half of it.
            Self::PageFault1 | Self::PageFault2 if threads > 2 => 1 << 19,
            // 1 GiB: all of it is really there.
            _ if self.writes_memory() => 1 << 18,
            _ => FRAMES,
        }
    }

    /// CPUs of every engine's machine when so many threads run.
    pub const fn cpus(self, threads: u16) -> u16 {
        match self {
            Self::CmaRange => cma_range::CPUS,
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
    fn names_are_read_back() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            let metrics = kind.about().metrics;
            assert!(!metrics.is_empty());
            let names: std::collections::BTreeSet<_> = metrics.iter().map(|metric| metric.name).collect();
            assert_eq!(names.len(), metrics.len(), "{kind}: a metric twice");
        }
        assert!("bulc".parse::<Kind>().unwrap_err().to_string().contains("did you mean 'bulk'"));
    }
}
