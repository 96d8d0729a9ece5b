//! What follows from how much memory and how many CPUs there are: watermarks, home zones, how many
//! words a CPU may lease. Changed only with the hotplug lock.

use crate::Platform;
use crate::alloc::watch::ANY;
use crate::block::FRAMES;
use crate::block::tag::Tag;
use crate::cpu::by::Inside;
use crate::cpu::state::CpuState;
use crate::memory::hotplug::Hotplug;
use crate::primitive::{Relaxed, full_fence};
use crate::zone::watermarks::kernel_watermarks;

impl<P: Platform> Hotplug<'_, '_, P> {
    /// The amount of memory has changed.
    pub(crate) fn memory_changed(&self) {
        self.refresh_watermarks();
        self.choose_home_zones();
        self.compute_limits();
    }

    /// Computes watermarks by the kernel's formulae again, after the amount of memory has changed.
    fn refresh_watermarks(&self) {
        let total: u64 = self.fh.zones.iter().map(|z| z.managed.get()).sum();
        for zone in self.fh.zones.iter().filter(|z| z.kernel_marks.get()) {
            zone.set_marks(kernel_watermarks(zone.managed.get(), total));
        }
        // They may be lower than before: the marks before the look at who watches.
        full_fence();
        self.fh.watch.came(ANY);
    }

    /// Each CPU's home is the first zone of its list that has memory. After memory has come or
    /// gone; what a CPU has of its old home goes back.
    fn choose_home_zones(&self) {
        for (number, cpu) in self.fh.cpus.iter().enumerate() {
            let zones = || self.fh.zonelists.of(number, None).map(|z| &self.fh.zones[z]);
            let Some(zone) = zones().find(|zone| zone.managed.get() != 0).or(zones().next()) else {
                continue;
            };
            if cpu.home_zone.get() != u32::from(zone.id) {
                let inside = Inside::enter(self.fh, cpu, false);
                // What it has counted is told as well: it counts another zone from now on.
                inside.give_back_all();
                cpu.home_zone.set(u32::from(zone.id));
                cpu.home_split.set(Tag::ordinary_in(zone.id));
            }
        }
    }

    /// What follows from how much memory and how many CPUs there are: how many words each CPU may
    /// lease, how exactly frames are counted, which blocks are spared. All leases together have at
    /// most 1 % of the frames; CPUs whose part of that is less than a word share what there is. A
    /// leased word keeps its block from becoming whole. So where less than half of memory is free,
    /// leases are in at most 1 % of the blocks, or each CPU has two: with one it would change it
    /// between requests of two types or orders.
    pub(crate) fn compute_limits(&self) {
        let cpus = || self.fh.cpus.iter().filter(|cpu| cpu.online.get());
        let online = cpus().count().max(1) as u64;
        for zone in self.fh.zones {
            let at_home = |cpu: &&CpuState<'_>| cpu.home_zone.get() == u32::from(zone.id);
            let cpus = cpus().filter(at_home).count().max(1) as u64;
            let words = zone.managed.get().div_ceil(64 * 100);
            let (most, few) = (words / cpus, (zone.blocks() / 100 / cpus).max(2));
            for cpu in self.fh.cpus.iter().filter(at_home) {
                // Relaxed: read by its CPU at its next lease.
                cpu.leases.set_limits(most, few);
            }
            zone.words.set_most(words);
            // A CPU has up to seven blocks in use: for single frames and for runs, of three types,
            // and the one that it cuts runs of any length from.
            zone.spread.set(zone.blocks() / online >= 128);
            // All CPUs' allowances together are about 1/64 of the zone at most, where that is not
            // less than a few frames each.
            let fold =
                (zone.managed.get() / (64 * self.fh.cpus.len() as u64)).clamp(8, FRAMES as u64);
            zone.fold.set(fold);
            zone.shares.set(2 * online);
            zone.set_modes();
            zone.update_mode();
        }
    }
}
