//! What is different in each variant of the lazyfree benchmark.

/// A variant of what is reclaimed, and beside what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// The thread's own: written to, advised, reclaimed, by the only thread that runs.
    OneThread,
    /// The same while a second thread of the process runs on another CPU, so that every flush interrupts it.
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

/// The metrics of a variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// Which variant.
    pub variant: Variant,
    /// What it is.
    pub what: &'static str,
    /// Time, page by page, each page flushed.
    pub ns_page_by_page: &'static str,
    /// Time, page by page, flushes collected: Linux until 6.14.
    pub ns_page_by_page_deferred: &'static str,
    /// Time, batched.
    pub ns_batched: &'static str,
    /// How many times faster the last is than the first.
    pub speedup: &'static str,
    /// How many times faster the last is than the second: what the thread measured.
    pub speedup_over_deferred: &'static str,
    /// Folios that came on the deferred-split queue, page by page.
    pub deferred_page_by_page: &'static str,
    /// The same, page by page with flushes collected.
    pub deferred_page_by_page_deferred: &'static str,
    /// The same, batched.
    pub deferred_batched: &'static str,
    /// Flushes, page by page.
    pub flushes_page_by_page: &'static str,
    /// The same, with flushes collected.
    pub flushes_page_by_page_deferred: &'static str,
    /// The same, batched.
    pub flushes_batched: &'static str,
    /// System calls for each folio, page by page with flushes collected.
    pub syscalls_page_by_page_deferred: &'static str,
    /// System calls for each folio, batched.
    pub syscalls_batched: &'static str,
}

macro_rules! variant {
    ($variant:ident, $suffix:literal, $what:literal) => {
        Metrics {
            variant: Variant::$variant,
            what: $what,
            ns_page_by_page: concat!("ns_per_folio_page_by_page", $suffix),
            ns_page_by_page_deferred: concat!("ns_per_folio_page_by_page_deferred", $suffix),
            ns_batched: concat!("ns_per_folio_batched", $suffix),
            speedup: concat!("batched_speedup", $suffix),
            speedup_over_deferred: concat!("batched_speedup_over_deferred", $suffix),
            deferred_page_by_page: concat!("deferred_splits_page_by_page", $suffix),
            deferred_page_by_page_deferred: concat!("deferred_splits_page_by_page_deferred", $suffix),
            deferred_batched: concat!("deferred_splits_batched", $suffix),
            flushes_page_by_page: concat!("flushes_page_by_page", $suffix),
            flushes_page_by_page_deferred: concat!("flushes_page_by_page_deferred", $suffix),
            flushes_batched: concat!("flushes_batched", $suffix),
            syscalls_page_by_page_deferred: concat!("syscalls_per_folio_page_by_page_deferred", $suffix),
            syscalls_batched: concat!("syscalls_per_folio_batched", $suffix),
        }
    };
}

/// All variants.
pub const VARIANTS: [Metrics; 7] = [
    variant!(OneThread, "", "one thread"),
    variant!(SecondThread, "_second_thread", "a second thread runs"),
    variant!(Redirtied, "_redirtied", "1/8 written to again"),
    variant!(Pinned, "_pinned", "1/8 pinned"),
    variant!(AcrossTables, "_across_tables", "1/32 in two tables"),
    variant!(MixedRights, "_mixed_rights", "1/8 half read-only"),
    variant!(Toucher, "_toucher", "a second thread writes to 1/8"),
];

/// What the system reclaims by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelMetrics {
    /// The size of its pages, bytes.
    pub page: usize,
    /// What it is.
    pub what: &'static str,
    /// Time, one thread.
    pub ns: &'static str,
    /// Time, while a second thread runs.
    pub ns_second_thread: &'static str,
}

macro_rules! kernel {
    ($page:expr, $name:literal) => {
        KernelMetrics {
            page: $page,
            what: $name,
            ns: concat!("ns_per_folio_", $name),
            ns_second_thread: concat!("ns_per_folio_", $name, "_second_thread"),
        }
    };
}

/// All sizes of pages.
pub const KERNEL: [KernelMetrics; 3] =
    [kernel!(4 << 10, "4k_pages"), kernel!(64 << 10, "64k_pages"), kernel!(2 << 20, "2m_pages")];
