//! Thresholds for those on call: `--fail-if 'unusable[9]>0.8'`, and the exit code by them.

use std::fmt;
use std::str::FromStr;

use freehold_trace::machine::LookZone;

use super::{Named, share};

/// What a threshold may ask of a zone, and of the machine.
const FIGURES: &str = "unusable[ORDER], chunks[ORDER], free, held, above, whole, mixed (of a zone); \
                       compact_stall, compact_fail, thp_fallback, allocstall (a second, with \
                       --watch), memory_some, memory_full (per cent, PSI of 10 s)";

/// A figure, a comparison and a number.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Threshold {
    text: String,
    figure: String,
    order: Option<usize>,
    is_above: bool,
    or_equal: bool,
    bound: f64,
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("'{text}' is no threshold: FIGURE>NUMBER, with >, >=, < or <=");
        let at = text.find(['<', '>']).ok_or_else(form)?;
        let (figure, rest) = (text[..at].trim(), &text[at + 1..]);
        let (or_equal, number) = match rest.strip_prefix('=') {
            Some(number) => (true, number),
            None => (false, rest),
        };
        let bound: f64 = number.trim().parse().map_err(|_| form())?;
        let (figure, order) = match figure.strip_suffix(']').and_then(|it| it.split_once('[')) {
            Some((name, order)) => (name, Some(order.parse::<usize>().map_err(|_| form())?)),
            None => (figure, None),
        };
        let names: Vec<&str> = FIGURES.split([' ', ',', '[', '(', ';']).map(str::trim).collect();
        let takes_order = FIGURES.contains(&format!("{figure}["));
        if !names.contains(&figure) || takes_order != order.is_some() || !bound.is_finite() {
            return Err(format!("'{text}' asks for no figure that there is; there are {FIGURES}"));
        }
        let is_above = text.as_bytes()[at] == b'>';
        let (text, figure) = (text.to_owned(), figure.to_owned());
        Ok(Self { text, figure, order, is_above, or_equal, bound })
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Threshold {
    /// Whether it asks of zones, and not of the machine's pressure.
    pub(crate) fn is_of_zones(&self) -> bool {
        let of_zones = FIGURES.split("(of a zone)").next().unwrap_or_default();
        of_zones.split([' ', ',', '[']).any(|name| name == self.figure)
    }

    /// Whether it asks what pageblocks hold, which pagetypeinfo says.
    pub(crate) fn is_of_types(&self) -> bool {
        ["whole", "mixed"].contains(&&*self.figure)
    }

    fn holds(&self, value: f64) -> bool {
        let is_beyond = if self.is_above { value > self.bound } else { value < self.bound };
        is_beyond || self.or_equal && value == self.bound
    }

    fn of_zone(&self, zone: &LookZone) -> Option<f64> {
        let order = || zone.orders.get(self.order?);
        let part = |pages: u64| Some(share(pages, zone.managed?));
        match self.figure.as_str() {
            "unusable" => Some(order()?.unusable_index),
            "chunks" => Some(order()?.chunks as f64),
            "free" => part(zone.free),
            "held" => part(zone.held?),
            "above" => zone.above.map(f64::from),
            "whole" => zone.whole_free_blocks.map(|blocks| blocks as f64),
            "mixed" => zone.mixed_blocks.map(|blocks| blocks as f64),
            _ => None,
        }
    }

    /// What holds on a machine, in words; `Err` where the figure is not known of it at all.
    pub(crate) fn found(&self, named: &Named) -> Result<Vec<String>, String> {
        let place = |zone: &LookZone| format!("zone {} of node {}", zone.zone, zone.node);
        let zones = named.look.zones.iter();
        let mut known: Vec<(String, f64)> =
            zones.filter_map(|zone| Some((place(zone), self.of_zone(zone)?))).collect();
        let machine =
            named.pressure.as_ref().and_then(|pressure| pressure.get(self.figure.as_str()));
        known.extend(machine.map(|value| (named.name.clone(), *value)));
        if known.is_empty() {
            return Err(format!("{}: {self}: the figure is not known", named.name));
        }
        let said = |(place, value): &(String, f64)| format!("{self}: {value:.3} in {place}");
        Ok(known.iter().filter(|(_, value)| self.holds(*value)).map(said).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::machine;
    use super::*;

    #[test]
    fn thresholds_are_of_figures_that_there_are() {
        for text in ["", "unusable", "unusable>0.8", "free[3]>1", "unusable[x]>1", "cpu>1", "free>"]
        {
            assert!(text.parse::<Threshold>().is_err(), "{text}");
        }
        let found = |text: &str| text.parse::<Threshold>().unwrap().found(&machine());
        // A quarter is free, and a quarter of that is in chunks below order 9.
        assert_eq!(
            found("unusable[9]>0.2").unwrap(),
            ["unusable[9]>0.2: 0.250 in zone Normal of node 0"]
        );
        for (text, holds) in [
            ("unusable[9] > 0.25", false),
            ("unusable[9]>=0.25", true),
            ("free<0.3", true),
            ("free<=0.2", false),
            ("whole<7", true),
            ("above<3", false),
            ("chunks[10]<3", true),
        ] {
            assert_eq!(found(text).unwrap().is_empty(), !holds, "{text}");
        }
        assert!(found("mixed>0").unwrap_err().contains("not known"));
        assert!(found("compact_fail>0").is_err(), "no two looks");
    }
}
