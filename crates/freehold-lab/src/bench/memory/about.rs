//! What is printed of these benchmarks.

use super::variants::{KERNEL, VARIANTS};
use super::vmalloc_tests::TESTS;
use crate::bench::catalogue::{About, Metric};

const NOTHING: Metric = Metric { name: "", unit: "", what: "" };

const VMALLOC_METRICS: [Metric; 2 * TESTS.len()] = {
    let mut metrics = [NOTHING; 2 * TESTS.len()];
    let mut i = 0;
    while i < TESTS.len() {
        let us = Metric { name: TESTS[i].us, unit: "us", what: "the table's loops, contiguous freeing on" };
        let speedup = Metric { name: TESTS[i].speedup, unit: "times", what: "time without it by time with it" };
        (metrics[2 * i], metrics[2 * i + 1]) = (us, speedup);
        i += 1;
    }
    metrics
};

pub(in crate::bench) const VMALLOC: About = About {
    name: "vmalloc",
    what: "The tests of lib/test_vmalloc.c that the contiguous-free thread's table names, with its pages (p), huge \
           mappings (h) and loop counts: 500,000 loops, 100,000 from 64 pages on. A tenth of the loops is run (a \
           hundredth of them on real memory; with --quick a fifth of that) and the time multiplied. Contiguous freeing \
           on and off take turns within a run. Engines: freehold and kernels' designs are page work only (areas, \
           frames, counted page tables); freehold-host maps an arena's frames for real; mmap is plain mmap and munmap.",
    source: "lib/test_vmalloc.c of Linux 7.2; Ryan Roberts' vfree change (January 2026)",
    threads: 2,
    fewest_threads: 1,
    metrics: &VMALLOC_METRICS,
};

const LAZYFREE_METRICS: [Metric; 6 * VARIANTS.len() + 2 * KERNEL.len()] = {
    let mut metrics = [NOTHING; 6 * VARIANTS.len() + 2 * KERNEL.len()];
    let mut i = 0;
    while i < VARIANTS.len() {
        let v = &VARIANTS[i];
        let first = 6 * i;
        metrics[first] = Metric { name: v.ns_page_by_page, unit: "ns", what: "a folio of 64 KiB, one flush a page" };
        metrics[first + 1] = Metric { name: v.ns_batched, unit: "ns", what: "a folio of 64 KiB, flushes collected" };
        metrics[first + 2] = Metric { name: v.speedup, unit: "times", what: "the first by the second, in each run" };
        metrics[first + 3] =
            Metric { name: v.deferred_page_by_page, unit: "folios", what: "put on the deferred-split queue" };
        metrics[first + 4] =
            Metric { name: v.deferred_batched, unit: "folios", what: "put on the deferred-split queue" };
        metrics[first + 5] = Metric { name: v.syscalls_batched, unit: "calls", what: "system calls for a folio" };
        i += 1;
    }
    let first = 6 * VARIANTS.len();
    let mut i = 0;
    while i < KERNEL.len() {
        let what = "64 KiB, by the system's MADV_PAGEOUT";
        metrics[first + 2 * i] = Metric { name: KERNEL[i].ns, unit: "ns", what };
        metrics[first + 2 * i + 1] = Metric { name: KERNEL[i].ns_second_thread, unit: "ns", what };
        i += 1;
    }
    metrics
};

pub(in crate::bench) const LAZYFREE: About = About {
    name: "lazyfree",
    what: "128 MiB of this process's memory in 2,048 folios of 64 KiB: written to, made lazyfree, reclaimed. The \
           reclaim is timed, page by page (a flush a page) and batched, with a share of folios written to again, pinned, \
           lying in two page tables or with different rights, and with a second thread. Beside it the system's own \
           MADV_FREE and MADV_PAGEOUT of as much, in pages of 4 KiB, 64 KiB (where it offers them) and 2 MiB.",
    source: "Barry Song's lazyfree micro-benchmark (February 2025, Linux 6.15)",
    threads: 2,
    fewest_threads: 1,
    metrics: &LAZYFREE_METRICS,
};

pub(in crate::bench) const GIVE_BACK: About = About {
    name: "give-back",
    what: "An arena gives 1 GiB of wholly free blocks of 2 MiB back to the system; beside it one madvise over as much, \
           in turns. All blocks free, and every second one; pages of 4 KiB and of 2 MiB.",
    source: "the decay of allocators like jemalloc; page reporting of virtual machines",
    threads: 1,
    fewest_threads: 1,
    metrics: &[
        Metric { name: "ns_per_block", unit: "ns", what: "a block of 4 KiB pages, all of them free" },
        Metric { name: "ratio_to_one_madvise", unit: "times", what: "time by that of one madvise, in each run" },
        Metric { name: "syscalls_per_block", unit: "calls", what: "system calls for a block" },
        Metric { name: "ns_per_block_huge", unit: "ns", what: "a block of one 2 MiB page, all of them free" },
        Metric { name: "ratio_to_one_madvise_huge", unit: "times", what: "time by that of one madvise" },
        Metric { name: "syscalls_per_block_huge", unit: "calls", what: "system calls for a block" },
        Metric { name: "ns_per_block_scattered", unit: "ns", what: "4 KiB pages, every second block free" },
        Metric { name: "ratio_to_one_madvise_scattered", unit: "times", what: "beside one call over as much in a row" },
        Metric { name: "syscalls_per_block_scattered", unit: "calls", what: "system calls for a block" },
        Metric { name: "ns_per_block_scattered_huge", unit: "ns", what: "2 MiB pages, every second block free" },
        Metric {
            name: "ratio_to_one_madvise_scattered_huge",
            unit: "times",
            what: "beside one call over as much in a row",
        },
        Metric { name: "syscalls_per_block_scattered_huge", unit: "calls", what: "system calls for a block" },
    ],
};
