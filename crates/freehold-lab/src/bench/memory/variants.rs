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
    /// Time, page by page.
    pub ns_page_by_page: &'static str,
    /// Time, batched.
    pub ns_batched: &'static str,
    /// How many times faster the second is.
    pub speedup: &'static str,
    /// Folios that came on the deferred-split queue, page by page.
    pub deferred_page_by_page: &'static str,
    /// The same, batched.
    pub deferred_batched: &'static str,
    /// System calls for each folio, batched.
    pub syscalls_batched: &'static str,
}

macro_rules! variant {
    ($variant:ident, $suffix:literal, $what:literal) => {
        Metrics {
            variant: Variant::$variant,
            what: $what,
            ns_page_by_page: concat!("ns_per_folio_page_by_page", $suffix),
            ns_batched: concat!("ns_per_folio_batched", $suffix),
            speedup: concat!("batched_speedup", $suffix),
            deferred_page_by_page: concat!("deferred_splits_page_by_page", $suffix),
            deferred_batched: concat!("deferred_splits_batched", $suffix),
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
