//! The clock of a trace: when the periodic work is due, when reclaim begins and ends, and when to
//! look at memory.

use super::super::op::{Op, SamplePoint};
use super::Mapper;

/// The kernel's vmstat worker runs about once a second on every CPU.
const TICK_NS: u64 = 1_000_000_000;
/// When within a second: the kernel rounds such work to whole seconds of its own clock, so that
/// CPUs wake up together. 23 of 29 timer drains in seven recordings of Linux 6.18 fall between 56
/// and 116 ms after a whole second of CLOCK_MONOTONIC (docs/fidelity.md).
pub const TICK_PHASE_NS: u64 = 80_000_000;
/// Ticks made up for after a gap in the trace. PCP `high` decays by an eighth each, so 64 leave
/// nothing to decay.
const TICKS_AFTER_GAP: u64 = 64;

impl Mapper {
    /// Hands out the ticks and samples that are due at `now`.
    pub(super) fn clock(&mut self, now: u64, ops: &mut Vec<Op>, samples: &mut Vec<SamplePoint>) {
        let Some(schedule) = self.options.schedule else { return };
        while now >= self.next_reclaim_ns {
            let active = self.options.reclaim[self.next_reclaim].active;
            ops.push(Op::Reclaim { active });
            self.next_reclaim += 1;
            let next = self.options.reclaim.get(self.next_reclaim);
            self.next_reclaim_ns = next.map_or(u64::MAX, |change| change.ts_ns);
        }
        if now >= self.next_tick_ns {
            self.ticks(now, schedule.cpus, ops);
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

    /// Those recorded up to `now`, or one a second and CPU.
    fn ticks(&mut self, now: u64, cpus: u16, ops: &mut Vec<Op>) {
        let Some(ticks) = &self.options.ticks else {
            let due = (now - self.next_tick_ns) / TICK_NS + 1;
            for _ in 0..due.min(TICKS_AFTER_GAP) {
                ops.extend((0..cpus).map(|cpu| Op::Tick { cpu }));
            }
            self.next_tick_ns = self.next_tick_ns.saturating_add(due.saturating_mul(TICK_NS));
            return;
        };
        let left = &ticks[self.next_recorded_tick..];
        let due = left.partition_point(|tick| tick.ts_ns <= now);
        ops.extend(left[..due].iter().map(|tick| Op::Tick { cpu: tick.cpu.get() % cpus.max(1) }));
        self.next_recorded_tick += due;
        self.next_tick_ns = left.get(due).map_or(u64::MAX, |tick| tick.ts_ns);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{MapperOptions, Schedule};
    use freehold::CpuId;
    use freehold_trace::ticks::Tick;
    use freehold_trace::{Event, EventKind};

    #[test]
    fn recorded_ticks_come_when_they_were_on_the_cpu_they_were_on() {
        let (first_ts_ns, tick_phase_ns) = (TICK_NS, TICK_PHASE_NS);
        let sample_every_ns = u64::MAX;
        let schedule =
            Schedule { cpus: 2, first_ts_ns, sample_every_ns, samples: 1, tick_phase_ns };
        let tick = |(ms, cpu)| Tick { ts_ns: ms * 1_000_000, cpu: CpuId::new(cpu) };
        // Before the first row; between rows, twice on one CPU; at a row; on a CPU that is folded;
        // after the last row.
        let ticks = [(999u64, 0), (1100, 1), (1101, 1), (5000, 0), (5500, 3), (9000, 0)];
        let ticks = ticks.map(tick).to_vec();
        let ticks_at = |ticks: Option<Vec<Tick>>| {
            let options = MapperOptions { schedule: Some(schedule), ticks, ..Default::default() };
            let mut mapper = Mapper::new(options);
            [1000, 5000, 6000].map(|ms| {
                let order = freehold::Order::ZERO;
                let kind = EventKind::Alloc { pfn: None, order, migratetype: 0, gfp_flags: 0 };
                let event = Event { ts_ns: ms * 1_000_000, cpu: CpuId::new(0), pid: 1, kind };
                let mut ops = Vec::new();
                mapper.event(&event, &mut ops, &mut Vec::new());
                let cpu = |op: &Op| if let Op::Tick { cpu } = op { Some(*cpu) } else { None };
                ops.iter().filter_map(cpu).collect::<Vec<_>>()
            })
        };
        assert_eq!(ticks_at(Some(ticks)), [vec![], vec![1, 1, 0], vec![1]]);
        assert_eq!(ticks_at(Some(Vec::new())), [[0; 0]; 3]);
        let seconds = [vec![], [0, 1].repeat(4), vec![0, 1]];
        assert_eq!(ticks_at(None), seconds, "one a second where nobody knows");
    }
}
