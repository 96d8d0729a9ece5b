//! The clock of a trace: when the periodic work is due, and when to look at memory.

use super::super::op::{Op, SamplePoint};
use super::Mapper;

/// The kernel's vmstat worker runs about once a second on every CPU.
const TICK_NS: u64 = 1_000_000_000;
/// When within a second: the kernel rounds such work to whole seconds of its own clock, so that CPUs wake up together.
/// 23 of 29 timer drains in seven recordings of Linux 6.18 fall between 56 and 116 ms after a whole second of
/// CLOCK_MONOTONIC (docs/fidelity.md).
pub const TICK_PHASE_NS: u64 = 80_000_000;
/// Ticks made up for after a gap in the trace. PCP `high` decays by an eighth each, so 64 leave nothing to decay.
const TICKS_AFTER_GAP: u64 = 64;

impl Mapper {
    /// Hands out the ticks and samples that are due at `now`.
    pub(super) fn clock(&mut self, now: u64, ops: &mut Vec<Op>, samples: &mut Vec<SamplePoint>) {
        let Some(schedule) = self.options.schedule else { return };
        if now >= self.next_tick_ns {
            let due = (now - self.next_tick_ns) / TICK_NS + 1;
            for _ in 0..due.min(TICKS_AFTER_GAP) {
                ops.extend((0..schedule.cpus).map(|cpu| Op::Tick { cpu }));
            }
            self.next_tick_ns = self.next_tick_ns.saturating_add(due.saturating_mul(TICK_NS));
        }
        while now >= self.next_sample_ns {
            self.sample(self.next_sample_ns, ops, samples);
            self.samples_taken += 1;
            self.next_sample_ns = if self.samples_taken < schedule.samples {
                self.next_sample_ns.saturating_add(schedule.sample_every_ns.max(1))
            } else {
                u64::MAX
            };
            if self.next_sample_ns == u64::MAX {
                break;
            }
        }
    }

    pub(super) fn sample(&self, ts_ns: u64, ops: &mut Vec<Op>, samples: &mut Vec<SamplePoint>) {
        ops.push(Op::Sample { index: samples.len() as u32 });
        samples.push(SamplePoint { ts_ns, live_frames: self.facts.live_frames });
    }
}

/// The first moment after `ts_ns` at which the periodic work is due.
pub(super) fn first_tick_after(ts_ns: u64, phase_ns: u64) -> u64 {
    let second = ts_ns.saturating_sub(phase_ns) / TICK_NS + u64::from(ts_ns >= phase_ns);
    second.saturating_mul(TICK_NS).saturating_add(phase_ns)
}
