//! What a mapper is told besides the trace.

use std::sync::Arc;

use freehold_trace::ticks::Tick;

use super::{Batched, Injection};
use crate::replay::ReclaimChange;

/// When to look at memory and when the periodic work is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// CPUs of the machine, each of which ticks. CPUs of the trace beyond are folded onto these: n
    /// becomes n modulo this.
    pub cpus: u16,
    pub first_ts_ns: u64,
    /// Between two samples; at least 1.
    pub sample_every_ns: u64,
    pub samples: u32,
    /// When within a second the periodic work runs, on the trace's clock.
    pub tick_phase_ns: u64,
}

/// What a mapper should do beyond the rules.
#[derive(Clone, Debug, Default)]
pub struct MapperOptions {
    /// Ticks and samples on a machine; `None`: neither, and CPUs as traced.
    pub schedule: Option<Schedule>,
    /// Allocations to put in before the first row.
    pub warm: Vec<Injection>,
    /// Frees that are told of when their batch is committed.
    pub batched: Arc<Batched>,
    /// When the periodic work ran, in rising order of time; `None` where nobody recorded it, and it
    /// is taken to run once a second.
    pub ticks: Option<Vec<Tick>>,
    /// When memory was being reclaimed, in rising order of time.
    pub reclaim: Vec<ReclaimChange>,
}
