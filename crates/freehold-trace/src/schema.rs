//! The columns of a Parquet trace, and what the file says about itself in its metadata.
//!
//! ```text
//!  ts_ns u64 │ cpu u16 │ event u8 │ pfn u64 │ order u8 │ migratetype u8 │ gfp_flags u32 │ pid u32 │
//!  fallback_order u8 │ fallback_migratetype u8 │ flag u8
//! ```
//!
//! One row is one event; what an event does not have is 255 (types and orders) or 0.

/// The columns, in the order in which they are written; [`COLUMNS`] says which of them a trace must
/// have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(super) enum Column {
    TsNs,
    Cpu,
    Event,
    Pfn,
    Order,
    Migratetype,
    GfpFlags,
    Pid,
    FallbackOrder,
    FallbackMigratetype,
    Flag,
}

/// A column's name, its width in bits, whether a trace must have it, and what stands for "not
/// given".
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnDef {
    pub(super) name: &'static str,
    pub(super) bits: i8,
    pub(super) required: bool,
    pub(super) default: u64,
}

const fn column(name: &'static str, bits: i8, required: bool, default: u64) -> ColumnDef {
    ColumnDef { name, bits, required, default }
}

/// Every column, indexed by [`Column`].
pub(super) const COLUMNS: [ColumnDef; 11] = [
    column("ts_ns", 64, true, 0),
    column("cpu", 16, true, 0),
    column("event", 8, true, 0),
    column("pfn", 64, true, 0),
    column("order", 8, true, 0),
    column("migratetype", 8, false, NONE),
    column("gfp_flags", 32, false, GFP_NONE),
    column("pid", 32, false, 0),
    column("fallback_order", 8, false, NONE),
    column("fallback_migratetype", 8, false, NONE),
    column("flag", 8, false, FLAG_NONE),
];

/// "Not given" in the columns for orders and types.
pub(super) const NONE: u64 = 255;
/// No `gfp_flags` column: a value that the column itself cannot hold.
pub(super) const GFP_NONE: u64 = 1 << 32;
/// No `flag` column: a value that the column itself cannot hold.
pub(super) const FLAG_NONE: u64 = 1 << 32;
/// The frame number of a failed allocation.
pub(super) const PFN_FAILED: u64 = u64::MAX;

/// The names of the events, indexed by their number in the file.
pub(super) const EVENTS: [&str; 6] =
    ["alloc", "free", "free_batched", "pcpu_drain", "extfrag", "zone_locked"];

/// The key under which a file's own description stands, as JSON.
pub(super) const METADATA_KEY: &str = "pagetrace";
/// The format's name and version in that description.
pub(super) const FORMAT: &str = "page-allocator-trace/1";
/// The name of the schema's root in a file whose description has the columns' sums. It stands far
/// from the description: damage that makes a reader pass over that leaves this.
pub(super) const WITH_SUMS: &str = "page_allocator_trace_with_sums";
