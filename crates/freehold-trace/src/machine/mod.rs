//! A machine's memory by what the kernel says of it: zoneinfo, buddyinfo and pagetypeinfo put
//! together, zone by zone, and held against each other.
//!
//! ```text
//!  zoneinfo      Zone: size, watermarks, CPUs' lists ─┐
//!  buddyinfo     free chunks by order ────────────────┼──> ZoneState ──> a replay's machine
//!  pagetypeinfo  free chunks and pageblocks by type ──┘             └──> `look`: its figures
//! ```
//!
//! No file says how large a page is. The number of orders does, as architectures are configured:
//! see [`PageSize`].
//!
//! | room | what |
//! |---|---|
//! | `page_size` | how large a page is, and how that is known |
//! | `look` | the figures of fragmentation |

mod look;
mod page_size;

use std::path::Path;

use freehold::{Migratetype, Order};

pub use look::{Look, LookTotal, LookType, LookZone, OrderFigures};
pub use page_size::{PageSize, Told};

use super::buddyinfo::{self, BlockType, PageTypeInfo, ZoneFree};
use super::error::StateError;
use super::zoneinfo::{self, Zone};

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

    /// Frames on the CPUs' lists.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.info.pagesets.iter().fold(0, |all, set| all.saturating_add(set.count))
    }
}

/// Frames in free chunks by order.
#[must_use]
pub fn frames(chunks: &[u64]) -> u64 {
    buddyinfo::frames(chunks)
}

impl Machine {
    /// Puts the files together. `page_size` is what the user says a page has, in bytes.
    ///
    /// # Errors
    ///
    /// [`StateError::Contradiction`] where two files cannot be of one machine at one time: zones
    /// that only one of them has, orders that differ, free memory that differs by more than 1 % of
    /// the zone, pageblocks that are less or more than the zone, or larger than the largest chunk.
    pub fn new(
        zones: Vec<Zone>,
        buddies: Option<&[ZoneFree]>,
        types: Option<&PageTypeInfo>,
        page_size: Option<u64>,
    ) -> Result<Self, StateError> {
        let max_order = max_order(buddies, types)?;
        let told = types.map(|types| types.pageblock_order);
        let page_size = match page_size {
            Some(bytes) => PageSize { bytes, told: Told::Given },
            None => PageSize::of(max_order, told),
        };
        if let Some((block, largest)) = told.zip(max_order).filter(|(block, most)| block > most) {
            return Err(contradiction(format!(
                "pageblocks are of order {}, and free chunks are counted up to order {}",
                block.get(),
                largest.get()
            )));
        }
        let max_order = max_order.unwrap_or(Order::LINUX_MAX);
        let pageblock_order =
            told.unwrap_or_else(|| page_size.usual_pageblock_order().min(max_order));
        let known =
            |node: u32, name: &str| zones.iter().any(|zone| zone.node == node && zone.name == name);
        let stray = buddies.into_iter().flatten().find(|of| !known(of.node, &of.zone));
        if let Some(stray) = stray {
            return Err(contradiction(format!(
                "buddyinfo has zone {} of node {}, zoneinfo has not",
                stray.zone, stray.node
            )));
        }
        let zones = zones
            .into_iter()
            .filter(|zone| zone.managed > 0 && zone.start_pfn.is_some())
            .map(|zone| ZoneState::new(zone, buddies, types))
            .collect::<Result<Vec<_>, _>>()?;
        // What is added up over all zones.
        for (what, of) in SUMS {
            total(zones.iter().map(of), "all zones", || what.to_owned())?;
        }
        let pageblock_told = told.is_some();
        Ok(Self { zones, page_size, pageblock_order, pageblock_told, max_order })
    }

    /// Reads the machine that this runs on, or copies of its files in a directory: those that exist
    /// beside `zoneinfo`.
    ///
    /// # Errors
    ///
    /// As [`Machine::new`] and those of reading each file.
    pub fn read(files: &Files, page_size: Option<u64>) -> Result<Self, StateError> {
        let zones = zoneinfo::read(&files.zoneinfo)?;
        let buddies = files.buddyinfo.as_deref().map(buddyinfo::read_buddyinfo).transpose()?;
        let types = files.pagetypeinfo.as_deref().map(buddyinfo::read_pagetypeinfo).transpose()?;
        Self::new(zones, buddies.as_deref(), types.as_ref(), page_size)
    }
}

/// Where the three files are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// The zones; always needed.
    pub zoneinfo: std::path::PathBuf,
    /// Free chunks, where there is such a file.
    pub buddyinfo: Option<std::path::PathBuf>,
    /// Free chunks and blocks by type, where there is such a file that may be read.
    pub pagetypeinfo: Option<std::path::PathBuf>,
}

impl Files {
    /// Those of a directory: `zoneinfo` as in `/proc`, or copies called `zoneinfo.txt` or
    /// `NAME.zoneinfo.before.txt`; `None` where there is no zoneinfo. Of several copies the first
    /// by name is taken, and its neighbours.
    #[must_use]
    pub fn in_directory(directory: &Path) -> Option<Self> {
        let proc = directory.join("zoneinfo");
        if proc.is_file() {
            return Some(Self::beside(&proc));
        }
        let mut found: Vec<_> = std::fs::read_dir(directory)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                name.is_some_and(|name| name.contains("zoneinfo")) && path.is_file()
            })
            .collect();
        // Copies from before a recording come before those from after it.
        found.sort_by_key(|path| (path.to_string_lossy().contains(".after."), path.clone()));
        found.first().map(|path| Self::beside(path))
    }

    /// The zoneinfo, and what is called like it.
    #[must_use]
    pub fn beside(zoneinfo: &Path) -> Self {
        let name = zoneinfo.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A pagetypeinfo is root's alone: one that may not be read is none.
        let like = |kind: &str| {
            let path = zoneinfo.with_file_name(name.replace("zoneinfo", kind));
            std::fs::File::open(&path).is_ok().then_some(path)
        };
        Self {
            zoneinfo: zoneinfo.to_owned(),
            buddyinfo: like("buddyinfo"),
            pagetypeinfo: like("pagetypeinfo"),
        }
    }
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
        mut info: Zone,
        buddies: Option<&[ZoneFree]>,
        types: Option<&PageTypeInfo>,
    ) -> Result<Self, StateError> {
        let buddy = buddies
            .map(|zones| {
                let of = zones.iter().find(|of| of.node == info.node && of.zone == info.name);
                of.ok_or_else(|| missing("buddyinfo", &info))
            })
            .transpose()?;
        let by_type = types.map(|types| types_of(types, &info)).transpose()?.unwrap_or_default();
        let zone = format!("zone {}", info.name);
        let mut chunks = buddy.map_or_else(Vec::new, |of| of.chunks.clone());
        if chunks.is_empty() {
            for of in &by_type {
                chunks.resize(of.chunks.len().max(chunks.len()), 0);
                for (order, (sum, &n)) in chunks.iter_mut().zip(&of.chunks).enumerate() {
                    let what = || format!("free chunks of order {order}");
                    *sum = total([*sum, n], &zone, what)?;
                }
            }
        }
        let state = Self { info, chunks, types: by_type };
        state.holds_together(buddy.is_some(), types.map(|types| types.pageblock_order))?;
        let cma = state.of(Migratetype::Cma).map_or(0, |of| of.blocks);
        info = state.info;
        if let (false, Some(types)) = (info.says_cma, types) {
            info.cma = cma.saturating_mul(types.pageblock_order.frames()).min(info.managed);
        }
        Ok(Self { info, ..state })
    }

    /// Whether the files can be of one zone.
    fn holds_together(&self, counted: bool, block: Option<Order>) -> Result<(), StateError> {
        let Zone { name, managed, free, spanned, .. } = &self.info;
        let near = managed / APART;
        let by_type = self.types.iter().map(|of| frames(&of.chunks));
        let zone = format!("zone {name}");
        let by_type = total(by_type, &zone, || "free pages".to_owned())?;
        let mixed = self.types.iter().filter_map(|of| of.mixed);
        total(mixed, &zone, || "mixed pageblocks".to_owned())?;
        let at_least = self.types.iter().any(|of| of.at_least);
        let differ = |one: u64, other: u64| one.abs_diff(other) > near;
        let apart = |what: &str, n: u64, other: &str, m: u64| {
            Err(contradiction(format!(
                "zone {name}: {what} has {n} pages free, {other} {m}: that is more than 1 % of its \
                 {managed} pages"
            )))
        };
        if counted && differ(frames(&self.chunks), *free) {
            return apart("buddyinfo", frames(&self.chunks), "zoneinfo", *free);
        }
        if !self.types.is_empty() && !at_least && differ(by_type, self.free()) {
            return apart("pagetypeinfo", by_type, "buddyinfo", self.free());
        }
        let Some(block) = block else { return Ok(()) };
        // Blocks without any memory are not counted, blocks in part without it are.
        let blocks = self.types.iter().map(|of| of.blocks);
        let blocks = total(blocks, &zone, || "pageblocks".to_owned())?;
        let size = blocks.saturating_mul(block.frames());
        let most = spanned.saturating_add(spanned / 10).saturating_add(2 * block.frames());
        if size < managed - managed / 10 || size > most {
            return Err(contradiction(format!(
                "zone {name}: {blocks} pageblocks of order {} are {size} pages; zoneinfo has \
                 {managed} managed and {spanned} spanned",
                block.get()
            )));
        }
        Ok(())
    }
}

/// The types of one zone.
fn types_of(types: &PageTypeInfo, zone: &Zone) -> Result<Vec<TypeState>, StateError> {
    let is = |node: u32, name: &str| node == zone.node && name == zone.name;
    let blocks = types.blocks.iter().find(|of| is(of.node, &of.zone));
    let blocks = blocks.ok_or_else(|| missing("pagetypeinfo", zone))?;
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
    Ok(blocks.blocks.iter().map(state).collect())
}

fn missing(file: &str, zone: &Zone) -> StateError {
    contradiction(format!("{file} has no zone {} of node {}, zoneinfo has", zone.name, zone.node))
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
