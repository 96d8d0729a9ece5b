//! The figures of fragmentation that the three files give, without a trace.
//!
//! **Unusable index** of an order, 0 to 1: the share of free memory that lies in smaller chunks, and
//! so is of no use to a request of that order (Gorman and Whitcroft, "The what, the why and the
//! where to of anti-fragmentation", OLS 2006): `1 - sum(i >= order, chunks[i] << i) / free`.

use serde::Serialize;

use super::{Machine, Told, TypeState, ZoneState, frames};

/// All of a machine's figures. The names of the fields are those of `--json` and stay. Amounts are
/// pages, of `page_size` bytes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Look {
    /// Bytes of a page.
    pub page_size: u64,
    /// Whether that is known, and not assumed.
    pub page_size_told: bool,
    /// What says so: "given", "said", "mem_total", "architecture" or "assumed".
    pub page_size_by: &'static str,
    /// The order of a pageblock.
    pub pageblock_order: u8,
    /// Whether pagetypeinfo said so.
    pub pageblock_order_told: bool,
    /// The largest order of a free chunk.
    pub max_order: u8,
    /// All zones together.
    pub total: LookTotal,
    /// Each zone with memory.
    pub zones: Vec<LookZone>,
    /// What the files say that cannot be of one machine at one moment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
}

/// All zones together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LookTotal {
    /// What the page allocator manages; null where no file says of one of the zones, as below.
    pub managed: Option<u64>,
    /// Free in the zones.
    pub free: u64,
    /// Free on the CPUs' lists.
    pub held: Option<u64>,
    /// In CMA pageblocks; null where no file says of one of the zones.
    pub cma: Option<u64>,
    /// By order.
    pub orders: Vec<OrderFigures>,
}

/// One zone.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LookZone {
    /// Its node.
    pub node: u32,
    /// Its name.
    pub zone: String,
    /// Its first page; null where no file says where it lies.
    pub start: Option<u64>,
    /// From its first page to its last, holes included.
    pub spanned: Option<u64>,
    /// What the page allocator manages; null where only its chunks are known, as what follows.
    pub managed: Option<u64>,
    /// Free, without what CPUs hold.
    pub free: u64,
    /// The watermarks min, low and high, raised by boost.
    pub watermarks: Option<[u64; 3]>,
    /// Of the watermarks, the temporary raise.
    pub boost: Option<u64>,
    /// Which watermarks free memory is above: 0 none, 1 min, 2 low, 3 high.
    pub above: Option<u8>,
    /// CPUs with lists; null in a report that only says what they hold together.
    pub cpus: Option<u64>,
    /// Frames on the CPUs' lists.
    pub held: Option<u64>,
    /// The limits of all lists together.
    pub held_high: Option<u64>,
    /// In CMA pageblocks; null where no file says, as without a pagetypeinfo before 5.12.
    pub cma: Option<u64>,
    /// Of these, free; null where no file says.
    pub cma_free: Option<u64>,
    /// Pageblocks; null without a pagetypeinfo.
    pub blocks: Option<u64>,
    /// Of these, free as a whole; null where chunks are not known.
    pub whole_free_blocks: Option<u64>,
    /// Of these, with allocations of another type; null without `page_owner`.
    pub mixed_blocks: Option<u64>,
    /// By order; empty where neither buddyinfo nor pagetypeinfo says.
    pub orders: Vec<OrderFigures>,
    /// By type; empty without a pagetypeinfo.
    pub types: Vec<LookType>,
}

/// One order.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct OrderFigures {
    /// The order.
    pub order: u8,
    /// Free chunks of it.
    pub chunks: u64,
    /// The pages in them.
    pub pages: u64,
    /// The share of free memory in smaller chunks, 0 to 1.
    pub unusable_index: f64,
    /// The letters of the types that have such chunks, where a report says them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub letters: Option<String>,
}

/// One type.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LookType {
    /// Its name.
    #[serde(rename = "type")]
    pub name: &'static str,
    /// Its pageblocks.
    pub blocks: u64,
    /// Of these, with allocations of another type; null without `page_owner`.
    pub mixed_blocks: Option<u64>,
    /// Free pages.
    pub free: u64,
    /// Free chunks by order.
    pub chunks: Vec<u64>,
    /// Whether a count is a lower bound: the kernel stops at 100,000.
    pub at_least: bool,
}

impl Look {
    /// The figures of a machine.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let zones: Vec<LookZone> =
            machine.zones.iter().map(|zone| of_zone(zone, machine.pageblock_order.get())).collect();
        let sum =
            |of: fn(&LookZone) -> u64| zones.iter().fold(0u64, |all, z| all.saturating_add(of(z)));
        let mut chunks = Vec::new();
        for zone in &machine.zones {
            chunks.resize(zone.chunks.len().max(chunks.len()), 0u64);
            chunks.iter_mut().zip(&zone.chunks).for_each(|(all, n)| *all = all.saturating_add(*n));
        }
        let total = LookTotal {
            managed: sum_of(zones.iter().map(|zone| zone.managed)),
            free: sum(|zone| zone.free),
            held: sum_of(zones.iter().map(|zone| zone.held)),
            cma: sum_of(zones.iter().map(|zone| zone.cma)),
            orders: orders(&chunks, &[]),
        };
        let doubts = machine.zones.iter().flat_map(|zone| &zone.doubts).chain(&machine.doubts);
        Self {
            page_size: machine.page_size.bytes,
            page_size_told: machine.page_size.told != Told::Assumed,
            page_size_by: machine.page_size.told.name(),
            pageblock_order: machine.pageblock_order.get(),
            pageblock_order_told: machine.pageblock_told,
            max_order: machine.max_order.get(),
            total,
            zones,
            doubts: doubts.cloned().collect(),
        }
    }
}

/// A sum that is known where every part of it is.
fn sum_of(mut parts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    parts.try_fold(0u64, |all, part| Some(all.saturating_add(part?)))
}

fn of_zone(zone: &ZoneState, block: u8) -> LookZone {
    let info = &zone.info;
    let types = !zone.types.is_empty();
    let sum = |of: fn(&TypeState) -> u64| {
        zone.types.iter().fold(0u64, |all, t| all.saturating_add(of(t)))
    };
    let sized = |amount: u64| zone.is_sized.then_some(amount);
    let watermarks = [info.min, info.low, info.high].map(|mark| mark.saturating_add(info.boost));
    let above = watermarks.iter().filter(|mark| info.free > **mark).count() as u8;
    let lists = !info.pagesets.is_empty();
    let block = usize::from(block);
    let whole = zone.chunks.iter().enumerate().skip(block);
    let whole = whole
        .fold(0u64, |all, (order, n)| all.saturating_add(n.saturating_mul(1 << (order - block))));
    let mixed = sum_of(zone.types.iter().map(|of| of.mixed));
    LookZone {
        node: info.node,
        zone: info.name.clone(),
        start: info.start_pfn.map(freehold::Pfn::get),
        spanned: info.start_pfn.map(|_| info.spanned),
        managed: sized(info.managed),
        free: zone.free(),
        watermarks: zone.is_sized.then_some(watermarks),
        boost: sized(info.boost),
        above: zone.is_sized.then_some(above),
        cpus: lists.then_some(info.pagesets.len() as u64),
        held: (lists || info.held.is_some()).then(|| zone.held()),
        held_high: lists
            .then(|| info.pagesets.iter().fold(0u64, |all, set| all.saturating_add(set.high))),
        cma: zone.cma(),
        // Exact, where a list of types stops at 100,000 chunks.
        cma_free: info
            .free_cma
            .or_else(|| types.then(|| zone.free_of(freehold::Migratetype::Cma)))
            .filter(|_| zone.cma() != Some(0)),
        blocks: types.then(|| sum(|of| of.blocks)),
        whole_free_blocks: (!zone.chunks.is_empty()).then_some(whole),
        mixed_blocks: mixed.filter(|_| types),
        orders: orders(&zone.chunks, &zone.letters),
        types: zone.types.iter().map(of_type).collect(),
    }
}

fn of_type(of: &TypeState) -> LookType {
    LookType {
        name: of.of.name(),
        blocks: of.blocks,
        mixed_blocks: of.mixed,
        free: frames(&of.chunks),
        chunks: of.chunks.clone(),
        at_least: of.at_least,
    }
}

/// The figures of each order. Complexity: the number of orders.
fn orders(chunks: &[u64], letters: &[String]) -> Vec<OrderFigures> {
    let free = frames(chunks);
    let mut smaller = 0u64;
    chunks
        .iter()
        .enumerate()
        .map(|(order, &chunks)| {
            let pages = chunks.saturating_mul(1 << order);
            // As the kernel has it: where nothing is free, nothing is usable.
            let index = if free == 0 { 1.0 } else { smaller as f64 / free as f64 };
            smaller = smaller.saturating_add(pages);
            OrderFigures {
                order: order as u8,
                chunks,
                pages,
                unusable_index: (index * 1e6).round() / 1e6,
                letters: letters.get(order).cloned(),
            }
        })
        .collect()
}
