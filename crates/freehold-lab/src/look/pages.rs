//! `look --pages`: a zone's memory block by block, as a picture of a terminal and as a page.
//!
//! A cell is so many blocks that the picture has room for all. Its letter or colour is what most of
//! its pages are, a capital letter says that no page of it is free:
//!
//! ```text
//!  ....aaaAAAff..ssUU..HH
//! ```

use std::fmt::Write as _;
use std::ops::Range;

use freehold::{PAGEBLOCK_FRAMES, Pfn};
use freehold_trace::machine::{Look, LookZone, PageBlock, PageKind, Pages};
use freehold_trace::zoneinfo::Zone;

use super::{Named, page};
use crate::tables::number::memory_of;
use crate::tables::table::{Style, wrap};

/// Cells of a picture at most.
const CELLS: u64 = 2048;
/// Letters of the kinds, as [`PageKind::ALL`] has them.
const LETTERS: [char; 5] = ['a', 'f', 'h', 's', 'u'];

/// What some blocks hold together.
#[derive(Clone, Copy, Default)]
struct Cell {
    free: u64,
    used: [u64; 5],
}

impl Cell {
    fn add(&mut self, block: &PageBlock) {
        self.free += block.free_pages();
        self.used.iter_mut().zip(block.used).for_each(|(sum, n)| *sum += u64::from(n));
    }

    /// The kind that has the most pages of it; `None`: more are free than of any kind.
    fn most(&self) -> Option<usize> {
        let most = (0..self.used.len()).max_by_key(|&kind| self.used[kind])?;
        (self.used[most] > self.free).then_some(most)
    }

    fn is_absent(&self) -> bool {
        self.free == 0 && self.used.iter().all(|n| *n == 0)
    }

    fn letter(&self) -> char {
        match self.most() {
            _ if self.is_absent() => ' ',
            None => '.',
            Some(kind) if self.free == 0 => LETTERS[kind].to_ascii_uppercase(),
            Some(kind) => LETTERS[kind],
        }
    }
}

/// A zone's cells, by rising page.
struct Map {
    /// Blocks of a cell.
    each: u64,
    cells: Vec<Cell>,
    sum: Cell,
}

/// Its pages, holes included.
fn span(zone: &LookZone) -> Range<u64> {
    let start = zone.start.unwrap_or(0);
    start..start.saturating_add(zone.spanned.unwrap_or(0))
}

fn map(pages: &Pages, zone: &LookZone) -> Map {
    let Range { start, end } = span(zone);
    let (base, spanned) = (start / PAGEBLOCK_FRAMES, end - start);
    let blocks = end.div_ceil(PAGEBLOCK_FRAMES) - base;
    let each = blocks.div_ceil(CELLS).max(1);
    let mut cells = vec![Cell::default(); blocks.div_ceil(each) as usize];
    let mut sum = Cell::default();
    let info = Zone {
        start_pfn: zone.start.map(Pfn::new),
        spanned,
        managed: zone.managed.unwrap_or(spanned),
        ..Zone::default()
    };
    for (at, block) in pages.of_zone(&info) {
        cells[((at / PAGEBLOCK_FRAMES - base) / each) as usize].add(&block);
        sum.add(&block);
    }
    Map { each, cells, sum }
}

/// How much is what, in words.
fn told(look: &Look, zone: &LookZone, map: &Map) -> String {
    let memory = |pages| memory_of(pages, look.page_size);
    let cell = memory(map.each * PAGEBLOCK_FRAMES);
    let mut text = format!(
        "NODE {} ZONE {} by page, a cell {cell}: {} free",
        zone.node,
        zone.zone,
        memory(map.sum.free)
    );
    for (kind, pages) in PageKind::ALL.iter().zip(map.sum.used) {
        let _ = write!(text, ", {} {}", memory(pages), kind.name());
    }
    // The files are of two moments.
    if map.sum.free.abs_diff(zone.free) > map.sum.free.max(zone.free) / 4 {
        let free = memory(zone.free);
        let _ = write!(
            text,
            "; {free} are counted as free: pages of another moment, or of Linux before 4.6, which \
             marks the first of a free chunk alone"
        );
    }
    let shares = |other: &&LookZone| {
        let (one, other) = (span(zone), span(other));
        one != other && one.start < other.end && other.start < one.end
    };
    for other in zones(look).filter(shares) {
        let _ = write!(text, "; pages of zone {} of node {} among them", other.zone, other.node);
    }
    text
}

/// What the letters say.
const KEY: &str = "Most pages of a cell are: . free, a anonymous, f file (and shared memory), h huge, \
                   s slab, u unmovable (the kernel's own, or on a CPU's list); a capital letter: \
                   none of it is free; a gap: no memory there";

/// The zones that are drawn: those whose place is known.
fn zones(look: &Look) -> impl Iterator<Item = &LookZone> {
    look.zones.iter().filter(|zone| zone.start.is_some() && zone.spanned.is_some_and(|n| n > 0))
}

pub(super) fn render(named: &Named, pages: &Pages, style: Style) -> String {
    let mut text = String::new();
    let width = style.width.saturating_sub(2).clamp(16, 128);
    for zone in zones(&named.look) {
        let map = map(pages, zone);
        let _ = writeln!(text, "\n{}", wrap(&told(&named.look, zone, &map), style, "  "));
        let shown = map.cells.iter().rposition(|cell| !cell.is_absent()).map_or(0, |last| last + 1);
        for row in map.cells[..shown].chunks(width.into()) {
            let row: String = row.iter().map(Cell::letter).collect();
            let _ = writeln!(text, "  {}", row.trim_end());
        }
    }
    let _ = writeln!(text, "{}", wrap(KEY, style, "  "));
    text
}

/// Cells of a row of the page.
const ROW: usize = 96;
/// The kinds' colours on a page, which are told apart by the colour-blind, too.
const COLORS: [&str; 5] = ["#0072b2", "#009e73", "#e6b800", "#c25400", "#b3261e"];

/// A page of HTML: the figures, and what each page is where that is known.
pub(super) fn html(named: &Named, pages: Option<&Pages>) -> String {
    let name = escaped(&named.name);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>Memory of {name}</title>\n\
         <style>body{{font:1em/1.4 sans-serif;color-scheme:light dark;max-width:60em;margin:auto;\
         padding:0 .7em}}table{{border-collapse:collapse}}th,td{{padding:.1em .4em;text-align:right;\
         border-bottom:1px solid #8886}}td{{white-space:nowrap}}.wide{{overflow-x:auto}}\
         @media(max-width:30em){{table{{font-size:.8em}}th,td{{padding:.1em .2em}}}}.g{{fill:#8883}}"
    );
    for (kind, color) in COLORS.iter().enumerate() {
        let _ = write!(html, ".k{kind}{{fill:{color}}}");
    }
    let _ = writeln!(html, "</style>\n<h1>Memory of {name}</h1>");
    html.push_str(&figures(named));
    if let Some(pages) = pages {
        html.push_str(&pictures(named, pages));
    }
    html + "</html>\n"
}

/// The lines of a terminal as headings, paragraphs and tables.
fn figures(named: &Named) -> String {
    let style = Style { markdown: true, width: u16::MAX, ..Style::plain(0) };
    let text = page::render(named, style);
    let (mut html, mut is_table) = (String::new(), false);
    let without_bar = |text: &str| escaped(text.rsplit("] ").next().unwrap_or(text).trim());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let row = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |"));
        if is_table && row.is_none() {
            html.push_str("</table></div>\n");
        }
        match (row, &line.splitn(5, ' ').collect::<Vec<_>>()[..]) {
            (Some(row), _) if row.starts_with("-") => continue,
            (Some(row), _) => {
                let cell = if is_table { "td" } else { "th" };
                html.push_str(if is_table { "<tr>" } else { "<div class=\"wide\"><table>\n<tr>" });
                for text in row.split(" | ") {
                    let _ = write!(html, "<{cell}>{}</{cell}>", without_bar(text));
                }
                html.push_str("</tr>\n");
            }
            (None, ["NODE", node, "ZONE", zone, state]) => {
                let (zone, state) = (escaped(zone), without_bar(state));
                let _ = writeln!(html, "<h2>Node {node}, zone {zone}</h2>\n<p>{state}</p>");
            }
            (None, ["OK:" | "FAILED", ..]) => {
                let _ = writeln!(html, "<p><strong>{}</strong></p>", escaped(line));
            }
            (None, _) => {
                let _ = writeln!(html, "<p>{}</p>", escaped(line));
            }
        }
        is_table = row.is_some();
    }
    if is_table { html + "</table></div>\n" } else { html }
}

fn pictures(named: &Named, pages: &Pages) -> String {
    let mut html = "<h2>By page</h2>\n<p>".to_owned();
    for (at, kind) in PageKind::ALL.iter().enumerate() {
        let _ = writeln!(
            html,
            "<svg width=\"12\" height=\"12\"><rect class=\"k{at}\" width=\"12\" \
             height=\"12\"/></svg> {}",
            kind.name()
        );
    }
    html.push_str(
        "Colour: what most of a cell is in use for. Height: how much of it is in use.</p>\n",
    );
    for zone in zones(&named.look) {
        let map = map(pages, zone);
        let _ = writeln!(html, "<p>{}</p>", escaped(&told(&named.look, zone, &map)));
        html.push_str(&drawn(&map));
    }
    html
}

/// A zone's cells as a picture.
fn drawn(map: &Map) -> String {
    let rows = map.cells.len().div_ceil(ROW);
    let mut svg = format!("<svg viewBox=\"0 0 {} {}\" role=\"img\">\n", ROW * 10, rows * 10);
    for (at, cell) in map.cells.iter().enumerate().filter(|(_, cell)| !cell.is_absent()) {
        let (x, y) = (at % ROW * 10, at / ROW * 10);
        let _ = write!(svg, "<rect class=\"g\" x=\"{x}\" y=\"{y}\" width=\"9\" height=\"9\"/>");
        let used: u64 = cell.used.iter().sum();
        if used == 0 {
            svg.push('\n');
            continue;
        }
        let kind = (0..cell.used.len()).max_by_key(|&kind| cell.used[kind]).unwrap_or(0);
        let high = 9.0 * used as f64 / (used + cell.free) as f64;
        let top = y as f64 + 9.0 - high;
        let _ = writeln!(
            svg,
            "<rect class=\"k{kind}\" x=\"{x}\" y=\"{top:.1}\" width=\"9\" height=\"{high:.1}\"/>"
        );
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::tests::machine;
    use super::*;

    /// The zone of the other tests, 32 blocks from page 65,536 on: free, partly and wholly in use.
    fn pages() -> Pages {
        let words = "00000000000000ff".to_owned() + &"0".repeat(112);
        Pages::parse(&format!(
            "10000 6 0 0 0 0 0 all\n10c00 1 300 0 0 0 4 {words}\n10e00 3 0 512 0 0 0 none\n\
             11400 1 0 0 512 0 0 none\n11600 1 0 10 0 400 0 {words}\n11800 2 0 0 0 0 512 none\n\
             13e00 1 0 0 0 0 0 all\n14000 1 0 512 0 0 0 none\n"
        ))
        .unwrap()
    }

    #[test]
    fn each_block_is_a_letter_in_its_place() {
        let text = render(&machine(), &pages(), Style::plain(60));
        let picture = "......aFFFHsUU".to_owned() + &" ".repeat(17) + ".";
        assert!(text.lines().any(|line| line.trim() == picture), "{text}");
        let told = "NODE 0 ZONE Normal by page, a cell 2.0 MiB: 14.1 MiB";
        assert!(text.starts_with(&format!("\n{told}")), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        // What lies behind the zone is not its own.
        assert!(!text.contains("8.0 MiB file"), "{text}");
    }

    #[test]
    fn pages_of_another_moment_or_zone_are_called_so() {
        let mut named = machine();
        let none = Pages::parse("10000 32 0 512 0 0 0 none\n").unwrap();
        let text = render(&named, &none, Style::plain(2000));
        assert!(text.contains("; 16.0 MiB are counted as free: pages of another moment"), "{text}");
        let mut other = named.look.zones[0].clone();
        (other.zone, other.start) = ("Movable".into(), Some(65_536 + 512));
        other.spanned = Some(u64::MAX);
        named.look.zones.push(other);
        let text = render(&named, &pages(), Style::plain(2000));
        for zone in ["Movable", "Normal"] {
            assert!(
                text.contains(&format!("; pages of zone {zone} of node 0 among them")),
                "{text}"
            );
        }
    }

    #[test]
    fn the_page_has_a_bar_for_each_block_in_use() {
        let html = html(&machine(), Some(&pages()));
        let bars = |class: &str| html.matches(&format!("<rect class=\"{class}\" x=")).count();
        assert_eq!([0, 1, 2, 3, 4].map(|kind| bars(&format!("k{kind}"))), [1, 3, 1, 1, 2]);
        assert_eq!(bars("g"), 15);
        assert!(html.contains("height=\"9.0\""));
        assert!(html.contains("Memory of a \"machine\"") && !html.contains("<script"));
    }

    #[test]
    fn the_page_has_headings_and_tables_and_what_failed_comes_first() {
        let mut machine = machine();
        machine.failed = Some(vec!["free<0.3: 0.25 in zone <x>".to_owned()]);
        let html = html(&machine, None);
        let at = |part: &str| html.find(part).unwrap_or_else(|| panic!("{part}:\n{html}"));
        let failed = at("<strong>FAILED free&lt;0.3: 0.25 in zone &lt;x&gt;");
        assert!(failed < at("16.0 MiB of 64.0 MiB free"));
        assert!(at("<h2>Node 0, zone Normal</h2>\n<p>25.0% of 64.0 MiB") < at("<th>order</th>"));
        at(
            "<td>10</td><td>4.0 MiB</td><td>2</td><td>8.0 MiB</td><td>50.0%</td><td>0.500</td></tr>",
        );
        at("<td>Movable</td>");
        let count = |part: &str| html.matches(part).count();
        assert_eq!((count("<table>"), count("</table></div>"), count("[#")), (2, 2, 0), "{html}");
    }
}
