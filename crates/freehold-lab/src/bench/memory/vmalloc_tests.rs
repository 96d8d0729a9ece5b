//! The tests of `lib/test_vmalloc.c` that the contiguous-free proposal's table names, with its
//! parameters; but for `pcpu_alloc_test`, whose allocator of small objects is part of neither
//! vmalloc nor page allocator.
//!
//! Source: the table of "vmalloc: Optimize vfree" (January 2026), in its order; what each test does
//! is Linux 7.2's.

use crate::bench::metric::{Metric, metric};

/// What a loop of a test does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Five zeroed pages at a multiple of 32 KiB (twice a thread's stack here), and their free.
    FixAlign,
    /// `pages` pages, one byte written, and their free.
    FixSize,
    /// One page after the address space was filled with single pages of which every second was
    /// freed.
    FullFit,
    /// One page that another thread frees after a grace period, with many others.
    Deferred,
    /// A hundred pages and one page, while 15,000 areas are kept.
    LongBusyList,
    /// 1 to 10 zeroed pages at a multiple of up to 4 MiB.
    RandomSizeAlign,
    /// 1 to 100 pages.
    RandomSize,
    /// Frames that are there, shown at some address and taken away again: no allocator in the loop.
    MapRam,
}

/// A row of the proposal's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Test {
    /// The test's name, as the table has it.
    pub name: &'static str,
    pub work: Work,
    /// `p`: pages.
    pub pages: u64,
    /// `h`: whether huge mappings are allowed.
    pub huge: bool,
    /// `l`: loops.
    pub loops: u64,
}

macro_rules! tests {
    ($($name:literal, $work:ident, $pages:literal, $huge:literal, $loops:literal;)*) => {
        pub const TESTS: [Test; 18] =
            [$(Test { name: $name, work: Work::$work, pages: $pages, huge: $huge == 1, loops: $loops }),*];

        /// What is measured of each: its time as three kernels, and the table's columns.
        pub(crate) const METRICS: [[Metric; 6]; TESTS.len()] = [$([
            us(name!($name, $pages, $huge, "_v6_18_us"), "the table's loops; single frames, freed one by one"),
            us(name!($name, $pages, $huge, "_v6_19_rc1_us"), "the same; the largest chunks, freed page by page"),
            us(name!($name, $pages, $huge, "_us"), "the same; the largest chunks, freed as runs"),
            times(name!($name, $pages, $huge, "_v6_19_rc1_by_v6_18"), "v6.18's time by v6.19-rc1's"),
            times(name!($name, $pages, $huge, "_patched_by_v6_18"), "v6.18's time by that with contiguous freeing"),
            times(name!($name, $pages, $huge, "_contig_free_speedup"), "v6.19-rc1's by that with contiguous freeing"),
        ]),*];
    };
}

const fn us(name: &'static str, what: &'static str) -> Metric {
    metric(name, "us", what)
}

const fn times(name: &'static str, what: &'static str) -> Metric {
    metric(name, "times", what)
}

macro_rules! name {
    ($name:literal, $pages:literal, $huge:literal, $suffix:literal) => {
        concat!($name, "_p", $pages, "_h", $huge, $suffix)
    };
}

tests! {
    "fix_align_alloc_test", FixAlign, 1, 0, 500_000;
    "fix_size_alloc_test", FixSize, 1, 0, 500_000;
    "fix_size_alloc_test", FixSize, 4, 0, 500_000;
    "fix_size_alloc_test", FixSize, 16, 0, 500_000;
    "fix_size_alloc_test", FixSize, 16, 1, 500_000;
    "fix_size_alloc_test", FixSize, 64, 0, 100_000;
    "fix_size_alloc_test", FixSize, 64, 1, 100_000;
    "fix_size_alloc_test", FixSize, 256, 0, 100_000;
    "fix_size_alloc_test", FixSize, 256, 1, 100_000;
    "fix_size_alloc_test", FixSize, 512, 0, 100_000;
    "fix_size_alloc_test", FixSize, 512, 1, 100_000;
    "full_fit_alloc_test", FullFit, 1, 0, 500_000;
    "kvfree_rcu_1_arg_vmalloc_test", Deferred, 1, 0, 500_000;
    "kvfree_rcu_2_arg_vmalloc_test", Deferred, 1, 0, 500_000;
    "long_busy_list_alloc_test", LongBusyList, 1, 0, 500_000;
    "random_size_align_alloc_test", RandomSizeAlign, 1, 0, 500_000;
    "random_size_alloc_test", RandomSize, 1, 0, 500_000;
    "vm_map_ram_test", MapRam, 1, 0, 500_000;
}
