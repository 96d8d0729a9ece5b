//! Makes each call on the allocator and on the model, and compares.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use freehold::{
    AllocError, AllocFlags, CpuId, FrameRange, Frames, FreeError, Freehold, Migratetype, NodeId,
    Order, Owned, Pfn, Request,
};

use crate::common::Any;

use super::decode::{Call, Demand, History, Place, Via};
use super::machines::{Host, Machine, with_machine};
use super::model::{Frame, Model};
use super::rules::{Wanted, check_blocks};

/// Blocks of a machine whose every invariant is checked after every call; larger ones now and then.
const OFTEN: usize = 200 * 512;

pub fn play(history: &History) {
    let host =
        Host { current: AtomicU16::new(0), barrier: history.barrier, late: AtomicU64::new(0) };
    let loud = std::env::var_os("FREEHOLD_HISTORY").is_some();
    with_machine(history.machine, |config, machine| {
        let size = config.metadata_size().unwrap();
        let mut metadata = vec![MaybeUninit::uninit(); size];
        let any: Any<'_> = &host;
        let fh = Freehold::new(config, &mut metadata, any).unwrap();
        let mut player = Player::new(&fh, &host, &machine);
        let every = if player.model.present as usize <= OFTEN { 1 } else { 16 };
        for (at, call) in history.calls.iter().enumerate() {
            if loud {
                eprintln!("{at}: {call:?}");
            }
            let told = Told { at, call };
            player.play(call);
            player.check(at % every == 0);
            std::mem::forget(told);
        }
        player.finish();
    });
}

/// Says which call it was when a check panics.
struct Told<'c> {
    at: usize,
    call: &'c Call,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        eprintln!("in call {}: {:?}", self.at, self.call);
    }
}

struct Player<'a, 'm> {
    fh: &'a Freehold<'m, Any<'a>>,
    host: &'a Host,
    model: Model,
    owned: Vec<Option<Owned<'a, 'm, Any<'a>>>>,
    online: Vec<bool>,
    reserves: bool,
}

impl<'a, 'm> Player<'a, 'm> {
    fn new(fh: &'a Freehold<'m, Any<'a>>, host: &'a Host, machine: &Machine) -> Self {
        Self {
            fh,
            host,
            model: Model::new(machine),
            owned: (0..machine.cpus).map(|_| None).collect(),
            online: (0..machine.cpus).map(|cpu| cpu < machine.online).collect(),
            reserves: machine.reserves,
        }
    }

    /// What a call is made through.
    fn through(&self, via: Via) -> Box<dyn Frames + '_> {
        let owner = match via {
            Via::Owner(cpu) => self.owned.get(usize::from(cpu)).and_then(Option::as_ref),
            _ => None,
        };
        match (via, owner) {
            (_, Some(owned)) => Box::new(owned),
            (Via::Here(cpu), _) => {
                self.host.current.store(cpu, Ordering::Relaxed);
                Box::new(self.fh)
            }
            _ => Box::new(self.fh.on(CpuId::new(via.cpu()))),
        }
    }

    fn is_online(&self, cpu: u16) -> bool {
        self.online.get(usize::from(cpu)).copied().unwrap_or(false)
    }

    fn pfn(&self, place: Place) -> u64 {
        match place {
            Place::Near(distance) => {
                let (start, end) = (self.model.base().saturating_sub(40), self.model.end() + 40);
                // Large machines are walked in larger steps, by a prime so that no alignment is
                // left out.
                let stride = (end - start).div_ceil(1 << 16);
                let stride = if stride > 1 { stride | 1 } else { 1 };
                start + u64::from(distance) * stride % (end - start)
            }
            Place::Live(number, behind) => match self.model.live(u64::from(number)) {
                Some((start, len)) => start + u64::from(behind) % len,
                None => self.model.base(),
            },
            Place::Last(before) => u64::MAX - u64::from(before) * 200,
        }
    }

    fn range(&self, place: Place, frames: u64) -> FrameRange {
        let start = self.pfn(place);
        FrameRange { start: Pfn::new(start), end: Pfn::new(start.saturating_add(frames)) }
    }

    // One arm for each kind of call.
    #[allow(clippy::too_many_lines)]
    fn play(&mut self, call: &Call) {
        match *call {
            Call::Alloc { via, order, migratetype, flags, demand } => {
                self.alloc(via, order, migratetype, flags, demand);
            }
            Call::AllocBulk { via, frames, order, migratetype } => {
                self.alloc_bulk(via, frames, order, migratetype)
            }
            Call::FreeLive { via, live } => {
                if let Some((start, len)) = self.model.live(u64::from(live)) {
                    let range = FrameRange::new(Pfn::new(start), len).unwrap();
                    range
                        .chunks(Order::MAX)
                        .for_each(|(pfn, order)| self.free(via, pfn.get(), order));
                }
            }
            Call::FreeSingly { via, live } => {
                if let Some((start, len)) = self.model.live(u64::from(live)) {
                    // A GiB one by one would take long.
                    let first = start + len.saturating_sub(2048);
                    (first..start + len).rev().for_each(|pfn| self.free(via, pfn, Order::ZERO));
                }
            }
            Call::Free { via, place, order } => {
                let order = Order::new(order).unwrap();
                self.free(via, self.pfn(place), order);
            }
            Call::FreeRange { via, place, frames } => {
                self.free_range(via, self.range(place, u64::from(frames)))
            }
            Call::FreeBulk { via, live, frames, step, wrong } => {
                self.free_bulk(via, live, frames, step, wrong)
            }
            Call::FreeTwice { first, second, live } => self.free_twice(first, second, live),
            Call::Tick { via } => self.tick(via, false),
            Call::Flush { via } => self.tick(via, true),
            Call::DrainAll => self.fh.drain_all(),
            Call::ContigRange { place, frames, moving } => {
                self.contig_range(self.range(place, u64::from(frames)), moving);
            }
            Call::Contig { frames, align, place, window } => {
                self.contig(frames, align, place, window)
            }
            Call::Own { cpu } => self.own(cpu),
            Call::Disown { cpu } => {
                if let Some(owned) = self.owned.get_mut(usize::from(cpu)) {
                    *owned = None;
                }
            }
            Call::CpuOffline { cpu } => self.cpu_offline(cpu),
            Call::CpuOnline { cpu } => {
                let result = self.fh.on(CpuId::new(cpu)).online();
                assert_eq!(result.is_ok(), usize::from(cpu) < self.online.len(), "{result:?}");
                if let Some(online) = self.online.get_mut(usize::from(cpu)) {
                    *online = true;
                }
            }
            Call::RemoveMemory { place, frames } => {
                let range = self.blocks(place, frames);
                let result = self.fh.remove_memory(range);
                self.model.remove_memory(range, result);
            }
            Call::AddMemory { place, frames } => {
                let range = self.blocks(place, frames);
                let result = self.fh.add_memory(range);
                self.model.add_memory(range, result);
            }
            Call::SetWatermarks { zone, marks } => {
                let marks = marks.map(|mark| u64::from(mark) * 4);
                let result =
                    self.fh.set_watermarks(usize::from(zone), marks[0], marks[1], marks[2]);
                assert_eq!(
                    result.is_ok(),
                    usize::from(zone) < self.fh.zone_count() && marks.is_sorted()
                );
                self.reserves |= result.is_ok();
            }
            Call::Look { cpu, zone, place } => self.look(cpu, zone, place),
        }
    }

    /// Memory comes and goes in blocks mostly.
    fn blocks(&self, place: Place, frames: u16) -> FrameRange {
        let frames = u64::from(frames);
        let range = self.range(place, frames % 3000);
        if frames % 8 == 0 {
            return range;
        }
        let start = range.start.get() / 512 * 512;
        FrameRange { start: Pfn::new(start), end: Pfn::new(start.saturating_add(frames % 6 * 512)) }
    }

    fn alloc(&mut self, via: Via, order: u8, migratetype: u8, flags: u8, demand: Option<Demand>) {
        let order = Order::new(order).unwrap();
        let kind =
            Migratetype::from_index(usize::from(migratetype)).unwrap_or(Migratetype::Movable);
        let mut flags = AllocFlags::from_bits_truncate(u16::from(flags));
        if !self.reserves {
            // A reserve would be set aside, and nothing could be said of failures any more.
            flags -= AllocFlags::HIGH_ATOMIC;
        }
        let mut request = Request::new(order, kind).flags(flags);
        let (mut align, mut from, mut below) = (order, 0, u64::MAX);
        match demand {
            Some(Demand::Align(n)) => {
                let wanted = Order::new(n).unwrap();
                align = order.max(wanted);
                request = request.align(wanted);
            }
            Some(Demand::Below(place)) => {
                below = self.pfn(place);
                request = request.below(Pfn::new(below));
            }
            Some(Demand::From(place)) => {
                from = self.pfn(place);
                request = request.from(Pfn::new(from));
            }
            Some(Demand::Node(n)) => request = request.node(NodeId::new(n)),
            None => {}
        }
        let result = self.through(via).alloc(request);
        let offline = !self.is_online(via.cpu());
        let wanted = Wanted { order, align, from, below, migratetype: kind, flags };
        match result {
            Ok(pfn) => {
                assert!(
                    wanted.may_have(self.fh, pfn.get()),
                    "{pfn} is of a block that is not for {wanted:?}"
                );
                assert!(!offline && Migratetype::PCP.contains(&kind));
                let start = pfn.get();
                assert!(pfn.is_aligned(align), "{pfn} is not aligned to {align}");
                assert!(
                    from <= start && start + order.frames() <= below,
                    "{pfn} is not within {from:#x}..{below:#x}"
                );
                self.model.take(start, order.frames());
                self.model.open(start, start + align.frames());
            }
            Err(AllocError::CpuOffline { cpu }) => assert!(offline && cpu.get() == via.cpu()),
            Err(AllocError::BadMigratetype { migratetype }) => {
                assert!(migratetype == kind && !Migratetype::PCP.contains(&kind) && !offline);
            }
            Err(AllocError::WouldBlock) => {
                assert!(flags.contains(AllocFlags::NO_LOCK) && !offline);
                let anywhere = from == 0 && below == u64::MAX && align == order;
                if self.all_within_reach(via) && order <= Order::PAGEBLOCK && anywhere {
                    let got = wanted.should_have_got(self.fh, &self.model);
                    assert_eq!(got, None, "{wanted:?} was refused, but nobody was in its way");
                }
            }
            Err(AllocError::NoMemory { .. }) => {
                assert!(!offline);
                let got = wanted.should_have_got(self.fh, &self.model);
                assert_eq!(
                    got, None,
                    "{wanted:?} was refused, but there are free frames from there on"
                );
                if order == Order::ZERO && align == order && from == 0 && below == u64::MAX {
                    self.nothing_but_reserves();
                }
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Whether a request that may not wait finds all there is: no owner is in its way, no other CPU
    /// leases anything, and there are few blocks to look at.
    fn all_within_reach(&self, via: Via) -> bool {
        let owner = self.host.barrier && self.owned[usize::from(via.cpu())].is_some();
        let blocks: usize = (0..self.fh.zone_count()).map(|z| self.fh.pageblocks(z).count()).sum();
        let alone = self.online.iter().filter(|&&online| online).count() == 1;
        (matches!(via, Via::Owner(_)) || !owner) && alone && blocks <= 6
    }

    /// A single frame may be refused only where nothing but reserves is left.
    fn nothing_but_reserves(&self) {
        for zone in (0..self.fh.zone_count()).map(|z| self.fh.zone_stats(z).unwrap()) {
            let left = zone.free - zone.free_cma - zone.free_high_atomic;
            assert!(
                left <= zone.watermarks[0],
                "refused with {left} frames free, watermark {}",
                zone.watermarks[0]
            );
        }
    }

    fn alloc_bulk(&mut self, via: Via, frames: u16, order: u8, migratetype: u8) {
        let order = Order::new(order).unwrap();
        let kind =
            Migratetype::from_index(usize::from(migratetype)).unwrap_or(Migratetype::Movable);
        let mut out = vec![Pfn::default(); usize::from(frames)];
        let result = self.through(via).alloc_bulk(Request::new(order, kind), &mut out);
        let offline = !self.is_online(via.cpu());
        match result {
            Ok(n) => {
                assert!(
                    !offline
                        && order == Order::ZERO
                        && (Migratetype::PCP.contains(&kind) || n == 0)
                );
                // Neighbours are one allocation, so that there is something to free in ranges.
                for run in out[..n].chunk_by(|a, b| a.get() + 1 == b.get()) {
                    self.model.take(run[0].get(), run.len() as u64);
                }
                if n < out.len() {
                    assert!(
                        self.reserves || self.model.free() == 0,
                        "{n} frames, and more are free"
                    );
                    self.nothing_but_reserves();
                }
            }
            Err(AllocError::CpuOffline { .. }) => assert!(offline),
            Err(AllocError::OrderTooLarge { .. }) => assert!(order > Order::ZERO && !offline),
            Err(AllocError::BadMigratetype { .. }) => assert!(!Migratetype::PCP.contains(&kind)),
            Err(AllocError::NoMemory { .. }) => {
                assert!(self.reserves || self.model.free() == 0, "none at all, and some are free");
                self.nothing_but_reserves();
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Compares the answer to a free of `len` frames with what is known of them.
    fn freed(
        &mut self,
        via: Via,
        start: u64,
        len: u64,
        right: bool,
        result: Result<(), FreeError>,
    ) {
        match result {
            Ok(()) => {
                assert!(
                    right && self.is_online(via.cpu()),
                    "{start:#x}+{len} was freed and should not have been"
                );
                self.model.give(start, len);
            }
            Err(FreeError::CpuOffline { cpu }) => {
                assert!(cpu.get() == via.cpu() && !self.is_online(cpu.get()))
            }
            Err(error) => {
                assert!(!right, "{start:#x}+{len} is in use, but: {error}");
                assert!(
                    self.model.explains(error, start, len),
                    "{start:#x}+{len}: {error}, which is not so"
                );
            }
        }
    }

    fn free(&mut self, via: Via, pfn: u64, order: Order) {
        let right = Pfn::new(pfn).is_aligned(order) && self.model.may_free(pfn, order.frames());
        let result = self.through(via).free(Pfn::new(pfn), order);
        if let Err(FreeError::Misaligned { .. }) = result {
            assert!(!Pfn::new(pfn).is_aligned(order));
            return;
        }
        self.freed(via, pfn, order.frames(), right, result);
    }

    fn free_range(&mut self, via: Via, range: FrameRange) {
        let (start, len) = (range.start.get(), range.len());
        let right = self.model.may_free(start, len);
        let result = self.through(via).free_range(range);
        self.freed(via, start, len, right, result);
    }

    fn free_bulk(&mut self, via: Via, live: u8, frames: u8, step: u8, wrong: Option<Place>) {
        let mut pfns = Vec::new();
        for n in 0..u64::from(frames) {
            let Some((start, len)) = self.model.live(u64::from(live) + n / 8 * u64::from(step))
            else {
                break;
            };
            pfns.push(Pfn::new(start + n * u64::from(step) % len));
        }
        if wrong.is_none() {
            let mut seen = std::collections::HashSet::new();
            pfns.retain(|&pfn| seen.insert(pfn));
        }
        if let Some(place) = wrong {
            pfns.insert(pfns.len() / 2, Pfn::new(self.pfn(place)));
        }
        if frames % 2 == 1 {
            pfns.sort();
        }
        let result = self.through(via).free_bulk(&pfns);
        if !self.is_online(via.cpu()) {
            let error = result.expect_err("the CPU is offline");
            assert_eq!(
                (error.freed, error.error),
                (0, FreeError::CpuOffline { cpu: CpuId::new(via.cpu()) })
            );
            return;
        }
        for (at, pfn) in pfns.iter().map(|pfn| pfn.get()).enumerate() {
            if !self.model.may_free(pfn, 1) {
                let error = result.expect_err("a wrong frame was freed");
                assert_eq!(error.freed, at, "{error}");
                assert!(self.model.explains(error.error, pfn, 1), "{error}, which is not so");
                return;
            }
            self.model.give(pfn, 1);
        }
        assert_eq!(result, Ok(()));
    }

    /// The second call sees the first, wherever the frame went.
    fn free_twice(&mut self, first: Via, second: Via, live: u8) {
        let Some((pfn, _)) = self.model.live(u64::from(live)) else { return };
        if !self.is_online(first.cpu()) || !self.is_online(second.cpu()) {
            return;
        }
        self.through(first).free(Pfn::new(pfn), Order::ZERO).unwrap();
        self.model.give(pfn, 1);
        let result = self.through(second).free(Pfn::new(pfn), Order::ZERO);
        assert_eq!(result, Err(FreeError::DoubleFree { pfn: Pfn::new(pfn) }));
    }

    fn tick(&self, via: Via, flush: bool) {
        // The calls that name no CPU have no such call.
        let cpu = CpuId::new(via.cpu());
        let owner = self.owned.get(cpu.index()).and_then(Option::as_ref);
        let result = match (owner, flush) {
            (Some(owned), true) if matches!(via, Via::Owner(_)) => owned.flush(),
            (Some(owned), false) if matches!(via, Via::Owner(_)) => owned.tick(),
            (_, true) => self.fh.on(cpu).flush(),
            (_, false) => self.fh.on(cpu).tick(),
        };
        assert_eq!(result.is_ok(), self.is_online(cpu.get()), "{result:?}");
    }

    fn contig_range(&mut self, range: FrameRange, moving: bool) {
        let (start, end) = (range.start.get(), range.end.get());
        let helper =
            self.online.iter().position(|&online| online).map(|cpu| CpuId::new(cpu as u16));
        let (fh, model) = (self.fh, &mut self.model);
        model.open(start, end);
        let result = fh.alloc_contig_range(range, |used| {
            assert!(range.start <= used.start && used.end <= range.end && !used.is_empty());
            for pfn in used.start.get()..used.end.get() {
                assert_eq!(model.get(pfn), Frame::Used, "asked to move pfn {pfn:#x}");
            }
            let Some(cpu) = helper.filter(|_| moving) else { return false };
            for pfn in used.start.get()..used.end.get() {
                let Ok(new) = fh.on(cpu).alloc(Request::new(Order::ZERO, Migratetype::Movable))
                else {
                    return false;
                };
                assert!(
                    !range.contains(new),
                    "{new} was handed out of the range that is being emptied"
                );
                model.take(new.get(), 1);
                fh.on(cpu).free(Pfn::new(pfn), Order::ZERO).unwrap();
                model.give(pfn, 1);
            }
            true
        });
        let any_absent = (start..end).any(|pfn| model.get(pfn) == Frame::Absent);
        let any_used = (start..end).any(|pfn| model.get(pfn) == Frame::Used);
        match result {
            Ok(()) => {
                assert!(!any_absent && !any_used && start < end);
                model.take(start, end - start);
            }
            Err(AllocError::ZeroLength) => assert!(range.is_empty()),
            Err(AllocError::BadRange { pfn }) => {
                let zone = model.spans.iter().find(|span| span.contains(range.start));
                let leaves = zone.is_some_and(|span| span.end == pfn && end > pfn.get());
                assert!(leaves || model.get(pfn.get()) == Frame::Absent);
            }
            // A run whose migration gave up half-way is named by its start, which may have been
            // moved by then.
            Err(AllocError::Busy { pfn }) if moving => assert!(range.contains(pfn)),
            Err(AllocError::Busy { pfn }) => {
                assert_eq!(model.get(pfn.get()), Frame::Used, "{pfn} is said to be in use");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn contig(&mut self, frames: u16, align: u8, place: Place, window: u16) {
        let (count, align) = (u64::from(frames), Order::new(align).unwrap());
        // A place as lower limit, often the lowest.
        let from = if window % 2 == 0 { 0 } else { self.pfn(place) };
        let below = if window % 4 < 2 { u64::MAX } else { from.saturating_add(u64::from(window)) };
        let limits = FrameRange { start: Pfn::new(from), end: Pfn::new(below) };
        let mut asked = false;
        self.model.open(from, below);
        let result = self.fh.alloc_contig(count, align, limits, |_| {
            asked = true;
            false
        });
        match result {
            Ok(range) => {
                assert!(range.len() == count && range.start.is_aligned(align));
                assert!(limits.start <= range.start && range.end <= limits.end);
                self.model.take(range.start.get(), count);
            }
            Err(AllocError::ZeroLength) => assert_eq!(count, 0),
            Err(AllocError::NoMemory { .. }) => {
                assert!(count > 0);
                let run = self.model.free_run(count, align, from, below);
                assert_eq!(run, None, "none found, but there are free frames from there on");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn own(&mut self, cpu: u16) {
        let result = self.fh.own(CpuId::new(cpu));
        let Some(owned) = self.owned.get_mut(usize::from(cpu)) else {
            assert!(matches!(result, Err(AllocError::CpuOffline { .. })));
            return;
        };
        match result {
            Ok(handle) => {
                assert!(owned.is_none() && self.online[usize::from(cpu)]);
                assert_eq!(handle.cpu(), CpuId::new(cpu));
                *owned = Some(handle);
            }
            Err(AllocError::CpuOwned { .. }) => assert!(owned.is_some()),
            Err(AllocError::CpuOffline { .. }) => assert!(!self.online[usize::from(cpu)]),
            Err(error) => panic!("{error}"),
        }
    }

    fn cpu_offline(&mut self, cpu: u16) {
        let id = CpuId::new(cpu);
        match self.fh.on(id).offline() {
            Ok(()) => {
                assert!(self.is_online(cpu) && self.owned[id.index()].is_none());
                self.online[id.index()] = false;
                assert_eq!(self.fh.on(id).holdings().map(|(frames, _)| frames), Some(0));
            }
            Err(AllocError::CpuOffline { .. }) => assert!(!self.is_online(cpu)),
            Err(AllocError::CpuOwned { .. }) => assert!(self.owned[id.index()].is_some()),
            Err(error) => panic!("{error}"),
        }
    }

    /// What can be asked changes nothing and is true.
    fn look(&self, cpu: u16, zone: u8, place: Place) {
        let (fh, id, zone) = (self.fh, CpuId::new(cpu), usize::from(zone));
        assert_eq!(fh.on(id).is_online(), self.is_online(cpu));
        assert_eq!(fh.on(id).stats().is_some(), usize::from(cpu) < self.online.len());
        assert_eq!(fh.cpu_count(), self.online.len());
        assert_eq!(fh.zone_stats(zone).is_some(), zone < fh.zone_count());
        let pfn = self.pfn(place);
        let expected = self.model.spans.iter().position(|span| span.contains(Pfn::new(pfn)));
        let expected = expected.filter(|_| self.model.get(pfn) != Frame::Absent);
        assert_eq!(fh.zone_of(Pfn::new(pfn)), expected);
        let _ = fh.totals();
        assert_eq!(fh.on(id).cpu(), id);
    }

    fn check(&self, thoroughly: bool) {
        if !thoroughly {
            return;
        }
        let stats = || (0..self.fh.zone_count()).map(|z| self.fh.zone_stats(z).unwrap());
        assert_eq!(stats().map(|z| z.managed).sum::<u64>(), self.model.present, "frames managed");
        assert_eq!(stats().map(|z| z.free).sum::<u64>(), self.model.free(), "frames free");
        self.fh.validate().unwrap_or_else(|violation| panic!("{violation}"));
        check_blocks(self.fh, &self.model);
    }

    /// Everything is given back: every frame is free, every block whole, the largest order to be
    /// had.
    fn finish(mut self) {
        self.check(true);
        self.owned.clear();
        let id = CpuId::new(0);
        self.fh.on(id).online().unwrap();
        for (start, len) in self.model.live.clone() {
            self.fh.on(id).free_range(FrameRange::new(Pfn::new(start), len).unwrap()).unwrap();
            self.model.give(start, len);
        }
        self.fh.drain_all();
        self.fh.validate().unwrap_or_else(|violation| panic!("at the end: {violation}"));
        for z in 0..self.fh.zone_count() {
            let stats = self.fh.zone_stats(z).unwrap();
            assert_eq!(stats.free, stats.managed, "zone {z} at the end");
            assert_eq!(stats.free_in_zone, stats.managed, "zone {z} at the end");
        }
        check_blocks(self.fh, &self.model);
        // Nothing happens at the same moment here: every wrong free is seen at once.
        assert_eq!(self.host.late.load(Ordering::Relaxed), 0, "late double frees");
        assert_eq!(self.fh.totals().late_double_frees, 0, "late double frees counted");
        if !self.reserves {
            if let Some(largest) = self.fh.zone_blocks(0).unwrap().largest_free_order() {
                self.fh.on(id).alloc(Request::new(largest, Migratetype::Movable)).unwrap();
            }
        }
    }
}
