//! The figures on one page of a terminal.

use std::fmt::Write as _;

use freehold_trace::machine::{Look, LookZone, OrderFigures};

use super::{ABOVE, Named, bar, share};
use crate::tables::number::{counted, memory_of};
use crate::tables::table::{Style, left, rendered, right, wrap};
use crate::tables::thousands;

fn bar_width(style: Style) -> usize {
    if style.width < 100 { 8 } else { 20 }
}

/// What the last column says.
const INDEX: &str = "unusable index: the share of free memory that lies in chunks too small for \
                     the order; 0 is best, 1 worst";

/// What the letters beside the chunks of a kernel's report say.
const LETTERS: &str = "(U...): types that have such chunks, U unmovable, M movable, E reclaimable, C \
                       CMA, H atomic reserve, R reserve, I isolated; how many each has is not known";

pub(crate) fn render(named: &Named, style: Style) -> String {
    let look = &named.look;
    let mut text = String::new();
    for verdict in verdicts(named) {
        let _ = writeln!(text, "{}", wrap(&verdict, style, "  "));
    }
    let _ = writeln!(text, "{}", wrap(&heading(named), style, "  "));
    for zone in &look.zones {
        let _ = write!(text, "\n{}", zone_text(look, zone, style));
    }
    if let Some(pressure) = named.pressure.as_ref().filter(|all| !all.is_empty()) {
        let psi = |name: &str| name.starts_with("memory_");
        let one = |(name, value): (&&str, &f64)| match psi(name) {
            true => format!("{name} {value:.2} %"),
            false => format!("{name} {value:.1}/s"),
        };
        let all: Vec<String> = pressure.iter().map(one).collect();
        let _ = writeln!(text, "\n{}", wrap(&format!("pressure: {}", all.join(", ")), style, "  "));
    }
    text
}

/// What thresholds say, first.
fn verdicts(named: &Named) -> Vec<String> {
    match named.failed.as_deref() {
        None => Vec::new(),
        Some([]) => vec!["OK: nothing of --fail-if holds".to_owned()],
        Some(failed) => failed.iter().map(|failed| format!("FAILED {failed}")).collect(),
    }
}

fn heading(named: &Named) -> String {
    let Named { name, look, .. } = named;
    let memory = |pages| memory_of(pages, look.page_size);
    let told = |told: bool| if told { "" } else { " (assumed)" };
    let assumed = if look.page_size_told {
        ""
    } else {
        " (ASSUMED: no file says, and every amount of memory here depends on it; --page-size does)"
    };
    let all = look.total.managed.map_or("memory of unknown size".to_owned(), memory);
    format!(
        "{name}: {} of {all} free, {} on the CPUs' lists; pages of {} KiB{assumed}, orders 0 to \
         {}, pageblocks of order {}{}",
        memory(look.total.free),
        look.total.held.map_or("not known how much more".to_owned(), |n| memory(n) + " more"),
        look.page_size >> 10,
        look.max_order,
        look.pageblock_order,
        told(look.pageblock_order_told),
    )
}

fn zone_text(look: &Look, zone: &LookZone, style: Style) -> String {
    let memory = |pages| memory_of(pages, look.page_size);
    let (node, name) = (zone.node, &zone.zone);
    let state = match (zone.managed, zone.watermarks) {
        (Some(managed), Some(marks)) => {
            let free = share(zone.free, managed);
            let [min, low, high] = marks.map(memory);
            format!(
                "NODE {node} ZONE {name}  [{}] {:.1}% of {} free, {} (min {min}, low {low}, high \
                 {high})",
                bar(free, bar_width(style)),
                free * 100.0,
                memory(managed),
                above(zone),
            )
        }
        _ => format!(
            "NODE {node} ZONE {name}  {} free; its size and its marks are not known: there is no \
             zoneinfo",
            memory(zone.free)
        ),
    };
    let lists = lists(look, zone);
    let mut text = format!("{}\n", wrap(&state, style, "  "));
    for line in [Some(lists), blocks(look, zone)].into_iter().flatten() {
        let _ = writeln!(text, "  {}", wrap(&line, style, "    "));
    }
    if zone.orders.is_empty() {
        text.push_str("  free chunks by order are not known: there is no buddyinfo\n");
        return text;
    }
    let width = bar_width(style);
    let lettered = zone.orders.iter().any(|order| order.letters.is_some());
    let row = |order: &OrderFigures| {
        let part = share(order.pages, zone.free);
        let index = order.unusable_index;
        let letters = order.letters.as_deref().filter(|letters| !letters.is_empty());
        let types = letters.map_or(String::new(), |letters| format!(" ({letters})"));
        [
            right(order.order),
            right(memory_of(1 << order.order, look.page_size)),
            right(format!("{}{types}", thousands(order.chunks))),
            right(memory(order.pages)),
            right(format!("[{}] {:5.1}%", bar(part, width), part * 100.0)),
            right(format!("[{}] {index:.3}", bar(index, width))),
        ]
    };
    let header = ["order", "chunk", "chunks", "free", "share of free", "unusable index"].map(right);
    let _ = writeln!(text, "{}", rendered(style, header, zone.orders.iter().map(row)));
    let _ = writeln!(text, "  {}", wrap(INDEX, style, "  "));
    if lettered {
        let _ = writeln!(text, "  {}", wrap(LETTERS, style, "  "));
        return text;
    }
    types(&mut text, look, zone, style);
    text
}

/// What the CPUs' lists hold, and CMA.
fn lists(look: &Look, zone: &LookZone) -> String {
    let memory = |pages| memory_of(pages, look.page_size);
    match (zone.cpus, zone.held, zone.held_high) {
        (Some(cpus), Some(held), Some(high)) => format!(
            "the lists of {} hold {}, at most {}{}",
            counted(cpus, "CPU"),
            memory(held),
            memory(high),
            cma(look, zone)
        ),
        (_, Some(held), _) => {
            format!(
                "the CPUs' lists hold {}, of how many CPUs is not known{}",
                memory(held),
                cma(look, zone)
            )
        }
        _ => format!("what CPUs' lists hold is not known{}", cma(look, zone)),
    }
}

/// Which watermarks free memory is above.
fn above(zone: &LookZone) -> &'static str {
    zone.above.map_or("not known", |above| ABOVE[usize::from(above.min(3))])
}

fn cma(look: &Look, zone: &LookZone) -> String {
    let memory = |pages| memory_of(pages, look.page_size);
    match (zone.cma, zone.cma_free) {
        (Some(0), _) => "; no CMA".to_owned(),
        (Some(cma), Some(free)) => format!("; CMA {}, {} of it free", memory(cma), memory(free)),
        (Some(cma), None) => format!("; CMA {}", memory(cma)),
        (None, Some(free)) => format!("; CMA not known, {} of it free", memory(free)),
        (None, None) => "; CMA not known".to_owned(),
    }
}

fn blocks(look: &Look, zone: &LookZone) -> Option<String> {
    let blocks = zone.blocks?;
    let whole = zone.whole_free_blocks.unwrap_or(0);
    let mixed = match zone.mixed_blocks {
        Some(mixed) => format!("{} mixed", thousands(mixed)),
        None => "mixed ones not known (page_owner is off)".to_owned(),
    };
    Some(format!(
        "{} of {}: {} wholly free, {mixed}",
        counted(blocks, "pageblock"),
        memory_of(1 << look.pageblock_order, look.page_size),
        thousands(whole),
    ))
}

/// The types that have blocks or free memory.
fn types(text: &mut String, look: &Look, zone: &LookZone, style: Style) {
    let width = bar_width(style);
    let rows = zone.types.iter().filter(|of| of.blocks > 0 || of.free > 0).map(|of| {
        let (free, blocks) =
            (share(of.free, zone.free), share(of.blocks, zone.blocks.unwrap_or(0)));
        let bound = if of.at_least { "at least " } else { "" };
        [
            right(of.name),
            right(thousands(of.blocks)),
            right(format!("[{}] {:5.1}%", bar(blocks, width), blocks * 100.0)),
            right(format!("{bound}{}", memory_of(of.free, look.page_size))),
            right(format!("[{}] {:5.1}%", bar(free, width), free * 100.0)),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        text.push_str(
            "  types are not known: there is no pagetypeinfo, or only root may read it\n",
        );
        return;
    }
    let header = ["type", "blocks", "share of blocks", "free", "share of free"].map(right);
    let _ = writeln!(text, "{}", rendered(style, header, rows));
}

/// Two machines, figure beside figure, in the amounts of each.
pub(crate) fn compare(one: &Named, other: &Named, style: Style) -> String {
    let [a, b] = [one, other].map(|of| wrap(&heading(of), style, "   "));
    let mut text = format!("A  {a}\nB  {b}\n");
    if one.look.page_size != other.look.page_size {
        let [a, b] = [one, other].map(|of| of.look.page_size >> 10);
        let _ = writeln!(text, "Pages of {a} and {b} KiB: a row of one order has two sizes.");
    }
    for zone in &one.look.zones {
        let same = |of: &&LookZone| of.node == zone.node && of.zone == zone.zone;
        let Some(second) = other.look.zones.iter().find(same) else {
            let _ = write!(text, "\nNODE {} ZONE {}: only in A\n", zone.node, zone.zone);
            continue;
        };
        let _ = writeln!(text, "\nNODE {} ZONE {}", zone.node, zone.zone);
        let memory = |look: &Look, pages| memory_of(pages, look.page_size);
        let mut rows: Vec<[String; 3]> = Vec::new();
        let mut row = |what: &str, of: &dyn Fn(&Look, &LookZone) -> String| {
            rows.push([what.to_owned(), of(&one.look, zone), of(&other.look, second)]);
        };
        let count = |n: Option<u64>| n.map_or_else(|| "not known".to_owned(), thousands);
        let known = |look: &Look, pages: Option<u64>| {
            pages.map_or_else(|| "not known".to_owned(), |pages| memory(look, pages))
        };
        row("managed", &|look, zone| known(look, zone.managed));
        row("free", &|look, zone| memory(look, zone.free));
        row("on the CPUs' lists", &|look, zone| known(look, zone.held));
        row("CMA", &|look, zone| known(look, zone.cma));
        row("watermarks", &|_, zone| above(zone).to_owned());
        row("blocks", &|_, zone| count(zone.blocks));
        row("wholly free blocks", &|_, zone| count(zone.whole_free_blocks));
        row("mixed blocks", &|_, zone| count(zone.mixed_blocks));
        for order in 1..zone.orders.len().max(second.orders.len()) {
            let index = |_: &Look, zone: &LookZone| {
                let found = zone.orders.get(order);
                found.map_or_else(
                    || "no such order".to_owned(),
                    |of| format!("{:.3}", of.unusable_index),
                )
            };
            row(&format!("unusable index, order {order}"), &index);
        }
        let rows = rows.into_iter().map(|[what, a, b]| [left(what), right(a), right(b)]);
        let header = [left(""), right("A"), right("B")];
        let _ = writeln!(text, "{}", rendered(style, header, rows));
    }
    let is_new = |zone: &&LookZone| {
        !one.look.zones.iter().any(|of| of.node == zone.node && of.zone == zone.zone)
    };
    for zone in other.look.zones.iter().filter(is_new) {
        let _ = write!(text, "\nNODE {} ZONE {}: only in B\n", zone.node, zone.zone);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::machine;
    use super::*;

    const STYLE: Style = Style::plain(120);

    #[test]
    fn a_page_has_every_figure() {
        let text = render(&machine(), STYLE);
        for part in [
            "16.0 MiB of 64.0 MiB free",
            "25.0% of 64.0 MiB free, above high (min 464 KiB",
            "the lists of 1 CPU hold 360 KiB, at most 1.6 MiB",
            "CMA 8.0 MiB, 2.0 MiB of it free",
            "32 pageblocks of 2.0 MiB: 6 wholly free, mixed ones not known (page_owner is off)",
            "[##########..........]  50.0%",
            "[#####...............] 0.250",
            "Movable",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(text.lines().count() < 34, "one page:\n{text}");
    }

    #[test]
    fn orders_of_other_pages_are_other_sizes() {
        let (one, mut other) = (machine(), machine());
        assert!(!compare(&one, &other, STYLE).contains("two sizes"));
        other.look.page_size = 65536;
        assert!(compare(&one, &other, STYLE).contains("Pages of 4 and 64 KiB: a row"));
    }

    /// Pages of 64 KiB; and what some kernels' files do not say.
    #[test]
    fn amounts_are_of_the_machines_pages_and_what_is_not_known_is_said() {
        let mut machine = machine();
        machine.look.page_size = 65536;
        machine.look.zones[0].mixed_blocks = Some(9);
        for (cma, free, said) in [
            (Some(0), None, "; no CMA"),
            (Some(2048), None, "; CMA 128.0 MiB"),
            (None, Some(512), "; CMA not known, 32.0 MiB of it free"),
            (None, None, "; CMA not known"),
        ] {
            (machine.look.zones[0].cma, machine.look.zones[0].cma_free) = (cma, free);
            let text = render(&machine, STYLE);
            let first =
                "256.0 MiB of 1.00 GiB free, 5.6 MiB more on the CPUs' lists; pages of 64 KiB";
            let blocks = "32 pageblocks of 32.0 MiB: 6 wholly free, 9 mixed";
            for part in [first, blocks, &format!("at most 25.0 MiB{said}\n")] {
                assert!(text.contains(part), "{part}:\n{text}");
            }
        }
        machine.look.zones[0].types.clear();
        machine.look.zones[0].blocks = None;
        let text = render(&machine, STYLE);
        assert!(text.contains("types are not known") && !text.contains("mixed"), "{text}");
    }

    #[test]
    fn a_page_fits_a_narrow_terminal_and_breaks_no_amount() {
        let text = render(&machine(), Style::plain(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        // A row is one line: no line has a unit alone.
        let alone = |line: &str| ["KiB", "MiB", "GiB"].iter().any(|unit| line.trim() == *unit);
        assert!(!text.lines().any(alone), "{text}");
        for part in ["4 KiB", "4.0 MiB", "[####....]  50.0%", "[##......] 0.250"] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn two_machines_stand_beside_each_other() {
        let (one, mut other) = (machine(), machine());
        other.look.zones[0].free = 200;
        other.look.zones[0].above = Some(2);
        let text = compare(&one, &other, STYLE);
        let line = |what: &str| {
            let found = text.lines().find(|line| line.trim_start().starts_with(what));
            let found = found.unwrap_or_else(|| panic!("{what}:\n{text}"));
            found.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("free "), "free 16.0 MiB 800 KiB");
        assert_eq!(line("watermarks"), "watermarks above high above low");
        other.look.zones.clear();
        assert!(compare(&one, &other, STYLE).contains("NODE 0 ZONE Normal: only in A"));
        assert!(compare(&other, &one, STYLE).contains("NODE 0 ZONE Normal: only in B"));
    }
}
