//! `/proc/buddyinfo` and `/proc/pagetypeinfo`: the free chunks of each zone by order, and by
//! migratetype; the pageblocks by migratetype.
//!
//! ```text
//!  buddyinfo     Node 0, zone   Normal   6376   1860    689 ...            <- chunks of order 0, 1, 2, ...
//!  pagetypeinfo  Node    0, zone   Normal, type      Movable      0 ...    <- the same by type
//!                Number of blocks type     Unmovable      Movable ...
//!                Node 0, zone   Normal          566         4130 ...       <- pageblocks by type
//! ```
//!
//! How many orders there are, the order of a pageblock and which types there are differ between
//! kernels: orders 0 to 13 and blocks of order 13 with pages of 64 KiB on arm64, 0 to 8 on ppc64;
//! `Reserve` before 4.4.

use freehold::{Migratetype, Order};

use super::error::StateError;
use super::kernel::TypeNumbers;
use super::zoneinfo::{clip, is_room, zone_header};

/// Free chunks of one zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneFree {
    /// The memory node.
    pub node: u32,
    /// The zone's name.
    pub zone: String,
    /// Chunks by order.
    pub chunks: Vec<u64>,
}

/// Free chunks of one zone and type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeFree {
    /// The memory node.
    pub node: u32,
    /// The zone's name.
    pub zone: String,
    /// The type of the lists.
    pub of: BlockType,
    /// Chunks by order.
    pub chunks: Vec<u64>,
    /// Whether a count is a lower bound: the kernel stops counting a list at 100,000 and prints
    /// `>100000`.
    pub at_least: bool,
}

/// A type as `/proc/pagetypeinfo` names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockType {
    /// One that kernels still have.
    Of(Migratetype),
    /// Blocks that every type fell back to last; replaced by HighAtomic in 4.4.
    Reserve,
    /// Samsung's: blocks of a device's memory that some pages of files may have meanwhile.
    Rbin,
}

impl BlockType {
    /// The name, as the kernel prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Of(migratetype) => migratetype.name(),
            Self::Reserve => "Reserve",
            Self::Rbin => "Rbin",
        }
    }
}

/// Pageblocks of one zone by type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeBlocks {
    /// The memory node.
    pub node: u32,
    /// The zone's name.
    pub zone: String,
    /// Pageblocks of each type, in the order of the types' numbers.
    pub blocks: Vec<(BlockType, u64)>,
}

/// The whole of `/proc/pagetypeinfo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageTypeInfo {
    /// The order of a pageblock.
    pub pageblock_order: Order,
    /// Free chunks.
    pub free: Vec<TypeFree>,
    /// Pageblocks.
    pub blocks: Vec<TypeBlocks>,
    /// Pageblocks in which something of another type is allocated, by the block's type. Only
    /// kernels with `page_owner` count them.
    pub mixed: Vec<TypeBlocks>,
}

impl PageTypeInfo {
    /// The numbers of the types in this kernel: its columns are in their order.
    #[must_use]
    pub fn numbers(&self) -> Option<TypeNumbers> {
        let types = &self.blocks.first()?.blocks;
        TypeNumbers::in_order(types.iter().map(|(of, _)| match of {
            BlockType::Of(migratetype) => *migratetype,
            BlockType::Reserve => Migratetype::HighAtomic,
            BlockType::Rbin => Migratetype::Cma,
        }))
    }

    /// The largest order whose free chunks are counted.
    #[must_use]
    pub fn max_order(&self) -> usize {
        self.free.iter().map(|of| of.chunks.len()).max().unwrap_or(1).saturating_sub(1)
    }
}

/// Parses the text of `/proc/buddyinfo`.
///
/// # Errors
///
/// [`StateError::BadLine`].
pub fn parse_buddyinfo(text: &str) -> Result<Vec<ZoneFree>, StateError> {
    let mut zones = Vec::new();
    for (number, line) in (1u64..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |why: String| StateError::bad_line("buddyinfo", number, why);
        let (node, zone, numbers) = zone_line(line).ok_or_else(|| bad(unexpected(line)))?;
        let (chunks, at_least) = counts(numbers).map_err(bad)?;
        if at_least {
            return Err(bad(format!("buddyinfo counts exactly, not with `>`: `{}`", clip(line))));
        }
        if zones.iter().any(|of: &ZoneFree| of.node == node && of.zone == zone) {
            return Err(bad(format!("zone {zone} of node {node} stands here twice")));
        }
        is_room(zones.len(), 1).map_err(bad)?;
        let orders = zones.first().map_or(chunks.len(), |of| of.chunks.len());
        if orders != chunks.len() {
            let n = chunks.len();
            return Err(bad(format!("{n} orders; {orders} in the lines above: is the line cut?")));
        }
        zones.push(ZoneFree { node, zone: zone.to_owned(), chunks });
    }
    if zones.is_empty() {
        return Err(StateError::bad_line("buddyinfo", 1, "no zone in it"));
    }
    Ok(zones)
}

/// Parses the text of `/proc/pagetypeinfo`.
///
/// # Errors
///
/// [`StateError::BadLine`]: a line that makes no sense, a zone twice, types or orders that differ
/// between the lines of one file, or a file that is not complete.
pub fn parse_pagetypeinfo(text: &str) -> Result<PageTypeInfo, StateError> {
    let mut sections = Sections::default();
    let mut last = 1;
    for (number, line) in (1u64..).zip(text.lines()) {
        last = number;
        let bad = |why| StateError::bad_line("pagetypeinfo", number, why);
        sections.line(line.trim()).map_err(bad)?;
    }
    sections.finish().map_err(|why| StateError::bad_line("pagetypeinfo", last, why))
}

/// What has been read of a pagetypeinfo.
#[derive(Default)]
struct Sections {
    order: Option<Order>,
    free: Vec<TypeFree>,
    blocks: Vec<TypeBlocks>,
    mixed: Vec<TypeBlocks>,
    /// The types that the columns of the section in hand stand for.
    columns: Vec<BlockType>,
    in_mixed: bool,
}

impl Sections {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(value) = line.strip_prefix("Page block order:") {
            let value = value.trim();
            let parsed = value.parse().ok().and_then(Order::new);
            self.order =
                Some(parsed.ok_or_else(|| format!("`{value}` is not an order (0 to 18)"))?);
        } else if let Some(value) = line.strip_prefix("Pages per block:") {
            let expected = self.order.map(Order::frames);
            if value.trim().parse().ok() != expected {
                return Err(format!("{line}: that is no pageblock of the order above"));
            }
        } else if let Some(names) = line.strip_prefix("Number of blocks type") {
            self.columns = names.split_whitespace().map(type_named).collect::<Result<_, _>>()?;
        } else if line.starts_with("Number of mixed blocks") {
            self.in_mixed = true;
        } else if line.starts_with("Node") {
            match line.split_once(", type") {
                Some((place, rest)) => self.free_line(line, place, rest)?,
                None => self.block_line(line)?,
            }
        } else if !line.is_empty() && !line.starts_with("Free pages count per migrate type") {
            return Err(format!("`{}` is not a line of a pagetypeinfo", clip(line)));
        }
        Ok(())
    }

    fn free_line(&mut self, line: &str, place: &str, rest: &str) -> Result<(), String> {
        let (node, zone, rest_of_name) = zone_line(place).ok_or_else(|| unexpected(line))?;
        let rest = rest.trim_start();
        let (name, numbers) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if !rest_of_name.is_empty() {
            return Err(unexpected(line));
        }
        let of = type_named(name)?;
        let (chunks, at_least) = counts(numbers)?;
        if let Some(before) = self.free.first().filter(|f| f.chunks.len() != chunks.len()) {
            let (now, then) = (chunks.len(), before.chunks.len());
            return Err(format!("{now} orders; {then} in the lines above: is the line cut?"));
        }
        if self.free.iter().any(|f| f.node == node && f.zone == zone && f.of == of) {
            return Err(format!("type {name} of zone {zone} stands here twice"));
        }
        is_room(self.free.len(), Migratetype::ALL.len())?;
        self.free.push(TypeFree { node, zone: zone.to_owned(), of, chunks, at_least });
        Ok(())
    }

    fn block_line(&mut self, line: &str) -> Result<(), String> {
        let (node, zone, numbers) = zone_line(line).ok_or_else(|| unexpected(line))?;
        if self.columns.is_empty() {
            return Err("counts before `Number of blocks type`".into());
        }
        let (values, _) = counts(numbers)?;
        let types = &self.columns;
        if values.len() != types.len() {
            return Err(format!("{} counts for {} types", values.len(), types.len()));
        }
        let blocks = types.iter().copied().zip(values).collect();
        let into = if self.in_mixed { &mut self.mixed } else { &mut self.blocks };
        if into.iter().any(|of| of.node == node && of.zone == zone) {
            return Err(format!("zone {zone} of node {node} stands here twice"));
        }
        is_room(into.len(), 1)?;
        into.push(TypeBlocks { node, zone: zone.to_owned(), blocks });
        Ok(())
    }

    fn finish(self) -> Result<PageTypeInfo, String> {
        let Self { order, free, blocks, mixed, .. } = self;
        let complete = |of: &&TypeBlocks| {
            free.iter().filter(|f| f.node == of.node && f.zone == of.zone).count()
                == of.blocks.len()
        };
        match order {
            Some(pageblock_order) if !free.is_empty() && !blocks.is_empty() => {
                if let Some(zone) = blocks.iter().find(|zone| !complete(zone)) {
                    return Err(format!(
                        "the free counts of zone {} are not those of all its types: is the file cut?",
                        zone.zone
                    ));
                }
                Ok(PageTypeInfo { pageblock_order, free, blocks, mixed })
            }
            _ => Err(
                "the pageblock order, the free counts or the blocks are missing: is the file cut?"
                    .into(),
            ),
        }
    }
}

/// Frames in free chunks by order, at most `u64::MAX`.
pub(super) fn frames(chunks: &[u64]) -> u64 {
    chunks
        .iter()
        .enumerate()
        .fold(0, |all, (order, &n)| all.saturating_add(n.saturating_mul(1 << order)))
}

/// The node, the zone's name, and what follows it.
fn zone_line(line: &str) -> Option<(u32, &str, &str)> {
    let (node, rest) = zone_header(line.trim())?;
    let (zone, numbers) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    Some((node?, zone, numbers.trim()))
}

/// Numbers, at most one an order; whether any is only a lower bound.
fn counts(text: &str) -> Result<(Vec<u64>, bool), String> {
    let mut at_least = false;
    let mut values = Vec::new();
    for word in text.split_whitespace() {
        let digits = word.strip_prefix('>').inspect(|_| at_least = true).unwrap_or(word);
        values.push(digits.parse().map_err(|_| format!("`{}` is not a count", clip(word)))?);
    }
    match values.len() {
        0 => Err("no counts".into()),
        n if n > Order::MAX.index() + 1 => {
            Err(format!("{n} counts; there are {} orders", Order::MAX.index() + 1))
        }
        _ => Ok((values, at_least)),
    }
}

fn type_named(name: &str) -> Result<BlockType, String> {
    let known = Migratetype::ALL
        .into_iter()
        .map(BlockType::Of)
        .chain([BlockType::Reserve, BlockType::Rbin]);
    known
        .into_iter()
        .find(|of| of.name() == name)
        .ok_or_else(|| format!("`{}` is not a migratetype", clip(name)))
}

fn unexpected(line: &str) -> String {
    format!("`Node 0, zone NAME` and counts were expected, not `{}`", clip(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: &str = "Page block order: 9\nPages per block:  512\n\nFree pages count per migrate type at order  0  1 \n\
        Node    0, zone   Normal, type    Unmovable      1 >100000 \n\
        Node    0, zone   Normal, type      Movable      7      0 \n\
        Node    0, zone   Normal, type  Reclaimable      0      0 \n\
        Node    0, zone   Normal, type   HighAtomic      0      0 \n\
        Node    0, zone   Normal, type          CMA      0      0 \n\
        Node    0, zone   Normal, type      Isolate      0      0 \n\n\
        Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic          CMA      Isolate \n\
        Node 0, zone   Normal          566         4130          424            0           16            0 \n";

    #[test]
    fn buddyinfo_by_order() {
        let zones = parse_buddyinfo(
            "Node 0, zone      DMA      1      0      2 \nNode 300, zone   Normal 5 0 0\n",
        )
        .unwrap();
        assert_eq!(zones[0], ZoneFree { node: 0, zone: "DMA".into(), chunks: vec![1, 0, 2] });
        assert_eq!(frames(&zones[0].chunks), 9);
        assert_eq!(zones[1].node, 300);
    }

    #[test]
    fn pagetypeinfo_by_type() {
        let info = parse_pagetypeinfo(TYPES).unwrap();
        assert_eq!(info.pageblock_order, Order::PAGEBLOCK);
        assert_eq!(info.free.len(), 6);
        assert!(info.free[0].at_least && !info.free[1].at_least);
        assert_eq!(frames(&info.free[0].chunks), 200_001);
        let blocks: Vec<u64> = info.blocks[0].blocks.iter().map(|(_, blocks)| *blocks).collect();
        assert_eq!(blocks, [566, 4130, 424, 0, 16, 0]);
        let mixed = "Number of mixed blocks Unmovable Movable Reclaimable HighAtomic CMA Isolate\n\
                     Node 0, zone Normal 3 5 0 0 1 0\n";
        let mixed = parse_pagetypeinfo(&format!("{TYPES}\n{mixed}")).unwrap();
        assert_eq!(
            (&mixed.blocks, mixed.mixed[0].blocks[4]),
            (&info.blocks, (BlockType::Of(Migratetype::Cma), 1))
        );
        let vendors = parse_pagetypeinfo(&TYPES.replace("HighAtomic", "Rbin")).unwrap();
        assert_eq!(vendors.blocks[0].blocks[3], (BlockType::Rbin, 0));
        assert_eq!(vendors.numbers().unwrap().get(3), Some(Migratetype::Cma));
    }

    #[test]
    fn errors_name_the_line() {
        let message = |text: &str| parse_pagetypeinfo(text).unwrap_err().to_string();
        assert_eq!(
            message(&TYPES.replace("   4130", "   many")),
            "pagetypeinfo: line 13: `many` is not a count"
        );
        assert_eq!(
            message(&TYPES.replace("CMA", "Odd")),
            "pagetypeinfo: line 9: `Odd` is not a migratetype"
        );
        assert_eq!(
            message(&TYPES.replace("order: 9", "order: 99")),
            "pagetypeinfo: line 1: `99` is not an order (0 to 18)"
        );
        assert!(message("").starts_with("pagetypeinfo: line 1: the pageblock order"));
        let message = |text: &str| parse_buddyinfo(text).unwrap_err().to_string();
        assert_eq!(message("\nNode 0, zone Normal 1 x\n"), "buddyinfo: line 2: `x` is not a count");
        assert_eq!(message("Node 0, zone Normal\n"), "buddyinfo: line 1: no counts");
        assert_eq!(message(""), "buddyinfo: line 1: no zone in it");
    }
}
