//! Before failing: one block from the CPU that can best spare it, and frames of any block at all.
//!
//! Only one CPU's state is entered at a time: the robber leaves its own first, so two robbers cannot wait for each
//! other. A block changes hands directly (its holder is the robber from the moment the victim lets go); until the
//! robber is inside its own state again the block is detached, and frees into it are counted when it arrives.

use crate::block::CLASS_WHOLE;
use crate::handle::CpuGuard;
use crate::holder::Holder;
use crate::percpu::CMA;
use crate::primitive::{Count, Plain};
use crate::refill::Stage;
use crate::{CpuId, Freehold, Order, Pfn, Platform, Request};

impl<'m, P: Platform> Freehold<'m, P> {
    /// Takes blocks of the request's type, or wholly free ones, from other CPUs until it is served.
    pub(crate) fn steal_in_zone(&self, guard: &CpuGuard<'_, 'm, P>, z: usize, request: &Request) -> Option<Pfn> {
        let pcp = self.pcp(guard.id.index(), z);
        self.flush_combining(guard);
        guard.outside(|| self.bring_home());
        // The best first, by a glance; then everybody once.
        let best =
            (0..self.cpus.len()).filter(|&cpu| cpu != guard.id.index()).max_by_key(|&cpu| self.pcp(cpu, z).count());
        let all = (1..self.cpus.len()).map(|step| (guard.id.index() + step) % self.cpus.len());
        for victim in best.into_iter().chain(all) {
            let taken = guard.outside(|| self.rob(victim, z, request, guard.id));
            if let Some(index) = taken {
                if !guard.state.online.get() {
                    // This CPU went offline meanwhile: the block is the zone's.
                    self.detached_to_zone(z, index);
                    return None;
                }
                self.take_over(guard, index);
                guard.state.counters.steals.add(1);
            }
            // Also where nothing was taken: the victims' buffers may have held frames of blocks of this CPU.
            if let Some(pfn) = self.take_in_hand(guard, pcp, request) {
                return Some(pfn);
            }
        }
        // What the victims' buffers held may have gone to the zone.
        for stage in [Stage::Normal, Stage::Reserve] {
            if let Some(pfn) = self.alloc_in_zone(guard, z, request, stage) {
                return Some(pfn);
            }
        }
        None
    }

    /// Publishes what waits in the CPUs' combining buffers, and sends every block on to the inbox of its present holder,
    /// who then finds all that was freed into it; what owners keep aside goes back where a glance finds it. The caller is
    /// inside no CPU's state.
    pub(crate) fn bring_home(&self) {
        // A glance each: what comes in while we look belongs to a free that is not over yet.
        for (cpu, state) in self.cpus.iter().enumerate() {
            if state.combining.get() != 0 {
                self.with_cpu(CpuId::new(cpu as u16), |guard| self.flush_combining(guard));
            }
        }
        for z in 0..self.zones.len() {
            self.collect_zone(z);
        }
        for (cpu, state) in self.cpus.iter().enumerate() {
            if !state.inbox.is_empty() || state.owner.holds_any() {
                self.with_cpu(CpuId::new(cpu as u16), |guard| while self.collect_some(guard, 64) {});
            }
        }
    }

    /// Takes one suitable block out of a CPU's hands for `robber`, who must be inside no CPU's state.
    fn rob(&self, victim: usize, z: usize, request: &Request, robber: CpuId) -> Option<u32> {
        let blocks = self.map.blocks;
        self.with_cpu(CpuId::new(victim as u16), |guard| {
            while self.collect_some(guard, 64) {}
            let pcp = self.pcp(victim, z);
            let order = u32::from(request.order.get());
            let types = [Some(request.migratetype as u8), request.cma().then_some(CMA)];
            let mut found = None;
            for migratetype in types.into_iter().flatten().map(usize::from) {
                if order < 9 {
                    pcp.retire(blocks, migratetype);
                    found = found.or_else(|| pcp.find_partial(blocks, migratetype, order).map(|(index, _)| index));
                }
            }
            let index = found.or_else(|| pcp.find_whole(blocks))?;
            pcp.remove(blocks, index);
            let block = &blocks[index as usize];
            if block.migratetype() != CMA && block.is_whole() {
                block.set_migratetype(request.migratetype as u8);
            }
            block.set_holder(Holder::cpu(robber));
            Some(index)
        })
    }

    /// Gives a block that is on its way to nobody to the zone.
    pub(crate) fn detached_to_zone(&self, z: usize, index: u32) {
        let block = &self.map.blocks[index as usize];
        let lock = self.lock_zone(&self.zones[z]);
        crate::remote::absorb(block);
        block.count.set(block.popcount() as u16);
        lock.step(16);
        lock.place(index, block.exact_class());
    }

    /// Frames inside a block of another type in some CPU's hands, which keeps both its type and its holder.
    pub(crate) fn mix_in_cpus(&self, guard: &CpuGuard<'_, 'm, P>, z: usize, request: &Request) -> Option<Pfn> {
        if let Some(pfn) = self.mix_in_hand(guard, z, request) {
            return Some(pfn);
        }
        for step in 1..self.cpus.len() {
            let victim = (guard.id.index() + step) % self.cpus.len();
            let taken =
                guard.outside(|| self.with_cpu(CpuId::new(victim as u16), |guard| self.mix_in_hand(guard, z, request)));
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    fn mix_in_hand(&self, guard: &CpuGuard<'_, 'm, P>, z: usize, request: &Request) -> Option<Pfn> {
        let blocks = self.map.blocks;
        let pcp = self.pcp(guard.id.index(), z);
        let order = u32::from(request.order.get());
        if request.order >= Order::PAGEBLOCK {
            return None;
        }
        while self.collect_some(guard, 64) {}
        for &fallback in request.migratetype.fallbacks() {
            pcp.retire(blocks, fallback as usize);
            if let Some((index, offset)) = pcp.find(blocks, fallback as usize, order) {
                let class = blocks[index as usize].class();
                let pfn = self.take_from(pcp, index, offset, order);
                if class == CLASS_WHOLE {
                    // Whole blocks are counted by their list: this one is not whole any more.
                    pcp.shelf.unlink(blocks, index);
                    pcp.shelf.link(blocks, index, blocks[index as usize].exact_class());
                }
                let lock = self.lock_zone(&self.zones[z]);
                lock.counters.fallbacks.add(1);
                lock.counters.mixed.add(1);
                return Some(pfn);
            }
        }
        None
    }
}
