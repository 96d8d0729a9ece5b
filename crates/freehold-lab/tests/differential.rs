//! The same random history through Freehold and through each of the kernel's designs at once, call by call.
//!
//! Engines choose different frames, so what must agree is not where things are but what is served. After every call:
//!
//! * a single frame, and every frame of a bulk call, is served by both or by neither, and by both while any frame is
//!   free (beyond the min watermark, where there is one),
//! * a larger chunk is refused only by an engine that really has no aligned run of free frames of that order,
//! * nothing that an engine hands out overlaps what it has handed out before, or leaves memory,
//! * the same allocations are live, by number, and both count the same free frames,
//! * a range can be had exactly, without moving anything, where the engine has no frame of it in use, and only there,
//! * a wrong free is refused by both, and changes nothing in either.
//!
//! And in the end, with all freed: every frame is free in both, every block whole, the largest order to be had.
//!
//! `PROPTEST_CASES=2000 cargo test -p freehold-lab --release --test differential` looks longer. A failing history is
//! printed call by call, with the engine to blame and the number of the call.

use std::collections::BTreeSet;

use freehold::{
    AllocError, AllocFlags, Config, CpuId, FrameRange, Freehold, Migratetype, Order, Pfn, Request, Watermarks,
    ZoneConfig,
};
use freehold_classic::{Classic, Design, presets};
use freehold_lab::bench::engines::InitialThread;
use proptest::prelude::*;
use proptest::test_runner::{Config as RunConfig, TestRunner};

const CPUS: u16 = 4;
const BASE: u64 = 0x10_0000;

#[derive(Clone, Copy, Debug)]
enum Call {
    Alloc {
        cpu: u16,
        order: u8,
        migratetype: usize,
        no_fragment: bool,
    },
    Bulk {
        cpu: u16,
        frames: usize,
        migratetype: usize,
    },
    /// A live allocation as it was made, by any CPU.
    Free {
        cpu: u16,
        pick: usize,
    },
    /// Into smaller allocations.
    Split {
        pick: usize,
        to: u8,
    },
    /// Split into single frames, then a part of them by one call; every `keep`th of that part is still referenced.
    FreeRange {
        cpu: u16,
        pick: usize,
        from: u64,
        len: u64,
        keep: u64,
    },
    /// Many single frames by one call, `step` apart in the list of live allocations.
    FreeBulk {
        cpu: u16,
        pick: usize,
        frames: usize,
        step: usize,
    },
    /// A frame that is free, or none at all.
    WrongFree {
        cpu: u16,
        frame: u64,
    },
    /// Exactly these frames, if nothing has to be moved; given back at once.
    Contig {
        cpu: u16,
        frame: u64,
        len: u64,
    },
    Tick {
        cpu: u16,
    },
    Drain,
    Offline {
        cpu: u16,
    },
    Online {
        cpu: u16,
    },
}

fn call() -> impl Strategy<Value = Call> {
    let cpu = || 0..CPUS;
    let order = prop_oneof![6 => Just(0u8), 4 => 1u8..4, 3 => 0u8..11, 1 => Just(9u8), 1 => Just(10u8)];
    let migratetype = || prop_oneof![2 => Just(1usize), 1 => 0usize..3];
    prop_oneof![
        12 => (cpu(), order, migratetype(), any::<bool>())
            .prop_map(|(cpu, order, migratetype, no_fragment)| Call::Alloc { cpu, order, migratetype, no_fragment }),
        4 => (cpu(), prop_oneof![3 => 1usize..130, 1 => 130usize..4000], migratetype())
            .prop_map(|(cpu, frames, migratetype)| Call::Bulk { cpu, frames, migratetype }),
        10 => (cpu(), any::<usize>()).prop_map(|(cpu, pick)| Call::Free { cpu, pick }),
        2 => (any::<usize>(), 0u8..10).prop_map(|(pick, to)| Call::Split { pick, to }),
        3 => (cpu(), any::<usize>(), 0u64..1024, 1u64..1025, 0u64..6)
            .prop_map(|(cpu, pick, from, len, keep)| Call::FreeRange { cpu, pick, from, len, keep }),
        4 => (cpu(), any::<usize>(), 1usize..600, 1usize..8)
            .prop_map(|(cpu, pick, frames, step)| Call::FreeBulk { cpu, pick, frames, step }),
        2 => (cpu(), any::<u64>()).prop_map(|(cpu, frame)| Call::WrongFree { cpu, frame }),
        2 => (cpu(), any::<u64>(), 1u64..1500).prop_map(|(cpu, frame, len)| Call::Contig { cpu, frame, len }),
        1 => cpu().prop_map(|cpu| Call::Tick { cpu }),
        1 => Just(Call::Drain),
        1 => cpu().prop_map(|cpu| Call::Offline { cpu }),
        1 => cpu().prop_map(|cpu| Call::Online { cpu }),
    ]
}

/// A machine that both can have: zones start and end at pageblocks, holes are where they are.
#[derive(Clone, Copy, Debug)]
struct Shape {
    name: &'static str,
    /// First frame and frames of each zone, from [`BASE`] on.
    zones: &'static [(u64, u64)],
    /// Where there is no memory; the same.
    holes: &'static [(u64, u64)],
    /// The min watermark of every zone; low and high are twice and three times that.
    min: u64,
}

const SHAPES: [Shape; 5] = [
    Shape { name: "CPUs hold blocks", zones: &[(0, 48 * 512)], holes: &[], min: 0 },
    Shape { name: "small, CPUs hold none", zones: &[(0, 6 * 512)], holes: &[], min: 0 },
    Shape { name: "two zones", zones: &[(0, 8 * 512), (16 * 512, 34 * 512)], holes: &[], min: 0 },
    Shape {
        name: "holes",
        zones: &[(0, 40 * 512)],
        holes: &[(0, 100), (1500, 57), (5 * 512 + 500, 1024), (40 * 512 - 9, 9)],
        min: 0,
    },
    Shape { name: "watermarks", zones: &[(0, 40 * 512)], holes: &[], min: 300 },
];

fn range(start: u64, frames: u64) -> FrameRange {
    FrameRange::new(Pfn::new(start), frames).unwrap()
}

impl Shape {
    fn spans(&self) -> Vec<FrameRange> {
        self.zones.iter().map(|&(start, frames)| range(BASE + start, frames)).collect()
    }

    /// Pieces of memory of one zone.
    fn memory(&self, span: FrameRange) -> Vec<FrameRange> {
        let mut pieces = Vec::new();
        let mut at = span.start.get();
        for &(start, frames) in self.holes {
            let start = BASE + start;
            if start > at {
                pieces.push(range(at, start - at));
            }
            at = start + frames;
        }
        if at < span.end.get() {
            pieces.push(range(at, span.end.get() - at));
        }
        pieces
    }

    fn freehold(&self) -> Freehold<'static, InitialThread> {
        let spans = self.spans();
        let memory: Vec<_> = spans.iter().map(|&span| self.memory(span)).collect();
        let watermarks = match self.min {
            0 => Watermarks::None,
            min => Watermarks::Frames { min, low: 2 * min, high: 3 * min },
        };
        let zones: Vec<_> = spans
            .iter()
            .zip(&memory)
            .map(|(&span, memory)| ZoneConfig { span, watermarks, ..ZoneConfig::new(memory) })
            .collect();
        Freehold::leaked(&Config::new(CPUS, &zones), InitialThread).unwrap()
    }

    fn classic(&self, design: &str) -> Classic {
        let zones = self.spans().into_iter().map(|span| {
            let mut zone = freehold_classic::ZoneConfig::new("zone", span.start, span.len());
            zone.holes = self.holes.iter().map(|&(start, frames)| range(BASE + start, frames)).collect();
            let min = self.min;
            zone.watermarks = Some(freehold_classic::Watermarks { min, low: 2 * min, high: 3 * min });
            zone
        });
        let design = Design::parse(design).unwrap();
        let zones = zones.collect();
        Classic::new(freehold_classic::Config { design, cpus: CPUS, zones, huge_pages: true, cache_slice: 256 })
            .unwrap()
    }
}

/// Which of the two: index 0 and 1 everywhere.
const NAMES: [&str; 2] = ["freehold", "the kernel's design"];

/// Which frames an engine has handed out.
struct Used {
    spans: Vec<FrameRange>,
    memory: BTreeSet<(u64, u64)>,
    frames: Vec<bool>,
}

impl Used {
    fn new(shape: &Shape) -> Self {
        let spans = shape.spans();
        let memory = spans.iter().flat_map(|&span| shape.memory(span)).map(|r| (r.start.get(), r.end.get())).collect();
        let end = spans.last().unwrap().end.get();
        Self { spans, memory, frames: vec![false; (end - BASE) as usize] }
    }

    fn exists(&self, pfn: u64) -> bool {
        self.memory.range(..=(pfn, u64::MAX)).next_back().is_some_and(|&(start, end)| start <= pfn && pfn < end)
    }

    fn is_free(&self, pfn: u64) -> bool {
        self.exists(pfn) && !self.frames[(pfn - BASE) as usize]
    }

    fn take(&mut self, start: Pfn, frames: u64) -> Result<(), String> {
        match (start.get()..start.get() + frames).find(|&pfn| !self.is_free(pfn)) {
            Some(pfn) => Err(format!("handed out {start}+{frames}, of which {pfn:#x} was not free")),
            None => {
                (start.get()..start.get() + frames).for_each(|pfn| self.frames[(pfn - BASE) as usize] = true);
                Ok(())
            }
        }
    }

    fn give(&mut self, start: Pfn, frames: u64) {
        (start.get()..start.get() + frames).for_each(|pfn| self.frames[(pfn - BASE) as usize] = false);
    }

    /// An aligned free run of that order, within one zone.
    fn run(&self, order: Order) -> Option<Pfn> {
        let len = order.frames();
        self.spans.iter().find_map(|span| {
            let starts = (span.start.get().next_multiple_of(len)..span.end.get()).step_by(len as usize);
            let mut starts = starts.take_while(|start| start + len <= span.end.get());
            starts.find(|&start| (start..start + len).all(|pfn| self.is_free(pfn))).map(Pfn::new)
        })
    }
}

/// An allocation that both have made.
#[derive(Clone, Copy, Debug)]
struct Live {
    order: Order,
    /// Where it is in each engine.
    at: [Pfn; 2],
}

struct Both {
    ours: Freehold<'static, InitialThread>,
    theirs: Classic,
    used: [Used; 2],
    live: Vec<Live>,
    online: [bool; CPUS as usize],
    managed: u64,
    in_use: u64,
    /// Free frames that a single frame may be refused with, by each engine.
    reserves: [u64; 2],
}

type Checked<T = ()> = Result<T, String>;

fn blame<T>(engine: usize, what: impl std::fmt::Display) -> Checked<T> {
    Err(format!("{}: {what}", NAMES[engine]))
}

impl Both {
    fn new(shape: &Shape, design: &str) -> Self {
        let used = [Used::new(shape), Used::new(shape)];
        // The kernel holds back more for a while where types had to mix: at most one and a half times the high mark
        // (`boost_watermark`).
        let reserve = |boost: u64| (shape.min + boost) * shape.zones.len() as u64;
        let managed = used[0].memory.iter().map(|(start, end)| end - start).sum();
        Self {
            ours: shape.freehold(),
            theirs: shape.classic(design),
            used,
            live: Vec::new(),
            online: [true; CPUS as usize],
            managed,
            in_use: 0,
            reserves: [reserve(0), reserve(3 * shape.min * 3 / 2)],
        }
    }

    fn free(&self) -> u64 {
        self.managed - self.in_use
    }

    /// That CPU, or the next one that is online: hotplug shall not make most calls pointless.
    fn cpu(&self, cpu: u16) -> CpuId {
        let all = (cpu..CPUS).chain(0..cpu);
        CpuId::new(all.into_iter().find(|&cpu| self.online[usize::from(cpu)]).unwrap())
    }

    fn pick(&self, pick: usize) -> Option<usize> {
        (!self.live.is_empty()).then(|| pick % self.live.len())
    }

    fn play(&mut self, call: Call) -> Checked {
        match call {
            Call::Alloc { cpu, order, migratetype, no_fragment } => {
                let flags = if no_fragment { AllocFlags::NO_FRAGMENT } else { AllocFlags::empty() };
                self.alloc(self.cpu(cpu), Order::new(order).unwrap(), Migratetype::PCP[migratetype], flags)
            }
            Call::Bulk { cpu, frames, migratetype } => self.bulk(self.cpu(cpu), frames, Migratetype::PCP[migratetype]),
            Call::Free { cpu, pick } => match self.pick(pick) {
                Some(at) => {
                    let live = self.live.swap_remove(at);
                    self.give(self.cpu(cpu), live, cpu % 2 == 0)
                }
                None => Ok(()),
            },
            Call::Split { pick, to } => match self.pick(pick) {
                Some(at) => self.split(at, Order::new(to).unwrap()).map(drop),
                None => Ok(()),
            },
            Call::FreeRange { cpu, pick, from, len, keep } => match self.pick(pick) {
                Some(at) => self.free_range(self.cpu(cpu), at, from, len, keep),
                None => Ok(()),
            },
            Call::FreeBulk { cpu, pick, frames, step } => self.free_bulk(self.cpu(cpu), pick, frames, step),
            Call::WrongFree { cpu, frame } => self.wrong_free(self.cpu(cpu), frame),
            Call::Contig { cpu, frame, len } => self.contig(self.cpu(cpu), frame, len),
            Call::Tick { cpu } => {
                self.theirs.tick(self.cpu(cpu));
                self.ours.on(self.cpu(cpu)).tick().or_else(|error| blame(0, error))
            }
            Call::Drain => {
                self.ours.drain_all();
                self.theirs.drain_all();
                Ok(())
            }
            Call::Offline { cpu } => {
                // The kernel's last CPU stays.
                if self.online[usize::from(cpu)] && self.online.iter().filter(|&&online| online).count() > 1 {
                    self.online[usize::from(cpu)] = false;
                    self.ours.cpu_offline(CpuId::new(cpu)).or_else(|error| blame(0, error))?;
                    self.theirs.cpu_dead(CpuId::new(cpu)).or_else(|error| blame(1, error))?;
                }
                Ok(())
            }
            Call::Online { cpu } => {
                if !self.online[usize::from(cpu)] {
                    self.online[usize::from(cpu)] = true;
                    self.ours.cpu_online(CpuId::new(cpu)).or_else(|error| blame(0, error))?;
                    self.theirs.cpu_online(CpuId::new(cpu)).or_else(|error| blame(1, error))?;
                }
                Ok(())
            }
        }
    }

    fn take(&mut self, engine: usize, pfn: Pfn, order: Order) -> Checked {
        if !pfn.is_aligned(order) {
            return blame(engine, format!("{pfn} is not aligned to {order}"));
        }
        self.used[engine].take(pfn, order.frames()).or_else(|what| blame(engine, what))
    }

    /// Whether a refusal was right. Both engines have fetched home what there was before they refused.
    fn refused(&self, engine: usize, order: Order, error: AllocError) -> Checked {
        if !matches!(error, AllocError::NoMemory { .. }) {
            return blame(engine, error);
        }
        if order == Order::ZERO && self.free() <= self.reserves[engine] {
            return Ok(());
        }
        // The watermark keeps larger chunks back too, by a rule of each engine's own.
        if order > Order::ZERO && self.reserves[engine] > 0 {
            return Ok(());
        }
        match self.used[engine].run(order) {
            Some(pfn) => blame(engine, format!("{order} was refused but {pfn} starts such a run of free frames")),
            None => Ok(()),
        }
    }

    fn alloc(&mut self, cpu: CpuId, order: Order, migratetype: Migratetype, flags: AllocFlags) -> Checked {
        let request = Request::new(order, migratetype).flags(flags);
        // Half of the calls by the CPU's owner, which takes another path.
        let ours = if (self.in_use + u64::from(cpu.get())) % 2 == 0 {
            self.ours.own(cpu).or_else(|error| blame(0, error))?.alloc(request)
        } else {
            self.ours.on(cpu).alloc(request)
        };
        let theirs = self.theirs.alloc(cpu, freehold_classic::Request { order, migratetype, flags });
        for (engine, result) in [ours, theirs].into_iter().enumerate() {
            match result {
                Ok(pfn) => self.take(engine, pfn, order)?,
                Err(error) => self.refused(engine, order, error)?,
            }
        }
        match (ours, theirs) {
            (Ok(a), Ok(b)) => {
                self.live.push(Live { order, at: [a, b] });
                self.in_use += order.frames();
                Ok(())
            }
            // Only one of them had room: it gives it back, and the live sets stay the same.
            (Ok(pfn), Err(_)) => self.give_one(0, cpu, pfn, order, false),
            (Err(_), Ok(pfn)) => self.give_one(1, cpu, pfn, order, false),
            (Err(_), Err(_)) => Ok(()),
        }
    }

    fn bulk(&mut self, cpu: CpuId, frames: usize, migratetype: Migratetype) -> Checked {
        let mut ours = vec![Pfn::default(); frames];
        let got = self.ours.on(cpu).alloc_bulk(Request::new(Order::ZERO, migratetype), &mut ours).unwrap_or(0);
        ours.truncate(got);
        let mut slots = vec![None; frames];
        let mut filled = 0;
        // The kernel's stops where a list runs empty; callers call again.
        loop {
            let now = self.theirs.alloc_bulk(cpu, migratetype, AllocFlags::empty(), &mut slots);
            let now = now.or_else(|error| blame(1, error))?;
            if now == filled || now == frames {
                filled = now;
                break;
            }
            filled = now;
        }
        let mut theirs: Vec<Pfn> = slots.into_iter().flatten().collect();
        assert_eq!(theirs.len(), filled);
        for (engine, got) in [&ours, &theirs].into_iter().enumerate() {
            let least = (frames as u64).min(self.free().saturating_sub(self.reserves[engine]));
            if (got.len() as u64) < least {
                return blame(engine, format!("a bulk call for {frames} gave {} with {} free", got.len(), self.free()));
            }
        }
        for (engine, got) in [&ours, &theirs].into_iter().enumerate() {
            got.iter().try_for_each(|&pfn| self.used[engine].take(pfn, 1)).or_else(|what| blame(engine, what))?;
        }
        // With a watermark one may have gone closer to it than the other.
        while ours.len() > theirs.len() {
            let pfn = ours.pop().unwrap();
            self.give_one(0, cpu, pfn, Order::ZERO, false)?;
        }
        while theirs.len() > ours.len() {
            let pfn = theirs.pop().unwrap();
            self.give_one(1, cpu, pfn, Order::ZERO, false)?;
        }
        self.in_use += ours.len() as u64;
        self.live.extend(ours.into_iter().zip(theirs).map(|(a, b)| Live { order: Order::ZERO, at: [a, b] }));
        Ok(())
    }

    fn give_one(&mut self, engine: usize, cpu: CpuId, pfn: Pfn, order: Order, owned: bool) -> Checked {
        self.used[engine].give(pfn, order.frames());
        if engine == 1 {
            return self.theirs.free(cpu, pfn, order).map(drop).or_else(|error| blame(1, error));
        }
        if owned {
            return self.ours.own(cpu).unwrap().free(pfn, order).or_else(|error| blame(0, error));
        }
        self.ours.on(cpu).free(pfn, order).or_else(|error| blame(0, error))
    }

    fn give(&mut self, cpu: CpuId, live: Live, owned: bool) -> Checked {
        self.in_use -= live.order.frames();
        (0..2).try_for_each(|engine| self.give_one(engine, cpu, live.at[engine], live.order, owned))
    }

    /// Into parts of order `to`, which take the place of the allocation from `at` on; how many.
    fn split(&mut self, at: usize, to: Order) -> Checked<usize> {
        let Live { order, at: [a, b] } = self.live[at];
        if to >= order {
            return Ok(1);
        }
        // Freehold's allocations carry no order: there is nothing to do.
        self.theirs.split(b, order, to).or_else(|error| blame(1, error))?;
        let parts = (0..order.frames()).step_by(to.frames() as usize);
        let parts = parts.map(|behind| Live { order: to, at: [a, b].map(|pfn| Pfn::new(pfn.get() + behind)) });
        let parts: Vec<_> = parts.collect();
        let count = parts.len();
        self.live.splice(at..=at, parts);
        Ok(count)
    }

    fn free_range(&mut self, cpu: CpuId, at: usize, from: u64, len: u64, keep: u64) -> Checked {
        let frames = self.split(at, Order::ZERO)? as u64;
        let from = from % frames;
        let len = 1 + (len - 1) % (frames - from);
        let part: Vec<Live> = self.live[at + from as usize..at + (from + len) as usize].to_vec();
        let is_kept = |behind: u64| keep > 1 && behind % keep == 0;
        let ranges = part[0].at.map(|pfn| range(pfn.get(), len));
        for behind in (0..len).filter(|&behind| is_kept(behind)) {
            let pfn = part[behind as usize].at[1];
            self.theirs.get(pfn).or_else(|error| blame(1, error))?;
        }
        let first = ranges[0].start.get();
        let ours = if keep == 0 {
            self.ours.on(cpu).free_range(ranges[0]).map(|()| 0)
        } else {
            self.ours.on(cpu).free_range_with(ranges[0], |pfn| !is_kept(pfn.get() - first))
        };
        let ours = ours.or_else(|error| blame(0, error))?;
        let theirs = self.theirs.free_contig_range(cpu, ranges[1]).or_else(|error| blame(1, error))?;
        if ours != theirs {
            return Err(format!("freehold kept {ours} frames of a range, the kernel's design {theirs}"));
        }
        let mut behind = 0;
        self.live.retain({
            let mut number = 0;
            move |_| {
                let inside = number >= at as u64 + from && number < at as u64 + from + len;
                number += 1;
                let stays = !inside || is_kept(behind);
                behind += u64::from(inside);
                stays
            }
        });
        for (_, live) in (0..len).zip(&part).filter(|&(behind, _)| !is_kept(behind)) {
            (0..2).for_each(|engine| self.used[engine].give(live.at[engine], 1));
            self.in_use -= 1;
        }
        Ok(())
    }

    fn free_bulk(&mut self, cpu: CpuId, pick: usize, frames: usize, step: usize) -> Checked {
        let singles: Vec<usize> = (0..self.live.len())
            .filter(|&at| self.live[at].order == Order::ZERO)
            .skip(pick % 97)
            .step_by(step)
            .collect();
        let chosen: BTreeSet<usize> = singles.into_iter().take(frames).collect();
        let mut lists = [Vec::new(), Vec::new()];
        for &at in &chosen {
            let live = self.live[at];
            (0..2).for_each(|engine| {
                lists[engine].push(live.at[engine]);
                self.used[engine].give(live.at[engine], 1);
            });
        }
        if pick % 2 == 0 {
            lists.iter_mut().for_each(|list| list.reverse());
        }
        let mut number = 0;
        self.live.retain(|_| {
            number += 1;
            !chosen.contains(&(number - 1))
        });
        self.in_use -= chosen.len() as u64;
        self.ours.on(cpu).free_bulk(&lists[0]).or_else(|error| blame(0, error))?;
        self.theirs.free_array(cpu, &lists[1]).map(drop).or_else(|error| blame(1, error))
    }

    fn wrong_free(&mut self, cpu: CpuId, frame: u64) -> Checked {
        let pfn = Pfn::new(BASE - 100 + frame % (self.used[0].frames.len() as u64 + 200));
        let in_use = |used: &Used| used.exists(pfn.get()) && !used.is_free(pfn.get());
        if !in_use(&self.used[0]) && self.ours.on(cpu).free(pfn, Order::ZERO).is_ok() {
            return blame(0, format!("freed {pfn}, which was not in use"));
        }
        if !in_use(&self.used[1]) && self.theirs.free(cpu, pfn, Order::ZERO).is_ok() {
            return blame(1, format!("freed {pfn}, which was not in use"));
        }
        Ok(())
    }

    fn contig(&mut self, cpu: CpuId, frame: u64, len: u64) -> Checked {
        let span = self.used[0].spans[(frame % self.used[0].spans.len() as u64) as usize];
        let start = span.start.get() + frame / 7 % span.len();
        let wanted = range(start, len.min(span.end.get() - start));
        let results = [
            self.ours.alloc_contig_range(wanted, |_| false),
            self.theirs.alloc_contig_range(cpu, wanted, &mut |_| false),
        ];
        for (engine, result) in results.into_iter().enumerate() {
            let free = (wanted.start.get()..wanted.end.get()).all(|pfn| self.used[engine].is_free(pfn));
            if result.is_ok() != free {
                return blame(engine, format!("{wanted} is {}free, but: {result:?}", if free { "" } else { "not " }));
            }
        }
        if results[0].is_ok() {
            self.ours.on(cpu).free_range(wanted).or_else(|error| blame(0, error))?;
        }
        if results[1].is_ok() {
            self.theirs.free_contig_range(cpu, wanted).map(drop).or_else(|error| blame(1, error))?;
        }
        Ok(())
    }

    /// What both say of themselves.
    fn check(&self, thoroughly: bool) -> Checked {
        let ours: u64 = (0..self.ours.zone_count()).map(|z| self.ours.zone_stats(z).unwrap().free).sum();
        if ours != self.free() {
            return blame(0, format!("counts {ours} free frames; there are {}", self.free()));
        }
        if thoroughly {
            let theirs = self.theirs.memory_map().free;
            if theirs != self.free() {
                return blame(1, format!("counts {theirs} free frames; there are {}", self.free()));
            }
            self.ours.validate().or_else(|violation| blame(0, violation))?;
            self.theirs.validate().or_else(|violation| blame(1, violation))?;
        }
        Ok(())
    }

    /// All is given back.
    fn finish(&mut self) -> Checked {
        self.check(true)?;
        let live = std::mem::take(&mut self.live);
        for (at, live) in live.into_iter().enumerate() {
            self.give(self.cpu(at as u16 % CPUS), live, false)?;
        }
        self.play(Call::Drain)?;
        self.check(true)?;
        // The most chunks that aligned free memory can be made of: a whole engine has no more and no fewer.
        let spans = self.used[0].memory.iter().map(|&(start, end)| range(start, end - start));
        let mut chunks = [0u64; 11];
        spans.flat_map(|piece| piece.chunks(Order::LINUX_MAX)).for_each(|(_, order)| chunks[order.index()] += 1);
        let theirs = self.theirs.memory_map();
        if theirs.zone_chunks != chunks {
            return blame(1, format!("is left with chunks {:?}, not {chunks:?}", theirs.zone_chunks));
        }
        let blocks = |(start, end): (u64, u64)| (end / 512).saturating_sub(start.div_ceil(512));
        let blocks: u64 = self.used[0].memory.iter().map(|&piece| blocks(piece)).sum();
        let zones = (0..self.ours.zone_count()).map(|z| self.ours.zone_stats(z).unwrap());
        let ours: u64 = zones.clone().map(|zone| zone.free_blocks).sum();
        if ours != blocks {
            return blame(0, format!("is left with {ours} whole blocks of {blocks}"));
        }
        for (z, zone) in zones.enumerate() {
            let largest = self.ours.largest_possible_order(z);
            if zone.largest_free_order() != largest || zone.free_in_zone != zone.managed {
                return blame(0, format!("zone {z} is left with {zone:?}"));
            }
        }
        // The largest that both know is to be had once more.
        let largest = self.ours.largest_possible_order(0).unwrap().min(Order::LINUX_MAX);
        let before = self.live.len();
        self.alloc(self.cpu(0), largest, Migratetype::Movable, AllocFlags::NO_WATERMARKS)?;
        if self.live.len() != before + 1 {
            return Err(format!("{largest} is not to be had with everything free"));
        }
        Ok(())
    }
}

fn play(design: &str, shape: &Shape, calls: &[Call]) -> Checked {
    let mut both = Both::new(shape, design);
    for (at, &call) in calls.iter().enumerate() {
        let played = both.play(call).and_then(|()| both.check(at % 8 == 0));
        played.map_err(|what| format!("call {at}, {call:?}: {what} (beside {design}, machine: {})", shape.name))?;
    }
    both.finish().map_err(|what| format!("after all calls: {what} (beside {design}, machine: {})", shape.name))
}

fn runner(cases: u32) -> TestRunner {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let default = RunConfig::default();
    TestRunner::new(RunConfig {
        cases: if asked { default.cases } else { cases },
        failure_persistence: None,
        ..default
    })
}

#[test]
fn both_serve_the_same_histories() {
    for preset in presets() {
        let strategy = (prop::sample::select(SHAPES.as_slice()), prop::collection::vec(call(), 1..200));
        let result =
            runner(24).run(&strategy, |(shape, calls)| play(preset.name, &shape, &calls).map_err(TestCaseError::fail));
        result.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Memory is filled to the last frame and emptied again and again: what is free is scattered over all CPUs then.
#[test]
fn both_serve_the_last_frame() {
    for preset in ["5.17", "vanilla", "pcp-buddy-fixed"] {
        for shape in &SHAPES {
            let mut calls = Vec::new();
            for round in 0..6u16 {
                let (mut cpu, fill) = (round, Call::Bulk { cpu: round % CPUS, frames: 3999, migratetype: 1 });
                calls.extend([fill; 3]);
                for _ in 0..400 {
                    cpu = (cpu + 1) % CPUS;
                    calls.push(Call::Alloc {
                        cpu,
                        order: [0, 0, 1, 3][usize::from(cpu)],
                        migratetype: usize::from(round % 3),
                        no_fragment: false,
                    });
                }
                calls.extend([Call::Bulk { cpu, frames: 30_000, migratetype: usize::from(cpu % 3) }; 2]);
                let free = |n: u16| Call::FreeBulk { cpu: n % CPUS, pick: usize::from(n * 31), frames: 900, step: 3 };
                calls.extend((0..8).map(free));
                calls.extend((0..300).map(|n| Call::Free { cpu: n % CPUS, pick: usize::from(n) * 7919 }));
            }
            play(preset, shape, &calls).unwrap_or_else(|what| panic!("{what}"));
        }
    }
}
