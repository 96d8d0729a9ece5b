//! Puts an engine into the state of a layout, and knows what is in use there.
//!
//! An engine is filled through the calls that every engine has. All memory is allocated in chunks
//! of the largest order, by type, so that pageblocks get the recorded types; each chunk is split
//! where the layout says so, and what is to be free is freed, each region by another CPU in turn,
//! so that no CPU is the owner of it all; then everything that CPUs hold is drained. What the
//! recorded CPUs' lists held stays allocated until then, and is handed to the engine as it starts:
//! one with lists puts it there, another has it free in the zone, where it lay.
//!
//! Where the machine has CMA, its regions are a fourth kind, spread among the movable ones. No call
//! names frames, so movable chunks are allocated until all memory is in use; which of them are CMA,
//! their numbers say. An engine may be unable to give chunks of the largest order out of CMA;
//! halves are asked for then, and everything movable is handled in halves.
//!
//! What stays in use is given back after the trace has ended. A frame that the trace frees without
//! having allocated it is part of it: see the driver.

use freehold::{AllocFlags, CpuId, Migratetype, Order, Pfn};

use super::{Holds, LARGEST, Layout, Lists, Piece};
use crate::engine::{Engine, Listed, Request};

impl Layout {
    /// Puts an engine that has all its memory free into this state, the CPUs' lists apart.
    pub fn apply(&self, engine: &dyn Engine, cpus: u16) -> Result<InUse, String> {
        let heads = self.heads(engine)?;
        let mut in_use = InUse::default();
        for (number, (region, head)) in (0u64..).zip(self.regions.iter().zip(heads)) {
            let cpu = CpuId::new((number % u64::from(cpus.max(1))) as u16);
            let halves = self.cma.is_some() && region.is_movable();
            let pieces = if halves { halved(&region.pieces) } else { region.pieces.clone() };
            for (order, pieces) in parts(&pieces, halves) {
                split(engine, head, order, pieces, pieces[0].start)?;
            }
            for piece in &pieces {
                let (pfn, order) = (Pfn::new(head.get() + u64::from(piece.start)), piece.order());
                match piece.holds {
                    Holds::Free => engine
                        .free(cpu, pfn, order)
                        .map_err(|error| format!("freeing {order} at {pfn}: {error}"))?,
                    Holds::Listed => {
                        let of = if region.is_movable() { 1 } else { region.migratetype.index() };
                        in_use.listed[order.index()][of].push(pfn);
                    }
                    Holds::ToFree => in_use.cut[order.index()].push(pfn.get()),
                    Holds::Used => {
                        let kind = usize::from(!region.is_movable());
                        in_use.chunks[kind][order.index()].push(pfn.get());
                    }
                }
            }
        }
        in_use.lists.clone_from(&self.lists);
        // Pieces are taken from the back: the first region first.
        in_use.chunks.iter_mut().flatten().for_each(|chunks| chunks.reverse());
        Ok(in_use)
    }

    /// Allocates every region, each as a chunk of the largest order; what is movable as two halves
    /// where there is CMA.
    fn heads(&self, engine: &dyn Engine) -> Result<Vec<Pfn>, String> {
        let by_type =
            self.regions.iter().take_while(|region| self.cma.is_none() || !region.is_movable());
        let mut heads = Vec::with_capacity(self.regions.len());
        for region in by_type {
            let request = Request {
                order: Order::LINUX_MAX,
                migratetype: region.migratetype,
                flags: AllocFlags::NO_WATERMARKS,
            };
            let head = engine.alloc(CpuId::new(0), request).map_err(|error| {
                format!(
                    "region {} of {} cannot be set up: {error}",
                    heads.len(),
                    self.regions.len()
                )
            })?;
            heads.push(head);
        }
        let Some(range) = self.cma else { return Ok(heads) };
        let (cma, others): (Vec<_>, Vec<_>) =
            all_movable(engine)?.into_iter().partition(|head| range.contains(*head));
        let (mut cma, mut others) = (cma.into_iter(), others.into_iter());
        for region in &self.regions[heads.len()..] {
            let is_cma = region.migratetype == Migratetype::Cma;
            let head = if is_cma { cma.next() } else { others.next() };
            let what = if is_cma { "CMA" } else { "movable memory" };
            heads.push(head.ok_or_else(|| format!("there is less {what} than was recorded"))?);
        }
        // What no region is for stays free.
        for head in cma.chain(others) {
            for half in [head, half_behind(head)] {
                engine
                    .free(CpuId::new(0), half, Order::PAGEBLOCK)
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(heads)
    }
}

/// Those of a whole region, or of each half of it.
fn parts(pieces: &[Piece], halves: bool) -> impl Iterator<Item = (Order, &[Piece])> {
    let middle = if halves {
        pieces.partition_point(|piece| piece.start < 1 << Order::PAGEBLOCK.get())
    } else {
        0
    };
    let order = if halves { Order::PAGEBLOCK } else { Order::LINUX_MAX };
    let (low, high) = pieces.split_at(middle);
    [low, high].into_iter().filter(|part| !part.is_empty()).map(move |part| (order, part))
}

/// The pieces with each whole region as its two halves.
fn halved(pieces: &[Piece]) -> Vec<Piece> {
    let half = Order::PAGEBLOCK.get();
    let whole = |piece: &Piece| piece.order > half;
    let both = |piece: Piece| {
        [Piece { order: half, ..piece }, Piece { order: half, start: 1 << half, ..piece }]
    };
    pieces
        .iter()
        .flat_map(|piece| if whole(piece) { both(*piece).to_vec() } else { vec![*piece] })
        .collect()
}

/// Takes all movable memory there is, CMA too, as halves of regions; the regions by rising address.
fn all_movable(engine: &dyn Engine) -> Result<Vec<Pfn>, String> {
    let take = |order| {
        let flags = AllocFlags::NO_WATERMARKS | AllocFlags::CMA;
        engine
            .alloc(CpuId::new(0), Request { order, migratetype: Migratetype::Movable, flags })
            .ok()
    };
    let mut halves = Vec::new();
    while let Some(head) = take(Order::LINUX_MAX) {
        engine
            .split(head, Order::LINUX_MAX, Order::PAGEBLOCK)
            .map_err(|error| error.to_string())?;
        halves.extend([head, half_behind(head)]);
    }
    halves.extend(std::iter::from_fn(|| take(Order::PAGEBLOCK)));
    halves.sort_unstable();
    let mut heads = Vec::with_capacity(halves.len() / 2);
    let mut rest = &halves[..];
    while let [half, more @ ..] = rest {
        rest = match more {
            [next, more @ ..]
                if half.is_aligned(Order::LINUX_MAX) && *next == half_behind(*half) =>
            {
                heads.push(*half);
                more
            }
            // One of a region that is not all there: behind the last whole one, for example.
            _ => {
                engine
                    .free(CpuId::new(0), *half, Order::PAGEBLOCK)
                    .map_err(|error| error.to_string())?;
                more
            }
        };
    }
    Ok(heads)
}

/// The second half of a region.
fn half_behind(head: Pfn) -> Pfn {
    Pfn::new(head.get() + Order::PAGEBLOCK.frames())
}

/// Splits the chunk at `head + start` until its parts are `pieces`.
fn split(
    engine: &dyn Engine,
    head: Pfn,
    order: Order,
    pieces: &[Piece],
    start: u16,
) -> Result<(), String> {
    let Some(half) = order.get().checked_sub(1).and_then(Order::new).filter(|_| pieces.len() > 1)
    else {
        return Ok(());
    };
    let pfn = Pfn::new(head.get() + u64::from(start));
    engine
        .split(pfn, order, half)
        .map_err(|error| format!("splitting {order} at {pfn}: {error}"))?;
    let middle = start + (1 << half.get());
    let (low, high) = pieces.split_at(pieces.partition_point(|piece| piece.start < middle));
    split(engine, head, half, low, start)?;
    split(engine, head, half, high, middle)
}

/// What is in use in a filled engine, and the pieces of it that the trace will free.
#[derive(Clone, Debug, Default)]
pub struct InUse {
    /// Movable chunks by order, and those of other types.
    chunks: [[Vec<u64>; LARGEST + 1]; 2],
    /// By order: what is kept for requests of it, and what is left of a larger chunk that was split
    /// for them.
    cut: [Vec<u64>; LARGEST + 1],
    /// What is for CPUs' lists, by order and type, and which CPU has how much of it.
    listed: [[Vec<Pfn>; 3]; LARGEST + 1],
    lists: Lists,
}

impl InUse {
    /// What CPUs' lists held, the coldest first; those of CPUs beyond `cpus` are folded onto these.
    pub fn take_listed(&mut self, cpus: u16) -> Vec<Listed> {
        let mut taken = Vec::new();
        for (cpu, list) in std::mem::take(&mut self.lists).into_iter().rev() {
            let cpu = CpuId::new(cpu.get() % cpus.max(1));
            let (order, of) = (list.order.index(), list.migratetype.index().min(2));
            for _ in 0..list.chunks {
                if let Some(pfn) = self.listed[order][of].pop() {
                    taken.push(Listed { cpu, pfn, order: list.order });
                    continue;
                }
                // There was no place for so large a chunk, or none among its type.
                let [singles, ..] = &mut self.listed;
                for _ in 0..list.order.frames() {
                    let pfn = [of, 1, 2, 0].into_iter().find_map(|of| singles[of].pop());
                    taken.extend(pfn.map(|pfn| Listed { cpu, pfn, order: Order::ZERO }));
                }
            }
        }
        taken
    }

    /// A chunk that is in use and will be freed. Those taken one after another are neighbours, as
    /// far as can be.
    pub fn take(&mut self, engine: &dyn Engine, order: Order) -> Option<Pfn> {
        let at = order.index();
        if at > LARGEST {
            return None;
        }
        if let Some(pfn) = self.cut[at].pop() {
            return Some(Pfn::new(pfn));
        }
        // Movable chunks as long as there are any; a huge page is nothing but movable.
        let kinds = if order < Order::PAGEBLOCK { 2 } else { 1 };
        let mut places =
            (0..kinds).flat_map(|kind| (at..=LARGEST).rev().map(move |from| (kind, from)));
        let (kind, from) = places.find(|&(kind, from)| !self.chunks[kind][from].is_empty())?;
        let head = self.chunks[kind][from].pop()?;
        if from > at {
            engine.split(Pfn::new(head), Order::new(from as u8)?, order).ok()?;
        }
        self.cut[at]
            .extend((0..1u64 << (from - at)).rev().map(|piece| head + piece * order.frames()));
        self.cut[at].pop().map(Pfn::new)
    }

    /// Everything that is in use.
    pub fn into_chunks(self) -> impl Iterator<Item = (Pfn, Order)> {
        let [movable, other] = self.chunks;
        [other, movable, self.cut].into_iter().flat_map(|chunks| {
            chunks.into_iter().enumerate().flat_map(|(order, chunks)| {
                let order = Order::new(order as u8).unwrap_or(Order::ZERO);
                chunks.into_iter().map(move |pfn| (Pfn::new(pfn), order))
            })
        })
    }
}
