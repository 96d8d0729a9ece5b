//! The rules of reading a page-allocator trace: turns rows into operations on slots.
//!
//! - A failed allocation is not replayed.
//! - `mm_page_free` ends an allocation. The kernel frees a batch of folios by preparing them all (one
//!   `free` row each) and then committing them one by one (one `free_batched` row each). Only the
//!   commit gives a frame back, and the task may be interrupted before it, for milliseconds. So the
//!   engine is told at the commit where there will be one, which the survey has found out:
//!
//!   ```text
//!   rows of one CPU     free A  free B  free C  free_batched A  pcpu_drain ..  free_batched C  alloc D
//!   prepared            A       A       A C     C                              -
//!   batch in commit                             A               A              A C             -
//!   to the engine               free B                                         batch {A, C}, alloc
//!   ```
//!
//! - A free inside a larger live allocation splits that (a folio was split before), uniformly, to
//!   the freed order.
//! - A free over several smaller live allocations frees each.
//! - An allocation of a frame that is live means that the free was not traced: it is made up for
//!   first.
//! - A free of a frame that is not live is counted and otherwise ignored, unless its allocation was
//!   put in before the first row ([`Injection`]).
//! - A request above order 10, the engines' largest (machines with pages of 64 KiB have them), is
//!   made in parts of order 10, and freed in them.
//! - Frames that their order cannot start at are left out for all engines alike.
//!
//! Both passes over a trace use this: the survey for its counts, the replay for its operations.
//!
//! | room | what |
//! |---|---|
//! | `options` | what a mapper is told |
//! | `queue` | frees that engines have not been told of |
//! | `clock` | when the periodic work and the samples are due |
//! | `warm` | what must have been allocated before the trace |

mod clock;
mod options;
mod queue;
mod warm;

use std::collections::VecDeque;

use freehold::{AllocFlags, CpuId, Migratetype, Order, Pfn};
use freehold_trace::{Event, EventKind, gfp};

use super::facts::TraceFacts;
use super::frames::{Found, FrameIndex};
use super::op::{Op, SamplePoint};
use clock::first_tick_after;
use queue::{CpuQueue, Freed};

pub use clock::TICK_PHASE_NS;
pub use options::{MapperOptions, Schedule};
pub use queue::Batched;
pub(super) use queue::FindBatched;
pub use warm::Injection;
pub(super) use warm::Warm;

/// The state of one reading of a trace.
pub struct Mapper {
    options: MapperOptions,
    index: FrameIndex,
    /// The traced CPU that allocated each.
    slots: Vec<CpuId>,
    free_slots: Vec<u32>,
    cpus: Vec<CpuQueue>,
    /// What was freed by a row that a batch follows, and where that row says.
    prepared: VecDeque<(Pfn, Freed)>,
    /// Where rows that go in batches are looked for.
    pub(super) find_batched: Option<FindBatched>,
    /// Where what was allocated before the trace is looked for.
    pub(super) warm: Option<Warm>,
    next_tick_ns: u64,
    next_recorded_tick: usize,
    /// Those of the options that are still to come.
    next_reclaim: usize,
    next_reclaim_ns: u64,
    next_sample_ns: u64,
    samples_taken: u32,
    pub facts: TraceFacts,
    /// Allocations and frees handed out so far, chunks of batches counted singly.
    pub replayed: u64,
}

impl Mapper {
    pub fn new(options: MapperOptions) -> Self {
        let (next_tick_ns, next_sample_ns) =
            options.schedule.map_or((u64::MAX, u64::MAX), |schedule| {
                // Recorded ones are asked for at the first row; those before it were before the
                // machine's description.
                let assumed = || first_tick_after(schedule.first_ts_ns, schedule.tick_phase_ns);
                (
                    if options.ticks.is_some() { schedule.first_ts_ns } else { assumed() },
                    schedule.first_ts_ns,
                )
            });
        let next_recorded_tick = match (&options.ticks, options.schedule) {
            (Some(ticks), Some(schedule)) => {
                ticks.partition_point(|tick| tick.ts_ns < schedule.first_ts_ns)
            }
            _ => 0,
        };
        let next_reclaim_ns = options.reclaim.first().map_or(u64::MAX, |change| change.ts_ns);
        Self {
            options,
            index: FrameIndex::default(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            cpus: Vec::new(),
            prepared: VecDeque::new(),
            find_batched: None,
            warm: None,
            next_tick_ns,
            next_recorded_tick,
            next_reclaim: 0,
            next_reclaim_ns,
            next_sample_ns,
            samples_taken: 0,
            facts: TraceFacts::default(),
            replayed: 0,
        }
    }

    /// Reads one event, appending what it means to `ops` (and the samples that became due to
    /// `samples`).
    pub fn event(&mut self, event: &Event, ops: &mut Vec<Op>, samples: &mut Vec<SamplePoint>) {
        self.facts.events += 1;
        self.facts.last_ts_ns = self.facts.last_ts_ns.max(event.ts_ns);
        if self.facts.events == 1 {
            self.facts.first_ts_ns = event.ts_ns;
            self.put_in(ops);
            ops.push(Op::Start);
            self.replayed = 0;
        }
        let next = self.next_tick_ns.min(self.next_sample_ns).min(self.next_reclaim_ns);
        if event.ts_ns >= next {
            self.clock(event.ts_ns, ops, samples);
        }
        let cpu = event.cpu;
        self.see_cpu(cpu);

        match event.kind {
            EventKind::Alloc { pfn: None, .. } => self.facts.failed_allocs += 1,
            EventKind::Alloc { pfn: Some(pfn), order, migratetype, gfp_flags } => {
                self.facts.allocs += 1;
                self.flush_batch(cpu, ops);
                self.find_batched.iter_mut().for_each(|of| of.allocated(pfn));
                if self.usable(pfn, order) {
                    self.warm.iter_mut().for_each(|warm| warm.allocated(pfn, order));
                    let (migratetype, flags) = asked_for(order, migratetype, gfp_flags);
                    self.alloc(cpu, pfn, order, migratetype, flags, ops);
                }
            }
            EventKind::Free { pfn, order } => {
                self.facts.frees += 1;
                self.flush_batch(cpu, ops);
                self.find_batched.iter_mut().for_each(|of| of.freed(pfn, self.facts.frees - 1));
                if self.usable(pfn, order) {
                    let known = self.free(cpu, pfn, order, ops);
                    self.warm.iter_mut().for_each(|warm| warm.freed(cpu, pfn, order, known));
                }
            }
            EventKind::FreeBatched { pfn } => {
                self.facts.free_batched += 1;
                self.find_batched.iter_mut().for_each(|of| of.committed(pfn));
                self.commit(cpu, pfn, ops);
            }
            EventKind::PcpuDrain { .. } => self.facts.pcpu_drains += 1,
            EventKind::Extfrag { .. } => self.facts.extfrags += 1,
            EventKind::ZoneLocked { .. } => self.facts.zone_locked += 1,
        }
    }

    /// Ends the trace: what is still pending goes out, then [`Op::End`], then a free of all that is
    /// live, each on the CPU that allocated it.
    pub fn finish(&mut self, ops: &mut Vec<Op>, samples: &mut Vec<SamplePoint>) {
        for cpu in 0..self.cpus.len() {
            self.flush_batch(CpuId::new(cpu as u16), ops);
        }
        if self.options.schedule.is_some() {
            self.sample(self.facts.last_ts_ns, ops, samples);
        }
        ops.push(Op::End);
        for Found { order, slot, .. } in self.index.iter() {
            let cpu = self.fold(self.slots[slot as usize].get());
            ops.push(Op::Free { slot, cpu, order });
        }
    }

    fn see_cpu(&mut self, cpu: CpuId) {
        if cpu.index() >= self.cpus.len() {
            self.cpus.resize_with(cpu.index() + 1, CpuQueue::default);
        }
        let queue = &mut self.cpus[cpu.index()];
        if !queue.seen {
            queue.seen = true;
            self.facts.cpus_seen += 1;
            self.facts.max_cpu = self.facts.max_cpu.max(cpu.get());
        }
    }

    /// Whether a chunk of `order` can start at `pfn`; counts it where not.
    fn usable(&mut self, pfn: Pfn, order: Order) -> bool {
        self.facts.max_order = self.facts.max_order.max(order.get());
        let usable = pfn.is_aligned(order);
        self.facts.misaligned += u64::from(!usable);
        usable
    }

    fn alloc(
        &mut self,
        cpu: CpuId,
        pfn: Pfn,
        order: Order,
        migratetype: Migratetype,
        flags: AllocFlags,
        ops: &mut Vec<Op>,
    ) {
        if !self.index.is_clear(pfn, order) {
            self.facts.lost_frees += 1;
            if let Some(larger) = self.index.covering(pfn, order) {
                self.split(larger, order, ops);
            }
            while let Some(old) = self.index.first_within(pfn, order) {
                self.take(old);
                self.emit_free(cpu, (old.slot, old.order), ops);
            }
        }
        self.facts.in_parts += u64::from(order > Order::LINUX_MAX);
        let part = order.min(Order::LINUX_MAX);
        for n in 0..order.frames() / part.frames() {
            let slot = self.new_slot(cpu);
            self.index.insert(Pfn::new(pfn.get() + n * part.frames()), part, slot);
            self.add_live(part);
            self.replayed += 1;
            let cpu = self.fold(cpu.get());
            ops.push(Op::Alloc { slot, cpu, order: part, migratetype, flags });
        }
    }

    /// Ends what lives in the chunk and queues its free; false if nothing lived there.
    fn free(&mut self, cpu: CpuId, pfn: Pfn, order: Order, ops: &mut Vec<Op>) -> bool {
        // A whole allocation is freed: all but a few hundred frees of a million are this one.
        let whole = self.index.at(pfn).filter(|found| found.order == order);
        if let Some(found) = whole {
            self.known_free(cpu, pfn, found, ops);
            return true;
        }
        if let Some(larger) = self.index.covering(pfn, order) {
            self.facts.split_frees += 1;
            self.split(larger, order, ops);
            if let Some(piece) = self.index.at(pfn) {
                self.known_free(cpu, pfn, piece, ops);
            }
            return true;
        }
        if self.index.first_within(pfn, order).is_some() {
            let (known, remote) = (self.facts.known_frees, self.facts.remote_frees);
            while let Some(smaller) = self.index.first_within(pfn, order) {
                self.known_free(cpu, pfn, smaller, ops);
            }
            if order > Order::LINUX_MAX {
                // One free of what was allocated in parts.
                self.facts.known_frees = known + 1;
                self.facts.remote_frees = self.facts.remote_frees.min(remote + 1);
            } else {
                self.facts.wide_frees += 1;
            }
            return true;
        }
        self.facts.unknown_frees += 1;
        self.facts.unknown_free_frames += order.frames();
        false
    }

    fn known_free(&mut self, cpu: CpuId, row: Pfn, found: Found, ops: &mut Vec<Op>) {
        self.facts.known_frees += 1;
        self.facts.remote_frees += u64::from(self.slots[found.slot as usize] != cpu);
        self.take(found);
        self.queue(cpu, row, (found.slot, found.order), ops);
    }

    /// Takes an allocation out of the index; its slot stays taken until the engines are told.
    fn take(&mut self, found: Found) {
        self.index.remove(found.head);
        self.facts.live_frames -= found.order.frames();
        self.facts.live_chunks -= 1;
    }

    fn split(&mut self, larger: Found, to: Order, ops: &mut Vec<Op>) {
        let cpu = self.slots[larger.slot as usize];
        self.index.remove(larger.head);
        self.index.insert(larger.head, to, larger.slot);
        ops.push(Op::Split { slot: larger.slot, from: larger.order, to });
        let pieces = 1u64 << (larger.order.get() - to.get());
        for index in 1..pieces {
            let slot = self.new_slot(cpu);
            self.index.insert(Pfn::new(larger.head.get() + index * to.frames()), to, slot);
            self.facts.live_chunks += 1;
            ops.push(Op::Piece { slot, index: index as u32 });
        }
    }

    fn add_live(&mut self, order: Order) {
        let facts = &mut self.facts;
        facts.live_frames += order.frames();
        facts.live_chunks += 1;
        facts.peak_live_frames = facts.peak_live_frames.max(facts.live_frames);
    }

    fn new_slot(&mut self, cpu: CpuId) -> u32 {
        if let Some(free) = self.free_slots.pop() {
            self.slots[free as usize] = cpu;
            return free;
        }
        self.slots.push(cpu);
        (self.slots.len() - 1) as u32
    }

    /// Allocates what was live before the first row.
    fn put_in(&mut self, ops: &mut Vec<Op>) {
        for Injection { pfn, order, cpu } in std::mem::take(&mut self.options.warm) {
            if pfn.is_aligned(order) && self.index.is_clear(pfn, order) {
                self.facts.injected += 1;
                self.alloc(cpu, pfn, order, Migratetype::Movable, AllocFlags::CMA, ops);
            }
        }
    }

    /// The CPU of the machine that stands for one of the trace.
    fn fold(&self, cpu: u16) -> u16 {
        self.options.schedule.map_or(cpu, |schedule| cpu % schedule.cpus.max(1))
    }
}

/// The type and flags of a request, from the type the event names and its GFP flags.
///
/// The event's own type wins: it is what the kernel made of the flags (mobility grouping can be
/// off, for one). Where it names none that a request may have (255 = not recorded), the flags
/// decide.
#[inline]
fn asked_for(order: Order, migratetype: u8, gfp_flags: u32) -> (Migratetype, AllocFlags) {
    let own = Migratetype::PCP.get(usize::from(migratetype)).copied();
    let migratetype = own.unwrap_or_else(|| gfp::migratetype(gfp_flags));
    let mut flags = gfp::alloc_flags(gfp_flags, order);
    flags.set(AllocFlags::CMA, migratetype == Migratetype::Movable);
    (migratetype, flags)
}
