//! A machine's memory by what the kernel says of it: zoneinfo, buddyinfo and pagetypeinfo put
//! together, zone by zone, and held against each other.
//!
//! ```text
//!  zoneinfo      Zone: size, watermarks, CPUs' lists ─┐
//!  buddyinfo     free chunks by order ────────────────┼──> ZoneState ──> a replay's machine
//!  pagetypeinfo  free chunks and pageblocks by type ──┘             └──> `look`: its figures
//! ```
//!
//! Files may be missing, and may be of different moments: what contradicts another is a doubt of
//! its zone, and who builds that zone refuses it.

mod look;
mod mem_info;
mod page_size;
mod pages;
mod parts;

use freehold::{Migratetype, Order};

pub use look::{Look, LookTotal, LookType, LookZone, OrderFigures};
pub use page_size::{PageSize, Told};
pub use pages::{PageBlock, PageKind, Pages};
pub use parts::{Files, Parts};

use super::buddyinfo::{BlockType, PageTypeInfo, ZoneFree, frames};
use super::error::StateError;
use super::zoneinfo::Zone;

/// How far two files may differ, in parts of a zone's memory: they are copied one after the other.
const APART: u64 = 100;

/// Memory as the files describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The zones that have memory, as zoneinfo lists them.
    pub zones: Vec<ZoneState>,
    /// How large a page is.
    pub page_size: PageSize,
    /// The order of a pageblock: pagetypeinfo's, or what machines of that page size have.
    pub pageblock_order: Order,
    /// Whether pagetypeinfo said so.
    pub pageblock_told: bool,
    /// The largest order of a free chunk.
    pub max_order: Order,
    /// What contradicts itself beside the zones' own doubts.
    pub doubts: Vec<String>,
}

/// What is known of one zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneState {
    /// What zoneinfo says. `cma` is pagetypeinfo's where zoneinfo does not print it.
    pub info: Zone,
    /// Free chunks by order, all types together; empty where neither file says.
    pub chunks: Vec<u64>,
    /// By type, in the order of the types' numbers; empty without a pagetypeinfo.
    pub types: Vec<TypeState>,
    /// The letters of the types that have chunks of an order; empty without a `Mem-Info` report.
    pub letters: Vec<String>,
    /// Whether its size and marks are known: not from a buddyinfo or a pagetypeinfo alone.
    pub is_sized: bool,
    /// What cannot be of one zone at one moment.
    pub doubts: Vec<String>,
}

/// What is known of one type's memory in a zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeState {
    /// The type.
    pub of: BlockType,
    /// Its free chunks by order.
    pub chunks: Vec<u64>,
    /// Whether a count is a lower bound.
    pub at_least: bool,
    /// Its pageblocks.
    pub blocks: u64,
    /// Of these, blocks with something of another type in them; `None` without `page_owner`.
    pub mixed: Option<u64>,
}

impl ZoneState {
    /// Free frames: what buddyinfo counts, else pagetypeinfo, else zoneinfo.
    #[must_use]
    pub fn free(&self) -> u64 {
        if self.chunks.is_empty() { self.info.free } else { frames(&self.chunks) }
    }

    /// One type's state.
    #[must_use]
    pub fn of(&self, wanted: Migratetype) -> Option<&TypeState> {
        self.types.iter().find(|of| of.of == BlockType::Of(wanted))
    }

    /// Free frames of one type.
    #[must_use]
    pub fn free_of(&self, wanted: Migratetype) -> u64 {
        self.of(wanted).map_or(0, |of| frames(&of.chunks))
    }

    /// Frames of CMA; `None` where no file says: zoneinfo does not before 5.12, and there is no
    /// pagetypeinfo.
    #[must_use]
    pub fn cma(&self) -> Option<u64> {
        (self.info.says_cma || !self.types.is_empty()).then_some(self.info.cma)
    }

    /// Whether it spans pages that another zone spans, too.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (one, other) = (&self.info, &other.info);
        let starts =
            one.start_pfn.zip(other.start_pfn).filter(|_| one.spanned.min(other.spanned) > 0);
        starts.is_some_and(|(start, others)| other.contains(start) || one.contains(others))
    }

    /// Frames on the CPUs' lists.
    #[must_use]
    pub fn held(&self) -> u64 {
        let counted = || self.info.pagesets.iter().fold(0u64, |n, set| n.saturating_add(set.count));
        self.info.held.unwrap_or_else(counted)
    }
}

impl Machine {
    /// Puts what is known together. `page_size` is what the user says a page has, in bytes.
    ///
    /// # Errors
    ///
    /// [`StateError::Contradiction`] where it can be of no machine: orders that differ, pageblocks
    /// larger than the largest chunk, counts that no memory has.
    pub fn new(parts: Parts, page_size: Option<u64>) -> Result<Self, StateError> {
        let (buddies, types) = (parts.buddies.as_deref(), parts.types.as_ref());
        let max_order = max_order(buddies, types)?;
        let told = types.map(|types| types.pageblock_order);
        if let Some((block, largest)) = told.zip(max_order).filter(|(block, most)| block > most) {
            return Err(contradiction(format!(
                "pageblocks are of order {}, and free chunks are counted up to order {}",
                block.get(),
                largest.get()
            )));
        }
        let is_sized = parts.zones.is_some();
        let infos = parts.zones.clone().unwrap_or_else(|| unsized_zones(buddies, types));
        let known =
            |node: u32, name: &str| infos.iter().any(|zone| zone.node == node && zone.name == name);
        let stray = |of: &ZoneFree| {
            format!("buddyinfo has zone {} of node {}, zoneinfo has not", of.zone, of.node)
        };
        let doubts =
            buddies.into_iter().flatten().filter(|of| !known(of.node, &of.zone)).map(stray);
        let mut doubts: Vec<String> = doubts.chain(parts.doubts).collect();
        let zones = infos.into_iter().filter(|zone| !is_sized || zone.managed > 0);
        let mut zones = zones
            .map(|zone| ZoneState::new(zone, is_sized, buddies, types))
            .collect::<Result<Vec<_>, _>>()?;
        let letters = buddies.into_iter().flatten().zip(parts.letters);
        for (of, letters) in letters {
            let is = |zone: &&mut ZoneState| zone.info.node == of.node && zone.info.name == of.zone;
            zones.iter_mut().find(is).into_iter().for_each(|zone| zone.letters = letters.clone());
        }
        for (at, one) in zones.iter().enumerate() {
            let told = |of: &ZoneState| format!("{} of node {}", of.info.name, of.info.node);
            doubts.extend(zones[..at].iter().filter(|other| one.overlaps(other)).map(|other| {
                let both = [told(other), told(one)].join(" and ");
                format!("the spans of zones {both} overlap: which has a page there is not known")
            }));
        }
        // What is added up over all zones.
        for (what, of) in SUMS {
            total(zones.iter().map(of), "all zones", || what.to_owned())?;
        }
        let managed = zones.iter().map(|zone| zone.info.managed).sum();
        let given = page_size.map(|bytes| PageSize { bytes, told: Told::Given });
        let page_size = given
            .or(parts.page_size)
            .or_else(|| PageSize::of_total(parts.mem_total_kib?, managed))
            .or_else(|| PageSize::of_architecture(&parts.about))
            .unwrap_or_else(|| PageSize::assumed(max_order, told));
        let max_order = max_order.unwrap_or(Order::LINUX_MAX);
        let pageblock_order =
            told.unwrap_or_else(|| page_size.usual_pageblock_order().min(max_order));
        let pageblock_told = told.is_some();
        Ok(Self { zones, page_size, pageblock_order, pageblock_told, max_order, doubts })
    }
}

/// The zones of a buddyinfo or a pagetypeinfo, of which no file says how large they are.
fn unsized_zones(buddies: Option<&[ZoneFree]>, types: Option<&PageTypeInfo>) -> Vec<Zone> {
    let counted = buddies.into_iter().flatten().map(|of| (of.node, &of.zone));
    let typed = types.into_iter().flat_map(|types| &types.blocks).map(|of| (of.node, &of.zone));
    let mut zones: Vec<Zone> = Vec::new();
    for (node, name) in counted.chain(typed) {
        if !zones.iter().any(|zone| zone.node == node && zone.name == *name) {
            zones.push(Zone { node, name: name.clone(), ..Zone::default() });
        }
    }
    zones
}

/// The largest order that the files count, which must be the same in both.
fn max_order(
    buddies: Option<&[ZoneFree]>,
    types: Option<&PageTypeInfo>,
) -> Result<Option<Order>, StateError> {
    let buddies = buddies.and_then(|zones| zones.first()).map(|of| of.chunks.len() - 1);
    let types = types.map(PageTypeInfo::max_order);
    if let Some((one, other)) = buddies.zip(types).filter(|(one, other)| one != other) {
        return Err(contradiction(format!(
            "buddyinfo has orders 0 to {one}, pagetypeinfo 0 to {other}"
        )));
    }
    Ok(buddies.or(types).and_then(|order| Order::new(u8::try_from(order).ok()?)))
}

impl ZoneState {
    fn new(
        info: Zone,
        is_sized: bool,
        buddies: Option<&[ZoneFree]>,
        types: Option<&PageTypeInfo>,
    ) -> Result<Self, StateError> {
        let zone = format!("zone {}", info.name);
        let mut doubts = Vec::new();
        let mut missing = |file: &str| {
            let (name, node) = (&info.name, info.node);
            doubts.push(format!("{file} has no zone {name} of node {node}"));
        };
        let is = |of: &&ZoneFree| of.node == info.node && of.zone == info.name;
        let buddy = buddies.and_then(|zones| zones.iter().find(is));
        if buddies.is_some() && buddy.is_none() {
            missing("buddyinfo");
        }
        let by_type = types.and_then(|types| types_of(types, &info));
        if types.is_some() && by_type.is_none() {
            missing("pagetypeinfo");
        }
        let types_of = by_type.unwrap_or_default();
        let mut chunks = buddy.map_or_else(Vec::new, |of| of.chunks.clone());
        if chunks.is_empty() {
            for of in &types_of {
                chunks.resize(of.chunks.len().max(chunks.len()), 0);
                for (order, (sum, &n)) in chunks.iter_mut().zip(&of.chunks).enumerate() {
                    let what = || format!("free chunks of order {order}");
                    *sum = total([*sum, n], &zone, what)?;
                }
            }
        }
        let letters = Vec::new();
        let mut state = Self { info, chunks, types: types_of, letters, is_sized, doubts };
        let block = types.map(|types| types.pageblock_order);
        let found = state.contradictions(buddy.is_some(), block)?;
        state.doubts.extend(found);
        if !is_sized {
            state.info.free = state.free();
        }
        let cma = state.of(Migratetype::Cma).map_or(0, |of| of.blocks);
        if let (false, Some(types)) = (state.info.says_cma, types) {
            let frames = cma.saturating_mul(types.pageblock_order.frames());
            state.info.cma = if is_sized { frames.min(state.info.managed) } else { frames };
        }
        Ok(state)
    }

    /// What the files say that cannot be of one zone at one moment.
    ///
    /// # Errors
    ///
    /// Counts that no memory has.
    fn contradictions(
        &self,
        counted: bool,
        block: Option<Order>,
    ) -> Result<Vec<String>, StateError> {
        let Zone { name, managed, free, spanned, .. } = &self.info;
        let mut found = Vec::new();
        let zone = format!("zone {name}");
        let by_type = self.types.iter().map(|of| frames(&of.chunks));
        let by_type = total(by_type, &zone, || "free pages".to_owned())?;
        let mixed = self.types.iter().filter_map(|of| of.mixed);
        total(mixed, &zone, || "mixed pageblocks".to_owned())?;
        let blocks = self.types.iter().map(|of| of.blocks);
        let blocks = total(blocks, &zone, || "pageblocks".to_owned())?;
        if !self.is_sized {
            return Ok(found);
        }
        let at_least = self.types.iter().any(|of| of.at_least);
        let mut apart = |what: &str, n: u64, other: &str, m: u64| {
            if n.abs_diff(m) > managed / APART {
                found.push(format!(
                    "zone {name}: {what} has {n} pages free, {other} {m}: that is more than 1 % of \
                     its {managed} pages"
                ));
            }
        };
        if counted {
            // What is isolated zoneinfo does not count.
            let isolated = self.free_of(Migratetype::Isolate);
            let counted = frames(&self.chunks).saturating_sub(isolated);
            apart("buddyinfo", counted, "zoneinfo", *free);
        }
        if !self.types.is_empty() && !at_least {
            apart("pagetypeinfo", by_type, "buddyinfo", self.free());
        }
        if let Some(block) = block.filter(|_| !self.types.is_empty()) {
            // Blocks without any memory are not counted, blocks in part without it are.
            let size = blocks.saturating_mul(block.frames());
            let most = spanned.saturating_add(spanned / 10).saturating_add(2 * block.frames());
            if size < managed - managed / 10 || size > most {
                found.push(format!(
                    "zone {name}: {blocks} pageblocks of order {} are {size} pages; zoneinfo has \
                     {managed} managed and {spanned} spanned",
                    block.get()
                ));
            }
        }
        Ok(found)
    }
}

/// The types of one zone; `None` where they are not in the file.
fn types_of(types: &PageTypeInfo, zone: &Zone) -> Option<Vec<TypeState>> {
    let is = |node: u32, name: &str| node == zone.node && name == zone.name;
    let blocks = types.blocks.iter().find(|of| is(of.node, &of.zone))?;
    let mixed = types.mixed.iter().find(|of| is(of.node, &of.zone));
    let state = |&(of, blocks): &(BlockType, u64)| {
        let free = types.free.iter().find(|f| is(f.node, &f.zone) && f.of == of);
        TypeState {
            of,
            chunks: free.map_or_else(Vec::new, |free| free.chunks.clone()),
            at_least: free.is_some_and(|free| free.at_least),
            blocks,
            mixed: mixed.and_then(|of_zone| {
                of_zone.blocks.iter().find(|(other, _)| *other == of).map(|(_, n)| *n)
            }),
        }
    };
    Some(blocks.blocks.iter().map(state).collect())
}

/// A count of a zone, and its name.
type Sum = (&'static str, fn(&ZoneState) -> u64);

/// What is added up over all zones.
const SUMS: [Sum; 4] = [
    ("managed pages", |zone| zone.info.managed),
    ("free pages", ZoneState::free),
    ("pages on the CPUs' lists", ZoneState::held),
    ("pages of CMA", |zone| zone.info.cma),
];

/// A sum of what the files count; a contradiction where it is more than any memory has.
fn total(
    counts: impl IntoIterator<Item = u64>,
    zone: &str,
    what: impl FnOnce() -> String,
) -> Result<u64, StateError> {
    let sum = counts.into_iter().try_fold(0u64, u64::checked_add);
    sum.ok_or_else(|| contradiction(format!("{zone}: more {} than there can be", what())))
}

fn contradiction(what: String) -> StateError {
    StateError::Contradiction { what }
}

#[cfg(test)]
mod tests;
