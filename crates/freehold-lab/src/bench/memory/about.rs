//! What is printed of these benchmarks.

use super::{variants, vmalloc_tests};
use crate::bench::metric::{About, Metric, metric, ns};

pub(crate) const VMALLOC: About = About {
    what: "The tests of lib/test_vmalloc.c that the contiguous-free proposal's table names, but for pcpu_alloc_test, with \
           its pages (p), huge mappings (h) and loop counts: 500,000 loops, 100,000 from 64 pages on. A tenth of the \
           loops is run (a hundredth of them on real memory; with --quick a fifth of that) and the time multiplied. Three \
           kernels take turns within a run: v6.18 (single frames), v6.19-rc1 (the largest chunks, freed page by page) and \
           patched (freed as runs). Engines: freehold and kernels' designs are page work only (areas, frames, counted \
           page tables); freehold-host maps an arena's frames for real.",
    source: "lib/test_vmalloc.c of Linux 7.2; Ryan Roberts' vfree change (January 2026)",
    threads: 2,
    fewest_threads: 1,
    metrics: vmalloc_tests::METRICS.as_flattened(),
};

const LAZYFREE_COUNT: usize =
    variants::METRICS.as_flattened().len() + variants::KERNEL_METRICS.as_flattened().len();
/// The variants' metrics, then the system's.
const LAZYFREE_METRICS: [Metric; LAZYFREE_COUNT] = {
    let (ours, systems) =
        (variants::METRICS.as_flattened(), variants::KERNEL_METRICS.as_flattened());
    let mut all = [ours[0]; LAZYFREE_COUNT];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < ours.len() { ours[i] } else { systems[i - ours.len()] };
        i += 1;
    }
    all
};

pub(crate) const LAZYFREE: About = About {
    what: "128 MiB of this process's memory in 2,048 folios of 64 KiB: written to, made lazyfree, reclaimed. The \
           reclaim is timed page by page (a flush a page; flushes collected, as Linux until 6.14) and batched, with a share of folios written to again, pinned, \
           lying in two page tables or with different rights, and with a second thread. Beside it the system's own \
           MADV_FREE and MADV_PAGEOUT of as much, in pages of 4 KiB, 64 KiB (where it offers them) and 2 MiB.",
    source: "Barry Song's lazyfree micro-benchmark (February 2025, Linux 6.15)",
    threads: 2,
    fewest_threads: 1,
    metrics: &LAZYFREE_METRICS,
};

macro_rules! given_back {
    ($suffix:literal, $block:literal, $ratio:literal) => {
        [
            ns(concat!("ns_per_block", $suffix), $block),
            metric(concat!("ratio_to_one_madvise", $suffix), "times", $ratio),
            metric(concat!("syscalls_per_block", $suffix), "calls", "system calls for a block"),
        ]
    };
}

/// Of all blocks: of small pages, of huge ones; of every second block the same.
pub(super) const GIVEN_BACK: [[Metric; 3]; 4] = [
    given_back!(
        "",
        "a block of 4 KiB pages, all of them free",
        "time by that of one madvise, in each run"
    ),
    given_back!(
        "_huge",
        "a block of one 2 MiB page, all of them free",
        "time by that of one madvise"
    ),
    given_back!(
        "_scattered",
        "4 KiB pages, every second block free",
        "beside one call over as much in a row"
    ),
    given_back!(
        "_scattered_huge",
        "2 MiB pages, every second block free",
        "beside one call over as much in a row"
    ),
];

pub(crate) const GIVE_BACK: About = About {
    what: "An arena gives 1 GiB of wholly free blocks of 2 MiB back to the system; beside it one madvise over as much, \
           in turns. All blocks free, and every second one; pages of 4 KiB and of 2 MiB.",
    source: "the decay of allocators like jemalloc; page reporting of virtual machines",
    metrics: GIVEN_BACK.as_flattened(),
    ..About::ONE_THREAD
};

pub(crate) const ARENA: About = About {
    what: "An arena's frames as a program has them: allocated and freed by handles, of a size that the compiler does not \
           know; a GiB of them of which few are kept, purged; arenas that nobody has used yet; a buffer that grows by \
           doubling. Beside it the C library's malloc and, with -e mimalloc and -e jemalloc in a build with --features peers, \
           those: pages aligned to 4 KiB, their own way of purging. linux is one mapping as large as the buffer, touched: \
           what nobody gets below.",
    source: "buffer pools and large vectors of programs; mimalloc issue 1364 (memory that is not given back)",
    metrics: &[
        ns("ns_per_pair_4k", "an allocation of 4 KiB and its free, nothing written"),
        ns("ns_per_pair_64k", "of 64 KiB"),
        ns("ns_per_pair_2m", "of 2 MiB"),
        metric("mib_after_purge_4k", "MiB", "in memory, 1 page of 1,000 of a GiB kept"),
        metric("ms_purge_4k", "ms", "CPU time of that purge"),
        metric(
            "mib_after_purge_64k",
            "MiB",
            "in memory, 1 piece of 64 KiB of 64 of a GiB kept: 16 MiB",
        ),
        metric("ms_purge_64k", "ms", "CPU time of that purge"),
        metric("kib_empty_1t", "KiB", "in memory for an empty arena of 1 TiB of address space"),
        metric("ms_empty_1t", "ms", "until it is made"),
        metric("kib_empty_16t", "KiB", "in memory for an empty arena of 16 TiB"),
        metric("ms_empty_16t", "ms", "until it is made"),
        metric(
            "mib_peak_doubled",
            "MiB",
            "the most in memory while a buffer is doubled to 512 MiB",
        ),
        metric(
            "ms_doubled",
            "ms",
            "CPU time of that, page faults of 4 KiB pages included; the system had the memory in use just before",
        ),
        metric("mib_peak_doubled_huge", "MiB", "the same in an arena of huge pages"),
        metric("ms_doubled_huge", "ms", "CPU time of that, page faults of huge pages included"),
    ],
    ..About::ONE_THREAD
};
