//! The machine of a storm, and all that the threads share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use freehold::{Config, ConfigError, FrameRange, NodeId, Pfn, Watermarks, ZoneConfig};

use super::clerk::Post;
use super::ledger::{Chunk, Ledger};
use super::machine::{Zone, range, zones};
use super::platform::{self, Core};
use super::{Map, Plan};
use crate::random::Random;

/// Blocks at the end of a zone that stay, CMA among them: what comes back after it was removed is
/// ordinary memory.
const STAYS: u64 = 2;
/// The least memory of a machine: two zones with room for CMA, for what is removed and for the
/// largest chunks.
pub(crate) const LEAST: u64 = 64 << 8;

/// See the module's documentation. It lives as long as the program: a thread that is stuck cannot
/// be got rid of.
pub(super) struct World {
    pub(super) freehold: &'static Core,
    pub(super) ledger: Ledger,
    pub(super) plan: Plan,
    /// One for each thread that calls; behind them, one for the thread that plugs CPUs and memory.
    pub(super) posts: Vec<Post>,
    /// Chunks that any thread may free, and who has them until then.
    pub(super) pool: Mutex<Vec<(Chunk, u32)>>,
    /// Whoever calls holds it for reading; who checks that all is well while nobody does, for
    /// writing.
    pub(super) gate: RwLock<()>,
    /// It is over: free what you have.
    pub(super) end: AtomicBool,
    pub(super) zones: Vec<Zone>,
    /// Of each zone the blocks that were whole at first.
    pub(super) whole: Vec<u64>,
    /// Each zone's watermarks; whoever holds this sets them.
    pub(super) marks: Mutex<Vec<[u64; 3]>>,
    /// Nobody has much just now: blocks become whole, and memory can go.
    low_tide: AtomicBool,
    /// The most HIGHATOMIC blocks of a zone that a pause has seen.
    pub(super) high_atomic: AtomicU64,
}

impl World {
    /// Zones on two nodes in turn.
    pub(super) fn build(plan: Plan) -> Result<&'static Self, ConfigError> {
        let zones = zones(plan.map, plan.frames.max(LEAST), plan.seed);
        let mut random = Random::new(plan.seed);
        let small = plan.map == Map::Random;
        let cpus = if small {
            random.pick(&[2, 3, 4, 8, 40])
        } else {
            plan.threads.clamp(2, 1 << 12) as u16
        };
        let nodes: Vec<NodeId> = (0..cpus).map(|cpu| NodeId::new((cpu % 2) as u8)).collect();
        let last = zones.len() - 1;
        let end = zones[last].span.end;
        let configs: Vec<ZoneConfig<'_>> = zones
            .iter()
            .enumerate()
            .map(|(n, zone)| ZoneConfig {
                node: NodeId::new((n % 2) as u8),
                span: zone.span,
                cma: &zone.cma,
                watermarks: Watermarks::None,
                ..ZoneConfig::new(&zone.pieces)
            })
            .collect();
        let config = Config { cpu_nodes: &nodes, extra_ranges: 20, ..Config::new(cpus, &configs) };
        let freehold = platform::core(&config, !(small && random.percent(40)))?;
        if small && random.percent(20) {
            freehold.leave_reserve_to_host(last)?;
        }
        let whole = |zone| freehold.zone_stats(zone).map_or(0, |stats| stats.free_blocks);
        let world = Self {
            freehold,
            whole: (0..zones.len()).map(whole).collect(),
            ledger: Ledger::new(zones[0].span.start.get(), end.get()),
            posts: (0..=plan.threads).map(|_| Post::default()).collect(),
            plan,
            pool: Mutex::new(Vec::new()),
            gate: RwLock::new(()),
            end: AtomicBool::new(false),
            marks: Mutex::new(vec![[0; 3]; zones.len()]),
            zones,
            low_tide: AtomicBool::new(false),
            high_atomic: AtomicU64::new(0),
        };
        Ok(Box::leak(Box::new(world)))
    }

    /// Frames of the machine.
    pub(super) fn frames(&self) -> u64 {
        self.zones.iter().map(Zone::frames).sum()
    }

    /// Frames that each thread has at once when all have as many as they are to have.
    pub(super) fn share(&self) -> u64 {
        self.plan.used.min(self.frames()) / u64::from(self.plan.threads)
    }

    /// From the first frame to the last, holes included.
    pub(super) fn span(&self) -> FrameRange {
        let last = self.zones.last().map_or(Pfn::new(0), |zone| zone.span.end);
        FrameRange { start: self.zones[0].span.start, end: last }
    }

    /// Blocks of a zone that may go, if they are all there.
    pub(super) fn some_blocks(&self, random: &mut Random) -> FrameRange {
        let span = self.zones[random.below(self.zones.len() as u64) as usize].span;
        let blocks = 1 + random.below(2);
        let first = random.below((span.len() / 512).saturating_sub(STAYS + blocks) + 1);
        range(span.start.get() + first * 512, blocks * 512)
    }

    /// The watermarks; their holder may set a zone's meanwhile.
    pub(super) fn marks(&self) -> MutexGuard<'_, Vec<[u64; 3]>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// CPUs that there can be.
    pub(super) fn cpus(&self) -> u16 {
        self.freehold.cpu_count() as u16
    }

    /// The pool; its holder calls nothing meanwhile.
    pub(super) fn pool(&self) -> MutexGuard<'_, Vec<(Chunk, u32)>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether to stop: it is over, or something is wrong.
    pub(super) fn is_over(&self) -> bool {
        self.end.load(Ordering::Acquire) || self.ledger.is_trouble()
    }

    /// Sets the tide by what has passed: it is low for a quarter of the time.
    pub(super) fn set_tide(&self, quarters: u64) {
        self.low_tide.store(quarters % 4 == 1, Ordering::Release);
    }

    pub(super) fn is_low_tide(&self) -> bool {
        self.low_tide.load(Ordering::Acquire)
    }

    /// Writes to memory that all CPUs of a zone write, so far; exact while one thread runs.
    pub(super) fn shared_writes(&self) -> u64 {
        self.freehold.totals().shared_writes
    }
}
