//! What can be measured: the one list that the command line, `--list`, the runner and the table use.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::memory;

/// A benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Allocate, free.
    Pair,
    /// Allocate a GiB, free it.
    Bulk,
    /// Free a GiB in random order.
    RandomFree,
    /// Free a block frame by frame.
    Order9Split,
    /// Free a block by its range.
    Contig,
    /// One thread allocates, another frees.
    ProducerConsumer,
    /// A thread frees what another has allocated.
    RemoteFree,
    /// Two threads at once.
    TwoThreads,
    /// Sixteen threads at once.
    SixteenThreads,
    /// The kernel's vmalloc tests.
    Vmalloc,
    /// Reclaim of lazyfree folios.
    Lazyfree,
    /// Free blocks go back to the system.
    GiveBack,
}

/// What is printed of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct About {
    /// What to write on the command line.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Where it comes from and who publishes figures of it.
    pub source: &'static str,
    /// How many threads it runs.
    pub threads: u16,
    /// With how few it still runs where there are not so many CPUs.
    pub fewest_threads: u16,
    /// What it measures.
    pub metrics: &'static [Metric],
}

/// One figure of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// What exactly is timed.
    pub what: &'static str,
}

const fn ns(name: &'static str, what: &'static str) -> Metric {
    Metric { name, unit: "ns", what }
}

const PAIR: About = About {
    name: "pair",
    what: "One thread allocates a chunk and frees it, over and over.",
    source: "the repeat test of LLFree's authors (USENIX ATC 2023); page_alloc micro-benchmarks of the kernel",
    threads: 1,
    fewest_threads: 1,
    metrics: &[
        ns("ns_per_pair_order0", "an allocation and its free, single frames"),
        ns("ns_per_pair_order9", "an allocation and its free, 2 MiB blocks"),
    ],
};

const BULK: About = About {
    name: "bulk",
    what: "One thread allocates 262,144 single frames (1 GiB) and frees them all.",
    source: "the bulk test of LLFree's authors (USENIX ATC 2023); the bulk calls are the kernel's \
             alloc_pages_bulk and free_pages_bulk and DPDK's mempool calls",
    threads: 1,
    fewest_threads: 1,
    metrics: &[
        ns("ns_per_alloc", "a frame, allocated one by one"),
        ns("ns_per_free", "a frame, freed one by one in the order of allocation"),
        ns("ns_per_free_reversed", "a frame, freed one by one in the reverse order"),
        ns("ns_per_frame_bulk_alloc", "a frame, allocated 64 a call"),
        ns("ns_per_frame_bulk_free", "a frame, freed 64 a call in the order of allocation"),
    ],
};

const RANDOM_FREE: About = About {
    name: "random-free",
    what: "One thread frees 262,144 single frames (1 GiB) in random order; their allocation is not timed.",
    source: "the random test of LLFree's authors (USENIX ATC 2023)",
    threads: 1,
    fewest_threads: 1,
    metrics: &[ns("ns_per_free", "a frame, freed one by one in random order")],
};

const ORDER9_SPLIT: About = About {
    name: "order9-split",
    what: "A 2 MiB block is allocated, split, and freed as 512 single frames; 64 blocks at a time.",
    source: "the contiguous-free thread's test before its change (split, then __free_page in a loop)",
    threads: 1,
    fewest_threads: 1,
    metrics: &[ns("ns_per_group", "the 512 frees of a block; allocation and split are not timed")],
};

const CONTIG: About = About {
    name: "contig",
    what: "A 2 MiB block is allocated, split, and freed by one call for its range; 64 blocks at a time.",
    source: "the contiguous-free thread's test after its change (split, then free_contig_range)",
    threads: 1,
    fewest_threads: 1,
    metrics: &[ns("ns_per_group", "the free of the range; allocation and split are not timed")],
};

const PRODUCER_CONSUMER: About = About {
    name: "producer-consumer",
    what: "A thread allocates single frames, a thread on another CPU frees them; messages of 64 frames go through a \
           ring of 64 messages with one producer and one consumer.",
    source: "network receive paths and the affinity violations of the recorded traces; xmalloc-test of malloc families",
    threads: 2,
    fewest_threads: 2,
    metrics: &[
        ns("ns_per_frame", "a frame, from its allocation to its free, by single calls; ring included"),
        ns("ns_per_frame_bulk", "the same by bulk calls of 64"),
    ],
};

const REMOTE_FREE: About = About {
    name: "remote-free",
    what: "A CPU allocates the frames of 960 blocks (491,520 single frames) and rests; another CPU frees them all. The \
           frees are timed.",
    source: "exit of a process on another CPU; larson and xmalloc-test of malloc families",
    threads: 2,
    fewest_threads: 2,
    metrics: &[
        ns("ns_per_free_sequential", "a frame, freed in rising order of addresses"),
        ns("ns_per_free_scattered", "a frame, freed in random order"),
    ],
};

const TWO_THREADS: About = About {
    name: "two-threads",
    what: "Two threads on two CPUs run pairs of single frames at the same time, each by itself.",
    source: "the scaling tests of LLFree's authors (USENIX ATC 2023) and of the kernel's will-it-scale page_fault1",
    threads: 2,
    fewest_threads: 2,
    metrics: &[
        ns("ns_per_pair_order0", "a pair, on the slower of the two threads"),
        ns("ns_per_pair_order0_alone", "a pair, of the first thread while the second CPU rests"),
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
        Metric { name: THREADS, unit: "threads", what: "how many there were: 16, or the CPUs of this machine" },
    ],
};

/// The metric that says how many threads a benchmark had.
pub const THREADS: &str = "threads";

impl Kind {
    /// All of them, in the order in which they run.
    pub const ALL: [Self; 12] = [
        Self::Pair,
        Self::Bulk,
        Self::RandomFree,
        Self::Order9Split,
        Self::Contig,
        Self::ProducerConsumer,
        Self::RemoteFree,
        Self::TwoThreads,
        Self::SixteenThreads,
        Self::Vmalloc,
        Self::Lazyfree,
        Self::GiveBack,
    ];

    /// What it is.
    #[must_use]
    pub const fn about(self) -> &'static About {
        match self {
            Self::Pair => &PAIR,
            Self::Bulk => &BULK,
            Self::RandomFree => &RANDOM_FREE,
            Self::Order9Split => &ORDER9_SPLIT,
            Self::Contig => &CONTIG,
            Self::ProducerConsumer => &PRODUCER_CONSUMER,
            Self::RemoteFree => &REMOTE_FREE,
            Self::TwoThreads => &TWO_THREADS,
            Self::SixteenThreads => &SIXTEEN_THREADS,
            Self::Vmalloc => &memory::about::VMALLOC,
            Self::Lazyfree => &memory::about::LAZYFREE,
            Self::GiveBack => &memory::about::GIVE_BACK,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.about().name
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no benchmark of that name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownBenchmark {
    name: String,
}

impl fmt::Display for UnknownBenchmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no benchmark '{}'", self.name)?;
        let similarity = |kind: &Kind| strsim::jaro_winkler(&self.name, kind.name());
        match Kind::ALL.into_iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b))) {
            Some(kind) if similarity(&kind) > 0.7 => write!(f, "; did you mean '{kind}'?")?,
            _ => {}
        }
        f.write_str(" ('freehold bench --list' lists them all)")
    }
}

impl std::error::Error for UnknownBenchmark {}

impl FromStr for Kind {
    type Err = UnknownBenchmark;

    fn from_str(name: &str) -> Result<Self, UnknownBenchmark> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| UnknownBenchmark { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert!(!kind.about().metrics.is_empty());
        }
        assert!("bulc".parse::<Kind>().unwrap_err().to_string().contains("did you mean 'bulk'"));
    }
}
