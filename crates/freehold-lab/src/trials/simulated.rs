//! What the simulator needs of an engine beside [`Engine`]: what a call has done, whose lists a
//! frame goes home to, and the call as it goes where a lock is found busy.
//!
//! The engines count under their own locks. One thread plays all CPUs, so what a call did is the
//! difference of a few counters before and after it; nothing is added to the engines' paths for it.

use crate::engine::count;
use crate::engine::{Engine, Request};
use crate::engines::{
    Barriers, ClassicEngine, Counting, EngineError, EngineSpec, FREEHOLD, FreeholdEngine,
    MachineConfig, ZONE, own_all, with_freehold_config,
};
use crate::model::Family;
use freehold::{AllocError, CpuId, FrameRange, Freehold, Order, Pfn};
use freehold_classic::Switch;

/// Totals of one CPU and of a zone; a call did what they grow by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// Holds of the zone lock.
    pub holds: u64,
    /// Steps in them.
    pub steps: u64,
    /// Chunks split, merged or taken over under the CPU's own lock; refills, for freehold.
    pub changes: u64,
    /// List entries that merge passes looked at.
    pub merge_steps: u64,
    /// Frames that came from the zone's lists.
    pub refilled: u64,
    /// Heavy barriers, as [`Simulated::heavy_barriers`].
    pub barriers: u64,
}

count! { Marks: holds steps changes merge_steps refilled barriers }

/// Who moves what is in use in a block that is being emptied.
pub trait Mover {
    /// Moves a run, and says whether to go on with the block.
    fn move_used(&mut self, used: FrameRange) -> bool;

    /// The end of a block, whether nothing of it is in use; says whether to go on with the next.
    fn ended(&mut self, is_whole: bool) -> bool;
}

pub trait Simulated: Engine {
    /// How it shares its lists.
    fn family(&self) -> Family;

    /// What has been done so far: under the zone's lock, and under `cpu`'s. Constant time. Nothing,
    /// of an engine that shares no lists.
    fn marks(&self, _cpu: CpuId) -> Marks {
        Marks::default()
    }

    /// The CPU whose lists or blocks a frame goes home to; `None`: the freeing CPU's, or the
    /// zone's, or the block's own words, of which it counts who wrote them last.
    fn home(&self, _pfn: Pfn) -> Option<CpuId> {
        None
    }

    /// An allocation that finds its CPU's lock held by somebody else: like any other, where nobody
    /// but its owner enters a CPU's state.
    ///
    /// # Errors
    ///
    /// As [`Engine::alloc`].
    fn alloc_finding_busy(&self, cpu: CpuId, request: Request) -> Result<Pfn, AllocError> {
        self.alloc(cpu, request)
    }

    /// Times that all CPUs were made to pass a full memory barrier because somebody reached into a
    /// CPU's state; 0 for designs without such barriers.
    fn heavy_barriers(&self) -> u64 {
        0
    }

    /// Calls `each` with the first frame of the wanted block to empty next, as things are then,
    /// until it returns false, by an engine that has a search for them: the blocks looked at.
    fn emptiest(
        &self,
        _wanted: &mut dyn FnMut(Pfn) -> bool,
        _each: &mut dyn FnMut(Pfn) -> bool,
    ) -> Option<u64> {
        None
    }

    /// Has an engine that moves by itself what is in use do so: where each chunk was, where it is,
    /// and its order; a chunk may have come apart. `None` of one that does not.
    fn rebalance(&self) -> Option<Vec<(Pfn, Pfn, Order)>> {
        None
    }

    /// Empties blocks one after the other by an engine that can; nothing moves from one to another.
    fn evacuate(&self, _blocks: &[Pfn], _mover: &mut dyn Mover) {}
}

impl Simulated for ClassicEngine {
    fn family(&self) -> Family {
        let on = self.classic().switches();
        match (on.has(Switch::Route), on.has(Switch::RemoteList)) {
            (false, _) => Family::Lists,
            (true, false) => Family::Owners,
            (true, true) => Family::OwnersRemoteList,
        }
    }

    fn marks(&self, cpu: CpuId) -> Marks {
        let work = self.classic().work(cpu).unwrap_or_default();
        Marks {
            holds: work.zone_holds,
            steps: work.zone_steps,
            changes: work.pcp_changes,
            merge_steps: work.pcp_merge_steps,
            refilled: work.refilled_frames,
            barriers: 0,
        }
    }

    fn home(&self, pfn: Pfn) -> Option<CpuId> {
        self.classic().switches().has(Switch::Route).then(|| self.classic().owner(pfn)).flatten()
    }

    fn alloc_finding_busy(&self, cpu: CpuId, request: Request) -> Result<Pfn, AllocError> {
        self.classic().alloc_finding_busy(cpu, request)
    }
}

impl<P: Barriers> Simulated for FreeholdEngine<'_, '_, P> {
    fn family(&self) -> Family {
        Family::Freehold
    }

    fn marks(&self, cpu: CpuId) -> Marks {
        let changes = self.allocator().on(cpu).stats().map_or(0, |stats| stats.refills);
        Marks { changes, barriers: self.heavy_barriers(), ..Marks::default() }
    }

    fn heavy_barriers(&self) -> u64 {
        self.allocator().platform().barriers()
    }

    fn emptiest(
        &self,
        wanted: &mut dyn FnMut(Pfn) -> bool,
        each: &mut dyn FnMut(Pfn) -> bool,
    ) -> Option<u64> {
        let mut found = self.allocator().emptiest(ZONE, u32::MAX, wanted).of_any_type();
        while found.next().is_some_and(|block| each(block.start)) {}
        Some(u64::from(u32::MAX - found.looks_left()))
    }

    fn evacuate(&self, blocks: &[Pfn], mover: &mut dyn Mover) {
        let begin = |&block| self.allocator().evacuate_any_type(block).ok();
        let begun: Vec<_> = blocks.iter().filter_map(begin).collect();
        for mut evacuation in begun {
            evacuation.move_used(|used| mover.move_used(used));
            if !mover.ended(evacuation.finish()) {
                break;
            }
        }
    }
}

/// Whether the frames that are free and `live` ones in use are all there are; an error says how
/// many there are of each.
///
/// # Errors
///
/// In words.
pub fn accounted(engine: &dyn Engine, live: u64) -> Result<(), String> {
    let memory = engine.memory();
    let (free, all) = (memory.free_frames, memory.managed_frames);
    let is_all = free + live == all;
    is_all
        .then_some(())
        .ok_or_else(|| format!("{free} frames are free and {live} in use, of {all}"))
}

/// Builds an engine, lends it to `run`, and gives its memory back.
///
/// # Errors
///
/// [`EngineError::Unbuildable`] where the machine does not suit it or its switches do not go
/// together.
pub fn with_simulated<R>(
    spec: &EngineSpec,
    machine: &MachineConfig,
    run: impl FnOnce(&dyn Simulated) -> R,
) -> Result<R, EngineError> {
    let ran = match spec.name() {
        FREEHOLD => lend(machine, |engine| run(engine)),
        _ => ClassicEngine::new(spec.name(), machine).map(|engine| run(&engine)),
    };
    ran.map_err(|reason| spec.unbuildable(reason))
}

/// Builds Freehold with every CPU owned, lends it to `run` and gives its memory back: many
/// simulations make many machines.
fn lend<R>(
    machine: &MachineConfig,
    run: impl FnOnce(&FreeholdEngine<'_, '_, Counting>) -> R,
) -> Result<R, String> {
    with_freehold_config(machine, |config| {
        let bytes = config.metadata_size().map_err(|error| error.to_string())?;
        let mut metadata = Box::new_uninit_slice(bytes);
        let allocator = Freehold::new(config, &mut metadata, Counting::new(true))
            .map_err(|error| error.to_string())?;
        let owned = own_all(&allocator, machine.cpus)?;
        Ok(run(&FreeholdEngine::new(&allocator, owned)))
    })
}
