//! `freehold contiguity`: the names in its JSON, the same figures every time, and that
//! each figure shows what it is there to show: engines made for it hoard, scatter, give up too
//! early, and lose frames.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::common::length::length;
use crate::common::{assert_refused, keys, text};
use assert_cmd::Command;
use freehold::{AllocError, CpuId, FreeError, Order, PAGEBLOCK_FRAMES, Pfn};
use freehold_lab::contiguity::{Cell, Grid, GridEngine, MEMORY_MOST, Scenario, Workload};
use freehold_lab::engine::{Counters, Engine, Memory, Request};
use freehold_lab::engines::MachineConfig;
use freehold_lab::model::Family;
use freehold_lab::trials::simulated::Simulated;
use serde_json::Value;

/// 32 MiB: 16 blocks. The toys have half of it.
const FRAMES: u64 = 16 * PAGEBLOCK_FRAMES;

fn spec(name: &str) -> GridEngine {
    name.parse().unwrap()
}

fn scenario(workload: Workload, engine: &str) -> Scenario {
    Scenario {
        workload,
        cpus: 4,
        frames: FRAMES,
        used_percent: workload.about().levels[0],
        seed: 1,
        engine: spec(engine),
        allocations: 20_000,
        moves: false,
    }
}

/// The call from which on a toy makes its one mistake; the shortest load makes 808.
const MISTAKE: u64 = 500;

/// What is wrong with an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Nothing: the first fit.
    None,
    /// Each frame comes from another block than the one before.
    Scatters,
    /// What is free counts as CPUs', ticks or not.
    Hoards,
    /// One free is forgotten.
    Loses,
    /// One frame is handed out twice.
    Doubles,
}

/// First fit over a list of frames.
struct Toy {
    fault: Fault,
    start: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: Vec<bool>,
    calls: u64,
    turn: usize,
    /// The mistake has been made.
    erred: bool,
}

impl Toy {
    fn new(fault: Fault, config: &MachineConfig) -> Self {
        let state = State { used: vec![false; config.memory_frames as usize], ..State::default() };
        Self { fault, start: config.start_pfn.get(), state: Mutex::new(state) }
    }
}

impl Engine for Toy {
    fn alloc(&self, _: CpuId, request: Request) -> Result<Pfn, AllocError> {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        let (size, frames) = (request.order.frames() as usize, state.used.len());
        let block = PAGEBLOCK_FRAMES as usize;
        state.turn += usize::from(self.fault == Fault::Scatters);
        let from = state.turn % (frames / block) * block;
        // A plain loop: it is most of what these tests do.
        let (mut found, mut at) = (None, 0);
        while found.is_none() && at < frames {
            let place = (from + at) % frames;
            if !state.used[place] && !state.used[place..place + size].contains(&true) {
                found = Some(place);
            }
            at += size;
        }
        let place = found.ok_or(AllocError::NoMemory { order: request.order })?;
        // The mistake is made once, when there is something in use.
        let twice = self.fault == Fault::Doubles
            && state.calls >= MISTAKE
            && !std::mem::replace(&mut state.erred, true);
        let place = if twice { state.used.iter().position(|&used| used).unwrap() } else { place };
        state.used[place..place + size].fill(true);
        Ok(Pfn::new(self.start + place as u64))
    }

    fn free(&self, _: CpuId, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        if self.fault == Fault::Loses && state.calls >= MISTAKE && !state.erred {
            state.erred = true;
            return Ok(());
        }
        let place = (pfn.get() - self.start) as usize;
        state.used[place..place + order.frames() as usize].fill(false);
        Ok(())
    }

    fn drain_all(&self) {}

    fn counters(&self) -> Counters {
        Counters { zone_lock_acquisitions: self.state.lock().unwrap().calls, ..Counters::default() }
    }

    fn memory(&self) -> Memory {
        let state = self.state.lock().unwrap();
        let free = state.used.iter().filter(|&&used| !used).count() as u64;
        let mut free_chunks = [0; 11];
        let blocks = state.used.chunks(PAGEBLOCK_FRAMES as usize);
        let whole = blocks.filter(|block| !block.contains(&true)).count() as u64;
        free_chunks[9] = whole;
        free_chunks[0] = free - whole * PAGEBLOCK_FRAMES;
        Memory {
            managed_frames: state.used.len() as u64,
            free_frames: free,
            pcp_frames: if self.fault == Fault::Hoards { free } else { 0 },
            free_runs: free_chunks,
            free_chunks,
            free_blocks: whole,
            ..Memory::default()
        }
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Simulated for Toy {
    fn family(&self) -> Family {
        Family::Lists
    }
}

fn toy(workload: Workload, fault: Fault) -> Result<Cell, String> {
    let frames = FRAMES / 2;
    let scenario =
        Scenario { allocations: length(1_000, 3_000), frames, ..scenario(workload, "vanilla") };
    let config = MachineConfig::new(scenario.frames, scenario.cpus);
    scenario.run_on(&Toy::new(fault, &config), &config)
}

#[test]
fn an_engine_that_scatters_has_fewer_whole_blocks() {
    for workload in [Workload::KernelBuildLike, Workload::Idle, Workload::TwoCpuMix] {
        let of = |fault| toy(workload, fault).unwrap().figures;
        let (packed, scattering) = (of(Fault::None).order9_share.unwrap(), of(Fault::Scatters));
        let scattered = scattering.order9_share.unwrap();
        assert!(scattered < packed / 2.0, "{workload}: {scattered} beside {packed}");
        let unusable = scattering.unusable.unwrap().order9;
        assert!((unusable + scattered - 1.0).abs() < 1e-9);
    }
    let failures = |fault| toy(Workload::Aging, fault).unwrap().figures.order9_failures.unwrap();
    assert!(failures(Fault::Scatters) > failures(Fault::None));
}

#[test]
fn an_engine_that_hoards_is_seen_when_it_is_idle() {
    let idle = |fault| toy(Workload::Idle, fault).unwrap().figures.idle_share.unwrap();
    assert_eq!(idle(Fault::None), 0.0);
    // All that is free: but 2.5 %, and up to a large chunk.
    assert!((0.95..0.98).contains(&idle(Fault::Hoards)));
}

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite contiguity:: -- --ignored"]
fn engines_that_lose_or_double_a_frame_have_no_figures() {
    for workload in Workload::ALL {
        assert!(toy(workload, Fault::None).is_ok(), "{workload}");
        let doubled = toy(workload, Fault::Doubles).unwrap_err();
        assert!(doubled.contains("handed out and is in use"), "{workload}: {doubled}");
        assert!(toy(workload, Fault::Loses).is_err(), "{workload}");
    }
}

/// The toys know no types, so each block gets some of all; a design that keeps them apart has
/// hardly any such block.
#[test]
fn blocks_of_mixed_types_are_counted() {
    let mixed = |cell: Cell| cell.figures.mixed_blocks.unwrap();
    let toy = mixed(toy(Workload::Aging, Fault::None).unwrap());
    assert!(toy >= 4, "{toy}");
    assert!(mixed(scenario(Workload::Aging, "vanilla").run().unwrap()) < toy);
}

#[test]
fn the_same_cell_is_the_same_and_another_seed_another() {
    for workload in Workload::ALL {
        let engines = "vanilla pcp-buddy-fixed freehold best-fit best-fit-runs superpageblocks";
        let most = if workload == Workload::Net { 6 } else { 3 };
        for engine in engines.split(' ').take(most) {
            let allocations = length(4_000, 20_000);
            let one = Scenario { allocations, ..scenario(workload, engine) };
            let cell = one.run().unwrap();
            // A bound is no design that takes locks.
            let takes = cell.figures.zone_lock_acquisitions.is_some();
            assert_eq!(takes, !["best-fit", "best-fit-runs", "superpageblocks"].contains(&engine));
            assert_eq!(cell, one.run().unwrap(), "{workload} {engine}");
            let other = Scenario { seed: 2, ..one }.run().unwrap();
            assert_ne!(Cell { seed: 1, ..other }, cell, "{workload} {engine}");
        }
    }
}

/// The share of free memory that serves order 9 when such a share of the load is done.
fn order9(cell: &Cell, at: f64) -> f64 {
    cell.moments.iter().find(|moment| moment.at == at).expect("a moment").contiguity.order9
}

#[test]
fn loads_that_fill_memory_show_it_as_they_go_on() {
    for workload in Workload::ALL.into_iter().filter(|workload| workload.fills_memory()) {
        let cell = scenario(workload, "vanilla").run().unwrap();
        let times: Vec<f64> = cell.moments.iter().map(|moment| moment.at).collect();
        assert!(times.is_sorted() && times.ends_with(&[1.5, 2.0]), "{workload}: {times:?}");
        assert!(times.len() >= 10, "{workload}: {times:?}");
        for moment in &cell.moments {
            // What migration could make whole is no less than what is whole.
            let [three, four, nine] = moment.contiguity.each().map(|(_, share)| share);
            let whole = moment.movable_share >= nine;
            assert!(three >= four && four >= nine && whole, "{workload}: {moment:?}");
            assert!(moment.compact_frames <= moment.compact_frames_by_address, "{workload}");
            assert!(moment.unmovable_blocks > 0 || moment.unmovable_regions == 0, "{workload}");
        }
        let pressed = cell.moments.iter().filter(|moment| (0.48..=1.0).contains(&moment.at));
        let (sum, n) = pressed.fold((0.0, 0.0), |(sum, n), moment| {
            // Exits free much of so small a machine, and huge pages leave cache no room.
            assert!((30.0..=97.5).contains(&moment.used_percent), "{workload}: {moment:?}");
            (sum + moment.contiguity.order3, n + 1.0)
        });
        let unusable = cell.figures.unusable.expect("of a load").order3;
        assert!((1.0 - unusable - sum / n).abs() < 1e-9, "{workload}");
        assert!(order9(&cell, 2.0) >= order9(&cell, 1.5), "{workload}");
        let reclaimed = cell.moments.last().is_some_and(|last| last.reclaimed > 0);
        assert!(reclaimed || workload == Workload::Thp, "{workload}");
    }
}

/// Huge pages left under pressure: the bounds are above the kernel's design. And they fill memory.
#[test]
fn bounds_are_bounds() {
    let share = |engine: &str| {
        let cell = |seed| {
            let frames = 1 << 15;
            let of = scenario(Workload::Cache, engine);
            let one = Scenario { frames, seed, used_percent: Some(92), allocations: 60_000, ..of };
            one.run().unwrap().figures.order9_share.unwrap()
        };
        (31..length(32, 34)).map(cell).sum::<f64>()
    };
    let vanilla = share("vanilla");
    for bound in ["best-fit", "best-fit-runs"] {
        assert!(share(bound) > vanilla, "{bound}");
    }
}

/// An engine that moves what it has handed out: the load finds it again.
#[test]
fn what_an_engine_has_moved_is_found_again() {
    let of = scenario(Workload::Day, "contiguitas");
    let full = Scenario { used_percent: Some(95), allocations: 30_000, ..of };
    let cell = full.run().unwrap();
    assert!(cell.guesses.is_some() && cell.figures.migrated > Some(0));
}

/// Movement makes more of memory whole by fewer frames than by rising address, and the load's books
/// stay right; what was measured before is what it is without.
#[test]
fn emptying_blocks_makes_memory_whole() {
    for engine in ["freehold", "vanilla"] {
        let of = scenario(Workload::Cache, engine);
        let full = Scenario { frames: 1 << 15, used_percent: Some(92), allocations: 60_000, ..of };
        let still = full.run().unwrap();
        let cell = Scenario { moves: true, ..full }.run().unwrap();
        let movement = cell.movement.unwrap();
        assert_eq!((still.movement, cell.figures), (None, still.figures), "{engine}");
        assert!(movement.ideal_frames <= movement.address_frames, "{movement:?}");
        let scanners = movement.scanners;
        assert!(scanners.order9 > movement.order9_before && scanners.steps > scanners.frames);
        // kcompactd stops at a fifth of what is free; requests have taken what was whole.
        assert!(movement.proactive.frames <= scanners.frames, "{movement:?}");
        assert!(movement.requests.huge_pages >= movement.huge_pages_before, "{movement:?}");
        // kcompactd that works ahead of requests lets fewer of them wait.
        assert!(movement.defrag_requests.stalls <= movement.requests.stalls, "{movement:?}");
        assert_eq!(movement.own.is_some(), engine == "freehold");
        let Some(own) = movement.own else { continue };
        assert!(own.order9 > movement.order9_before && own.huge_pages > 0, "{movement:?}");
        // Fewer than the bound where a chunk has no room: then it ends with fewer whole blocks. And
        // hardly more: nothing moves into a block that is emptied later.
        let frames = 1..=movement.ideal_frames * 9 / 8;
        assert!(frames.contains(&own.frames) && own.steps > 0, "{movement:?}");
        let begun = movement.huge_pages_before..=own.huge_pages;
        assert!(begun.contains(&(movement.huge_pages_before + own.stalls - 1)), "{movement:?}");
        let [before, between, after] = cell.layouts.unwrap();
        let whole = |of: &[Option<u64>]| of.iter().filter(|used| **used == Some(0)).count() as u64;
        assert!(whole(&before) < whole(&between) && whole(&between) < whole(&after));
        assert_eq!(whole(&after), own.huge_pages);
    }
}

/// Where what can move has no room left beside its own, frames go beside what cannot.
#[test]
fn movement_does_not_end_while_there_is_room_beside_what_cannot_move() {
    let of = scenario(Workload::Day, "freehold");
    let full = Scenario { frames: 1 << 15, used_percent: Some(92), allocations: 60_000, ..of };
    let movement = Scenario { moves: true, ..full }.run().unwrap().movement.unwrap();
    let own = movement.own.unwrap();
    assert!(own.beside > 0 && own.huge_pages > movement.huge_pages_most, "{movement:?}");
    assert_eq!(own.huge_pages, movement.huge_pages_ideal);
}

fn grid() -> Grid {
    Grid {
        workloads: vec![Workload::Aging, Workload::Idle],
        cpus: vec![2, 256, 1024],
        frames_a_cpu: vec![512, 1 << 18],
        frames: Vec::new(),
        used_percent: Vec::new(),
        seeds: vec![1, 2],
        engines: vec![spec("vanilla"), spec("freehold")],
        allocations: 1000,
        moves: false,
    }
}

#[test]
fn the_grid_is_all_combinations_and_no_machine_is_too_large() {
    let all = grid().scenarios();
    // 3 levels and one, on 6 machines, with 2 seeds and 2 engines.
    assert_eq!(all.len(), (3 + 1) * 6 * 2 * 2);
    let largest: BTreeSet<u16> =
        all.iter().filter(|one| one.frames == MEMORY_MOST).map(|one| one.cpus).collect();
    assert_eq!(largest, BTreeSet::from([256, 1024]));
    assert!(all.iter().all(|one| one.frames <= MEMORY_MOST && one.frames % 1024 == 0));
    let given = Grid { frames: vec![1 << 18, 1 << 18], used_percent: vec![40], ..grid() };
    assert_eq!(given.scenarios().len(), (1 + 1) * 3 * 2 * 2);
}

fn allocating(allocations: &str, args: &[&str]) -> Command {
    let mut command = crate::common::freehold();
    command.args(["contiguity", "--allocations", allocations]).args(args);
    command
}

const SMALL: [&str; 6] = ["--cpus", "2,4", "--memory", "16M", "--seeds", "1,2"];

#[test]
fn json_has_every_name_and_null_where_there_is_nothing_to_say() {
    let run = |jobs, more: &[&str]| {
        let words = [&["--json", "--jobs", jobs], more].concat();
        text(&allocating("500", &SMALL).args(words).assert().success())
    };
    let aging = ["-w", "aging"];
    assert_eq!(run("1", &aging), run("3", &aging), "on any number of threads");
    let printed = run("3", &[]);
    let document: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(keys(&document), BTreeSet::from(["cells", "command", "interrupted"]));
    let cells = document["cells"].as_array().expect("an array");
    // One level of kernel-build-like and idle, three of aging, on two machines; eight levels of the
    // mix.
    assert_eq!(cells.len(), ((1 + 3 + 1) * 2 + 8) * 2 * 2);
    let names = "workload cpus memory_mib used_percent allocations seed engine unusable \
                 unusable_lists zone_lock_acquisitions shared_writes zone_locks_per_1000 \
                 shared_writes_per_1000 order9_share order9_failures mixed_blocks idle_share \
                 free_blocks failures heavy_barriers";
    for cell in cells {
        assert_eq!(keys(cell), names.split_whitespace().collect(), "{cell}");
        assert_eq!(cell["memory_mib"], 16);
        let is = |name: &str| !cell[name].is_null();
        let workload = cell["workload"].as_str().expect("text");
        assert_eq!(is("used_percent"), workload != "kernel-build-like", "{cell}");
        for (name, there) in [("idle_share", workload == "idle"), ("zone_locks_per_1000", true)] {
            assert_eq!(is(name), there, "{name}: {cell}");
        }
        let takes_locks = cell["zone_lock_acquisitions"].as_u64() > Some(0);
        assert_eq!(takes_locks, cell["engine"] != "freehold", "{cell}");
        // Each acquisition of a shared lock is a write that all CPUs share.
        let of = |name: &str| cell[name].as_u64().expect("a count");
        assert!(of("shared_writes") >= of("zone_lock_acquisitions"), "{cell}");
        assert!(cell["shared_writes_per_1000"].as_f64().expect("a rate") > 0.0, "{cell}");
        assert_eq!(keys(&cell["unusable"]), BTreeSet::from(["3", "4", "9"]));
        let of = |name: &str| cell[name]["9"].as_f64().expect("an index");
        // What lies apart on lists may be one run; never the other way round.
        assert!(of("unusable") <= of("unusable_lists"), "{cell}");
        let same = cell["unusable"] == cell["unusable_lists"];
        assert!(cell["engine"] != "freehold" || same, "{cell}");
    }
}

#[test]
fn the_table_shows_the_grid() {
    let args = ["-w", "aging,idle", "--used", "50"];
    let text = text(&allocating("2000", &SMALL).args(args).assert().success());
    let parts = ["aging: ", "idle: ", "free as", "held by idle", "16 MiB", "50 %", "of 2 seeds"];
    parts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
    // On top, counted over all machines.
    assert!(text.starts_with("order 3: freehold is above vanilla, or within "), "{text}");
}

#[test]
fn mistakes_are_named() {
    for (args, message) in [
        (["-w", "agin"], "there is no workload 'agin'"),
        (["--cpus", "0"], "0 is out of range: 1 to 1,024"),
        (["--engines", "freehold,grup=1"], "freehold has no switch 'grup=1'"),
        (["--engines", "freehold,group=1"], "freehold has no switch 'group=1'"),
        (["--engines", "vanila"], "did you mean 'vanilla'"),
        (["--used", "97"], "95 is the most, 99 where page cache fills memory"),
        (["--seed", "1"], "--random"),
        (["--memory-per-cpu", "1"], "has no unit"),
        (["-e", "contiguitas"], "contiguitas is for loads that fill memory: cache, slab, net, day"),
        (["--memory", "131073M"], "more than 128 GiB, the largest machine of the grid"),
    ] {
        assert_refused(&mut allocating("2000", &args), &[message]);
    }
    let idle = ["--move", "-w", "idle"];
    let said = "--move is for loads that fill memory: cache, slab, net, day, thp, big";
    assert_refused(&mut allocating("2000", &idle), &[said]);
    assert_refused(&mut allocating("2000", &["--move", "--random", "1"]), &[said]);
}
