//! What the tests of replays share: an engine so simple that it is plainly right, and short ways to
//! write events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use freehold::{AllocError, CpuId, FreeError, Migratetype, Order, Pfn};
use freehold_lab::engine::{Counters, Engine, Memory, Request};
use freehold_lab::engines::MachineConfig;
use freehold_lab::replay::{
    Beginning, NamedEngine, Recorded, Replay, ReplayOptions, Survey, replay, sizing, survey,
};
use freehold_trace::{Event, EventKind};

/// A call that an engine got; frames are counted from the start of its memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    Alloc { cpu: u16, order: u8, migratetype: Migratetype, at: Option<u64> },
    Free { cpu: u16, at: u64, order: u8 },
    Batch { cpu: u16, chunks: Vec<(u64, u8)> },
    Split { at: u64, from: u8, to: u8 },
    Tick { cpu: u16 },
    DrainAll,
}

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
    log: Vec<Call>,
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
        state.log.push(Call::Alloc {
            cpu: cpu.get(),
            order: request.order.get(),
            migratetype: request.migratetype,
            at: found.map(|at| at - self.start),
        });
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
        state.log.push(Call::Free {
            cpu: cpu.get(),
            at: pfn.get() - self.start,
            order: order.get(),
        });
        state.free(pfn.get(), order.get(), self.lose)
    }

    fn free_batch(&self, cpu: CpuId, chunks: &[(Pfn, Order)]) -> Result<(), FreeError> {
        let mut state = self.state();
        let list =
            chunks.iter().map(|(pfn, order)| (pfn.get() - self.start, order.get())).collect();
        state.log.push(Call::Batch { cpu: cpu.get(), chunks: list });
        chunks.iter().try_for_each(|(pfn, order)| state.free(pfn.get(), order.get(), self.lose))
    }

    fn split(&self, pfn: Pfn, from: Order, to: Order) -> Result<(), FreeError> {
        let mut state = self.state();
        state.log.push(Call::Split { at: pfn.get() - self.start, from: from.get(), to: to.get() });
        if state.live.remove(&pfn.get()) != Some(from.get()) {
            return Err(FreeError::NeverAllocated { pfn });
        }
        for piece in 0..from.frames() >> to.get() {
            state.live.insert(pfn.get() + piece * to.frames(), to.get());
        }
        Ok(())
    }

    fn tick(&self, cpu: CpuId) {
        self.state().log.push(Call::Tick { cpu: cpu.get() });
    }

    fn drain_all(&self) {
        self.state().log.push(Call::DrainAll);
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
pub fn run(events: &[Event], setup: Setup) -> (Vec<Call>, Replay) {
    let trace = Recorded { name: "test".into(), events: events.to_vec() };
    let survey: Survey = survey(&trace, setup.warm, |_, _| {}).expect("memory can be read");
    let cpus = setup.cpus.unwrap_or_else(|| sizing::default_cpus(&survey));
    let machine = sizing::machine(&survey, setup.warm, setup.memory_frames, cpus);
    let toy = Toy::new(machine.memory_frames);
    let engines = [NamedEngine { name: "toy".into(), engine: Box::new(toy.clone()) }];
    let options = ReplayOptions { cpus: machine.cpus, warm: setup.warm, jobs: 2, samples: 10 };
    let (beginning, frames) = (Beginning::default(), machine.memory_frames);
    let replay =
        replay(beginning, &trace, &survey, &engines, frames, options, |_, _| {}).expect("memory");
    let mut log = toy.state().log.clone();
    // Behind the last event, everything still live in the engine is freed one by one, then all is
    // drained.
    assert_eq!(log.pop(), Some(Call::DrainAll));
    let given_back = toy.counters().frees - replay.engines[0].counters.frees;
    log.truncate(log.len() - given_back as usize);
    (log, replay)
}

fn at(ms: u64, cpu: u16, kind: EventKind) -> Event {
    Event { ts_ns: ms * 1_000_000, cpu: CpuId::new(cpu), pid: 1, kind }
}

pub fn order(order: u8) -> Order {
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

/// A movable allocation as the engine sees it.
pub fn allocated(cpu: u16, at: u64, order: u8) -> Call {
    Call::Alloc { cpu, order, migratetype: Migratetype::Movable, at: Some(at) }
}

/// A single free as the engine sees it.
pub fn freed(cpu: u16, at: u64, order: u8) -> Call {
    Call::Free { cpu, at, order }
}

/// The recordings, or `None` (said loudly) where they are not beside the checkout.
pub fn recordings() -> Option<Vec<std::path::PathBuf>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let Ok(entries) = folder.read_dir() else {
        // Not `eprintln!`, which the test harness swallows when the test passes: a skip has to be
        // seen.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: no recorded traces in {}\n", folder.display()),
        );
        return None;
    };
    let mut traces: Vec<std::path::PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "parquet"))
        .collect();
    traces.sort();
    Some(traces)
}

/// What two engines, on 16 MiB, say of a recording whose machine had more in use when it began: not
/// all of that could be allocated, which is counted and said of each.
pub fn assert_set_up_failed(json: &[u8], said: &[u8]) {
    let document: serde_json::Value = serde_json::from_slice(json).expect("valid JSON");
    let said = String::from_utf8_lossy(said);
    let injected = document["injected"].as_u64().expect("a count");
    for engine in document["engines"].as_array().expect("an array") {
        let failed = engine["set_up_failed"].as_u64().expect("a count");
        // 16 MiB are 4,096 frames.
        assert!(failed >= injected - 4096 && failed < injected, "{failed} of {injected}");
    }
    assert_eq!(said.matches("allocations made before the recording").count(), 2, "{said}");
}
