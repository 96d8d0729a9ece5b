//! The thread that has CPUs and memory come and go.

use std::sync::PoisonError;
use std::time::Duration;

use freehold::{AllocError, CpuId, FrameRange, HotplugError, Pfn};

use super::call::Kind;
use super::clerk::Clerk;
use super::world::World;
use crate::bench::loops::Random;

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

    /// One thing of each kind. All memory is there again when this ends; a CPU may stay away for longer.
    pub(super) fn step(&mut self) {
        // CPU 0 stays.
        let cpus = u64::from(self.clerk.world.cpus());
        let (going, coming) = (1 + self.random.below(cpus - 1), 1 + self.random.below(cpus - 1));
        self.unplug_cpu(going as u16);
        self.plug_cpu(coming as u16);
        self.change_memory();
        if self.random.below(50) == 0 {
            self.validate();
        }
    }

    fn unplug_cpu(&mut self, cpu: u16) {
        let world = self.clerk.world;
        match self.clerk.ask(Kind::CpuOffline, cpu, 0, || world.freehold.cpu_offline(CpuId::new(cpu))) {
            Ok(()) | Err(AllocError::CpuOwned { .. } | AllocError::CpuOffline { .. }) => {}
            Err(error) => world.books.tell(format!("cpu_offline: {error}")),
        }
    }

    fn plug_cpu(&mut self, cpu: u16) {
        let world = self.clerk.world;
        if let Err(error) = self.clerk.ask(Kind::CpuOnline, cpu, 0, || world.freehold.cpu_online(CpuId::new(cpu))) {
            world.books.tell(format!("cpu_online: {error}"));
        }
    }

    fn change_memory(&mut self) {
        let world = self.clerk.world;
        let zone = world.zones[self.random.below(2) as usize];
        let blocks = 1 + self.random.below(2);
        let first = self.random.below(zone.len() / 512 - blocks);
        let start = zone.start.get() + first * 512;
        let range = FrameRange { start: Pfn::new(start), end: Pfn::new(start + blocks * 512) };
        match self.clerk.ask(Kind::RemoveMemory, 0, start, || world.freehold.remove_memory(range)) {
            Ok(()) => {}
            Err(HotplugError::Busy { .. }) => return,
            Err(error) => return world.books.tell(format!("remove_memory: {error}")),
        }
        if let Err(error) = self.clerk.ask(Kind::AddMemory, 0, start, || world.freehold.add_memory(range)) {
            world.books.tell(format!("add_memory: {error}"));
        }
    }

    /// While others call only what a free cannot change is sure, so nothing is made of what it says.
    fn validate(&mut self) {
        let world = self.clerk.world;
        let _ = self.clerk.ask(Kind::Validate, 0, 0, || world.freehold.validate());
    }
}
