//! `freehold look`: how fragmented a machine's memory is, for people, programs and monitoring.
//!
//! Thresholds and pressure are in every build: `freehold record` uses them as well.
//!
//! The figures are `freehold_trace::machine::Look`; here is how they are shown.
//!
//! | room | what |
//! |---|---|
//! | `command` | the arguments, and the files of the machine |
//! | `page` | one page of a terminal; two machines beside each other |
//! | `pages` | what each page is, as a picture |
//! | `pressure` | rates of vmstat, and PSI |
//! | `prometheus` | Prometheus's text format |
//! | `threshold` | `--fail-if` |

#[cfg(feature = "look")]
mod command;
#[cfg(feature = "look")]
mod page;
#[cfg(feature = "look")]
mod pages;
pub(crate) mod pressure;
#[cfg(feature = "look")]
mod prometheus;
pub(crate) mod threshold;

use freehold_trace::machine::Look;
use serde::Serialize;

#[cfg(feature = "look")]
pub(crate) use command::{LookArgs, run};

/// A machine's figures and what to call it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Named {
    /// What it was read from.
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) look: Look,
    /// Seconds since 1970, where the figures are of now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unix_time: Option<f64>,
    /// Rates since the look before, and PSI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pressure: Option<pressure::Pressure>,
    /// What of `--fail-if` holds, where it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<Vec<String>>,
}

impl Named {
    pub(crate) fn new(name: String, look: Look) -> Self {
        Self { name, look, unix_time: None, pressure: None, failed: None }
    }
}

/// What `--json` prints.
#[cfg(feature = "look")]
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Document<'a> {
    One(&'a Named),
    Two { machines: &'a [Named] },
}

/// A share of 0 to 1 as a bar of `width` characters; anything above nothing shows.
#[cfg(feature = "look")]
pub(crate) fn bar(share: f64, width: usize) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let full = ((share * width as f64).round() as usize).max(usize::from(share > 0.0)).min(width);
    format!("{}{}", "#".repeat(full), ".".repeat(width - full))
}

/// A part of a whole; nothing of nothing is nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Which watermarks free memory is above.
#[cfg(feature = "look")]
pub(crate) const ABOVE: [&str; 4] =
    ["below min: only reserves are left", "above min", "above low", "above high"];

#[cfg(test)]
pub(crate) mod tests {
    use freehold_trace::buddyinfo::{parse_buddyinfo, parse_pagetypeinfo};
    use freehold_trace::machine::{Machine, Parts};
    use freehold_trace::zoneinfo;

    use super::*;

    /// 64 MiB of which a quarter is free, with CMA and blocks of every type.
    pub(crate) fn machine() -> Named {
        let zones = zoneinfo::parse(
            "Node 0, zone   Normal\n  pages free     4096\n        boost    16\n        min      116\n\
             low      166\n        high     216\n        spanned  16384\n        present  16384\n\
             managed  16384\n        cma      2048\n  pagesets\n    cpu: 0\n\
             count: 90\n              high:  400\n              batch: 31\n  start_pfn:           65536\n",
        )
        .unwrap();
        let buddies = parse_buddyinfo("Node 0, zone   Normal 1024 0 0 0 0 0 0 0 0 2 2\n").unwrap();
        let types = parse_pagetypeinfo(
            "Page block order: 9\nPages per block:  512\n\n\
             Node    0, zone   Normal, type    Unmovable 24 0 0 0 0 0 0 0 0 0 0\n\
             Node    0, zone   Normal, type      Movable 1000 0 0 0 0 0 0 0 0 1 2\n\
             Node    0, zone   Normal, type          CMA 0 0 0 0 0 0 0 0 0 1 0\n\n\
             Number of blocks type Unmovable Movable CMA\nNode 0, zone   Normal 6 22 4\n",
        )
        .unwrap();
        let (zones, buddies, types) = (Some(zones), Some(buddies), Some(types));
        let machine =
            Machine::new(Parts { zones, buddies, types, ..Parts::default() }, None).unwrap();
        Named::new("a \"machine\"".to_owned(), Look::new(&machine))
    }

    #[test]
    fn bars_show_what_there_is() {
        assert_eq!((bar(0.5, 4).as_str(), bar(0.0, 4).as_str()), ("##..", "...."));
        assert_eq!((bar(1e-9, 4).as_str(), bar(7.0, 4).as_str()), ("#...", "####"));
        assert_eq!(bar(f64::NAN, 3), "...");
        assert_eq!((share(1, 4), share(1, 0)), (0.25, 0.0));
    }

    #[test]
    fn the_figures_are_those_of_the_files() {
        let zone = &machine().look.zones[0];
        let marks = Some([116, 166, 216]);
        assert_eq!((zone.free, zone.watermarks, zone.above), (4096, marks, Some(3)));
        let blocks = (zone.blocks, zone.whole_free_blocks, zone.mixed_blocks);
        assert_eq!(blocks, (Some(32), Some(6), None));
        assert_eq!((zone.cma, zone.cma_free, zone.held), (Some(2048), Some(512), Some(90)));
        let index: Vec<f64> = zone.orders.iter().map(|order| order.unusable_index).collect();
        assert_eq!((index[0], index[1], index[9], index[10]), (0.0, 0.25, 0.25, 0.5));
    }
}
