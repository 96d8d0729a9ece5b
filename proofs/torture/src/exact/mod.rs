//! One thread on random machines: every answer is compared with a table of all frames.
//!
//! Machines have 1 to 1,024 CPUs, holes, several zones, CMA; memory and CPUs come and go, blocks
//! are isolated. A request that fails is searched for in the table: it may fail only where no chunk
//! is free that it may have.
//!
//! ```text
//! mod.rs      machines by seed, and what a run of one is
//! table.rs    which frames are there, free, isolated, CMA, and of which zone
//! calls.rs    allocations and frees
//! memory.rs   ranges, isolation, memory and CPUs that come and go
//! ```

mod calls;
mod memory;
mod table;

use freehold::{Config, CpuId, FrameRange, NodeId, On, Watermarks, ZoneConfig};
use serde_json::{Value, json};

use crate::machine::zone;
use crate::platform::{Core, Threads, core};
use crate::random::Random;
use table::{State, Table};

/// Calls on one machine.
const STEPS: u32 = 600;
/// Steps between two comparisons of the counts of all zones with the table.
const COMPARED: u32 = 64;

/// What was done on all machines.
#[derive(Default)]
struct Counts {
    steps: u64,
    failures: u64,
    /// Failures that were searched for in the table.
    searched: u64,
}

/// A machine under test.
struct Case {
    fh: &'static Core,
    table: Table,
    random: Random,
    held: Vec<FrameRange>,
    spans: Vec<FrameRange>,
    online: Vec<bool>,
    /// The CPU of this step.
    cpu: u16,
    /// Large orders are common, and many of them at once.
    dense: bool,
    counts: Counts,
}

impl Case {
    /// The machine of a seed.
    fn new(seed: u64) -> Result<Self, String> {
        let mut random = Random::new(seed);
        let cpus = random.pick(&[1, 1, 2, 3, 5, 16, 64, 300, 1024]);
        let mut at = random.pick(&[0, 1, 7, 63, 64 * 5, (1 << 22) - 200]);
        let base = at * 512;
        let mut zones = Vec::new();
        for _ in 0..1 + random.below(3) {
            let blocks = random.pick(&[1, 2, 4, 9, 20, 65, 70, 140]);
            let zone = zone(at, blocks, &mut random);
            at = zone.span.end.get() / 512;
            at += if random.percent(60) { 0 } else { random.below(100) };
            zones.push(zone);
        }
        let node = |random: &mut Random| NodeId::new(random.below(2) as u8);
        let nodes: Vec<NodeId> = (0..cpus).map(|_| node(&mut random)).collect();
        let configs: Vec<ZoneConfig<'_>> = zones
            .iter()
            .map(|zone| ZoneConfig {
                node: node(&mut random),
                span: zone.span,
                cma: &zone.cma,
                watermarks: Watermarks::None,
                spare_sections: 3,
                ..ZoneConfig::new(&zone.pieces)
            })
            .collect();
        let config = Config { cpu_nodes: &nodes, extra_ranges: 20, ..Config::new(cpus, &configs) };
        let fh = core(&config, random.percent(50)).map_err(|error| error.to_string())?;
        let mut table = Table::new(base, at * 512);
        for (number, zone) in zones.iter().enumerate() {
            table.add_zone(number, zone.span, &zone.pieces, &zone.cma);
        }
        let dense = random.percent(50);
        Ok(Self {
            fh,
            table,
            random,
            held: Vec::new(),
            spans: zones.iter().map(|zone| zone.span).collect(),
            online: vec![true; usize::from(cpus)],
            cpu: 0,
            dense,
            counts: Counts::default(),
        })
    }

    fn on(&self) -> On<'static, 'static, Threads> {
        self.fh.on(CpuId::new(self.cpu))
    }

    fn is_online(&self) -> bool {
        self.online[usize::from(self.cpu)]
    }

    /// The frames were handed out: they must have been free.
    fn keep(&mut self, what: &str, range: FrameRange) -> Result<(), String> {
        if !self.table.all(range, State::Free) {
            return Err(format!("{what} handed out {range}, which is not all free"));
        }
        self.table.set(range, State::Used);
        self.held.push(range);
        Ok(())
    }

    /// A call, drawn.
    fn step(&mut self) -> Result<(), String> {
        self.counts.steps += 1;
        self.cpu = self.random.below(self.online.len() as u64) as u16;
        match self.random.below(40) {
            0..16 => self.alloc(),
            16..18 => self.alloc_bulk(),
            18..20 => self.alloc_run(),
            20..31 => self.free_some(),
            31..33 => self.free_wrongly(),
            33 => self.alloc_contig_range(),
            34 => self.alloc_contig_free(),
            35 => self.isolate_or_restore(),
            36 => self.change_memory(),
            37 => {
                // An offline CPU refuses both.
                let on = self.on();
                let _ = if self.random.percent(50) { on.tick() } else { on.flush() };
                Ok(())
            }
            38 => self.change_cpu(),
            _ => {
                if self.random.percent(20) {
                    self.fh.drain_all();
                }
                for zone in 0..self.spans.len() {
                    let _ = self.fh.give_up_reserve(zone, freehold::Migratetype::Movable);
                }
                Ok(())
            }
        }
    }

    /// The allocator's invariants, and its count of free frames.
    fn compare(&self) -> Result<(), String> {
        self.fh.validate().map_err(|broken| broken.to_string())?;
        let stats = (0..self.spans.len()).filter_map(|zone| self.fh.zone_stats(zone));
        let (said, truth) = (stats.map(|zone| zone.free).sum::<u64>(), self.table.free());
        if said == truth {
            Ok(())
        } else {
            Err(format!("{said} frames are free, {truth} in truth"))
        }
    }

    /// All steps, and everything freed behind them.
    fn run(&mut self) -> Result<(), String> {
        for step in 1..=STEPS {
            self.step().map_err(|wrong| format!("step {step}: {wrong}"))?;
            if step % COMPARED == 0 {
                self.compare().map_err(|wrong| format!("step {step}: {wrong}"))?;
            }
        }
        self.compare()?;
        while let Some(isolated) = self.table.isolated() {
            self.fh.restore(isolated);
            self.table.isolate(isolated, false);
        }
        for range in std::mem::take(&mut self.held) {
            let freed = self.fh.on(CpuId::new(0)).free_range(range);
            freed.map_err(|error| format!("a right free of {range}: {error}"))?;
            self.table.set(range, State::Free);
        }
        self.fh.drain_all();
        self.compare()?;
        match self.fh.platform().late() {
            0 => Ok(()),
            late => Err(format!("{late} right frees were told as double ones")),
        }
    }
}

/// Plays the machines of these seeds; ends with the first that is wrong.
pub(crate) fn run(first: u64, seeds: u64) -> Value {
    let mut counts = Counts::default();
    for seed in first..first + seeds {
        let played = Case::new(seed).and_then(|mut case| {
            let result = case.run();
            counts.steps += case.counts.steps;
            counts.failures += case.counts.failures;
            counts.searched += case.counts.searched;
            result
        });
        if let Err(wrong) = played {
            return json!({ "troubles": [format!("seed {seed}: {wrong}")] });
        }
    }
    json!({
        "troubles": [], "machines": seeds, "steps": counts.steps, "failures": counts.failures,
        "searched": counts.searched,
    })
}
