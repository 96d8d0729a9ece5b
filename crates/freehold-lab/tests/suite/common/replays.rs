//! What the tests of replays share: an engine so simple that it is plainly right, and short ways to
//! write events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use freehold::{AllocError, CpuId, FreeError, Migratetype, Order, Pfn};
use freehold_lab::engine::{Counters, Engine, Memory, Request};
use freehold_lab::engines::{self, MachineConfig};
use freehold_lab::replay::{
    Beginning, NamedEngine, Recorded, Replay, ReplayOptions, Survey, replay, sizing, survey,
};
use freehold_trace::{Event, EventKind};

use super::skipped;

/// First fit over a map of what is live. Two defects can be planted, to see them caught: `lose`
/// makes it forget a frame at every so many frees, `crash` panic with these words after so many
/// allocations. A clone is the same engine: a test keeps one beside a replay's.
#[derive(Clone)]
pub struct Toy {
    start: u64,
    frames: u64,
    lose: Option<u64>,
    crash: Option<(u64, &'static str)>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    live: BTreeMap<u64, u8>,
    lost: Vec<u64>,
    /// The calls that it got, as [`run`] says them.
    log: Vec<String>,
    counters: Counters,
}

impl Toy {
    pub fn new(frames: u64) -> Self {
        Self {
            start: MachineConfig::START_PFN.get(),
            frames,
            lose: None,
            crash: None,
            state: Arc::default(),
        }
    }

    pub fn losing(frames: u64, every: u64) -> Self {
        Self { lose: Some(every), ..Self::new(frames) }
    }

    pub fn crashing(frames: u64, after: u64, last_words: &'static str) -> Self {
        Self { crash: Some((after, last_words)), ..Self::new(frames) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, pfn: Pfn, order: Order) -> String {
        format!("{}/{}", pfn.get() - self.start, order.get())
    }
}

impl State {
    fn free(&mut self, pfn: u64, order: u8, lose: Option<u64>) -> Result<(), FreeError> {
        let (at, size) = (Pfn::new(pfn), Order::new(order).unwrap());
        match self.live.get(&pfn) {
            None => return Err(FreeError::NeverAllocated { pfn: at }),
            Some(&allocated) if allocated != order => {
                let allocated = Order::new(allocated).unwrap();
                return Err(FreeError::WrongOrder { pfn: at, allocated, freed: size });
            }
            Some(_) => {}
        }
        self.live.remove(&pfn);
        self.counters.frees += 1;
        if lose.is_some_and(|every| self.counters.frees.is_multiple_of(every)) {
            self.lost.push(pfn);
        }
        Ok(())
    }
}

impl Engine for Toy {
    fn alloc(&self, cpu: CpuId, request: Request) -> Result<Pfn, AllocError> {
        let mut state = self.state();
        if let Some((after, last_words)) = self.crash {
            assert!(state.counters.allocs < after, "{last_words}");
        }
        let size = request.order.frames();
        let mut at = self.start;
        for (&head, &order) in &state.live {
            if head >= at + size {
                break;
            }
            at = at.max((head + (1 << order)).div_ceil(size) * size);
        }
        let found = (at + size <= self.start + self.frames).then_some(at);
        assert_eq!(request.migratetype, Migratetype::Movable);
        let place = found.map_or("?".to_owned(), |at| (at - self.start).to_string());
        state.log.push(format!("{}+{place}/{}", cpu.get(), request.order.get()));
        let Some(at) = found else {
            state.counters.failed += 1;
            return Err(AllocError::NoMemory { order: request.order });
        };
        state.live.insert(at, request.order.get());
        state.counters.allocs += 1;
        Ok(Pfn::new(at))
    }

    fn free(&self, cpu: CpuId, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let mut state = self.state();
        state.log.push(format!("{}-{}", cpu.get(), self.place(pfn, order)));
        state.free(pfn.get(), order.get(), self.lose)
    }

    fn free_batch(&self, cpu: CpuId, chunks: &[(Pfn, Order)]) -> Result<(), FreeError> {
        let mut state = self.state();
        let list: Vec<_> = chunks.iter().map(|&(pfn, order)| self.place(pfn, order)).collect();
        state.log.push(format!("{}-[{}]", cpu.get(), list.join(",")));
        chunks.iter().try_for_each(|(pfn, order)| state.free(pfn.get(), order.get(), self.lose))
    }

    fn split(&self, pfn: Pfn, from: Order, to: Order) -> Result<(), FreeError> {
        let mut state = self.state();
        state.log.push(format!("{}>{}", self.place(pfn, from), to.get()));
        if state.live.remove(&pfn.get()) != Some(from.get()) {
            return Err(FreeError::NeverAllocated { pfn });
        }
        for piece in 0..from.frames() >> to.get() {
            state.live.insert(pfn.get() + piece * to.frames(), to.get());
        }
        Ok(())
    }

    fn tick(&self, cpu: CpuId) {
        self.state().log.push(format!("{}.", cpu.get()));
    }

    fn drain_all(&self) {
        self.state().log.push("drain".to_owned());
    }

    fn start(&self) {
        self.state().counters = Counters::default();
    }

    fn counters(&self) -> Counters {
        self.state().counters.clone()
    }

    fn memory(&self) -> Memory {
        let state = self.state();
        let mut used = vec![false; self.frames as usize];
        let mut mark = |pfn: u64, order: u8| {
            let at = (pfn - self.start) as usize;
            used[at..at + (1 << order)].fill(true);
        };
        state.live.iter().for_each(|(&pfn, &order)| mark(pfn, order));
        state.lost.iter().for_each(|&pfn| mark(pfn, 0));
        let mut memory = Memory { managed_frames: self.frames, ..Memory::default() };
        let mut at = 0usize;
        while at < used.len() {
            let order = (0..=10).rev().find(|order| {
                let size = 1usize << order;
                at.is_multiple_of(size)
                    && at + size <= used.len()
                    && !used[at..at + size].contains(&true)
            });
            match order {
                Some(order) => {
                    memory.free_chunks[order] += 1;
                    memory.free_frames += 1 << order;
                    at += 1 << order;
                }
                None => at += 1,
            }
        }
        memory.free_blocks = used.chunks(512).filter(|block| !block.contains(&true)).count() as u64;
        memory.blocks_by_type[Migratetype::Movable.index()] = self.frames / 512;
        memory.largest_free_order =
            memory.free_chunks.iter().rposition(|&n| n > 0).map(|order| order as u8);
        memory
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// How a test replays.
#[derive(Clone, Copy, Default)]
pub struct Setup {
    pub memory_frames: Option<u64>,
    pub cpus: Option<u16>,
    pub warm: bool,
}

/// Replays `events` through one toy; its calls, without the giving back at the end, and the result.
///
/// Of calls, `0+8/3` gave CPU 0 the chunk of order 3 at frame 8 (`?`: none), `1-8/3` freed it on
/// CPU 1, `1-[8/3,0/0]` freed two as one batch, `8/3>1` split it into chunks of order 1, and `1.`
/// was a tick of CPU 1.
pub fn run(events: &[Event], setup: Setup) -> (Vec<String>, Replay) {
    let trace = Recorded { name: "test".into(), events: events.to_vec() };
    let survey: Survey = survey(&trace, setup.warm, &mut |_, _| {}).expect("memory can be read");
    let cpus = setup.cpus.unwrap_or_else(|| sizing::default_cpus(&survey));
    let machine = sizing::machine(&survey, setup.warm, setup.memory_frames, cpus);
    let toy = Toy::new(machine.memory_frames);
    let engines = [NamedEngine { name: "toy".into(), engine: Box::new(toy.clone()) }];
    let options = ReplayOptions { cpus: machine.cpus, warm: setup.warm, jobs: 2, samples: 10 };
    let (beginning, frames) = (Beginning::default(), machine.memory_frames);
    let replay = replay(beginning, &trace, &survey, &engines, frames, options, &mut |_, _| {})
        .expect("memory");
    let mut log = toy.state().log.clone();
    // Behind the last event, everything still live in the engine is freed one by one, then all is
    // drained.
    assert_eq!(log.pop(), Some("drain".to_owned()));
    let given_back = toy.counters().frees - replay.engines[0].counters.frees;
    log.truncate(log.len() - given_back as usize);
    (log, replay)
}

/// The engines of these names, for that machine.
pub fn named<const N: usize>(names: [&str; N], machine: &MachineConfig) -> [NamedEngine; N] {
    names.map(|name| NamedEngine {
        name: name.into(),
        engine: engines::build(&name.parse().expect("a name"), machine).expect("it suits it"),
    })
}

/// Replays a trace through engines of that machine.
pub fn through(trace: &Recorded, engines: &[NamedEngine], machine: &MachineConfig) -> Replay {
    let survey = survey(trace, false, &mut |_, _| {}).expect("memory can be read");
    let options = ReplayOptions { cpus: machine.cpus, warm: false, jobs: 1, samples: 10 };
    let beginning = Beginning { cma: machine.cma(), ..Beginning::default() };
    let frames = machine.memory_frames;
    replay(beginning, trace, &survey, engines, frames, options, &mut |_, _| {}).expect("memory")
}

fn at(ms: u64, cpu: u16, kind: EventKind) -> Event {
    Event { ts_ns: ms * 1_000_000, cpu: CpuId::new(cpu), pid: 1, kind }
}

fn order(order: u8) -> Order {
    Order::new(order).unwrap()
}

/// A movable allocation.
pub fn alloc(ms: u64, cpu: u16, pfn: u64, size: u8) -> Event {
    let pfn = Some(Pfn::new(pfn));
    at(ms, cpu, EventKind::Alloc { pfn, order: order(size), migratetype: 1, gfp_flags: 0 })
}

/// An allocation that failed.
pub fn failed(ms: u64, cpu: u16, size: u8) -> Event {
    at(ms, cpu, EventKind::Alloc { pfn: None, order: order(size), migratetype: 1, gfp_flags: 0 })
}

pub fn free(ms: u64, cpu: u16, pfn: u64, size: u8) -> Event {
    at(ms, cpu, EventKind::Free { pfn: Pfn::new(pfn), order: order(size) })
}

pub fn batched(ms: u64, cpu: u16, pfn: u64) -> Event {
    at(ms, cpu, EventKind::FreeBatched { pfn: Pfn::new(pfn) })
}

pub fn drained(ms: u64, cpu: u16, pfn: u64) -> Event {
    at(ms, cpu, EventKind::PcpuDrain { pfn: Pfn::new(pfn), order: Order::ZERO, migratetype: 1 })
}

pub fn zone_locked(ms: u64, cpu: u16, pfn: u64, migratetype: u8) -> Event {
    let (pfn, order) = (Pfn::new(pfn), Order::ZERO);
    at(ms, cpu, EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill: true })
}

/// Events as [`run`] says calls, behind their milliseconds and with the frames of the trace:
/// `2:1-5000/0`. `~` is a row of `mm_page_free_batched`, `!` one of `mm_page_pcpu_drain`.
pub fn events(text: &str) -> Vec<Event> {
    let event = |word: &str| {
        let (ms, rest) = word.split_once(':').unwrap();
        let (cpu, chunk) = rest.split_once(['+', '-', '~', '!']).unwrap();
        let (pfn, size) = chunk.split_once('/').unwrap();
        let kind = rest.as_bytes()[cpu.len()];
        let (ms, cpu, size) = (ms.parse().unwrap(), cpu.parse().unwrap(), size.parse().unwrap());
        match (kind, pfn.parse()) {
            (b'+', Ok(pfn)) => alloc(ms, cpu, pfn, size),
            (b'-', Ok(pfn)) => free(ms, cpu, pfn, size),
            (b'~', Ok(pfn)) => batched(ms, cpu, pfn),
            (_, Ok(pfn)) => drained(ms, cpu, pfn),
            (_, Err(_)) => failed(ms, cpu, size),
        }
    };
    text.split_whitespace().map(event).collect()
}

/// The recordings, or `None` (said loudly) where they are not beside the checkout.
pub fn recordings() -> Option<Vec<std::path::PathBuf>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let Ok(entries) = folder.read_dir() else {
        skipped(&format!("no recorded traces in {}", folder.display()));
        return None;
    };
    let mut traces: Vec<std::path::PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "parquet"))
        .collect();
    traces.sort();
    Some(traces)
}
