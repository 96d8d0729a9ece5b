//! The table: metrics as rows, engines as columns, the first engine the baseline of the percentages
//! beside the others; which way is better stands in a column of its own. Rows that are equal for
//! all engines are one line below the table.
//!
//! ```text
//!                              better    6.18         freehold
//!   ZONE LOCK
//!     zone locks / 1,000 events  less    38.7     0 (-100.0%)
//!     ...
//!   Equal for all engines: allocations 70,302, failures 0.
//! ```

use std::fmt::Write as _;

use freehold_trace::Checksums;

pub use super::grid::{Cell, Color, Room, Style, Table, left, right, wrap, wrap_lines};

use super::metrics::{CMA, GROUPS, Metric, Value};
use super::number::{counted, duration, memory_of, percent, thousands};
use crate::draw::series;
use crate::replay::fill::Layout;
use crate::replay::{Origin, Replay, TraceFacts};

/// The header and the table of one trace.
pub fn render(replay: &Replay, style: Style) -> String {
    let header = wrap_lines(&header_lines(replay), style);
    if replay.engines.is_empty() {
        return header;
    }
    let (table, equal) = metrics_table(replay, Percent::Beside, style);
    // Where not all fit beside each other, more do with percentages below.
    let table = if table.is_in_one_piece(style) {
        table
    } else {
        metrics_table(replay, Percent::Below, style).0
    };
    let mut text = format!("{header}\n{}\n", table.render(style));
    if !equal.is_empty() {
        let equal = format!("Equal for all engines: {}.", equal.join("; "));
        let _ = writeln!(text, "{}", wrap(&equal, style, "  "));
    }
    let _ = writeln!(text, "{}", wrap(WORDS, style, "  "));
    text
}

/// Words of the table that are the project's own; docs/glossary.md has all of them.
const WORDS: &str = "Steps: units of work under a lock. Shared writes: writes to memory that all \
                     CPUs of a zone write. Frees outside the CPU's own lists: those that the \
                     freeing CPU does not keep for itself. Percentages: against the first engine. \
                     More words: docs/glossary.md.";

/// Where the change beside the first engine stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Percent {
    Beside,
    Below,
}

/// The table of the rows in which engines differ, and the others in words.
fn metrics_table(replay: &Replay, percent: Percent, style: Style) -> (Table, Vec<String>) {
    let names = engine_names(replay).into_iter().skip(1);
    let header: Vec<Cell> = [Cell::new(""), Cell::new("better")].into_iter().chain(names).collect();
    let groups = GROUPS.into_iter().chain(replay.engines[0].cma.map(|_| CMA));
    let (mut rows, mut equal) = (Vec::new(), Vec::new());
    for (name, metrics) in groups {
        let mut own = Vec::new();
        for metric in metrics {
            let values: Vec<Value> =
                replay.engines.iter().map(|engine| (metric.value)(replay, engine)).collect();
            if values.len() > 1 && values.iter().all(|value| *value == values[0]) {
                equal.push(format!("{} {}", metric.name, values[0].text()));
                continue;
            }
            let names = [format!("  {}", metric.name), metric.better.word().to_owned()];
            let cells = values.iter().enumerate().map(|(i, value)| {
                cell(metric, (i > 0).then_some(&values[0]), value, percent, style)
            });
            own.push(names.into_iter().map(Cell::new).chain(cells).collect());
        }
        if !own.is_empty() {
            rows.push((name.to_uppercase(), own));
        }
    }
    (grouped(header, 2, rows), equal)
}

/// The header: a column for each engine, with its mark, behind that of the rows' names.
pub fn engine_names(replay: &Replay) -> Vec<Cell> {
    let names: Vec<&str> = replay.engines.iter().map(|engine| engine.engine.as_str()).collect();
    let cells = names.iter().zip(series::places(&names)).map(|(name, place)| marked(name, place));
    std::iter::once(Cell::new("")).chain(cells).collect()
}

/// An engine's name with its mark, in its colour.
pub(super) fn marked(name: &str, place: usize) -> Cell {
    let look = &series::LOOKS[place];
    right(format!("{} {name}", look.glyph)).bold().fg(Color::Of(look.ansi))
}

/// A table of these rows as text. Cells go on in further lines where there is little room.
pub fn rendered<H: Into<Cell>, C: Into<Cell>>(
    style: Style,
    header: impl IntoIterator<Item = H>,
    rows: impl IntoIterator<Item = impl IntoIterator<Item = C>>,
) -> String {
    let mut table = Table::new(header.into_iter().map(|name| (name, Room::Wraps)));
    rows.into_iter().for_each(|row| table.row(row));
    table.render(style)
}

/// A table with engines as columns behind so many that name a row, and rows in groups, each below
/// its name. The first engine is the one that the others are compared with: it stands in every
/// table where there are several.
pub fn grouped(
    header: Vec<Cell>,
    naming: usize,
    groups: impl IntoIterator<Item = (String, Vec<Vec<Cell>>)>,
) -> Table {
    let room = |at: usize| if at < naming { Room::Always } else { Room::Wraps };
    let columns = header.into_iter().enumerate().map(|(at, name)| (name, room(at)));
    let mut table = Table::new(columns).in_blocks(naming + 1);
    for (name, rows) in groups {
        table.row([name]);
        rows.into_iter().for_each(|row| table.row(row));
    }
    table
}

/// A figure, and how much more it is than that of the first engine.
fn cell(
    metric: &Metric,
    base: Option<&Value>,
    value: &Value,
    place: Percent,
    style: Style,
) -> Cell {
    let change = base.and_then(Value::number).zip(value.number());
    let mut text = value.text();
    if let Some(percent) = change.and_then(|(base, value)| percent(base, value)) {
        let gap = if place == Percent::Below { '\n' } else { ' ' };
        let _ = write!(text, "{gap}({percent})");
    }
    let cell = right(text);
    let Some((base, value)) =
        change.filter(|(base, value)| style.color && (value - base).abs() > base.abs() / 100.0)
    else {
        return cell;
    };
    match metric.better.color(value < base) {
        Some(color) => cell.fg(color),
        None => cell,
    }
}

/// What is not as recorded, and what the engines have otherwise.
fn account_lines(replay: &Replay, layout: &Layout) -> String {
    let Some(account) = &replay.beginning.account else { return String::new() };
    let mut text = String::new();
    for difference in account.differences(layout, replay.machine.cma_frames) {
        // The line on what has no place has said that already.
        let off = difference.recorded.saturating_sub(difference.built);
        if difference.what == "free" && off == layout.left_out {
            continue;
        }
        let _ = write!(text, "\n  {difference}");
    }
    if account.isolated > 0 {
        let isolated = thousands(account.isolated);
        let _ = write!(text, "\n  {isolated} pages in isolated blocks begin in use");
    }
    if account.cma_of_unknown_size > 0 {
        let free = thousands(account.cma_of_unknown_size);
        let _ = write!(
            text,
            "\n  {free} pages of CMA were free, and no file says how much there was: none is built \
             here; a copy of pagetypeinfo tells"
        );
    }
    text
}

/// What of the recorded machine the engines have in their own way.
fn scaled_line(replay: &Replay) -> String {
    let machine = &replay.machine;
    let assumed = if machine.page_size_told {
        String::new()
    } else {
        format!(
            "\n  pages of {} KiB are ASSUMED: no file says how large they are, and every amount of \
             memory here depends on it (--page-size does)",
            machine.page_size >> 10
        )
    };
    let Some(account) = &replay.beginning.account else { return assumed };
    if account.is_of_engines() && account.page_size == 4096 {
        return assumed;
    }
    let (kib, order, block) = (account.page_size >> 10, account.max_order, account.pageblock_order);
    let own = if account.is_of_engines() {
        "the engines have the same"
    } else {
        "every engine has as many pages, with pageblocks of order 9 and chunks up to order 10"
    };
    format!(
        "{assumed}\n  recorded with pages of {kib} KiB, orders 0 to {order} and pageblocks of \
         order {block}; {own}"
    )
}

/// What no file says of the machine.
fn guess_lines(replay: &Replay) -> String {
    let line = |guess: &String| format!("\n  GUESSED, for no file says it: {guess}");
    replay.machine.guessed.iter().map(line).collect()
}

/// What was in use before the recording began, as far as the trace shows it by freeing it.
fn earlier_line(replay: &Replay) -> String {
    let TraceFacts { unknown_frees, repeated_frees, .. } = replay.survey.facts;
    match (unknown_frees.saturating_sub(repeated_frees), replay.injected) {
        (0, 0) => String::new(),
        (frees, 0) => format!(
            "\n  left out: {} of frames allocated before the recording began (--warm replays them)",
            counted(frees, "free")
        ),
        (_, earlier) => format!(
            "\n  made first: {} from before the recording began, which its frees show",
            counted(earlier, "allocation")
        ),
    }
}

fn machine_line(replay: &Replay) -> String {
    let memory = |pages| memory_of(pages, replay.machine.page_size);
    match (replay.beginning.origin, &replay.beginning.layout) {
        (_, Some(layout)) => {
            let free = layout.free_frames();
            let largest = layout.free_chunks()[10] << 10;
            let share = largest as f64 / free.max(1) as f64 * 100.0;
            let left_out = match layout.left_out {
                0 => String::new(),
                frames => format!(
                    "\n  {} more was free when recorded, and begins in use: its chunks do not fit \
                     into the pageblocks of their migratetype",
                    memory(frames)
                ),
            };
            let listed = match layout.listed_frames() {
                0 => String::new(),
                frames => format!(", {} more on the CPUs' lists", memory(frames)),
            };
            let of = match replay.beginning.origin {
                Origin::Described => "the machine that files describe",
                _ => "the recorded machine",
            };
            let by_page = match replay.machine.by_page {
                true => ", each page as recorded",
                false => "",
            };
            format!(
                "\n  {of}: {} free at the start, {share:.0}% of it in chunks of \
                 order 10{listed}{by_page}{left_out}{}",
                memory(free),
                account_lines(replay, layout)
            )
        }
        (Origin::Given, None) => {
            "\n  a machine of the size asked for, all of its memory free".to_owned()
        }
        (_, None) => "\n  an assumed machine, all of its memory free: no zoneinfo is in the trace \
                      or beside it"
            .to_owned(),
    }
}

/// What the trace is, in a few lines.
pub fn header_lines(replay: &Replay) -> String {
    let survey = &replay.survey;
    let facts: &TraceFacts = &survey.facts;
    let mut text = format!("{} ({}", survey.description.name, survey.description.format);
    if survey.description.checksums == Some(Checksums::None) {
        text.push_str(", no checksums");
    }
    if let Some(kernel) = &survey.description.kernel {
        // The rest of uname's line says who built it and when.
        let release: Vec<&str> = kernel.split_whitespace().take(2).collect();
        let _ = write!(text, ", {}", release.join(" "));
    }
    let _ = write!(
        text,
        ")\n  {} over {} on {}: {}, {}",
        counted(facts.events, "event"),
        duration(facts.span_ns()),
        counted(u64::from(facts.cpus_seen), "CPU"),
        counted(facts.allocs, "allocation"),
        counted(facts.frees, "free"),
    );
    if facts.known_frees > 0 {
        let share = facts.remote_free_share() * 100.0;
        let _ = write!(
            text,
            "; of the frees whose allocation was recorded {share:.1}% are on another CPU than it"
        );
    }
    let memory = |pages| memory_of(pages, replay.machine.page_size);
    let _ = write!(
        text,
        "\n  {} live at the peak; replayed on {} with {}{}",
        memory(facts.peak_live_frames),
        counted(u64::from(replay.machine.cpus), "CPU"),
        memory(replay.machine.memory_frames),
        earlier_line(replay),
    );
    text.push_str(&machine_line(replay));
    if replay.machine.cma_frames > 0 {
        let _ = write!(text, "; {} is CMA", memory(replay.machine.cma_frames));
    }
    text.push_str(&scaled_line(replay));
    text.push_str(&guess_lines(replay));
    let mut notes = Vec::new();
    for (count, one, rest) in [
        (survey.oddities.skipped, "malformed row", " skipped"),
        (survey.oddities.long_gaps, "gap", " of more than an hour"),
        (facts.failed_allocs, "allocation", " that failed in the recording, not replayed"),
        (facts.split_frees, "free", " of a part of a larger allocation"),
        (facts.wide_frees, "free", " of several smaller allocations at once"),
        (
            facts.repeated_frees,
            "free",
            " of frames that were free already (traced twice, or their allocation is missing), \
             left out",
        ),
        (facts.lost_frees, "allocation", " of frames still in use (the trace lacks their free)"),
        (facts.in_parts, "request", " above order 10, made in parts of order 10"),
        (facts.misaligned, "event", " with a frame number not aligned to its order, left out"),
        (survey.description.lost_events.unwrap_or(0), "event", " lost by the recorder"),
    ] {
        if count > 0 {
            notes.push(format!("{}{rest}", counted(count, one)));
        }
    }
    if !notes.is_empty() {
        let _ = write!(text, "\n  {}", notes.join(", "));
    }
    text
}
