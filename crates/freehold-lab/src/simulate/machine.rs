//! The simulated machine: carries calls out by the real engine and says when each is over.
//!
//! A call is carried out as a whole at the moment at which its CPU begins it; the engine's counters
//! say what it did; the model says how long that takes; the locks say how long it waited. The order
//! of calls is the order of their beginnings, which is the one inexactness: a call that began later
//! but came to a lock sooner is served by the lock's book of gaps ([`super::lock`]), but does not
//! change what the earlier call found.

use freehold::{CpuId, Order, PAGEBLOCK_FRAMES, Pfn};

use super::lines::Lines;
use super::lock::Lock;
use super::model::Model;
use super::tally::Tally;
use super::time::Time;
use crate::engine::{Count, Request};
use crate::engines::MachineConfig;
use crate::model::{EngineCosts, Family};
use crate::trials::simulated::{Marks, Simulated};

/// Bytes of an engine's record of a frame, and of a cache line: `freehold-classic` keeps 12 bytes a
/// frame.
const RECORD: u64 = 12;
const LINE: u64 = 64;
/// Words of a block of freehold's.
const WORDS: u64 = 8;
/// How fast the estimate of foreign lines forgets: 1/64 a frame.
const FORGET: u32 = 6;
/// The estimate's 1.
const ONE: u32 = 1 << 16;

/// Which lines.
#[derive(Clone, Copy)]
enum Which {
    /// Records of frames (kernel's designs).
    Records,
    /// For each word of 64 frames who changed it last: a CPU leases words (freehold).
    Words,
    /// Of each block the line that its eight words share (freehold).
    Blocks,
    /// For each CPU the head of its list of remote frees.
    Inboxes,
}

fn ns(ns: f64) -> Time {
    Time::from_ns(ns)
}

pub struct Machine<'a> {
    engine: &'a dyn Simulated,
    family: Family,
    model: &'a Model,
    own: EngineCosts,
    /// Of one heavy barrier.
    barrier: Time,
    start: u64,
    zone: Lock,
    pcps: Vec<Lock>,
    /// Nobody will begin anything before this.
    now: Time,
    lines: [Lines; 4],
    /// For each CPU the share of frames whose record was last written elsewhere, by its last
    /// allocations.
    foreign: Vec<u32>,
    pub tally: Tally,
}

impl<'a> Machine<'a> {
    /// A machine around an engine that was built for it.
    ///
    /// # Panics
    ///
    /// Where the model lacks the engine's family.
    pub fn new(engine: &'a dyn Simulated, model: &'a Model, config: &MachineConfig) -> Self {
        let frames = config.memory_frames;
        let family = engine.family();
        let freehold = family == Family::Freehold;
        let blocks = if freehold { frames.div_ceil(PAGEBLOCK_FRAMES) } else { 0 };
        let records = if freehold { 0 } else { (frames * RECORD).div_ceil(LINE) };
        let cpus = usize::from(config.cpus);
        Self {
            engine,
            family,
            model,
            own: model.engines[&family],
            barrier: ns(model.barrier_ns * f64::from(config.cpus.saturating_sub(1))),
            start: config.start_pfn.get(),
            zone: Lock::default(),
            pcps: vec![Lock::default(); cpus],
            now: Time::ZERO,
            lines: [records, blocks * WORDS, blocks, config.cpus.into()].map(Lines::new),
            foreign: vec![0; cpus],
            tally: Tally::default(),
        }
    }

    /// Nobody will begin anything before `now`.
    pub fn advance(&mut self, now: Time) {
        self.now = now;
    }

    /// What one step of a workload costs by itself.
    pub fn caller(&self) -> Time {
        ns(self.model.caller_ns)
    }

    /// Allocates at `now`; when that is over, and what came of it.
    pub fn alloc(&mut self, cpu: u16, now: Time, request: Request) -> (Time, Option<Pfn>) {
        let id = CpuId::new(cpu);
        let lock = self.family == Family::Owners;
        let own = usize::from(cpu);
        self.pcps[own].forget_before(now);
        let busy = lock && self.pcps[own].is_held(now);
        let before = self.engine.marks(id);
        let got = if busy {
            self.tally.pcp_busy += 1;
            self.engine.alloc_finding_busy(id, request)
        } else {
            self.engine.alloc(id, request)
        };
        let done = self.engine.marks(id).since(&before);

        let mut at = now + ns(self.own.alloc_ns);
        if lock && !busy {
            at += self.lock_line(cpu, own);
        }
        at = self.pcp_work(at, done);
        // Chunks are taken off the zone's lists under its lock: whoever freed them has their
        // records' lines.
        let foreign = if self.family == Family::Lists { self.foreign[usize::from(cpu)] } else { 0 };
        let step = ns(self.own.refill_step_ns);
        at = self.zone_work(cpu, at, done, step, foreign);
        if let Ok(pfn) = got {
            at = self.take_lines(cpu, at, pfn);
            self.tally.frames += request.order.frames();
        } else {
            self.tally.failed += 1;
        }
        if lock && !busy {
            self.pcps[own].hold_until(cpu, now, at);
        }
        self.tally.in_calls += at - now;
        (at, got.ok())
    }

    /// Frees chunks at `now`, in one batch where there are several; when that is over.
    ///
    /// # Panics
    ///
    /// Where the engine refuses a frame that it gave out: a defect, of the engine or of the
    /// workload.
    pub fn free(&mut self, cpu: u16, now: Time, chunks: &[(Pfn, Order)]) -> Time {
        let mut at = now;
        let mut rest = chunks;
        while !rest.is_empty() {
            let home = self.engine.home(rest[0].0);
            // Under the owners' locks a batch is a call for each run of one owner; elsewhere it is
            // one.
            let same = |chunk: &&(Pfn, Order)| self.engine.home(chunk.0) == home;
            let run = if self.family == Family::Owners {
                rest.iter().take_while(same).count()
            } else {
                rest.len()
            };
            let (part, more) = rest.split_at(run.max(1));
            at = self.free_part(cpu, at, part, home, chunks.len() > 1);
            rest = more;
        }
        self.tally.in_calls += at - now;
        at
    }

    fn free_part(
        &mut self,
        cpu: u16,
        now: Time,
        part: &[(Pfn, Order)],
        home: Option<CpuId>,
        batch: bool,
    ) -> Time {
        let id = CpuId::new(cpu);
        let owner = home.map_or(cpu, CpuId::get);
        let whose = if self.family == Family::Owners { owner } else { cpu };
        let place = usize::from(whose);
        let mut at = now;
        if self.family == Family::Owners {
            let lock = &mut self.pcps[place];
            lock.forget_before(now);
            at = lock.free_after_all(now);
            self.tally.pcp_wait += at - now;
        }
        let begun = at;
        // Before the call: afterwards the frames may be somewhere else.
        at = self.give_lines(cpu, at, part, batch);
        let before = self.engine.marks(CpuId::new(whose));
        let freed = match part {
            [(pfn, order)] if !batch => self.engine.free(id, *pfn, *order),
            _ => self.engine.free_batch(id, part),
        };
        if let Err(error) = freed {
            panic!("the engine refused a frame it had given out: {error}");
        }
        let done = self.engine.marks(CpuId::new(whose)).since(&before);
        if self.family == Family::Owners {
            at += self.lock_line(cpu, place);
        }
        at = self.pcp_work(at, done);
        let step = ns(self.own.drain_step_ns);
        at = self.zone_work(cpu, at, done, step, 0);
        if self.family == Family::Owners {
            self.pcps[place].hold_until(cpu, begun, at);
        }
        at
    }

    /// A CPU's periodic work at `now`; when that is over. No call of anybody's.
    pub fn tick(&mut self, cpu: u16, now: Time) -> Time {
        let id = CpuId::new(cpu);
        let before = self.engine.marks(id);
        self.engine.tick(id);
        let done = self.engine.marks(id).since(&before);
        self.tally.ticks += 1;
        let at = self.pcp_work(now, done);
        let at = self.zone_work(cpu, at, done, ns(self.own.drain_step_ns), 0);
        self.tally.in_calls += at - now;
        at
    }

    /// What was done under the CPU's own lock, or, of freehold, by looks for the next block, and by
    /// heavy barriers; when that is over.
    fn pcp_work(&self, from: Time, done: Marks) -> Time {
        // All others are interrupted; what that costs them is not charged.
        let from = from + self.barrier * done.barriers;
        let work =
            ns(self.own.pcp_step_ns) * done.changes + ns(self.own.merge_step_ns) * done.merge_steps;
        if self.family != Family::Freehold || done.changes == 0 {
            return from + work;
        }
        // The row of the board, which others write.
        from + work + ns(self.model.transfer_ns)
    }

    /// The holds of the zone lock of one call, one after the other; when the last is over.
    fn zone_work(&mut self, cpu: u16, from: Time, done: Marks, step: Time, foreign: u32) -> Time {
        let mut at = from;
        self.zone.forget_before(self.now);
        for n in 0..done.holds {
            let steps = done.steps / done.holds + u64::from(n < done.steps % done.holds);
            let mut hold = ns(self.model.hold_ns) + step * steps;
            if let Some(last) = self.zone.last_other(cpu) {
                hold += self.far(cpu, last, ns(self.model.bounce_ns));
            }
            if foreign > 0 {
                // Of the frames that came off the lists; the holds of one call share them.
                let lines = done.refilled * u64::from(foreign) / u64::from(ONE) / done.holds;
                hold += ns(self.model.chain_ns) * lines;
            }
            let grant = self.zone.acquire(cpu, at, hold);
            self.tally.zone_wait += grant.waited;
            self.tally.zone_held += hold;
            self.tally.zone_holds += 1;
            self.tally.longest_hold = self.tally.longest_hold.max(hold);
            at = grant.end;
        }
        at
    }

    /// The lines of a chunk that is handed out; when they are there.
    fn take_lines(&mut self, cpu: u16, at: Time, pfn: Pfn) -> Time {
        let frame = pfn.get() - self.start;
        if self.family == Family::Freehold {
            // Written by whoever has leased the word, or freed into it, since. To lease it is a
            // locked read-modify-write, and the next step waits for its line.
            return self.take_word(frame, cpu, at).1;
        }
        let line = frame * RECORD / LINE;
        let from = self.lines[Which::Records as usize].touch(line, cpu);
        let estimate = &mut self.foreign[usize::from(cpu)];
        *estimate -= *estimate >> FORGET;
        if from.is_some() {
            *estimate += ONE >> FORGET;
        }
        if self.family == Family::Lists {
            // Paid under the zone lock, when it was taken off the zone's list.
            return at;
        }
        // The first of a list names the next.
        self.brought(Which::Records, line, from, cpu, at, ns(self.model.chain_ns))
    }

    /// The local part of freeing, and the lines it needs; when that is over.
    fn give_lines(&mut self, cpu: u16, from: Time, part: &[(Pfn, Order)], batch: bool) -> Time {
        let mut at = from;
        for &(pfn, _) in part {
            let local = if batch { ns(self.own.batch_free_ns) } else { ns(self.own.free_ns) };
            let frame = pfn.get() - self.start;
            if self.family == Family::Freehold {
                // Into the frame's word, whoever leases it: its own, or by a locked
                // read-modify-write of a line that is elsewhere. Those wait for their lines, one
                // after the other; plain stores would not.
                let (from, there) = self.take_word(frame, cpu, at);
                at = there + if from.is_some() { ns(self.own.remote_free_ns) } else { local };
                continue;
            }
            let home = self.engine.home(pfn).map_or(cpu, CpuId::get);
            at += if home == cpu { local } else { ns(self.own.remote_free_ns) };
            at = self.fetch(Which::Records, frame * RECORD / LINE, cpu, at, ns(self.model.line_ns));
            if self.family == Family::OwnersRemoteList && home != cpu {
                at = self.fetch(Which::Inboxes, home.into(), cpu, at, ns(self.model.transfer_ns));
            }
        }
        at
    }

    /// A frame's word becomes the CPU's: who changed it last, where that is another one, and when
    /// the line is there that it shares with the block's other words. A word that is in hand
    /// already needs no line.
    fn take_word(&mut self, frame: u64, cpu: u16, at: Time) -> (Option<u16>, Time) {
        let words = &mut self.lines[Which::Words as usize];
        let word = frame / (PAGEBLOCK_FRAMES / WORDS);
        if words.is_last(word, cpu) {
            return (None, at);
        }
        let from = words.touch(word, cpu);
        let block = frame / PAGEBLOCK_FRAMES;
        (from, self.fetch(Which::Blocks, block, cpu, at, ns(self.model.transfer_ns)))
    }

    fn lock_line(&self, cpu: u16, place: usize) -> Time {
        let other = self.pcps[place].last_other(cpu);
        other.map_or(Time::ZERO, |other| self.far(cpu, other, ns(self.model.transfer_ns)))
    }

    /// `cpu` needs a line at `at`; when it has it.
    fn fetch(&mut self, which: Which, line: u64, cpu: u16, at: Time, cost: Time) -> Time {
        let from = self.lines[which as usize].touch(line, cpu);
        self.brought(which, line, from, cpu, at, cost)
    }

    /// A line that comes from `from` is there. What it takes `cpu` may be less than the line is on
    /// its way, since `cpu` does not wait for each of a run; but whoever asks for it meanwhile
    /// waits for all of that.
    fn brought(
        &mut self,
        which: Which,
        line: u64,
        from: Option<u16>,
        cpu: u16,
        at: Time,
        cost: Time,
    ) -> Time {
        let Some(other) = from else { return at };
        let (takes, now) = (self.far(cpu, other, ns(self.model.transfer_ns)), self.now);
        let start = self.lines[which as usize].hand_over(line, now, at, takes);
        self.tally.line_wait += start - at;
        start + self.far(cpu, other, cost)
    }

    fn far(&self, cpu: u16, other: u16, cost: Time) -> Time {
        let socket = |cpu: u16| cpu / self.model.cores_per_socket;
        if socket(cpu) != socket(other) {
            Time::from_ns(cost.ns() * self.model.socket_factor)
        } else {
            cost
        }
    }
}
