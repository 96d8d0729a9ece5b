//! The table: metrics as rows, engines as columns, the first engine the baseline of the percentages
//! beside the others.

use std::fmt::Write as _;

use freehold_trace::Checksums;

pub use super::grid::{Cell, Color, Columns, Room, Style, Table, left, right, wrap, wrap_lines};

use super::number::{decimal, duration, memory_of, percent, thousands};
use crate::better::Better;
use crate::engine::CmaCounts;
use crate::replay::fill::Layout;
use crate::replay::{EngineOutcome, Origin, Replay, TraceFacts};

enum Value {
    Count(u64),
    Real(f64),
    Share(f64),
    /// An order, or none.
    Order(Option<u8>),
}

impl Value {
    fn number(&self) -> Option<f64> {
        match *self {
            Self::Count(n) => Some(n as f64),
            Self::Real(x) | Self::Share(x) => Some(x),
            Self::Order(_) => None,
        }
    }

    fn text(&self) -> String {
        match *self {
            Self::Count(n) => thousands(n),
            Self::Real(x) => decimal(x),
            Self::Share(x) => format!("{:.2}%", x * 100.0),
            Self::Order(Some(order)) => order.to_string(),
            Self::Order(None) => "none".to_owned(),
        }
    }
}

struct Metric {
    name: &'static str,
    better: Better,
    value: fn(&Replay, &EngineOutcome) -> Value,
}

const fn metric(
    name: &'static str,
    better: Better,
    value: fn(&Replay, &EngineOutcome) -> Value,
) -> Metric {
    Metric { name, better, value }
}

/// The rows, in groups.
const GROUPS: [(&str, &[Metric]); 5] = [
    (
        "replayed",
        &[
            metric("allocations", Better::Neither, |_, e| Value::Count(e.counters.allocs)),
            metric("frees", Better::Neither, |_, e| Value::Count(e.counters.frees)),
            metric("failures", Better::Less, |_, e| Value::Count(e.counters.failed)),
            metric("affinity violations in the trace", Better::Neither, |r, _| {
                Value::Count(r.survey.facts.remote_frees)
            }),
        ],
    ),
    (
        "zone lock",
        &[
            metric("zone locks / 1,000 events", Better::Less, |_, e| {
                Value::Real(e.zone_locks_per_1000)
            }),
            metric("shared writes / 1,000 events", Better::Less, |_, e| {
                Value::Real(e.shared_writes_per_1000)
            }),
            metric("zone steps / 1,000 events", Better::Less, |_, e| {
                Value::Real(rate(e, e.counters.zone_lock_work))
            }),
            metric("steps per hold, mean", Better::Less, |_, e| Value::Real(e.zone_lock_work_mean)),
            metric("steps per hold, p99", Better::Less, |_, e| {
                Value::Count(e.counters.zone_lock_work_p99)
            }),
            metric("steps per hold, max", Better::Less, |_, e| {
                Value::Count(e.counters.zone_lock_work_max)
            }),
            metric("merges under the zone lock", Better::Less, |_, e| {
                Value::Count(e.counters.merges_zone)
            }),
            metric("merges under a PCP lock", Better::Neither, |_, e| {
                Value::Count(e.counters.merges_pcp)
            }),
        ],
    ),
    (
        "per-CPU lists",
        &[
            metric("PCP locks / 1,000 events", Better::Less, |_, e| {
                Value::Real(rate(e, e.counters.pcp_lock_acquisitions))
            }),
            metric("PCP steps / 1,000 events", Better::Less, |_, e| {
                Value::Real(rate(e, e.counters.pcp_lock_work))
            }),
            metric("PCP hit rate", Better::More, |_, e| Value::Share(e.pcp_hit_rate)),
            metric("refills", Better::Less, |_, e| Value::Count(e.counters.refills)),
            metric("drains", Better::Less, |_, e| Value::Count(e.counters.drains)),
            metric("remote frees", Better::Neither, |_, e| Value::Count(e.counters.remote_frees)),
        ],
    ),
    (
        "fragmentation",
        &[
            metric("fallbacks", Better::Less, |_, e| Value::Count(e.counters.fallbacks)),
            metric("mixed blocks at the end", Better::Less, |_, e| Value::Count(e.mixed_blocks)),
            metric("wholly free blocks at the end", Better::More, |_, e| {
                Value::Count(e.free_blocks_end)
            }),
            metric("largest free order at the end", Better::Neither, |_, e| {
                Value::Order(e.largest_free_order_end)
            }),
            metric("unusable index, order 9, min", Better::Less, |_, e| {
                Value::Real(e.unusable_index_min)
            }),
            metric("unusable index, order 9, mean", Better::Less, |_, e| {
                Value::Real(e.unusable_index_mean)
            }),
            metric("lost frames", Better::Less, |_, e| Value::Count(e.lost_frames)),
        ],
    ),
    ("cost", &[metric(NS_PER_EVENT, Better::Less, |_, e| Value::Real(e.ns_per_event))]),
];

/// The group of machines with CMA. Free frames are frames, whoever holds them.
const CMA: (&str, &[Metric]) = (
    "CMA",
    &[
        metric("movable requests served by it", Better::Neither, |_, e| {
            Value::Share(cma(e).share())
        }),
        metric("free frames, lowest", Better::Neither, |_, e| Value::Count(cma(e).free_lowest)),
        metric("free frames at the end", Better::Neither, |_, e| Value::Count(cma(e).free_end)),
        metric("failures while it was free", Better::Less, |_, e| {
            Value::Count(cma(e).failed_while_free)
        }),
        metric("of these, movable requests", Better::Less, |_, e| {
            Value::Count(cma(e).failed_movable)
        }),
    ],
);

pub(super) fn cma(engine: &EngineOutcome) -> CmaCounts {
    engine.cma.unwrap_or_default()
}

/// The row that differs from run to run.
pub const NS_PER_EVENT: &str = "ns per event (noisy)";

/// A total for each 1,000 events.
pub(super) fn rate(engine: &EngineOutcome, total: u64) -> f64 {
    engine.counters.per_1000_events(total)
}

/// The header and the table of one trace.
pub fn render(replay: &Replay, style: Style) -> String {
    let header = wrap_lines(&header_lines(replay), style);
    let Some(baseline) = replay.engines.first() else { return header };
    let row = |metric: &Metric| {
        let base = (metric.value)(replay, baseline);
        let mut row = vec![Cell::new(format!("  {}", metric.name))];
        for (i, engine) in replay.engines.iter().enumerate() {
            row.push(cell(metric, &base, (metric.value)(replay, engine), i > 0, style));
        }
        row
    };
    let groups = GROUPS.into_iter().chain(baseline.cma.map(|_| CMA));
    let groups =
        groups.map(|(name, metrics)| (name.to_uppercase(), metrics.iter().map(row).collect()));
    format!("{header}\n{}\n", grouped(engine_names(replay), groups, style))
}

/// The header: a column for each engine behind that of the rows' names.
pub(super) fn engine_names(replay: &Replay) -> Vec<Cell> {
    let names = replay.engines.iter().map(|engine| right(&engine.engine).bold());
    std::iter::once(Cell::new("")).chain(names).collect()
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

/// A table with engines as columns, and rows in groups, each below its name. The first engine is
/// the one that the others are compared with: it stands in every table where there are several.
pub(super) fn grouped(
    header: Vec<Cell>,
    groups: impl Iterator<Item = (String, Vec<Vec<Cell>>)>,
    style: Style,
) -> String {
    let room = |at: usize| if at == 0 { Room::Always } else { Room::Wraps };
    let columns = header.into_iter().enumerate().map(|(at, name)| (name, room(at)));
    let mut table = Table::new(columns).in_blocks(2);
    for (name, rows) in groups {
        table.row([name]);
        rows.into_iter().for_each(|row| table.row(row));
    }
    table.render(style)
}

fn cell(metric: &Metric, base: &Value, value: Value, compare: bool, style: Style) -> Cell {
    let change = base.number().zip(value.number()).filter(|_| compare);
    let mut text = value.text();
    if let Some(percent) = change.and_then(|(base, value)| percent(base, value)) {
        let _ = write!(text, " ({percent})");
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
        if difference.what == "free" && off == layout.left_out() {
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
            "\n  {free} pages of CMA were free, and no file says how much there was: none is built here; a \
             copy of pagetypeinfo tells"
        );
    }
    text
}

/// What of the recorded machine the engines have in their own way.
fn scaled_line(replay: &Replay) -> String {
    let Some(account) = &replay.beginning.account else { return String::new() };
    if account.is_of_engines() && account.page_size == 4096 {
        return String::new();
    }
    let (kib, order, block) = (account.page_size >> 10, account.max_order, account.pageblock_order);
    let own = if account.is_of_engines() {
        "the engines have the same"
    } else {
        "every engine has as many pages, with pageblocks of order 9 and chunks up to order 10"
    };
    format!(
        "\n  recorded with pages of {kib} KiB, orders 0 to {order} and pageblocks of order {block}; {own}"
    )
}

fn machine_line(replay: &Replay) -> String {
    let memory = |pages| memory_of(pages, replay.machine.page_size);
    match (replay.beginning.origin, &replay.beginning.layout) {
        (_, Some(layout)) => {
            let free = layout.free_frames();
            let largest = layout.free_chunks()[10] << 10;
            let share = largest as f64 / free.max(1) as f64 * 100.0;
            let left_out = match layout.left_out() {
                0 => String::new(),
                frames => format!(
                    "\n  {} more was free, but has no place in the blocks of its type",
                    memory(frames)
                ),
            };
            format!(
                "\n  the recorded machine: {} free in the beginning, {share:.0}% of it in chunks of order 10{left_out}{}",
                memory(free),
                account_lines(replay, layout)
            )
        }
        (Origin::Pristine | Origin::Recorded, None) => {
            "\n  the recorded machine, but all of its memory free".to_owned()
        }
        (Origin::Assumed, None) => {
            "\n  an assumed machine, all of its memory free: no zoneinfo lies beside the trace"
                .to_owned()
        }
        (Origin::Given, None) => {
            "\n  a machine of the size asked for, all of its memory free".to_owned()
        }
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
        ")\n  {} events over {} on {} CPUs: {} allocations, {} frees, {:.1}% of them on another CPU than the allocation",
        thousands(facts.events),
        duration(facts.span_ns()),
        facts.cpus_seen,
        thousands(facts.allocs),
        thousands(facts.frees),
        facts.remote_free_share() * 100.0,
    );
    let memory = |pages| memory_of(pages, replay.machine.page_size);
    let _ = write!(
        text,
        "\n  peak {} live; {} frees of frames not allocated in the trace; replayed on {} CPUs with {}",
        memory(facts.peak_live_frames),
        thousands(facts.unknown_frees),
        replay.machine.cpus,
        memory(replay.machine.memory_frames),
    );
    text.push_str(&machine_line(replay));
    if replay.machine.cma_frames > 0 {
        let _ = write!(text, "; {} is CMA", memory(replay.machine.cma_frames));
    }
    text.push_str(&scaled_line(replay));
    let mut notes = Vec::new();
    for (count, what) in [
        (survey.oddities.skipped, "malformed rows skipped"),
        (survey.oddities.long_gaps, "gaps of more than an hour"),
        (facts.failed_allocs, "failed allocations not replayed"),
        (replay.injected, "allocations put in"),
        (facts.split_frees, "frees inside larger allocations"),
        (facts.wide_frees, "frees over smaller allocations"),
        (facts.lost_frees, "frees missing in the trace"),
        (facts.in_parts, "requests above order 10 made in parts of order 10"),
        (facts.misaligned, "misaligned events left out"),
        (survey.description.lost_events.unwrap_or(0), "events lost by the recorder"),
    ] {
        if count > 0 {
            notes.push(format!("{} {what}", thousands(count)));
        }
    }
    if !notes.is_empty() {
        let _ = write!(text, "\n  {}", notes.join(", "));
    }
    text
}
