//! What a mapper is told besides the trace, and who listens to it.

use freehold::{CpuId, Migratetype, Order, Pfn};
use freehold_trace::ticks::Tick;

/// An allocation that the trace does not show, put in before one of its rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Injection {
    /// The row before which it happens, counted from 0.
    pub row: u64,
    /// Its first frame in the trace's numbering.
    pub pfn: Pfn,
    /// How much.
    pub order: Order,
    /// The CPU that allocates.
    pub cpu: CpuId,
    /// What kind.
    pub migratetype: Migratetype,
}

/// When to look at memory and when the periodic work is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// CPUs of the machine, each of which ticks.
    pub cpus: u16,
    /// The trace's first moment.
    pub first_ts_ns: u64,
    /// Between two samples; at least 1.
    pub sample_every_ns: u64,
    /// How many samples to take at most.
    pub samples: u32,
    /// When within a second the periodic work runs, on the trace's clock.
    pub tick_phase_ns: u64,
}

/// What a mapper should do beyond the rules.
#[derive(Clone, Debug)]
pub struct MapperOptions {
    /// The largest order that engines have.
    pub max_order: Order,
    /// Fold the trace's CPUs onto this many: CPU n becomes n modulo this. `None`: as traced.
    pub fold_cpus: Option<u16>,
    /// Ticks and samples; `None` for neither (the survey).
    pub schedule: Option<Schedule>,
    /// Allocations to put in, in rising order of rows.
    pub injections: Vec<Injection>,
    /// When the periodic work ran, in rising order of time; `None` where nobody recorded it, and it is taken to run once a
    /// second.
    pub ticks: Option<Vec<Tick>>,
}

impl Default for MapperOptions {
    fn default() -> Self {
        Self { max_order: Order::LINUX_MAX, fold_cpus: None, schedule: None, injections: Vec::new(), ticks: None }
    }
}

/// Something that happened to frames of the trace; for who wants more than counts (the survey does).
pub trait Observer {
    /// Frames were allocated on `cpu` (not where the allocation is left out).
    fn allocated(&mut self, _pfn: Pfn, _order: Order) {}
    /// Frames were freed; `known` if they were live.
    fn freed(&mut self, _row: u64, _cpu: CpuId, _pfn: Pfn, _order: Order, _known: bool) {}
    /// The recording kernel took frames from a zone under its lock.
    fn zone_locked(&mut self, _row: u64, _cpu: CpuId, _pfn: Pfn, _order: Order, _migratetype: u8) {}
}

/// Watches nothing.
pub struct NoObserver;

impl Observer for NoObserver {}
