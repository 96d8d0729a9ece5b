//! An allocation by somebody who is in no CPU's state, and may not wait for one: past the leases.

use crate::alloc::pick::Want;
use crate::block::BLOCK_ORDER;
use crate::block::tag::CMA;
use crate::cpu::by::By;
use crate::cpu::inside::Inside;
use crate::platform::PlatformExt;
use crate::zone::Zone;
use crate::{AllocError, CpuId, Migratetype, Order, Pfn, Platform, Request};

impl<'m, P: Platform> By<'_, 'm, P> {
    /// An allocation that may not wait, without the state of `cpu`. No CPU counts it.
    #[cold]
    pub(crate) fn alloc(self, cpu: CpuId, request: &Request) -> Result<Pfn, AllocError> {
        if !Migratetype::PCP.contains(&request.migratetype) {
            return Err(AllocError::BadMigratetype { migratetype: request.migratetype });
        }
        let fh = self.fh;
        let zones = || fh.zonelists.of(cpu.index(), request.node).map(|z| &fh.zones[z]);
        // Of a block that it splits all but what it hands out is on the way.
        let _moving = fh.zones[0].moving(self, cpu.index());
        let want = Want::of(request);
        let other =
            |zone, want| [false, true].iter().find_map(|&mixed| self.try_other(zone, want, mixed));
        let steps: [&dyn Fn(&'m Zone<'m>) -> Option<u64>; 5] = [
            &|zone| self.try_mark(zone, request),
            &|zone| zone.upper_ends(want).find_map(|want| other(zone, want)),
            &|zone| self.try_other(zone, want, false),
            &|zone| self.try_other(zone, want, true),
            &|zone| want.take_high_atomic(self, zone),
        ];
        let placed = request.is_limited() || request.align > request.order;
        let find = || {
            if placed || request.order > Order::PAGEBLOCK {
                self.find_placed(cpu.index(), request)
            } else if want.order == BLOCK_ORDER {
                let take = |zone: &'m Zone<'m>| zone.take_whole(self, want);
                let whole =
                    zones().find_map(take).map(|block| block.take_block(fh, want.migratetype));
                let cma = || zones().find_map(steps[0]);
                whole.or_else(cma).or_else(|| zones().find_map(steps[4])).map(Pfn::new)
            } else {
                let found = steps.iter().find_map(|step| zones().find_map(step));
                found.and_then(|pfn| self.keep_block_of(want, pfn)).map(Pfn::new)
            }
        };
        let at_open_doors =
            || if self.take_back_at_open_doors(cpu, request.order) { find() } else { None };
        let pfn = find().or_else(at_open_doors).ok_or(AllocError::WouldBlock)?;
        fh.platform.handed_out(pfn, request.order);
        Ok(pfn)
    }

    /// CPUs other than `but` whose doors nobody owns and nobody is inside give back what they have,
    /// where they have something for that order, by a glance; whether any did. A thread that this
    /// one has interrupted inside such a door keeps it shut, and is not waited for.
    #[cold]
    pub(crate) fn take_back_at_open_doors(self, but: CpuId, order: Order) -> bool {
        let mut any = false;
        for cpu in self.fh.cpus.iter().filter(|cpu| usize::from(cpu.number) != but.index()) {
            if cpu.has_for(self.fh, Some(order)) {
                let inside = Inside::try_enter(self.fh, cpu, CpuId::new(cpu.number), false);
                any |= inside.is_some();
                inside.iter().for_each(Inside::give_back_all);
            }
        }
        any
    }

    /// A chunk past the leases, of the types that the request may have, down to its own mark. Of
    /// order 9 the board has CMA blocks only; others are whole.
    pub(crate) fn try_mark(self, zone: &'m Zone<'m>, request: &Request) -> Option<u64> {
        let want = Want::of(request);
        let listed = |&migratetype: &usize| want.order < BLOCK_ORDER || migratetype == CMA;
        let take = |migratetype| (Want { migratetype, ..want }).take_reserved(self, zone);
        zone.types_for(request).into_iter().flatten().filter(listed).find_map(take)
    }

    /// Steps *other type* and *mixed*.
    fn try_other(self, zone: &'m Zone<'m>, want: Want, mixed: bool) -> Option<u64> {
        let _granted = zone.reserve(self, want.migratetype, 1 << want.order, want.flags)?;
        let block = if mixed { want.mix(self, zone) } else { want.claim_fallback(self, zone) }?;
        block.claim(self, want.order).map(|offset| block.base() + offset as u64)
    }
}
