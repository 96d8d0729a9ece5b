//! What is printed of these benchmarks.

use super::variants::{KERNEL, VARIANTS};
use super::vmalloc_tests::TESTS;
use crate::bench::catalogue::{About, Metric};

const NOTHING: Metric = Metric { name: "", unit: "", what: "" };

/// Metrics of each test.
const TIMES: usize = 6;

const VMALLOC_METRICS: [Metric; TIMES * TESTS.len()] = {
    let mut metrics = [NOTHING; TIMES * TESTS.len()];
    let mut i = 0;
    while i < TESTS.len() {
        let t = &TESTS[i];
        let of_test: [Metric; TIMES] = [
            Metric { name: t.us_v6_18, unit: "us", what: "the table's loops; single frames, freed one by one" },
            Metric { name: t.us_v6_19_rc1, unit: "us", what: "the same; the largest chunks, freed page by page" },
            Metric { name: t.us, unit: "us", what: "the same; the largest chunks, freed as runs" },
            Metric { name: t.regression, unit: "times", what: "time as v6.18 by time as v6.19-rc1" },
            Metric { name: t.against_v6_18, unit: "times", what: "time as v6.18 by time with contiguous freeing" },
            Metric { name: t.speedup, unit: "times", what: "time as v6.19-rc1 by time with contiguous freeing" },
        ];
        let mut j = 0;
        while j < TIMES {
            metrics[TIMES * i + j] = of_test[j];
            j += 1;
        }
        i += 1;
    }
    metrics
};

pub(in crate::bench) const VMALLOC: About = About {
    name: "vmalloc",
    what: "The tests of lib/test_vmalloc.c that the contiguous-free thread's table names, with its pages (p), huge \
           mappings (h) and loop counts: 500,000 loops, 100,000 from 64 pages on. A tenth of the loops is run (a \
           hundredth of them on real memory; with --quick a fifth of that) and the time multiplied. Three kernels take turns within a run: \
           v6.18 (single frames), v6.19-rc1 (the largest chunks, freed page by page) and patched (freed as runs). Engines: freehold and kernels' designs are page work only (areas, \
           frames, counted page tables); freehold-host maps an arena's frames for real; mmap is plain mmap and munmap.",
    source: "lib/test_vmalloc.c of Linux 7.2; Ryan Roberts' vfree change (January 2026)",
    threads: 2,
    fewest_threads: 1,
    metrics: &VMALLOC_METRICS,
};

/// Metrics of each variant.
const EACH: usize = 13;

const LAZYFREE_METRICS: [Metric; EACH * VARIANTS.len() + 2 * KERNEL.len()] = {
    let mut metrics = [NOTHING; EACH * VARIANTS.len() + 2 * KERNEL.len()];
    let mut i = 0;
    while i < VARIANTS.len() {
        let v = &VARIANTS[i];
        let queued = "put on the deferred-split queue";
        let of_variant: [Metric; EACH] = [
            Metric { name: v.ns_page_by_page, unit: "ns", what: "a folio of 64 KiB, one flush a page" },
            Metric {
                name: v.ns_page_by_page_deferred,
                unit: "ns",
                what: "a folio of 64 KiB page by page, flushes collected: Linux until 6.14",
            },
            Metric { name: v.ns_batched, unit: "ns", what: "a folio of 64 KiB at once, flushes collected" },
            Metric { name: v.speedup, unit: "times", what: "the first by the third, in each run" },
            Metric { name: v.speedup_over_deferred, unit: "times", what: "the second by the third, in each run" },
            Metric { name: v.deferred_page_by_page, unit: "folios", what: queued },
            Metric { name: v.deferred_page_by_page_deferred, unit: "folios", what: queued },
            Metric { name: v.deferred_batched, unit: "folios", what: queued },
            Metric { name: v.flushes_page_by_page, unit: "calls", what: "flushes of all folios" },
            Metric { name: v.flushes_page_by_page_deferred, unit: "calls", what: "flushes of all folios" },
            Metric { name: v.flushes_batched, unit: "calls", what: "flushes of all folios" },
            Metric { name: v.syscalls_page_by_page_deferred, unit: "calls", what: "system calls for a folio" },
            Metric { name: v.syscalls_batched, unit: "calls", what: "system calls for a folio" },
        ];
        let mut j = 0;
        while j < EACH {
            metrics[EACH * i + j] = of_variant[j];
            j += 1;
        }
        i += 1;
    }
    let first = EACH * VARIANTS.len();
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
           reclaim is timed page by page (a flush a page; flushes collected, as Linux until 6.14) and batched, with a share of folios written to again, pinned, \
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

pub(in crate::bench) const ARENA: About = About {
    name: "arena",
    what: "An arena's frames as a program has them: allocated and freed by handles, of a size that the compiler does not \
           know; a GiB of them of which few are kept, purged; arenas that nobody has used yet; a buffer that grows by \
           doubling. Beside it the C library's malloc and, with -e mimalloc and -e jemalloc in a build with --features peers, \
           those: pages aligned to 4 KiB, their own way of purging. linux is one mapping as large as the buffer, touched: \
           what nobody gets below.",
    source: "buffer pools and large vectors of programs; mimalloc issue 1364 (memory that is not given back)",
    threads: 1,
    fewest_threads: 1,
    metrics: &[
        Metric { name: "ns_per_pair_4k", unit: "ns", what: "an allocation of 4 KiB and its free, nothing written" },
        Metric { name: "ns_per_pair_64k", unit: "ns", what: "of 64 KiB" },
        Metric { name: "ns_per_pair_2m", unit: "ns", what: "of 2 MiB" },
        Metric { name: "mib_after_purge_4k", unit: "MiB", what: "in memory, 1 page of 1,000 of a GiB kept" },
        Metric { name: "ms_purge_4k", unit: "ms", what: "CPU time of that purge" },
        Metric {
            name: "mib_after_purge_64k",
            unit: "MiB",
            what: "in memory, 1 piece of 64 KiB of 64 of a GiB kept: 16 MiB",
        },
        Metric { name: "ms_purge_64k", unit: "ms", what: "CPU time of that purge" },
        Metric { name: "kib_empty_1t", unit: "KiB", what: "in memory for an empty arena of 1 TiB of address space" },
        Metric { name: "ms_empty_1t", unit: "ms", what: "until it is made" },
        Metric { name: "kib_empty_16t", unit: "KiB", what: "in memory for an empty arena of 16 TiB" },
        Metric { name: "ms_empty_16t", unit: "ms", what: "until it is made" },
        Metric {
            name: "mib_peak_doubled",
            unit: "MiB",
            what: "the most in memory while a buffer is doubled to 512 MiB",
        },
        Metric { name: "ms_doubled", unit: "ms", what: "CPU time of that, page faults of 4 KiB pages included" },
        Metric { name: "mib_peak_doubled_huge", unit: "MiB", what: "the same in an arena of huge pages" },
        Metric { name: "ms_doubled_huge", unit: "ms", what: "CPU time of that, page faults of huge pages included" },
    ],
};
