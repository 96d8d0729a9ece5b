//! The thread that has CPUs and memory come and go.

use std::sync::PoisonError;
use std::time::Duration;

use freehold::{AllocError, ConfigError, CpuId, FrameRange, HotplugError, Pfn};

use super::call::Kind;
use super::clerk::Clerk;
use super::world::World;
use freehold_lab::trials::random::Random;

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
            Err(error) => world.books.tell(format!("cpu_offline: {error}")),
        }
    }

    fn plug_cpu(&mut self, cpu: u16) {
        let world = self.clerk.world;
        if let Err(error) =
            self.clerk.ask(Kind::CpuOnline, cpu, 0, || world.freehold.cpu_online(CpuId::new(cpu)))
        {
            world.books.tell(format!("cpu_online: {error}"));
        }
    }

    fn change_memory(&mut self) {
        let world = self.clerk.world;
        let zone = self.random.below(world.zones.len() as u64) as usize;
        let piece = world.removable(zone, self.random.below(16) as usize);
        let blocks = 1 + self.random.below(2);
        let Some(places) = (piece.len() / 512).checked_sub(blocks).filter(|&n| n != 0) else {
            return;
        };
        let start = piece.start.get() + self.random.below(places) * 512;
        let range = FrameRange { start: Pfn::new(start), end: Pfn::new(start + blocks * 512) };
        match self.clerk.ask(Kind::RemoveMemory, 0, start, || world.freehold.remove_memory(range)) {
            Ok(()) => {}
            Err(HotplugError::Busy { .. }) => return,
            Err(error) => return world.books.tell(format!("remove_memory: {error}")),
        }
        if let Err(error) =
            self.clerk.ask(Kind::AddMemory, 0, start, || world.freehold.add_memory(range))
        {
            world.books.tell(format!("add_memory: {error}"));
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
                world.books.tell(format!("set_watermarks, of marks that do not rise: {result:?}"));
            }
        }
        match self.clerk.ask(Kind::SetWatermarks, 0, zone as u64, set([min, low, high])) {
            Ok(()) => marks[zone] = [min, low, high],
            Err(error) => world.books.tell(format!("set_watermarks: {error}")),
        }
    }

    /// While others call only what a free cannot change is sure, so nothing is made of what it
    /// says.
    fn validate(&mut self) {
        let world = self.clerk.world;
        let _ = self.clerk.ask(Kind::Validate, 0, 0, || world.freehold.validate());
    }
}
