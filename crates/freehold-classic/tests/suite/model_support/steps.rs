//! One step of the state machine: a call, right or wrong, its prediction, and the comparison.

use freehold::{AllocError, AllocFlags, CpuId, FrameRange, FreeError, Migratetype, Order, Pfn};
use freehold_classic::{Classic, Context, CpuStateError, InUse, Put, Request, Switch, Switches};
use proptest::prelude::*;

use super::Model;

/// Where a call is aimed: mostly at something that is in use, else beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// A chunk in use, as it is.
    Live(u16),
    /// A chunk in use, with a wrong order.
    WrongOrder(u16, u8),
    /// Inside a chunk in use.
    Inside(u16, u16, u8),
    /// Any frame that was in use once: mostly a double free.
    Ever(u16, u8),
    /// Any frame of any zone, its holes included.
    Anywhere(u8, u16, u8),
    /// Just before or behind a zone, or nowhere near one.
    Outside(u8, u8, u8),
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Alloc { cpu: u8, order: u8, migratetype: u8, flags: u16 },
    Free { cpu: u8, context: u8, target: Target },
    Folios { cpu: u8, targets: Vec<Target> },
    FreeRange { cpu: u8, target: Target, length: u16 },
    Split { target: Target, to: u8 },
    Get { target: Target },
    AllocRange { cpu: u8, target: Target, length: u16, migrate: bool },
    DrainAll,
    Tick { cpu: u8, remote: bool },
    Dead { cpu: u8 },
    Online { cpu: u8 },
    Pcp { enable: bool },
    Reclaim { active: bool },
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        12 => any::<u16>().prop_map(Target::Live),
        1 => (any::<u16>(), 0..13u8).prop_map(|(a, b)| Target::WrongOrder(a, b)),
        1 => (any::<u16>(), any::<u16>(), 0..4u8).prop_map(|(a, b, c)| Target::Inside(a, b, c)),
        1 => (any::<u16>(), 0..4u8).prop_map(|(a, b)| Target::Ever(a, b)),
        1 => (any::<u8>(), any::<u16>(), 0..12u8).prop_map(|(a, b, c)| Target::Anywhere(a, b, c)),
        1 => (any::<u8>(), any::<u8>(), 0..4u8).prop_map(|(a, b, c)| Target::Outside(a, b, c)),
    ]
}

/// Lengths of ranges: short ones, whole blocks, and too long ones.
fn length() -> impl Strategy<Value = u16> {
    prop_oneof![3 => 0..40u16, 2 => 300..1600u16, 1 => any::<u16>()]
}

fn order() -> impl Strategy<Value = u8> {
    prop_oneof![10 => Just(0u8), 6 => 1..4u8, 3 => 4..9u8, 2 => 9..11u8, 1 => 11..19u8]
}

fn migratetype() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(1u8), 6 => 0..3u8, 1 => 0..6u8]
}

fn flags() -> impl Strategy<Value = u16> {
    prop_oneof![4 => Just(0u16), 2 => Just(AllocFlags::NO_WATERMARKS.bits()), 2 => any::<u16>()]
}

/// Any step.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    let cpu = || any::<u8>();
    let targets = || prop::collection::vec(target(), 0..45);
    // Lists that are right except for at most one element are what makes a batch go through.
    let lives = || prop::collection::vec(any::<u16>().prop_map(Target::Live), 1..70);
    prop_oneof![
        30 => (cpu(), order(), migratetype(), flags())
            .prop_map(|(cpu, order, migratetype, flags)| Step::Alloc { cpu, order, migratetype, flags }),
        20 => (cpu(), any::<u8>(), target()).prop_map(|(cpu, context, target)| Step::Free { cpu, context, target }),
        2 => (cpu(), targets()).prop_map(|(cpu, targets)| Step::Folios { cpu, targets }),
        4 => (cpu(), lives()).prop_map(|(cpu, targets)| Step::Folios { cpu, targets }),
        5 => (cpu(), target(), length())
            .prop_map(|(cpu, target, length)| Step::FreeRange { cpu, target, length }),
        6 => (target(), order()).prop_map(|(target, to)| Step::Split { target, to }),
        5 => target().prop_map(|target| Step::Get { target }),
        4 => (cpu(), target(), length(), prop::bool::weighted(0.8))
            .prop_map(|(cpu, target, length, migrate)| Step::AllocRange { cpu, target, length, migrate }),
        1 => Just(Step::DrainAll),
        2 => (cpu(), any::<bool>()).prop_map(|(cpu, remote)| Step::Tick { cpu, remote }),
        2 => cpu().prop_map(|cpu| Step::Dead { cpu }),
        2 => cpu().prop_map(|cpu| Step::Online { cpu }),
        1 => prop::bool::weighted(0.7).prop_map(|enable| Step::Pcp { enable }),
        1 => any::<bool>().prop_map(|active| Step::Reclaim { active }),
    ]
}

/// Mostly a CPU that exists.
fn cpu(number: u8) -> CpuId {
    if number >= 250 { CpuId::new(u16::from(number)) } else { CpuId::new(u16::from(number) % 4) }
}

fn any_order(order: u8) -> Order {
    Order::new(order).unwrap()
}

fn any_type(migratetype: u8) -> Migratetype {
    Migratetype::from_index(usize::from(migratetype)).unwrap()
}

impl Model {
    /// The `n`-th chunk in use, round and round.
    fn pick(&self, n: u16) -> Option<(Pfn, Order)> {
        let n = usize::from(n) % self.live.len().max(1);
        self.live.iter().nth(n).map(|(&pfn, chunk)| (Pfn::new(pfn), chunk.order))
    }

    fn aim(&self, target: Target) -> (Pfn, Order) {
        let anywhere = |zone: u8, offset: u64| {
            let range = self.zones[usize::from(zone) % self.zones.len()].range;
            Pfn::new(range.start.get() + offset % range.len())
        };
        match target {
            Target::Live(n) => self.pick(n).unwrap_or((anywhere(0, u64::from(n)), Order::ZERO)),
            Target::WrongOrder(n, order) => {
                (self.pick(n).map_or(anywhere(0, u64::from(n)), |(pfn, _)| pfn), any_order(order))
            }
            Target::Inside(n, offset, order) => {
                let (pfn, of) = self.pick(n).unwrap_or((anywhere(0, u64::from(n)), Order::ZERO));
                (Pfn::new(pfn.get() + u64::from(offset) % of.frames()), any_order(order))
            }
            Target::Ever(n, order) => {
                let nth = usize::from(n) % self.ever.len().max(1);
                let pfn = self
                    .ever
                    .iter()
                    .nth(nth)
                    .map_or(anywhere(0, u64::from(n)), |&pfn| Pfn::new(pfn));
                (pfn, any_order(order))
            }
            Target::Anywhere(zone, offset, order) => {
                let order = any_order(order);
                (anywhere(zone, u64::from(offset)).align_down(order), order)
            }
            Target::Outside(zone, distance, order) => {
                let range = self.zones[usize::from(zone) % self.zones.len()].range;
                let pfn = match distance {
                    0 => u64::MAX,
                    1 => 1 << 52,
                    odd if odd % 2 == 1 => range.end.get() + u64::from(odd / 2),
                    even => range.start.get().saturating_sub(u64::from(even / 2)),
                };
                (Pfn::new(pfn), any_order(order))
            }
        }
    }

    fn range(&self, target: Target, length: u16) -> FrameRange {
        let (pfn, _) = self.aim(target);
        FrameRange::new(pfn, u64::from(length))
            .unwrap_or(FrameRange { start: pfn, end: Pfn::new(u64::MAX) })
    }

    fn offline(&self, cpu: CpuId) -> Option<FreeError> {
        (!self.is_online(cpu)).then_some(FreeError::CpuOffline { cpu })
    }

    /// Makes the call and compares.
    // One arm for each kind of step.
    #[allow(clippy::too_many_lines)]
    pub(crate) fn apply(&mut self, classic: &Classic, on: Switches, step: &Step) {
        let before = format!("{:?}", classic.memory_map());
        // A call that must fail must also leave everything as it was.
        let unchanged = || {
            assert_eq!(format!("{:?}", classic.memory_map()), before, "{step:?} changed something")
        };
        match step {
            &Step::Alloc { cpu: number, order, migratetype, flags } => {
                let (cpu, order, migratetype) =
                    (cpu(number), any_order(order), any_type(migratetype));
                let request =
                    Request::new(order, migratetype).with(AllocFlags::from_bits_truncate(flags));
                let wrong = if !self.is_online(cpu) {
                    Some(AllocError::CpuOffline { cpu })
                } else if order > Order::LINUX_MAX {
                    Some(AllocError::OrderTooLarge { order, max: Order::LINUX_MAX })
                } else if !Migratetype::PCP.contains(&migratetype) {
                    Some(AllocError::BadMigratetype { migratetype })
                } else {
                    None
                };
                match (classic.alloc(cpu, request), wrong) {
                    (Ok(pfn), None) => self.handed_out(pfn, order, migratetype),
                    (Err(AllocError::NoMemory { order: of }), None) => assert_eq!(of, order),
                    (result, wrong) => {
                        assert_eq!(result.err(), wrong);
                        unchanged();
                    }
                }
            }
            &Step::Free { cpu: number, context, target } => {
                let context = [Context::Task, Context::Interrupt][usize::from(context % 2)];
                let (cpu, (pfn, order)) = (cpu(number), self.aim(target));
                let expected = self.offline(cpu).map_or_else(|| self.exact(pfn, order), Err);
                match (classic.free_in(context, cpu, pfn, order), expected) {
                    (Ok(put), Ok(_)) => assert_eq!(put == Put::Freed, self.put(pfn)),
                    (result, expected) => {
                        assert_eq!(result.err(), expected.err());
                        unchanged();
                    }
                }
            }
            Step::Folios { cpu: number, targets } => {
                let cpu = cpu(*number);
                let chunks: Vec<_> = targets.iter().map(|&target| self.aim(target)).collect();
                let expected = self.offline(cpu).map_or_else(|| self.exact_all(&chunks), Err);
                match (classic.free_folios(cpu, &chunks), expected) {
                    (Ok(freed), Ok(())) => {
                        assert_eq!(freed, chunks.iter().filter(|(pfn, _)| self.put(*pfn)).count());
                    }
                    (result, expected) => {
                        assert_eq!(result.err(), expected.err());
                        unchanged();
                    }
                }
            }
            &Step::FreeRange { cpu: number, target, length } => {
                self.free_range(classic, cpu(number), target, length)
            }
            &Step::Split { target, to } => {
                let ((pfn, from), to) = (self.aim(target), any_order(to));
                let expected = self.exact(pfn, from).and_then(|chunk| {
                    let wrong = to > from || chunk.references != 1;
                    if wrong {
                        Err(FreeError::WrongOrder { pfn, allocated: from, freed: to })
                    } else {
                        Ok(chunk)
                    }
                });
                let result = classic.split(pfn, from, to);
                assert_eq!(result, expected.map(|_| ()));
                unchanged();
                if let (Ok(chunk), true) = (expected, to < from) {
                    for part in (0..from.frames()).step_by(to.frames() as usize) {
                        self.insert(Pfn::new(pfn.get() + part), to, chunk.migratetype);
                    }
                }
            }
            &Step::Get { target } => {
                let (pfn, _) = self.aim(target);
                let expected = self.zone_of(pfn).and_then(|_| self.head(pfn));
                assert_eq!(classic.get(pfn), expected.map(|_| ()));
                unchanged();
                if expected.is_ok() {
                    self.live.get_mut(&pfn.get()).unwrap().references += 1;
                }
            }
            &Step::AllocRange { cpu: number, target, length, migrate } => {
                self.alloc_range(classic, cpu(number), self.range(target, length), migrate);
            }
            Step::DrainAll => {
                classic.drain_all();
                assert_eq!(classic.memory_map().on_pcp, 0);
            }
            &Step::Tick { cpu: number, remote: true } => classic.tick_remote_node(cpu(number)),
            &Step::Tick { cpu: number, remote: false } => classic.tick(cpu(number)),
            &Step::Dead { cpu: number } => {
                let cpu = cpu(number);
                let last = self.online.iter().filter(|online| **online).count() == 1;
                let wrong = !self.is_online(cpu) || last;
                assert_eq!(
                    classic.cpu_dead(cpu),
                    if wrong { Err(CpuStateError { cpu }) } else { Ok(()) }
                );
                if wrong {
                    unchanged();
                } else {
                    self.online[cpu.index()] = false;
                    assert!((0..self.zones.len()).all(|zone| classic.pcp_count(zone, cpu) == 0));
                    let map = classic.memory_map();
                    let leaves_owners = on.has(Switch::Ownership) && !on.has(Switch::UnlinkDead);
                    assert!(leaves_owners || map.blocks_by_owner[cpu.index() + 1] == 0);
                }
            }
            &Step::Online { cpu: number } => {
                let cpu = cpu(number);
                let right = self.online.get(cpu.index()) == Some(&false);
                assert_eq!(
                    classic.cpu_online(cpu),
                    if right { Ok(()) } else { Err(CpuStateError { cpu }) }
                );
                unchanged();
                if right {
                    self.online[cpu.index()] = true;
                }
            }
            Step::Pcp { enable: true } => classic.pcp_enable(),
            Step::Pcp { enable: false } => {
                classic.pcp_disable();
                assert_eq!(classic.memory_map().on_pcp, 0);
            }
            Step::Reclaim { active } => classic.set_reclaim(*active),
        }
        self.check_sums(classic);
    }

    fn free_range(&mut self, classic: &Classic, cpu: CpuId, target: Target, length: u16) {
        let start = self.aim(target).0;
        // As long as the row of single frames that starts there, or as long as it was asked for.
        let row = start.get()..start.get().saturating_add(2000);
        let run = row.take_while(|&pfn| self.exact(Pfn::new(pfn), Order::ZERO).is_ok()).count();
        let length = if run > 0 && length % 4 != 0 {
            u64::from(length).min(run as u64)
        } else {
            u64::from(length)
        };
        let Some(range) = FrameRange::new(start, length) else { return };
        let before = format!("{:?}", classic.memory_map());
        let expected = if let Some(error) = self.offline(cpu) {
            Err(error)
        } else if range.is_empty() {
            Err(FreeError::ZeroLength)
        } else {
            self.zone_of(start).and_then(|zone| {
                let end = self.memory_end(zone);
                if range.end > end {
                    return Err(FreeError::PastEnd { pfn: end });
                }
                let chunks: Vec<_> = (start.get()..range.end.get())
                    .map(|pfn| (Pfn::new(pfn), Order::ZERO))
                    .collect();
                self.exact_all(&chunks)
            })
        };
        match (classic.free_contig_range(cpu, range), expected) {
            (Ok(kept), Ok(())) => {
                let frames = start.get()..range.end.get();
                assert_eq!(kept, frames.filter(|&pfn| !self.put(Pfn::new(pfn))).count() as u64);
            }
            (result, expected) => {
                assert_eq!(result.err(), expected.err(), "{range}");
                assert_eq!(
                    format!("{:?}", classic.memory_map()),
                    before,
                    "{range} changed something"
                );
            }
        }
    }

    fn alloc_range(&mut self, classic: &Classic, cpu: CpuId, range: FrameRange, migrate: bool) {
        let before = format!("{:?}", classic.memory_map());
        let wrong = if self.is_online(cpu) {
            self.range_zone(range).err()
        } else {
            Some(AllocError::CpuOffline { cpu })
        };
        let hole = || {
            let holes = self
                .range_zone(range)
                .map(|zone| self.zones[zone].holes.clone())
                .unwrap_or_default();
            let hole =
                holes.into_iter().find(|hole| hole.start < range.end && range.start < hole.end);
            hole.map(|hole| AllocError::BadRange { pfn: hole.start.max(range.start) })
        };
        if let Some(wrong) = wrong.or_else(hole) {
            let result =
                classic.alloc_contig_range(cpu, range, &mut |_| panic!("nothing to migrate"));
            assert_eq!(result, Err(wrong));
            assert_eq!(format!("{:?}", classic.memory_map()), before, "{range} changed something");
            return;
        }
        let zone = self.range_zone(range).unwrap();
        let pinned = self.pinned(range);
        // While it lasts nothing may be handed out from the blocks of the range.
        let blocks: Vec<_> = Self::blocks(range).map(|block| (zone, block)).collect();
        let mut refused = false;
        let result = {
            let mut callback = |used: InUse| {
                assert!(!pinned, "asked to migrate although the range is pinned");
                let chunk = self
                    .live
                    .get(&used.pfn.get())
                    .copied()
                    .expect("asked to migrate what is not in use");
                assert_eq!(chunk.order, used.order);
                assert!(
                    used.pfn < range.end
                        && range.start.get() < used.pfn.get() + used.order.frames()
                );
                let request = Request::new(used.order, chunk.migratetype);
                let to = (migrate && chunk.references == 1).then(|| classic.alloc(cpu, request));
                let Some(Ok(to)) = to else {
                    refused = true;
                    return false;
                };
                self.isolated.extend(blocks.iter().copied());
                self.handed_out(to, used.order, chunk.migratetype);
                blocks.iter().for_each(|block| _ = self.isolated.remove(block));
                assert_eq!(classic.free(cpu, used.pfn, used.order), Ok(Put::Freed));
                assert!(self.put(used.pfn));
                true
            };
            classic.alloc_contig_range(cpu, range, &mut callback)
        };
        match result {
            Ok(()) => {
                assert!(!pinned && !refused);
                for pfn in range.start.get()..range.end.get() {
                    self.handed_out(Pfn::new(pfn), Order::ZERO, Migratetype::Movable);
                }
            }
            Err(AllocError::Busy { .. }) => {
                assert!(pinned || refused, "{range} was busy for no reason")
            }
            Err(error) => panic!("{range}: {error}"),
        }
    }

    /// Gives everything back and checks that the machine is as it was.
    pub(crate) fn finish(&mut self, classic: &Classic) {
        let cpus: Vec<_> = (0..4).map(CpuId::new).filter(|&cpu| self.is_online(cpu)).collect();
        let live: Vec<_> = self.live.iter().map(|(&pfn, &chunk)| (Pfn::new(pfn), chunk)).collect();
        for (i, (pfn, chunk)) in live.into_iter().enumerate() {
            for _ in 0..chunk.references {
                let _ = classic.free(cpus[i % cpus.len()], pfn, chunk.order).unwrap();
                self.put(pfn);
            }
        }
        classic.drain_all();
        self.check_whole(classic);
    }
}
