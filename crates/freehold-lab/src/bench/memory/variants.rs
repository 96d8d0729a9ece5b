//! What is different in each variant of the lazyfree benchmark.

use crate::bench::metric::{Metric, metric, ns};

/// A variant of what is reclaimed, and beside what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// The thread's own: written to, advised, reclaimed, by the only thread that runs.
    OneThread,
    /// The thread's own, while a second thread of the process runs on another CPU, so that every
    /// flush interrupts it.
    SecondThread,
    /// One page of every eighth folio was written to again.
    Redirtied,
    /// Every eighth folio is pinned.
    Pinned,
    /// Folios begin half a folio before a page table's end: every 32nd lies in two tables.
    AcrossTables,
    /// The second half of every eighth folio may only be read.
    MixedRights,
    /// A second thread writes to pages of every eighth folio meanwhile.
    Toucher,
}

macro_rules! variants {
    ($($variant:ident, $suffix:literal;)*) => {
        pub const VARIANTS: [Variant; 7] = [$(Variant::$variant),*];

        pub(crate) const METRICS: [[Metric; 13]; VARIANTS.len()] = [$([
            ns(concat!("ns_per_folio_page_by_page", $suffix), "a folio of 64 KiB, one flush a page"),
            ns(
                concat!("ns_per_folio_page_by_page_deferred", $suffix),
                "a folio of 64 KiB page by page, flushes collected: Linux until 6.14",
            ),
            ns(concat!("ns_per_folio_batched", $suffix), "a folio of 64 KiB at once, flushes collected"),
            metric(concat!("batched_speedup", $suffix), "times", "the first by the third, in each run"),
            metric(concat!("batched_speedup_over_deferred", $suffix), "times", "the second by the third, in each run"),
            metric(concat!("deferred_splits_page_by_page", $suffix), "folios", QUEUED),
            metric(concat!("deferred_splits_page_by_page_deferred", $suffix), "folios", QUEUED),
            metric(concat!("deferred_splits_batched", $suffix), "folios", QUEUED),
            metric(concat!("flushes_page_by_page", $suffix), "calls", FLUSHES),
            metric(concat!("flushes_page_by_page_deferred", $suffix), "calls", FLUSHES),
            metric(concat!("flushes_batched", $suffix), "calls", FLUSHES),
            metric(concat!("syscalls_per_folio_page_by_page_deferred", $suffix), "calls", SYSCALLS),
            metric(concat!("syscalls_per_folio_batched", $suffix), "calls", SYSCALLS),
        ]),*];
    };
}

const QUEUED: &str = "put on the deferred-split queue";
const FLUSHES: &str = "flushes of all folios";
const SYSCALLS: &str = "system calls for a folio";

variants! {
    OneThread, "";
    SecondThread, "_second_thread";
    Redirtied, "_redirtied";
    Pinned, "_pinned";
    AcrossTables, "_across_tables";
    MixedRights, "_mixed_rights";
    Toucher, "_toucher";
}

macro_rules! kernel {
    ($($page:expr, $name:literal;)*) => {
        /// What the system reclaims by itself: the size of its pages in bytes, and their name.
        pub const KERNEL: [(usize, &str); 3] = [$(($page, $name)),*];

        /// What is measured of each: by one thread, and while a second one runs.
        pub(crate) const KERNEL_METRICS: [[Metric; 2]; KERNEL.len()] = [$([
            ns(concat!("ns_per_folio_", $name), PAGEOUT),
            ns(concat!("ns_per_folio_", $name, "_second_thread"), PAGEOUT),
        ]),*];
    };
}

const PAGEOUT: &str = "64 KiB, by the system's MADV_PAGEOUT";

kernel! {
    4 << 10, "4k_pages";
    64 << 10, "64k_pages";
    2 << 20, "2m_pages";
}
