//! Page-allocator traces: what an event is, and readers for every format they come in.

mod event;

pub use event::{Event, EventKind};

/// Stand-in until the readers land.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file.
    Path(std::path::PathBuf),
    /// Bytes.
    Bytes {
        /// Name.
        name: String,
        /// Bytes.
        bytes: &'static [u8],
    },
}
/// Stand-in.
#[derive(Clone, Copy, Default, Debug)]
pub struct OpenOptions {
    /// Skip.
    pub skip_bad: bool,
}
/// Stand-in.
pub struct TraceInfo {
    /// Name.
    pub name: String,
    /// Format.
    pub format: String,
    /// Rows.
    pub rows: Option<u64>,
    /// Kernel.
    pub kernel: Option<String>,
    /// CPUs.
    pub cpus: Option<u16>,
    /// Lost.
    pub lost_events: Option<u64>,
}
/// Stand-in.
pub struct TraceReader {
    info: TraceInfo,
}
#[allow(missing_docs, clippy::missing_errors_doc)]
impl TraceReader {
    pub fn open(_: &Source, _: OpenOptions) -> Result<Self, String> {
        Err("no reader yet".into())
    }
    #[must_use]
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }
    pub fn next_batch(&mut self, _: &mut Vec<Event>) -> Result<bool, String> {
        Ok(false)
    }
    #[must_use]
    pub fn skipped(&self) -> u64 {
        0
    }
    #[must_use]
    pub fn ignored(&self) -> u64 {
        0
    }
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (0, 0)
    }
}
#[allow(missing_docs)]
pub mod gfp {
    use freehold::{AllocFlags, Migratetype, Order};
    #[must_use]
    pub fn migratetype(gfp: u32) -> Migratetype {
        if gfp & 8 != 0 { Migratetype::Movable } else { Migratetype::Unmovable }
    }
    #[must_use]
    pub fn alloc_flags(_: u32, _: Order) -> AllocFlags {
        AllocFlags::empty()
    }
}
#[allow(missing_docs, clippy::missing_errors_doc)]
pub mod zoneinfo {
    pub struct Zone {
        pub name: String,
        pub free: u64,
        pub min: u64,
        pub low: u64,
        pub high: u64,
        pub spanned: u64,
        pub managed: u64,
        pub cma: u64,
        pub start_pfn: u64,
        pub pagesets: Vec<Set>,
    }
    pub struct Set {
        pub cpu: u16,
        pub count: u64,
        pub batch: u64,
        pub high: u64,
        pub high_min: u64,
        pub high_max: u64,
    }
    pub fn parse(_: &str) -> Result<Vec<Zone>, String> {
        Err("no parser yet".into())
    }
}
