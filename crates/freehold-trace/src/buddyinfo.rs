//! `/proc/buddyinfo` and `/proc/pagetypeinfo`: the free chunks of each zone by order, and by
//! migratetype; the pageblocks by migratetype.
//!
//! ```text
//!  buddyinfo     Node 0, zone   Normal   6376   1860    689 ...            <- chunks of order 0, 1, 2, ...
//!  pagetypeinfo  Node    0, zone   Normal, type      Movable      0 ...    <- the same by type
//!                Number of blocks type     Unmovable      Movable ...
//!                Node 0, zone   Normal          566         4130 ...       <- pageblocks by type
//! ```

use std::path::Path;

use freehold::{Migratetype, NodeId, Order};

use super::error::StateError;
use super::zoneinfo::{clip, zone_header};

/// Free chunks of one zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneFree {
    /// The memory node.
    pub node: NodeId,
    /// The zone's name.
    pub zone: String,
    /// Chunks by order.
    pub chunks: Vec<u64>,
}

impl ZoneFree {
    /// All of them together, in frames.
    #[must_use]
    pub fn frames(&self) -> u64 {
        frames(&self.chunks)
    }
}

/// Free chunks of one zone and type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeFree {
    /// The memory node.
    pub node: NodeId,
    /// The zone's name.
    pub zone: String,
    /// The type of the lists.
    pub migratetype: Migratetype,
    /// Chunks by order.
    pub chunks: Vec<u64>,
    /// Whether a count is a lower bound: the kernel stops counting a list at 100,000 and prints
    /// `>100000`.
    pub at_least: bool,
}

impl TypeFree {
    /// All of them together, in frames.
    #[must_use]
    pub fn frames(&self) -> u64 {
        frames(&self.chunks)
    }
}

/// Pageblocks of one zone by type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeBlocks {
    /// The memory node.
    pub node: NodeId,
    /// The zone's name.
    pub zone: String,
    /// Pageblocks, indexed by the type's number.
    pub blocks: [u64; Migratetype::ALL.len()],
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
}

/// Parses the text of `/proc/buddyinfo`.
///
/// # Errors
///
/// [`StateError::BadLine`].
pub fn parse_buddyinfo(text: &str) -> Result<Vec<ZoneFree>, StateError> {
    let mut zones = Vec::new();
    for (number, line) in (1u64..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |why: String| StateError::BadLine { file: "buddyinfo".into(), line: number, why };
        let (node, zone, numbers) = zone_line(line).ok_or_else(|| bad(unexpected(line)))?;
        let (chunks, at_least) = counts(numbers).map_err(bad)?;
        if at_least {
            return Err(bad(format!("buddyinfo counts exactly, not with `>`: `{}`", clip(line))));
        }
        zones.push(ZoneFree { node, zone: zone.to_owned(), chunks });
    }
    if zones.is_empty() {
        return Err(StateError::BadLine {
            file: "buddyinfo".into(),
            line: 1,
            why: "no zone in it".into(),
        });
    }
    Ok(zones)
}

/// Parses the text of `/proc/pagetypeinfo`. A section on mixed blocks (`page_owner`) is passed
/// over.
///
/// # Errors
///
/// [`StateError::BadLine`].
pub fn parse_pagetypeinfo(text: &str) -> Result<PageTypeInfo, StateError> {
    let mut order = None;
    let mut free = Vec::new();
    let mut blocks = Vec::new();
    // The types that the columns of the second section stand for.
    let mut header: Option<Vec<Migratetype>> = None;
    let mut last = 1;
    for (number, line) in (1u64..).zip(text.lines()) {
        let bad =
            |why: String| StateError::BadLine { file: "pagetypeinfo".into(), line: number, why };
        last = number;
        let line = line.trim();
        if let Some(value) = line.strip_prefix("Page block order:") {
            let value = value.trim();
            let parsed = value.parse().ok().and_then(Order::new);
            order = Some(parsed.ok_or_else(|| bad(format!("`{value}` is no order (0 to 18)")))?);
        } else if let Some(names) = line.strip_prefix("Number of blocks type") {
            header = Some(
                names.split_whitespace().map(type_named).collect::<Result<_, _>>().map_err(bad)?,
            );
        } else if line.starts_with("Number of mixed blocks") {
            break;
        } else if line.starts_with("Node") {
            if let Some((place, rest)) = line.split_once(", type") {
                let (node, zone, rest_of_name) =
                    zone_line(place).ok_or_else(|| bad(unexpected(line)))?;
                let rest = rest.trim_start();
                let (name, numbers) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                if !rest_of_name.is_empty() {
                    return Err(bad(unexpected(line)));
                }
                let migratetype = type_named(name).map_err(bad)?;
                let (chunks, at_least) = counts(numbers).map_err(bad)?;
                free.push(TypeFree { node, zone: zone.to_owned(), migratetype, chunks, at_least });
            } else {
                let (node, zone, numbers) = zone_line(line).ok_or_else(|| bad(unexpected(line)))?;
                let types = header
                    .as_ref()
                    .ok_or_else(|| bad("counts before `Number of blocks type`".into()))?;
                let (values, _) = counts(numbers).map_err(bad)?;
                if values.len() != types.len() {
                    return Err(bad(format!("{} counts for {} types", values.len(), types.len())));
                }
                let mut of_zone =
                    TypeBlocks { node, zone: zone.to_owned(), blocks: [0; Migratetype::ALL.len()] };
                for (migratetype, value) in types.iter().zip(values) {
                    of_zone.blocks[migratetype.index()] = value;
                }
                blocks.push(of_zone);
            }
        }
    }
    match order {
        Some(pageblock_order) if !free.is_empty() && !blocks.is_empty() => {
            Ok(PageTypeInfo { pageblock_order, free, blocks })
        }
        _ => {
            let why =
                "the pageblock order, the free counts or the blocks are missing: is the file cut?"
                    .into();
            Err(StateError::BadLine { file: "pagetypeinfo".into(), line: last, why })
        }
    }
}

/// Reads and parses a copy of `/proc/buddyinfo`.
///
/// # Errors
///
/// As [`parse_buddyinfo`], and [`StateError::Io`].
pub fn read_buddyinfo(path: &Path) -> Result<Vec<ZoneFree>, StateError> {
    StateError::in_file(path, parse_buddyinfo)
}

/// Reads and parses a copy of `/proc/pagetypeinfo`.
///
/// # Errors
///
/// As [`parse_pagetypeinfo`], and [`StateError::Io`].
pub fn read_pagetypeinfo(path: &Path) -> Result<PageTypeInfo, StateError> {
    StateError::in_file(path, parse_pagetypeinfo)
}

fn frames(chunks: &[u64]) -> u64 {
    chunks
        .iter()
        .enumerate()
        .fold(0, |all, (order, &n)| all.saturating_add(n.saturating_mul(1 << order)))
}

/// The node, the zone's name, and what follows it.
fn zone_line(line: &str) -> Option<(NodeId, &str, &str)> {
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

fn type_named(name: &str) -> Result<Migratetype, String> {
    let known = Migratetype::ALL.into_iter().find(|mt| mt.name() == name);
    known.ok_or_else(|| format!("`{}` is no migratetype", clip(name)))
}

fn unexpected(line: &str) -> String {
    format!("`Node 0, zone NAME` and counts were expected, not `{}`", clip(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: &str = "Page block order: 9\nPages per block:  512\n\nFree pages count per migrate type at order  0  1 \n\
        Node    0, zone   Normal, type    Unmovable      1 >100000 \n\
        Node    0, zone   Normal, type      Movable      7      0 \n\n\
        Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic          CMA      Isolate \n\
        Node 0, zone   Normal          566         4130          424            0           16            0 \n";

    #[test]
    fn buddyinfo_by_order() {
        let zones = parse_buddyinfo(
            "Node 0, zone      DMA      1      0      2 \nNode 1, zone   Normal 5\n",
        )
        .unwrap();
        assert_eq!(
            zones[0],
            ZoneFree { node: NodeId::new(0), zone: "DMA".into(), chunks: vec![1, 0, 2] }
        );
        assert_eq!(zones[0].frames(), 9);
        assert_eq!(zones[1].node, NodeId::new(1));
    }

    #[test]
    fn pagetypeinfo_by_type() {
        let info = parse_pagetypeinfo(TYPES).unwrap();
        assert_eq!(info.pageblock_order, Order::PAGEBLOCK);
        assert_eq!(info.free.len(), 2);
        assert!(info.free[0].at_least && !info.free[1].at_least);
        assert_eq!(info.free[0].frames(), 200_001);
        assert_eq!(info.blocks[0].blocks, [566, 4130, 424, 0, 16, 0]);
    }

    #[test]
    fn errors_name_the_line() {
        let message = |text: &str| parse_pagetypeinfo(text).unwrap_err().to_string();
        assert_eq!(
            message(&TYPES.replace("   4130", "   many")),
            "pagetypeinfo: line 9: `many` is not a count"
        );
        assert_eq!(
            message(&TYPES.replace("CMA", "Odd")),
            "pagetypeinfo: line 8: `Odd` is no migratetype"
        );
        assert_eq!(
            message(&TYPES.replace("order: 9", "order: 99")),
            "pagetypeinfo: line 1: `99` is no order (0 to 18)"
        );
        assert!(message("").starts_with("pagetypeinfo: line 1: the pageblock order"));
        let message = |text: &str| parse_buddyinfo(text).unwrap_err().to_string();
        assert_eq!(message("\nNode 0, zone Normal 1 x\n"), "buddyinfo: line 2: `x` is not a count");
        assert_eq!(message("Node 0, zone Normal\n"), "buddyinfo: line 1: no counts");
        assert_eq!(message(""), "buddyinfo: line 1: no zone in it");
    }

    #[test]
    fn cutting_anywhere_never_panics() {
        for end in 0..TYPES.len() {
            let _ = parse_pagetypeinfo(&TYPES[..end]);
            let _ = parse_buddyinfo(&TYPES[..end]);
        }
    }
}
