//! A recorded trace, spread over CPUs.
//!
//! As many CPUs as it was recorded on form a cell, which plays one copy; the last cell may have
//! fewer CPUs, which then share the recorded ones' parts. A CPU does its part in the recorded order
//! and waits where it frees what another CPU of the cell has not allocated yet. The recorded pauses
//! are left out: a machine is to be seen at work. A chunk that the trace splits later is allocated
//! in its pieces.

use std::sync::{Arc, Mutex, PoisonError};

use freehold::{Order, Pfn};

use super::{About, Io, Program, Setting, Step};
use crate::engine::Request;
use crate::replay::{Mapper, MapperOptions, Op, SourceError, Trace, each_event};

pub(super) const TRACE: About = About {
    name: "trace",
    what: "A recorded trace (--trace FILE): each group of as many CPUs as it was recorded on plays \
           a copy of \
           it, in its order and without its pauses.",
    source: "a trace that 'freehold record' wrote",
    fewest_cpus: 1,
    frames_a_cpu: 0,
    think_ns: 0.0,
};

/// One call of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceOp {
    /// Allocates what is to be numbers `id` to `id + pieces - 1`.
    Alloc {
        /// The first number.
        id: u32,
        /// How many chunks.
        pieces: u32,
        request: Request,
    },
    /// Frees number `id`.
    Free { id: u32 },
}

/// A trace as calls by CPUs, in its order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TraceOps {
    pub name: String,
    /// Who calls what.
    pub ops: Vec<(u16, TraceOp)>,
    /// CPUs it was recorded on.
    pub cpus: u16,
    /// Numbers there are.
    pub ids: u32,
    /// Frames live at once, at most.
    pub peak_frames: u64,
    pub frames: u64,
}

impl TraceOps {
    pub fn read(trace: &dyn Trace) -> Result<Self, SourceError> {
        let mut done = Self { name: trace.open()?.description().name, ..Self::default() };
        let mut mapper = Mapper::new(MapperOptions::default());
        let (mut ops, mut samples) = (Vec::new(), Vec::new());
        let mut slots = Slots::default();
        each_event(trace, |event| {
            mapper.event(event, &mut ops, &mut samples);
            ops.drain(..).for_each(|op| done.add(&mut slots, op));
        })?;
        // What is live at the end stays: the mapper's own cleaning up is not part of the trace.
        Ok(done)
    }

    fn add(&mut self, slots: &mut Slots, op: Op) {
        match op {
            Op::Alloc { slot, cpu, order, migratetype, flags } => {
                let id = self.ids;
                self.ids += 1;
                self.cpus = self.cpus.max(cpu + 1);
                slots.set(slot, Some((id, self.ops.len(), order)));
                slots.live += order.frames();
                self.frames += order.frames();
                self.peak_frames = self.peak_frames.max(slots.live);
                let request = Request { order, migratetype, flags };
                self.ops.push((cpu, TraceOp::Alloc { id, pieces: 1, request }));
            }
            Op::Free { slot, cpu, .. } => self.free(slots, slot, cpu),
            Op::FreeBatch { cpu, .. } => slots.cpu = cpu,
            Op::Member { slot, .. } => self.free(slots, slot, slots.cpu),
            Op::Split { slot, from, to } => {
                slots.split = None;
                let Some((_, at, _)) = slots.get(slot) else { return };
                let pieces = 1u32 << (from.get() - to.get());
                let first = self.ids;
                if let Some((_, TraceOp::Alloc { id, pieces: now, request })) = self.ops.get_mut(at)
                {
                    if *now != 1 {
                        // Split a second time: it stays whole and goes with its first piece; the
                        // others have no number.
                        return;
                    }
                    (*id, *now, request.order) = (first, pieces, to);
                }
                self.ids += pieces;
                slots.split = Some((first, at, to));
                slots.set(slot, Some((first, at, to)));
            }
            Op::Piece { slot, index } => {
                let piece = slots.split.map(|(first, at, order)| (first + index, at, order));
                slots.set(slot, piece);
            }
            Op::Start | Op::Tick { .. } | Op::Reclaim { .. } | Op::Sample { .. } | Op::End => {}
        }
    }

    fn free(&mut self, slots: &mut Slots, slot: u32, cpu: u16) {
        let Some((id, _, order)) = slots.get(slot) else { return };
        slots.set(slot, None);
        slots.live -= order.frames();
        self.cpus = self.cpus.max(cpu + 1);
        self.ops.push((cpu, TraceOp::Free { id }));
    }

    /// The calls of each of `cpus` CPUs.
    fn parts(&self, cpus: usize) -> Vec<Vec<TraceOp>> {
        let mut parts = vec![Vec::new(); cpus];
        for &(cpu, op) in &self.ops {
            parts[usize::from(cpu) % cpus].push(op);
        }
        parts
    }
}

/// What each slot of the replay holds: number, place of its allocation, order.
#[derive(Default)]
struct Slots {
    slots: Vec<Option<(u32, usize, Order)>>,
    split: Option<(u32, usize, Order)>,
    /// Of the batch of frees under way.
    cpu: u16,
    live: u64,
}

impl Slots {
    fn get(&self, slot: u32) -> Option<(u32, usize, Order)> {
        *self.slots.get(slot as usize)?
    }

    fn set(&mut self, slot: u32, value: Option<(u32, usize, Order)>) {
        let slot = slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, None);
        }
        self.slots[slot] = value;
    }
}

/// What a cell has of each number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    NotYet,
    Live(Pfn, Order),
    Gone,
}

type Cell = Arc<Mutex<Vec<State>>>;

struct Player {
    parts: Arc<Vec<Vec<TraceOp>>>,
    part: usize,
    cell: Cell,
    at: usize,
    /// Pieces of the allocation under way that are there already.
    done: u32,
    think_ns: f64,
}

impl Program for Player {
    fn step(&mut self, io: &mut dyn Io) -> Step {
        let Some(&op) = self.parts[self.part].get(self.at) else { return Step::Finished };
        let mut cell = self.cell.lock().unwrap_or_else(PoisonError::into_inner);
        match op {
            TraceOp::Alloc { id, pieces, request } => {
                cell[(id + self.done) as usize] = match io.alloc(request) {
                    Some(pfn) => State::Live(pfn, request.order),
                    None => State::Gone,
                };
                io.think(self.think_ns);
                self.done += 1;
                if self.done < pieces {
                    return Step::Done;
                }
                self.done = 0;
            }
            TraceOp::Free { id } => match cell[id as usize] {
                State::NotYet => {
                    // Its allocation is another CPU's next business.
                    io.think(100.0);
                    return Step::Done;
                }
                State::Live(pfn, order) => {
                    io.free(&[(pfn, order)]);
                    cell[id as usize] = State::Gone;
                }
                State::Gone => {}
            },
        }
        self.at += 1;
        Step::Done
    }

    fn live(&self) -> u64 {
        if self.part != 0 {
            // The first CPU counts for its cell.
            return 0;
        }
        let cell = self.cell.lock().unwrap_or_else(PoisonError::into_inner);
        cell.iter()
            .map(|state| if let State::Live(_, order) = state { order.frames() } else { 0 })
            .sum()
    }
}

pub(super) fn programs(trace: &TraceOps, setting: &Setting) -> Vec<Box<dyn Program>> {
    let recorded = usize::from(trace.cpus.max(1));
    let mut programs: Vec<Box<dyn Program>> = Vec::new();
    let whole = Arc::new(trace.parts(recorded));
    let mut left = usize::from(setting.cpus);
    while left > 0 {
        let size = left.min(recorded);
        let parts = if size == recorded { Arc::clone(&whole) } else { Arc::new(trace.parts(size)) };
        let cell: Cell = Arc::new(Mutex::new(vec![State::NotYet; trace.ids as usize]));
        for part in 0..size {
            programs.push(Box::new(Player {
                parts: Arc::clone(&parts),
                part,
                cell: Arc::clone(&cell),
                at: 0,
                done: 0,
                think_ns: setting.think_ns,
            }));
        }
        left -= size;
    }
    programs
}

#[cfg(test)]
mod tests {
    use freehold::{AllocFlags, Migratetype};

    use super::*;

    #[test]
    fn pieces_of_a_second_split_are_not_those_of_another() {
        let order = |order| Order::new(order).unwrap();
        let alloc = |slot| Op::Alloc {
            slot,
            cpu: 0,
            order: order(2),
            migratetype: Migratetype::Movable,
            flags: AllocFlags::empty(),
        };
        let free = |slot, size| Op::Free { slot, cpu: 0, order: order(size) };
        let (mut done, mut slots) = (TraceOps::default(), Slots::default());
        for op in [
            alloc(0),
            Op::Split { slot: 0, from: order(2), to: order(1) },
            Op::Piece { slot: 1, index: 1 },
            alloc(2),
            Op::Split { slot: 2, from: order(2), to: order(1) },
            Op::Piece { slot: 3, index: 1 },
            Op::Split { slot: 0, from: order(1), to: order(0) },
            Op::Piece { slot: 4, index: 1 },
            free(4, 0),
            free(3, 1),
            free(2, 1),
            free(1, 1),
            free(0, 0),
        ] {
            done.add(&mut slots, op);
        }
        let freed = |&(_, op): &(u16, TraceOp)| match op {
            TraceOp::Free { id } => Some(id),
            TraceOp::Alloc { .. } => None,
        };
        // Each of the four chunks of order 1 once, by number: 1 and 2 are the first allocation's, 4
        // and 5 the second's.
        assert_eq!(done.ops.iter().filter_map(freed).collect::<Vec<_>>(), [5, 4, 2, 1]);
        assert_eq!(slots.live, 0);
    }
}
