//! What each benchmark is: the one list that `--help`, `--list`, the runner and the table use.

use super::kind::Kind;
use super::memory;
use super::metric::{About, THREADS_METRIC, ns, with_locks};
use super::workloads::{
    cma_range, doors, exit_avalanche, handoff, netperf, page_fault, producer_consumer, start_up,
    steady, tails, trunc,
};

/// Frames of every engine's machine, but where a benchmark needs others: 4 GiB.
const FRAMES: u64 = 1 << 20;

impl Kind {
    pub const fn about(self) -> &'static About {
        match self {
            Self::Pair => &PAIR,
            Self::Bulk => &BULK,
            Self::RandomFree => &RANDOM_FREE,
            Self::Order9Split => &ORDER9_SPLIT,
            Self::Contig => &CONTIG,
            Self::ProducerConsumer => &producer_consumer::ABOUT,
            Self::RemoteFree => &REMOTE_FREE,
            Self::TwoThreads => &TWO_THREADS,
            Self::SixteenThreads => &SIXTEEN_THREADS,
            Self::Depth => &steady::DEPTH,
            Self::Churn => &steady::CHURN,
            Self::Mixed => &steady::MIXED,
            Self::Orders => &steady::ORDERS,
            Self::Doors => &doors::ABOUT,
            Self::Tails => &tails::ABOUT,
            Self::StartUp => &start_up::ABOUT,
            Self::CmaRange => &cma_range::ABOUT,
            Self::ManyAllocFewFree => &handoff::MANY,
            Self::FewAllocManyFree => &handoff::FEW,
            Self::NetperfLike => &netperf::ABOUT,
            Self::ExitAvalanche => &exit_avalanche::ABOUT,
            Self::PageFault1 => &page_fault::ONE,
            Self::PageFault2 => &page_fault::TWO,
            Self::Trunc => &trunc::ABOUT,
            Self::Vmalloc => &memory::about::VMALLOC,
            Self::Lazyfree => &memory::about::LAZYFREE,
            Self::GiveBack => &memory::about::GIVE_BACK,
            Self::Arena => &memory::about::ARENA,
        }
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

const PAIR: About = About {
    what: "One thread allocates a chunk and frees it, over and over.",
    source: "the repeat test of LLFree's authors (USENIX ATC 2023); page_alloc micro-benchmarks of the kernel",
    metrics: with_locks![
        ns("ns_per_pair_order0", "an allocation and its free, single frames"),
        ns("ns_per_pair_order9", "an allocation and its free, 2 MiB blocks"),
    ],
    ..About::ONE_THREAD
};

const BULK: About = About {
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
    what: "One thread frees 262,144 single frames (1 GiB) in random order; their allocation is not timed.",
    source: "the random test of LLFree's authors (USENIX ATC 2023)",
    metrics: with_locks![ns("ns_per_free", "a frame, freed one by one in random order")],
    ..About::ONE_THREAD
};

const ORDER9_SPLIT: About = About {
    what: "A 2 MiB block is allocated, split, and freed as 512 single frames; 64 blocks at a time.",
    source: "the contiguous-free proposal's test before its change (split, then __free_page in a loop)",
    metrics: with_locks![ns(
        "ns_per_group",
        "the 512 frees of a block; allocation and split are not timed"
    )],
    ..About::ONE_THREAD
};

const CONTIG: About = About {
    what: "A 2 MiB block is allocated, split, and freed by one call for its range; 64 blocks at a time.",
    source: "the contiguous-free proposal's test after its change (split, then free_contig_range)",
    metrics: with_locks![ns(
        "ns_per_group",
        "the free of the range; allocation and split are not timed"
    )],
    ..About::ONE_THREAD
};

const REMOTE_FREE: About = About {
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
    what: "Two threads on two CPUs run pairs of single frames at the same time, each by itself; then each holds 256 MiB \
           and replaces single frames at random.",
    source: "the scaling tests of LLFree's authors (USENIX ATC 2023) and of the kernel's will-it-scale page_fault1",
    threads: 2,
    fewest_threads: 2,
    metrics: &[
        ns("ns_per_pair_order0", "a pair, on the slower of the two threads"),
        ns("ns_per_pair_order0_alone", "a pair, of the first thread while the second CPU rests"),
        ns(
            "ns_per_step_churn",
            "a free and an allocation of a single frame, on the slower of the two threads",
        ),
    ],
};

const SIXTEEN_THREADS: About = About {
    what: "Sixteen threads on sixteen CPUs, or as many as there are CPUs: pairs of single frames, each thread by \
           itself; then one thread allocates what all the others free, 64 a message, each through a ring of its own.",
    source: "the scaling tests of LLFree's authors (USENIX ATC 2023); larson and xmalloc-test of malloc families",
    threads: 16,
    fewest_threads: 2,
    metrics: &[
        ns("ns_per_pair_order0", "a pair, on the slowest of the threads"),
        ns("ns_per_pair_order0_alone", "a pair, of the first thread while the other CPUs rest"),
        ns(
            "ns_per_frame",
            "a frame, from its allocation to its free by one of the others; rings included",
        ),
        ns("ns_per_frame_one_freer", "the same with one thread that frees"),
        THREADS_METRIC,
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_benchmark_has_a_metric_twice() {
        for kind in Kind::ALL {
            let metrics = kind.about().metrics;
            assert!(!metrics.is_empty());
            let names: std::collections::BTreeSet<_> =
                metrics.iter().map(|metric| metric.name).collect();
            assert_eq!(names.len(), metrics.len(), "{kind}: a metric twice");
        }
    }
}
