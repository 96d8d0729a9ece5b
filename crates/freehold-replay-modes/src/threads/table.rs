//! The table of a replay on threads: first what is the same in every run, then what is not.

use freehold_labkit::replay::outcome::Met;
use freehold_labkit::replay::{EngineOutcome, Replay};
use freehold_labkit::report::metrics::{cma, rate};
use freehold_labkit::report::number::{counted, decimal, thousands};
use freehold_labkit::report::table::{
    Cell, Style, engine_names, grouped, header_lines, right, wrap_lines,
};

use super::replay::ThreadsReport;

type Row = (&'static str, fn(&Replay, &EngineOutcome, &Met) -> String);

const GROUPS: [(&str, &[Row]); 3] = [
    (
        "THE SAME IN EVERY RUN",
        &[
            ("operations applied", |_, _, met| thousands(met.applied)),
            ("allocations and failures", |_, engine, _| {
                thousands(engine.counters.allocs + engine.counters.failed)
            }),
            ("lost frames", |_, engine, _| thousands(engine.lost_frames)),
        ],
    ),
    (
        "LOCKS FOUND HELD (different in every run)",
        &[
            ("waits for the zone lock (freehold: any lock)", |_, _, met| {
                thousands(met.contention.shared_lock_waits)
            }),
            ("  time in them, ms (noisy)", |_, _, met| {
                decimal(met.contention.shared_lock_wait_ns as f64 / 1e6)
            }),
            ("waits for a PCP lock", |_, _, met| thousands(met.contention.pcp_lock_waits)),
            ("  time in them, ms (noisy)", |_, _, met| {
                decimal(met.contention.pcp_lock_wait_ns as f64 / 1e6)
            }),
            ("  another CPU's: order inversions", |_, _, met| {
                thousands(met.contention.remote_pcp_lock_waits)
            }),
            ("failed trylocks of a CPU's own lists", |_, _, met| {
                thousands(met.contention.trylock_failures)
            }),
            ("calls that went to the zone instead", |_, _, met| thousands(met.contention.bypasses)),
        ],
    ),
    (
        "WORK (different in every run)",
        &[
            ("zone locks / 1,000 events", |_, engine, _| decimal(engine.zone_locks_per_1000)),
            ("shared writes / 1,000 events", |_, engine, _| decimal(engine.shared_writes_per_1000)),
            ("zone steps / 1,000 events", |_, engine, _| {
                decimal(rate(engine, engine.counters.zone_lock_work))
            }),
            ("steps per hold, max", |_, engine, _| thousands(engine.counters.zone_lock_work_max)),
            ("frees outside the CPU's own lists", |_, engine, _| {
                thousands(engine.counters.remote_frees)
            }),
            ("failures", |_, engine, _| thousands(engine.counters.failed)),
            ("waits for an allocation of another CPU", |_, _, met| thousands(met.order_waits)),
            ("waits for a thread far behind", |_, _, met| thousands(met.lead_waits)),
        ],
    ),
];

/// Behind the others, where the machine has CMA.
const CMA: (&str, &[Row]) = (
    "CMA (different in every run)",
    &[
        ("movable requests", |_, engine, _| thousands(cma(engine).movable_requests)),
        ("  served by it", |_, engine, _| thousands(cma(engine).movable_by_cma)),
        ("free frames, lowest", |_, engine, _| thousands(cma(engine).free_lowest)),
        ("free frames at the end", |_, engine, _| thousands(cma(engine).free_end)),
        ("failures while it was free", |_, engine, _| thousands(cma(engine).failed_while_free)),
    ],
);

/// The header and the table of one trace.
pub fn render(replay: &Replay, threads: &ThreadsReport, style: Style) -> String {
    let row = |(name, value): &Row| {
        let mut row = vec![Cell::new(format!("  {name}"))];
        // Of an engine that panicked nothing is known.
        let text = |engine: &EngineOutcome| {
            engine.met.map_or("-".to_owned(), |met| value(replay, engine, &met))
        };
        row.extend(replay.engines.iter().map(|engine| right(text(engine))));
        row
    };
    let has_cma = replay.engines.iter().any(|engine| engine.cma.is_some());
    let groups = GROUPS.into_iter().chain(has_cma.then_some(CMA));
    let groups = groups.map(|(name, rows)| (name.to_owned(), rows.iter().map(row).collect()));
    let table = grouped(engine_names(replay), 1, groups).render(style);
    let header = format!("{}{}", header_lines(replay), threads_line(threads));
    format!("{}\n{table}\n", wrap_lines(&header, style))
}

/// How the trace was shared out.
fn threads_line(threads: &ThreadsReport) -> String {
    format!(
        "\n  {} on {} at full speed, at most {} operations apart; {} inside another call ({:.1}%)",
        counted(u64::from(threads.threads), "thread"),
        counted(threads.processors, "processor"),
        thousands(u64::from(threads.lead)),
        counted(threads.interrupt_frees, "free"),
        threads.interrupts * 100.0,
    )
}
