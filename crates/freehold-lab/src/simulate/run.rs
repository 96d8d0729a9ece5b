//! One simulation: the programs on the machine, from start to end.
//!
//! ```text
//!   queue (who goes on when) ──> program.step ──> Io ──> machine (engine, locks, lines, model)
//!      ^                                                                                │
//!      └─────────────────────────────── when it is over ────────────────────────────────┘
//! ```
//!
//! So many frames are allocated before measuring begins, and so many while it lasts; then
//! everything stops where it is: no CPU runs on alone at the end. What is reported of memory is how
//! it is at that moment.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

use freehold::{FRAME_SIZE, Order, Pfn};

use super::machine::Machine;
use super::model::Model;
use super::queue::Queue;
use super::row::{Bound, Row};
use super::tally::Tally;
use super::ticks::Ticks;
use super::time::Time;
use super::workloads::{DEPTH, Io, Kind, Message, Program, Setting, Step, frames, programs};
use crate::engine::{Counters, Request};
use crate::engines::{EngineError, EngineSpec, MachineConfig};
use crate::trials::defaults::TICK_MS;
use crate::trials::pool;
use crate::trials::simulated::{Simulated, accounted, with_simulated};

/// Failures of each CPU, beyond two for each frame: memory is too small, and the end would be far.
const PATIENCE: u64 = 64;

#[derive(Clone, Debug)]
pub struct Scenario {
    pub engine: EngineSpec,
    pub workload: Kind,
    pub cpus: u16,
    pub frames: u64,
    pub seed: u64,
    /// Nanoseconds of other work per allocation; `None`: the workload's own.
    pub think_ns: Option<f64>,
    /// Frames to allocate while measuring, half as many before; `None`: the workload's own numbers.
    pub measured: Option<u64>,
    /// Simulated milliseconds between two ticks of a CPU; 0: it never ticks.
    pub tick_ms: f64,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(
        "{workload} needs {fewest} CPUs: it has CPUs that free what others allocate, and {cpus} \
         were given"
    )]
    TooFewCpus { workload: Kind, fewest: u16, cpus: u16 },
    #[error("{workload}: most requests fail, {frames} frames are too few for {cpus} CPUs")]
    Full { workload: Kind, cpus: u16, frames: u64 },
    /// A defect of an engine, found at the end.
    #[error(
        "engine {engine} lost frames or failed its checks after {workload} on {cpus} CPUs: {reason}"
    )]
    NotWhole { engine: String, workload: Kind, cpus: u16, reason: String },
}

impl Scenario {
    /// With the seed 1 and what the workload has of its own.
    pub fn new(engine: EngineSpec, workload: Kind, cpus: u16, frames: u64) -> Self {
        let (think_ns, measured) = (None, None);
        Self { engine, workload, cpus, frames, seed: 1, think_ns, measured, tick_ms: TICK_MS }
    }

    /// Whether it can be simulated at all.
    pub fn check(&self) -> Result<(), SimulateError> {
        let about = self.workload.about();
        if self.cpus < about.fewest_cpus {
            return Err(SimulateError::TooFewCpus {
                workload: self.workload,
                fewest: about.fewest_cpus,
                cpus: self.cpus,
            });
        }
        Ok(())
    }

    pub fn machine(&self) -> MachineConfig {
        MachineConfig::new(self.frames, self.cpus)
    }

    /// Nanoseconds of other work per allocation.
    pub fn think(&self) -> f64 {
        self.think_ns.unwrap_or(self.workload.about().think_ns)
    }
}

/// Simulates all, `jobs` at a time; the rows are in the order of the scenarios. A simulation is a
/// function of its scenario and the model: threads change nothing but when it is computed.
pub fn simulate_all(
    scenarios: &[Scenario],
    model: &Model,
    jobs: usize,
    stop: &AtomicBool,
    progress: impl FnMut(usize, &Scenario),
) -> Result<pool::Done<Row>, SimulateError> {
    let mut places: Vec<usize> = (0..scenarios.len()).collect();
    // The longest first, so that no thread ends alone with one of them. A stable sort: the order is
    // always the same.
    places.sort_by_key(|&place| Reverse((scenarios[place].cpus, scenarios[place].frames)));
    pool::each(scenarios, &places, jobs, stop, |one| simulate(one, model), progress)
}

pub fn simulate(scenario: &Scenario, model: &Model) -> Result<Row, SimulateError> {
    scenario.check()?;
    let config = scenario.machine();
    with_simulated(&scenario.engine, &config, |engine| {
        with_engine(scenario, model, &config, engine)
    })?
}

fn with_engine(
    scenario: &Scenario,
    model: &Model,
    config: &MachineConfig,
    engine: &dyn Simulated,
) -> Result<Row, SimulateError> {
    let Scenario { workload, cpus, seed, .. } = *scenario;
    let think_ns = scenario.think();
    let setting = Setting { kind: workload, cpus, frames: config.memory_frames, seed, think_ns };
    engine.start();
    let machine = Machine::new(engine, model, config);
    let (warm, measured) = scenario.measured.map_or_else(
        || workload.stretch(cpus, config.memory_frames),
        |frames| (frames / 2, frames),
    );
    let ticks = Ticks::new(cpus, scenario.tick_ms);
    let mut run = Run::new(machine, model, programs(&setting), ticks);
    let full = || SimulateError::Full { workload, cpus, frames: config.memory_frames };
    run.until(warm).ok_or_else(full)?;
    run.begin_measuring();
    let before = (engine.heavy_barriers(), engine.counters());
    run.until(measured).ok_or_else(full)?;

    accounted(engine, run.live()).map_err(|reason| {
        let engine = scenario.engine.name().to_owned();
        SimulateError::NotWhole { engine, workload, cpus, reason }
    })?;
    Ok(row(scenario, (engine, config), &run, before))
}

/// What came of a run, before which the engine had counted so many heavy barriers and so much else.
fn row(
    scenario: &Scenario,
    (engine, config): (&dyn Simulated, &MachineConfig),
    run: &Run<'_>,
    (barriers, before): (u64, Counters),
) -> Row {
    let Scenario { cpus, seed, .. } = *scenario;
    let (memory, counters) = (engine.memory(), engine.counters());
    let (tally, elapsed) = (&run.world.machine.tally, run.now - run.begun);
    let (all, time) = (elapsed.seconds() * f64::from(cpus), elapsed.seconds());
    let share = |time: Time, of: f64| if of > 0.0 { time.seconds() / of } else { 0.0 };
    let row = Row {
        engine: scenario.engine.name().to_owned(),
        workload: scenario.workload.name().to_owned(),
        cpus,
        memory_bytes: config.memory_frames * FRAME_SIZE,
        seed,
        think_ns: scenario.think(),
        measured_frames: scenario.measured,
        tick_ms: scenario.tick_ms,
        simulated_ns: elapsed.whole_ns(),
        frames: tally.frames,
        frames_per_second: if elapsed > Time::ZERO {
            tally.frames as f64 / elapsed.seconds()
        } else {
            0.0
        },
        zone_lock_wait_share: share(tally.zone_wait, all),
        pcp_lock_wait_share: share(tally.pcp_wait, all),
        line_wait_share: share(tally.line_wait, all),
        think_share: share(tally.between, all),
        bound: Bound::default(),
        zone_lock_busy_share: share(tally.zone_held, time),
        zone_lock_acquisitions: tally.zone_holds,
        longest_hold_ns: tally.longest_hold.whole_ns(),
        pcp_busy: tally.pcp_busy,
        pcp_lock_acquisitions: counters.pcp_lock_acquisitions - before.pcp_lock_acquisitions,
        fallbacks: counters.fallbacks - before.fallbacks,
        failed: tally.failed,
        merges_zone: counters.merges_zone - before.merges_zone,
        merges_pcp: counters.merges_pcp - before.merges_pcp,
        ticks: tally.ticks,
        heavy_barriers: engine.heavy_barriers() - barriers,
        free_blocks: memory.free_blocks,
        mixed_blocks: memory.mixed_blocks,
        unusable_index: memory.unusable_index(Order::PAGEBLOCK),
    };
    Row { bound: row.bound(share(tally.in_calls, all)), ..row }
}

/// A message on its way: when it is there.
type Posted = (Time, u16, Message);

struct Mail {
    boxes: Vec<VecDeque<Posted>>,
    /// For each receiver how many messages of each sender wait; a short list, since few send to
    /// one.
    waiting: Vec<Vec<(u16, usize)>>,
    /// Who waits for a message, and since when.
    empty: Vec<Option<Time>>,
    /// Who waits for room at a receiver.
    full: Vec<Vec<(u16, Time)>>,
}

struct Run<'a> {
    world: World<'a>,
    ticks: Ticks,
    programs: Vec<Box<dyn Program>>,
    barrier: Vec<(u16, Time)>,
    /// CPUs that take part in barriers.
    parties: usize,
    now: Time,
    begun: Time,
}

/// What programs see and change.
struct World<'a> {
    machine: Machine<'a>,
    mail: Mail,
    queue: Queue,
    /// Frames that are in messages.
    posted: u64,
    message: Time,
    zero: Time,
}

struct View<'r, 'a> {
    cpu: u16,
    at: Time,
    world: &'r mut World<'a>,
}

impl View<'_, '_> {
    /// Works for that long on something else than calls.
    fn pass(&mut self, time: Time) {
        self.at += time;
        self.world.machine.tally.between += time;
    }
}

impl Io for View<'_, '_> {
    fn alloc(&mut self, request: Request) -> Option<Pfn> {
        let (at, pfn) = self.world.machine.alloc(self.cpu, self.at, request);
        self.at = at;
        pfn
    }

    fn free(&mut self, chunks: &[(Pfn, Order)]) {
        self.at = self.world.machine.free(self.cpu, self.at, chunks);
    }

    fn think(&mut self, ns: f64) {
        self.pass(Time::from_ns(ns));
    }

    fn zero_frame(&mut self) {
        self.pass(self.world.zero);
    }

    fn send(&mut self, to: u16, message: Message) -> Result<(), Message> {
        let receiver = usize::from(to);
        let waiting = &mut self.world.mail.waiting[receiver];
        let index = waiting.iter().position(|(from, _)| *from == self.cpu).unwrap_or_else(|| {
            waiting.push((self.cpu, 0));
            waiting.len() - 1
        });
        if waiting[index].1 >= DEPTH {
            return Err(message);
        }
        waiting[index].1 += 1;
        self.pass(self.world.message);
        self.world.posted += frames(&message);
        self.world.mail.boxes[receiver].push_back((self.at, self.cpu, message));
        if let Some(since) = self.world.mail.empty[receiver].take() {
            self.world.queue.push(since.max(self.at), to);
        }
        Ok(())
    }

    fn receive(&mut self) -> Option<Message> {
        let receiver = usize::from(self.cpu);
        let &(ready, from, _) = self.world.mail.boxes[receiver].front()?;
        if ready > self.at {
            // Sent by a CPU whose step began before and ends later: not there yet.
            return None;
        }
        let (_, _, message) = self.world.mail.boxes[receiver].pop_front()?;
        self.pass(self.world.message);
        self.world.posted -= frames(&message);
        let waiting = &mut self.world.mail.waiting[receiver];
        if let Some(entry) = waiting.iter_mut().find(|(sender, _)| *sender == from) {
            entry.1 -= 1;
        }
        for (sender, since) in std::mem::take(&mut self.world.mail.full[receiver]) {
            self.world.queue.push(since.max(self.at), sender);
        }
        Some(message)
    }
}

impl<'a> Run<'a> {
    fn new(
        machine: Machine<'a>,
        model: &Model,
        programs: Vec<Box<dyn Program>>,
        ticks: Ticks,
    ) -> Self {
        let mut queue = Queue::default();
        for cpu in 0..programs.len() as u16 {
            // A nanosecond apart: no two CPUs begin at exactly the same moment.
            queue.push(Time::from_ns(f64::from(cpu)), cpu);
        }
        let n = programs.len();
        let mail = Mail {
            boxes: vec![VecDeque::new(); n],
            waiting: vec![Vec::new(); n],
            empty: vec![None; n],
            full: vec![Vec::new(); n],
        };
        let [message, zero] = [model.message_ns, model.zero_frame_ns].map(Time::from_ns);
        Self {
            world: World { machine, mail, queue, posted: 0, message, zero },
            ticks,
            barrier: Vec::new(),
            parties: programs.iter().filter(|program| program.has_barrier()).count(),
            programs,
            now: Time::ZERO,
            begun: Time::ZERO,
        }
    }

    fn begin_measuring(&mut self) {
        self.begun = self.now;
        // What was counted is forgotten, not where lines are.
        self.world.machine.tally = Tally::default();
    }

    /// Goes on until that many frames more have been allocated, or nobody has anything left to do.
    /// `None`: most requests fail.
    fn until(&mut self, frames: u64) -> Option<()> {
        let patience = 2 * frames + PATIENCE * self.programs.len() as u64;
        while self.world.machine.tally.frames < frames {
            let Some((at, cpu)) = self.world.queue.pop() else { break };
            self.now = self.now.max(at);
            while let Some((ticking, due)) = self.ticks.next(at) {
                let over = self.world.machine.tick(ticking, due);
                self.ticks.put_off(ticking, over - due);
            }
            // Ticks were due before it.
            self.world.machine.advance(at);
            let at = at + self.ticks.taken(cpu);
            self.step(at, cpu);
            if self.world.machine.tally.failed > patience {
                return None;
            }
        }
        Some(())
    }

    fn step(&mut self, at: Time, cpu: u16) {
        let index = usize::from(cpu);
        let caller = self.world.machine.caller();
        let mut view = View { cpu, at, world: &mut self.world };
        view.pass(caller);
        let step = self.programs[index].step(&mut view);
        let at = view.at;
        let World { queue, mail, .. } = &mut self.world;
        match step {
            Step::Done => queue.push(at, cpu),
            Step::Empty => match mail.boxes[index].front() {
                // On its way already.
                Some(&(ready, ..)) => queue.push(ready.max(at), cpu),
                None => mail.empty[index] = Some(at),
            },
            Step::Full(to) => mail.full[usize::from(to)].push((cpu, at)),
            Step::Barrier => {
                self.barrier.push((cpu, at));
                if self.barrier.len() == self.parties {
                    let last = self.barrier.iter().map(|(_, at)| *at).max().unwrap_or(at);
                    for (cpu, _) in std::mem::take(&mut self.barrier) {
                        queue.push(last, cpu);
                    }
                }
            }
        }
    }

    /// Frames that programs have, or that are in messages.
    fn live(&self) -> u64 {
        self.world.posted + self.programs.iter().map(|program| program.live()).sum::<u64>()
    }
}
