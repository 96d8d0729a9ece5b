//! What each CPU has to do, and on what each of its steps depends.
//!
//! The mapper's slots are used again as soon as they are empty, which is right for one reader. Here
//! every allocation gets a number of its own, and so does every piece of a split: a step that needs
//! a number waits until it has a frame, and nothing else has to be known about order. So in a plan
//! the slots of operations are numbers.

use freehold::Order;

use freehold_labkit::replay::{Mapper, MapperOptions, Op, SourceError, Trace, each_event};

/// What one CPU has to do, and beside each operation its place in the trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    pub(super) ops: Vec<Op>,
    pub(super) places: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Allocations before the trace begins.
    pub(super) before: Vec<Op>,
    pub(super) streams: Vec<Stream>,
    /// What is live when it ends.
    pub(super) left: Vec<(u16, u32, Order)>,
    /// Numbers given out.
    pub(super) ids: u32,
    /// Operations in the streams as they are counted when applied.
    pub(super) applied: u64,
    pub(super) allocs: u64,
    pub(super) frees: u64,
    pub(super) interrupt_frees: u64,
    /// Of 2^32 single frees, how many are interrupts'.
    interrupts: u64,
    pub(super) replayed: u64,
    pub(super) injected: u64,
}

impl Plan {
    /// Whether the free of that number arrives inside another call of its CPU.
    pub(super) fn is_interrupt(&self, id: u32) -> bool {
        u64::from(scatter(id)) < self.interrupts
    }

    /// Reads the trace and shares it out.
    pub(super) fn of(
        trace: &dyn Trace,
        options: MapperOptions,
        cpus: u16,
        interrupts: f64,
    ) -> Result<Self, SourceError> {
        let mut mapper = Mapper::new(options);
        let mut planner = Planner::new(cpus, interrupts);
        let (mut ops, mut samples) = (Vec::new(), Vec::new());
        each_event(trace, |event| {
            mapper.event(event, &mut ops, &mut samples);
            planner.take(&mut ops, event.cpu.get() % cpus.max(1));
        })?;
        mapper.finish(&mut ops, &mut samples);
        planner.take(&mut ops, 0);
        let mut plan = planner.plan;
        plan.replayed = mapper.replayed();
        plan.injected = mapper.facts().injected;
        Ok(plan)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Before,
    Running,
    Over,
}

struct Planner {
    plan: Plan,
    /// The number of what is in each of the mapper's slots.
    slots: Vec<u32>,
    phase: Phase,
    /// The CPU whose batch is being read.
    batch: u16,
    place: u32,
}

impl Planner {
    fn new(cpus: u16, interrupts: f64) -> Self {
        Self {
            plan: Plan {
                streams: vec![Stream::default(); usize::from(cpus)],
                interrupts: (interrupts * 4_294_967_296.0) as u64,
                ..Plan::default()
            },
            slots: Vec::new(),
            phase: Phase::Before,
            batch: 0,
            place: 0,
        }
    }

    /// Shares out the operations that one row led to; `on` is the CPU of the row.
    fn take(&mut self, ops: &mut Vec<Op>, on: u16) {
        for op in ops.drain(..) {
            self.one(op, on);
        }
    }

    fn one(&mut self, mut op: Op, on: u16) {
        match &mut op {
            Op::Alloc { slot, cpu, .. } => {
                *slot = self.new_id(*slot);
                if self.phase == Phase::Before {
                    self.plan.before.push(op);
                } else {
                    self.plan.allocs += 1;
                    self.push(*cpu, op, 1);
                }
            }
            Op::Free { slot, cpu, order } => {
                *slot = self.slots[*slot as usize];
                if self.phase == Phase::Over {
                    self.plan.left.push((*cpu, *slot, *order));
                    return;
                }
                self.plan.interrupt_frees += u64::from(self.plan.is_interrupt(*slot));
                self.plan.frees += 1;
                self.push(*cpu, op, 1);
            }
            Op::FreeBatch { cpu, .. } => {
                self.batch = *cpu;
                self.push(*cpu, op, 0);
            }
            Op::Member { slot, .. } => {
                *slot = self.slots[*slot as usize];
                self.plan.frees += 1;
                self.push(self.batch, op, 1);
            }
            Op::Split { slot, .. } => {
                let of = *slot;
                *slot = self.slots[of as usize];
                self.push(on, op, 1);
                // The first piece has a number of its own as well: who frees it waits for the
                // split.
                let first = Op::Piece { slot: self.new_id(of), index: 0 };
                self.push(on, first, 0);
            }
            Op::Piece { slot, .. } => {
                *slot = self.new_id(*slot);
                self.push(on, op, 0);
            }
            Op::Tick { cpu } => self.push(*cpu, op, 1),
            Op::Start => self.phase = Phase::Running,
            Op::End => self.phase = Phase::Over,
            // Of a comparison with the recording kernel, which has one thread.
            Op::Reclaim { .. } | Op::Sample { .. } => {}
        }
    }

    fn push(&mut self, cpu: u16, op: Op, applied: u64) {
        // Members keep the place of their batch, and pieces that of their split: they are carried
        // out with it.
        self.place += u32::from(!matches!(op, Op::Member { .. } | Op::Piece { .. }));
        self.plan.applied += applied;
        let stream = &mut self.plan.streams[usize::from(cpu)];
        stream.ops.push(op);
        stream.places.push(self.place);
    }

    fn new_id(&mut self, slot: u32) -> u32 {
        let slot = slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, u32::MAX);
        }
        let id = self.plan.ids;
        self.plan.ids += 1;
        self.slots[slot] = id;
        id
    }
}

/// Spreads numbers evenly, so that a share of them is a share of everything that happens.
fn scatter(id: u32) -> u32 {
    let mixed = (u64::from(id) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use freehold::{AllocFlags, Migratetype};

    use super::*;

    fn order(order: u8) -> Order {
        Order::new(order).unwrap()
    }

    fn alloc(slot: u32, cpu: u16, size: u8) -> Op {
        Op::Alloc {
            slot,
            cpu,
            order: order(size),
            migratetype: Migratetype::Movable,
            flags: AllocFlags::empty(),
        }
    }

    #[test]
    fn a_slot_used_again_has_another_number_and_pieces_follow_one_another() {
        let mut planner = Planner::new(2, 0.0);
        let mut ops = vec![
            Op::Start,
            alloc(0, 0, 0),
            Op::Free { slot: 0, cpu: 1, order: order(0) },
            alloc(0, 1, 1),
            Op::Split { slot: 0, from: order(1), to: order(0) },
            Op::Piece { slot: 1, index: 1 },
            Op::Free { slot: 1, cpu: 0, order: order(0) },
            Op::End,
            Op::Free { slot: 0, cpu: 1, order: order(0) },
        ];
        planner.take(&mut ops, 0);
        let plan = planner.plan;
        let split = Op::Split { slot: 1, from: order(1), to: order(0) };
        let pieces = [Op::Piece { slot: 2, index: 0 }, Op::Piece { slot: 3, index: 1 }];
        assert_eq!(plan.streams[0].ops[1..4], [split, pieces[0], pieces[1]]);
        assert_eq!(plan.streams[0].ops[4..], [Op::Free { slot: 3, cpu: 0, order: order(0) }]);
        assert_eq!(plan.streams[1].ops[0], Op::Free { slot: 0, cpu: 1, order: order(0) });
        assert_eq!(plan.left, [(1, 2, order(0))]);
        assert_eq!((plan.allocs, plan.frees, plan.applied, plan.ids), (2, 2, 5, 4));
        assert!(plan.streams.iter().all(|stream| stream.places.is_sorted()));
    }

    #[test]
    fn a_share_of_frees_is_about_that_share() {
        for (share, expected) in [(0.0, 0..1), (0.05, 4_500..5_500), (1.0, 100_000..100_001)] {
            let mut planner = Planner::new(1, share);
            let mut ops = vec![Op::Start];
            for _ in 0..100_000 {
                ops.extend([alloc(0, 0, 0), Op::Free { slot: 0, cpu: 0, order: order(0) }]);
            }
            planner.take(&mut ops, 0);
            let frees = planner.plan.interrupt_frees;
            assert!(expected.contains(&frees), "{frees} of 100,000 at {share}");
        }
    }
}
