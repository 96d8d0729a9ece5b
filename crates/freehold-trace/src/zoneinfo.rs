//! `/proc/zoneinfo`: the zones of a machine, their watermarks, and what each CPU holds of them.
//!
//! ```text
//!  Node 0, zone   Normal          <- a zone begins
//!    pages free     1969449
//!          min      13033         <- plain names: of the zone
//!    ...
//!    pagesets
//!      cpu: 0
//!                count:    3588   <- names with a colon: of the CPU's lists
//!                high:     137167
//!    start_pfn:           1048576
//! ```
//!
//! Kernels differ in what they print: `cma`, `boost` and `promo` are younger than the rest,
//! `high_min` and `high_max` came with 6.7; zones without memory end early. What is missing has a
//! default; names not known are passed over.

use std::path::{Path, PathBuf};

use freehold::{CpuId, Pfn};

use super::error::StateError;
use super::packed::ENDS;
use super::source::Source;

/// One zone. All amounts are frames.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Zone {
    /// The memory node it belongs to.
    pub node: u32,
    /// `DMA`, `DMA32`, `Normal`, `Movable`, `Device`, `HighMem`.
    pub name: String,
    /// Free, without what CPUs hold.
    pub free: u64,
    /// The temporary raise of all watermarks; 0 where the kernel does not print it.
    pub boost: u64,
    /// The min watermark, without boost.
    pub min: u64,
    /// The low watermark, without boost: kswapd starts.
    pub low: u64,
    /// The high watermark, without boost: kswapd stops.
    pub high: u64,
    /// From the first frame to the last, holes included.
    pub spanned: u64,
    /// Without holes.
    pub present: u64,
    /// What the page allocator manages; `present` where the kernel does not say.
    pub managed: u64,
    /// In CMA pageblocks; 0 before 5.12, which does not print it.
    pub cma: u64,
    /// Whether `cma` was printed.
    pub says_cma: bool,
    /// Of `free`, in CMA pageblocks (`nr_free_cma`), where the kernel says so.
    pub free_cma: Option<u64>,
    /// Frames kept from requests that could use a higher zone (`lowmem_reserve`), by that zone's
    /// index.
    pub protection: Vec<u64>,
    /// The first frame; unknown for zones without memory.
    pub start_pfn: Option<Pfn>,
    /// What each CPU holds.
    pub pagesets: Vec<Pageset>,
    /// What all CPUs hold together, where only that is said.
    pub held: Option<u64>,
}

impl Zone {
    /// Whether a frame lies in it, or in one of its holes.
    #[must_use]
    pub fn contains(&self, pfn: Pfn) -> bool {
        let start = self.start_pfn.unwrap_or_default();
        pfn >= start && pfn.get() - start.get() < self.spanned
    }

    /// Kernels print the marks as they are while they are raised.
    pub(super) fn without_boost(self) -> Self {
        let [min, low, high] =
            [self.min, self.low, self.high].map(|mark| mark.saturating_sub(self.boost));
        Self { min, low, high, ..self }
    }
}

/// What one CPU holds of a zone. All amounts are frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pageset {
    /// The CPU.
    pub cpu: CpuId,
    /// Held now.
    pub count: u64,
    /// The current limit: above it frames go back to the zone.
    pub high: u64,
    /// Moved at a time.
    pub batch: u64,
    /// The least `high` may be tuned to; 6.7 and later.
    pub high_min: Option<u64>,
    /// The most `high` may be tuned to; 6.7 and later.
    pub high_max: Option<u64>,
}

/// Parses the text of `/proc/zoneinfo`.
///
/// # Errors
///
/// [`StateError::BadLine`]: a number that is none, a zone without its size or watermarks, or no
/// zone at all.
pub fn parse(text: &str) -> Result<Vec<Zone>, StateError> {
    let mut zones: Vec<Partial> = Vec::new();
    let mut last_line = 0;
    for (number, line) in (1u64..).zip(text.lines()) {
        last_line = number;
        let bad = |why: String| StateError::bad_line("zoneinfo", number, why);
        let line = line.trim();
        if let Some((node, name)) = zone_header(line) {
            let node = node.ok_or_else(|| bad(format!("no zone's name: `{line}`")))?;
            if zones.iter().any(|of| of.zone.node == node && of.zone.name == name) {
                return Err(bad(format!("zone {name} of node {node} stands here twice")));
            }
            is_room(zones.len(), 1).map_err(bad)?;
            zones.push(Partial {
                zone: Zone { node, name: name.to_owned(), ..Zone::default() },
                header_line: number,
                ..Partial::default()
            });
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let Some(current) = zones.last_mut() else {
            return Err(bad(format!(
                "a zone was expected (`Node 0, zone ...`), not `{}`",
                clip(line)
            )));
        };
        current.line(line).map_err(bad)?;
    }
    if zones.is_empty() {
        let why = "no zone in it (`Node 0, zone ...`)";
        return Err(StateError::bad_line("zoneinfo", last_line.max(1), why));
    }
    zones.into_iter().map(Partial::finish).collect()
}

/// The description that stands beside a trace, if there is one: for `DIR/NAME.parquet` and `what` =
/// `zoneinfo` the first of `DIR/NAME.zoneinfo.before.txt`, `DIR/NAME.zoneinfo.txt` and
/// `DIR/NAME.zoneinfo` that exists.
#[must_use]
pub fn beside(trace: &Path, what: &str) -> Option<PathBuf> {
    let name = Source::Path(trace.to_owned()).name();
    let mut copies = ENDS.iter().map(|end| trace.with_file_name(format!("{name}.{what}{end}")));
    copies.find(|path| path.is_file())
}

/// `Node 0, zone   Normal` and what follows; the node is `None` where the line only begins like
/// that.
pub(super) fn zone_header(line: &str) -> Option<(Option<u32>, &str)> {
    let rest = line.strip_prefix("Node ")?;
    let split = rest.split_once(',').and_then(|(node, rest)| {
        let name = rest.trim_start().strip_prefix("zone")?;
        Some((node.trim().parse().ok()?, name.trim()))
    });
    Some(match split {
        Some((node, name)) if !name.is_empty() => (Some(node), name),
        _ => (None, ""),
    })
}

/// The beginning of a line, for a message.
pub(super) fn clip(line: &str) -> String {
    super::error::snippet(line.as_bytes())
}

/// A zone whose lines are still being read.
#[derive(Default)]
struct Partial {
    zone: Zone,
    header_line: u64,
    in_pagesets: bool,
    managed: Option<u64>,
    /// Which of the values that every kernel prints have been seen.
    seen: [bool; REQUIRED.len()],
}

/// The most that a CPU counts before it adds it to a zone's sum (`stat_threshold`).
const DRIFT: u64 = 125;
/// The most zones that are read: six of each of 1,024 nodes, the most that Linux has.
const ZONES_MAX: usize = 6 * 1024;

/// Refuses a zone beyond the most there can be, where those before it have `each` lines each.
pub(super) fn is_room(lines: usize, each: usize) -> Result<(), String> {
    (lines < ZONES_MAX * each).then_some(()).ok_or_else(|| "more zones than Linux has".to_owned())
}

const REQUIRED: [&str; 6] = ["pages free", "min", "low", "high", "spanned", "present"];

impl Partial {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if line == "pagesets" {
            self.in_pagesets = true;
            return Ok(());
        }
        let (key, value) = match line.rsplit_once(char::is_whitespace) {
            Some((key, value)) => (key.trim_end(), value),
            None => return Ok(()),
        };
        let amount = |key: &str| {
            value.parse::<u64>().map_err(|_| format!("{key} is `{value}`, not a number of frames"))
        };
        if let Some(list) =
            line.strip_prefix("protection: (").and_then(|rest| rest.strip_suffix(')'))
        {
            let parse = |part: &str| {
                part.trim().parse().map_err(|_| format!("protection has `{}`", clip(part)))
            };
            self.zone.protection = list.split(',').map(parse).collect::<Result<_, _>>()?;
            return Ok(());
        }
        if key == "start_pfn:" {
            self.zone.start_pfn = Some(Pfn::new(amount(key)?));
            return Ok(());
        }
        if self.in_pagesets {
            if key == "cpu:" {
                let cpu =
                    value.parse().map_err(|_| format!("cpu is `{value}`, not a CPU number"))?;
                self.zone.pagesets.push(Pageset { cpu: CpuId::new(cpu), ..Pageset::default() });
            } else if let Some(pageset) = self.zone.pagesets.last_mut() {
                match key {
                    "count:" => pageset.count = amount(key)?,
                    "high:" => pageset.high = amount(key)?,
                    "batch:" => pageset.batch = amount(key)?,
                    "high_min:" => pageset.high_min = Some(amount(key)?),
                    "high_max:" => pageset.high_max = Some(amount(key)?),
                    _ => {}
                }
            }
            return Ok(());
        }
        if let Some(at) = REQUIRED.iter().position(|name| *name == key) {
            if std::mem::replace(&mut self.seen[at], true) {
                return Err(format!("`{key}` stands here twice: is a zone's first line missing?"));
            }
        }
        let zone = &mut self.zone;
        match key {
            "pages free" => zone.free = amount(key)?,
            "boost" => zone.boost = amount(key)?,
            "min" => zone.min = amount(key)?,
            "low" => zone.low = amount(key)?,
            "high" => zone.high = amount(key)?,
            "spanned" => zone.spanned = amount(key)?,
            "present" => zone.present = amount(key)?,
            "managed" => self.managed = Some(amount(key)?),
            "cma" => (zone.cma, zone.says_cma) = (amount(key)?, true),
            "nr_free_cma" => zone.free_cma = Some(amount(key)?),
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Zone, StateError> {
        if let Some(missing) = self.seen.iter().position(|seen| !seen) {
            let why = format!(
                "zone {} does not say `{}`: is the file cut?",
                self.zone.name, REQUIRED[missing]
            );
            return Err(StateError::bad_line("zoneinfo", self.header_line, why));
        }
        let mut zone = self.zone.without_boost();
        // Kernels before 3.8 say less present than may be free: boot memory comes later.
        zone.managed = self.managed.unwrap_or(zone.present.max(zone.free));
        if self.managed.is_none() {
            zone.present = zone.present.max(zone.managed);
            zone.spanned = zone.spanned.max(zone.present);
        }
        // Each CPU adds what it has counted now and then: a sum may be some frames ahead of another.
        let drift = DRIFT * zone.pagesets.len().max(1) as u64;
        let settle = |part: u64, whole| {
            if part.saturating_sub(drift) > whole { part } else { part.min(whole) }
        };
        zone.free = settle(zone.free, zone.managed);
        zone.free_cma = zone.free_cma.map(|part| settle(part, zone.free));
        // A digit lost or gained is a number all the same: these cannot be.
        let within = [
            ("managed", zone.managed, "present", zone.present),
            ("present", zone.present, "spanned", zone.spanned),
            ("pages free", zone.free, "managed", zone.managed),
            ("cma", zone.cma, "managed", zone.managed),
            ("nr_free_cma", zone.free_cma.unwrap_or(0), "pages free", zone.free),
        ];
        if let Some((part, n, whole, most)) = within.into_iter().find(|(_, n, _, most)| n > most) {
            let why = format!("zone {}: {part} is {n}, more than {whole}, {most}", zone.name);
            return Err(StateError::bad_line("zoneinfo", self.header_line, why));
        }
        Ok(zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "Node 0, zone   Normal\n  per-node stats\n      nr_inactive_anon 5\n  pages free     100\n        min      1\n        \
        low      2\n        high     3\n        spanned  400\n        present  300\n        managed  200\n        \
        protection: (0, 7)\n      nr_free_pages 100\n  pagesets\n    cpu: 0\n              count: 11\n              \
        high:  186\n              batch: 31\n  vm stats threshold: 24\n  start_pfn:           256\n";

    #[test]
    fn kernels_that_say_less() {
        let zones = parse(OLD).unwrap();
        assert_eq!(zones.len(), 1);
        let zone = &zones[0];
        assert_eq!((zone.free, zone.min, zone.low, zone.high), (100, 1, 2, 3));
        assert_eq!((zone.spanned, zone.present, zone.managed, zone.cma), (400, 300, 200, 0));
        assert_eq!(
            (zone.start_pfn, zone.protection.as_slice()),
            (Some(Pfn::new(256)), &[0, 7][..])
        );
        let pageset = Pageset {
            cpu: CpuId::new(0),
            count: 11,
            high: 186,
            batch: 31,
            high_min: None,
            high_max: None,
        };
        assert_eq!(zone.pagesets, [pageset]);
    }

    /// Where all free memory is CMA its count may be ahead of that of all.
    #[test]
    fn sums_that_drift_are_no_contradiction() {
        let with = |free: &str, cma: u64| {
            let text = OLD.replace("free     100", &format!("free     {free}"));
            let cma = format!("nr_free_cma {cma}\n  pagesets");
            let zone = parse(&text.replace("nr_free_pages 100\n  pagesets", &cma))?.remove(0);
            Ok::<_, StateError>((zone.free, zone.free_cma))
        };
        assert_eq!(with("100", 110).unwrap(), (100, Some(100)));
        assert_eq!(with("210", 90).unwrap(), (200, Some(90)), "of 200 managed");
        assert!(with("100", 226).is_err() && with("326", 0).is_err());
    }

    #[test]
    fn no_text_takes_time_by_the_square_of_its_zones() {
        let zones = |n: usize| (0..n).map(|n| format!("Node {n}, zone A\n")).collect::<String>();
        let why = parse(&zones(100_000)).unwrap_err().to_string();
        assert_eq!(why, "zoneinfo: line 6145: more zones than Linux has");
    }

    #[test]
    fn errors_name_the_line() {
        let message = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            message(&OLD.replace("min      1", "min      one")),
            "zoneinfo: line 5: min is `one`, not a number of frames"
        );
        assert_eq!(
            message(&OLD.replace("        low      2\n", "")),
            "zoneinfo: line 1: zone Normal does not say `low`: is the file cut?"
        );
        assert_eq!(message(""), "zoneinfo: line 1: no zone in it (`Node 0, zone ...`)");
        assert!(message("hello\n").starts_with("zoneinfo: line 1: a zone was expected"));
        assert!(message("Node x, zone Normal\n").starts_with("zoneinfo: line 1: no zone's name"));
    }
}
