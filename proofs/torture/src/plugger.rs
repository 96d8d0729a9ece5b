//! The thread that has CPUs and memory come and go.

use std::sync::PoisonError;
use std::time::Duration;

use freehold::{AllocError, ConfigError, CpuId, FrameRange, HotplugError};

use super::bounds::Kind;
use super::clerk::Clerk;
use super::ledger::Chunk;
use super::platform::Core;
use super::world::World;
use crate::random::Random;

pub(super) struct Plugger {
    pub(super) clerk: Clerk,
    random: Random,
}

impl Plugger {
    pub(super) fn new(world: &'static World, alone: bool) -> Self {
        let random = Random::new(world.plan.seed.wrapping_add(0x9_1066));
        Self { clerk: Clerk::new(world, world.plan.threads, alone), random }
    }

    /// Plugs until `over`; all CPUs and all memory are there then.
    pub(super) fn run(&mut self, over: impl Fn() -> bool) {
        let world = self.clerk.world;
        while !over() {
            {
                let _calling = world.gate.read().unwrap_or_else(PoisonError::into_inner);
                self.step();
            }
            std::thread::sleep(Duration::from_micros(self.random.below(2000)));
        }
        let _calling = world.gate.read().unwrap_or_else(PoisonError::into_inner);
        (0..world.cpus()).for_each(|cpu| self.plug_cpu(cpu));
    }

    /// One thing of each kind. All memory is there again when this ends; a CPU may stay away for
    /// longer.
    pub(super) fn step(&mut self) {
        // CPU 0 stays.
        let cpus = u64::from(self.clerk.world.cpus());
        let (going, coming) = (1 + self.random.below(cpus - 1), 1 + self.random.below(cpus - 1));
        self.unplug_cpu(going as u16);
        self.plug_cpu(coming as u16);
        self.change_memory();
        if self.random.below(4) == 0 {
            self.set_watermarks();
        }
        if self.random.below(50) == 0 {
            self.validate();
        }
    }

    fn unplug_cpu(&mut self, cpu: u16) {
        let world = self.clerk.world;
        match self
            .clerk
            .ask(Kind::CpuOffline, cpu, 0, || world.freehold.cpu_offline(CpuId::new(cpu)))
        {
            Ok(()) | Err(AllocError::CpuOwned { .. } | AllocError::CpuOffline { .. }) => {}
            Err(error) => world.ledger.tell(format!("cpu_offline: {error}")),
        }
    }

    fn plug_cpu(&mut self, cpu: u16) {
        let world = self.clerk.world;
        if let Err(error) =
            self.clerk.ask(Kind::CpuOnline, cpu, 0, || world.freehold.cpu_online(CpuId::new(cpu)))
        {
            world.ledger.tell(format!("cpu_online: {error}"));
        }
    }

    fn change_memory(&mut self) {
        let world = self.clerk.world;
        let range = world.some_blocks(&mut self.random);
        let start = range.start.get();
        match self.clerk.ask(Kind::RemoveMemory, 0, start, || world.freehold.remove_memory(range)) {
            Ok(()) => {}
            // In use, or in pieces.
            Err(HotplugError::Busy { .. } | HotplugError::Absent { .. } | HotplugError::NoRoom) => {
                return;
            }
            Err(error) => return world.ledger.tell(format!("remove_memory: {error}")),
        }
        // It comes back free, or in use: for any thread to free.
        let in_use = self.random.below(4) == 0;
        let (kind, add) = if in_use {
            (Kind::AddMemoryInUse, Core::add_memory_in_use as fn(&Core, FrameRange) -> _)
        } else {
            (Kind::AddMemory, Core::add_memory as fn(&Core, FrameRange) -> _)
        };
        let chunk = Chunk::new(range.start, range.len());
        if in_use {
            world.ledger.take(chunk, self.clerk.name());
        }
        loop {
            match self.clerk.ask(kind, 0, start, || add(world.freehold, range)) {
                Ok(()) => break,
                // Somebody isolates its neighbours just now.
                Err(HotplugError::Busy { .. }) => std::thread::yield_now(),
                Err(error) => {
                    return world.ledger.tell(format!("{}: {error}", kind.name()));
                }
            }
        }
        if in_use {
            world.pool().push((chunk, self.clerk.name()));
        }
    }

    /// Marks of up to a 16th of the zone each; none, for as long as a third of the time; now and
    /// then some that do not rise.
    fn set_watermarks(&mut self) {
        let world = self.clerk.world;
        let zone = self.random.below(world.zones.len() as u64) as usize;
        let most = world.zones[zone].frames() / 16;
        let mut steps = [0; 3].map(|_: u64| self.random.below(most));
        if self.random.below(3) == 0 {
            steps = [0; 3];
        }
        let [min, low, high] = [steps[0], steps[0] + steps[1], steps.iter().sum()];
        let set = |[min, low, high]: [u64; 3]| {
            move || world.freehold.set_watermarks(zone, min, low, high)
        };
        let mut marks = world.marks();
        if self.random.below(16) == 0 {
            let result =
                self.clerk.ask(Kind::SetWatermarks, 0, zone as u64, set([high + 1, high, high]));
            if result != Err(ConfigError::Watermarks) {
                world.ledger.tell(format!("set_watermarks, of marks that do not rise: {result:?}"));
            }
        }
        match self.clerk.ask(Kind::SetWatermarks, 0, zone as u64, set([min, low, high])) {
            Ok(()) => marks[zone] = [min, low, high],
            Err(error) => world.ledger.tell(format!("set_watermarks: {error}")),
        }
    }

    /// While others call only what a free cannot change is sure, so nothing is made of what it
    /// says.
    fn validate(&mut self) {
        let world = self.clerk.world;
        let _ = self.clerk.ask(Kind::Validate, 0, 0, || world.freehold.validate());
    }
}
