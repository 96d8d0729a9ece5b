//! What a replay answers, in words: which engine is best at what, what it is worst at, and whether
//! the zone lock is a problem on the machine that was recorded. One function for the terminal, the
//! JSON and the report.
//!
//! ```text
//!  1. over 1 % of allocations failed: a warning, and nobody is best
//!  2. who is best in each of QUESTIONS; within 1 %, or one apart in a count, is a tie and no win
//!  3. the row of the table in which the one with the most wins is furthest behind
//!  4. the share of the recorded time that the zone lock would have been held by the model, and the
//!     wait for it with more CPUs
//! ```

use std::fmt::Write as _;

use serde::Serialize;

use super::are_equal;
use super::metrics::{GROUPS, Metric, NS_PER_EVENT, Value};
use super::number::{counted, duration, percent, thousands};
use super::table::{Cell, Color, Room, Style, Table, right, wrap};
use super::unique;
use crate::draw::series;
use crate::model::Model;
use crate::replay::{EngineOutcome, Origin, Replay};
use crate::tables::better::Better;
use crate::zone_lock::LockUse;

/// A row of the table in which an engine can be best.
struct Question {
    row: &'static str,
    /// How the sentence begins.
    best: &'static str,
    /// What stands behind its figure.
    unit: &'static str,
}

const fn question(row: &'static str, best: &'static str, unit: &'static str) -> Question {
    Question { row, best, unit }
}

const QUESTIONS: [Question; 5] = [
    question("zone locks / 1,000 events", "Fewest zone locks", " per 1,000 events"),
    question("shared writes / 1,000 events", "Fewest shared writes", " per 1,000 events"),
    question("steps per hold, max", "Least work in the longest hold of the zone lock", " steps"),
    question("wholly free blocks at the end", "Most wholly free blocks at the end", ""),
    question(
        "unusable index, order 9, mean",
        "Least free memory that is unusable for huge pages (index of order 9, mean)",
        "",
    ),
];

/// A larger share of failed allocations makes figures of different work.
const FAILED_MOST: f64 = 0.01;
/// Waiting for a lock is a problem from this share of the CPUs' time on.
const PROBLEM: f64 = 0.01;
/// What was recorded of fewer events, or for less time than the slowest kernel's tick, is no share of
/// anything.
const LEAST: (u64, u64) = (1000, 10_000_000);
/// Machines that the wait is computed for.
pub const CPUS: [u16; 4] = [2, 16, 64, 256];

/// The answer. The names of the fields are those of `--json` and stay.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Answer {
    /// What makes the figures worth less; to be read first.
    pub warnings: Vec<String>,
    /// Who is best at what, the best one's worst row last; then why nothing is said of the lock.
    pub sentences: Vec<String>,
    /// Whether the zone lock is a problem; `None` where that cannot be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_lock: Option<ZoneLock>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ZoneLock {
    pub sentences: Vec<String>,
    /// The machine that the model's constants are of.
    pub model: String,
    /// CPUs of the machines that the wait was computed for.
    pub cpus: [u16; 4],
    pub engines: Vec<Wait>,
}

/// What the zone lock costs with one engine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Wait {
    pub engine: String,
    /// Share of the recorded time that the lock would have been held, by the model.
    pub held_share: f64,
    /// Share of their time that CPUs wait for it, on each of the machines.
    pub waiting_shares: [f64; 4],
}

/// What a replay answers, by the constants of `model`.
///
/// # Panics
///
/// Where the model lacks the kernel's family.
pub fn of(replay: &Replay, model: &Model) -> Answer {
    let mut warnings = failures(replay);
    let is_void = !warnings.is_empty();
    warnings.extend(guesses(replay));
    if is_void {
        return Answer { warnings, ..Answer::default() };
    }
    let mut sentences = if replay.engines.len() > 1 { best(replay) } else { Vec::new() };
    let zone_lock = zone_lock(replay, model).map_err(|why| sentences.extend(why)).ok();
    Answer { warnings, sentences, zone_lock }
}

/// What of the machine is a guess.
fn guesses(replay: &Replay) -> Option<String> {
    if replay.machine.origin == Origin::Assumed {
        return Some(
            "The machine is ASSUMED, sized by what the trace needs and all of it free: no zoneinfo \
             is in the trace or beside it. On the machine that was recorded every figure may be \
             another."
                .to_owned(),
        );
    }
    (!replay.machine.page_size_told).then(|| {
        format!(
            "Pages of {} KiB are ASSUMED: no file says how large they are, and every amount of \
             memory depends on it (--page-size says it).",
            replay.machine.page_size >> 10
        )
    })
}

/// Engines whose allocations failed too often for their figures to be compared.
fn failures(replay: &Replay) -> Vec<String> {
    let wanted = |engine: &EngineOutcome| engine.counters.allocs + engine.counters.failed;
    let failed: Vec<String> = replay
        .engines
        .iter()
        .filter(|one| one.counters.failed as f64 > FAILED_MOST * wanted(one) as f64)
        .map(|one| {
            let (failed, wanted) = (thousands(one.counters.failed), thousands(wanted(one)));
            format!("{} failed {failed} of {wanted}", one.engine)
        })
        .collect();
    if failed.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "Over 1 % of allocations failed: {}. The machine is too small for this trace, and an \
         engine that fails more often does less work, so no engine is called best.",
        failed.join(", ")
    )]
}

/// A row of the table, and the engines' figures in it.
struct Row {
    metric: Metric,
    values: Vec<(f64, Value)>,
}

impl Row {
    fn new(replay: &Replay, metric: &Metric) -> Option<Self> {
        let of = |engine| (metric.value)(replay, engine);
        let values = replay.engines.iter().map(of);
        let values = values.map(|value| Some((value.number()?, value))).collect::<Option<_>>()?;
        (metric.better != Better::Neither).then_some(Self { metric: *metric, values })
    }

    /// The place of the best figure, the first of equals.
    fn best(&self) -> usize {
        let sign = if self.metric.better == Better::More { -1.0 } else { 1.0 };
        let by = |a: &usize, b: &usize| {
            (sign * self.values[*a].0).total_cmp(&(sign * self.values[*b].0))
        };
        (0..self.values.len()).min_by(by).unwrap_or(0)
    }

    fn is_tie(&self, a: usize, b: usize) -> bool {
        let ((a, kind), (b, _)) = (self.values[a], self.values[b]);
        are_equal(a, b) || matches!(kind, Value::Count(_)) && (a - b).abs() <= 1.0
    }

    /// How many times as good the best is as `engine`. What is counted singly is nothing beside
    /// what is counted in thousands, so each has a little added.
    fn behind(&self, engine: usize) -> f64 {
        let little = if matches!(self.values[0].1, Value::Count(_)) { 1.0 } else { 0.001 };
        let (own, best) = (self.values[engine].0 + little, self.values[self.best()].0 + little);
        if self.metric.better == Better::More { best / own } else { own / best }
    }
}

/// Every row in which one engine can be better than another, but for the noisy one.
fn rows(replay: &Replay) -> impl Iterator<Item = Row> {
    let all = GROUPS.iter().flat_map(|(_, metrics)| metrics.iter());
    all.filter(|metric| metric.name != NS_PER_EVENT).filter_map(|metric| Row::new(replay, metric))
}

/// Who is best at what, and what the one with the most wins is worst at.
fn best(replay: &Replay) -> Vec<String> {
    let names: Vec<&str> = replay.engines.iter().map(|one| one.engine.as_str()).collect();
    let (mut said, mut wins) = (Vec::new(), vec![0; names.len()]);
    for row in rows(replay) {
        let Some(asked) = QUESTIONS.iter().find(|asked| asked.row == row.metric.name) else {
            continue;
        };
        let best = row.best();
        let winners: Vec<usize> = (0..names.len()).filter(|&at| row.is_tie(at, best)).collect();
        if winners.len() == names.len() {
            continue;
        }
        winners.iter().for_each(|&at| wins[at] += 1);
        let who: Vec<&str> = winners.iter().map(|&at| names[at]).collect();
        let (who, figure) = (listed(&who), row.values[best].1.text());
        let mut text = format!("{}: {who}, {figure}{}", asked.best, asked.unit);
        if !winners.contains(&0) {
            let (base, value) = (row.values[0], row.values[best]);
            let change = percent(base.0, value.0).map(|change| change + " ").unwrap_or_default();
            let _ = write!(text, " ({change}against {}'s {})", names[0], base.1.text());
        }
        said.push(text + ".");
    }
    let Some(&most) = wins.iter().max().filter(|most| **most > 0) else {
        let asked = QUESTIONS.map(|asked| asked.row).join("; ");
        return vec![format!(
            "On this trace these engines do not differ in the figures compared: {asked}."
        )];
    };
    let leaders: Vec<usize> = (0..names.len()).filter(|&at| wins[at] == most).collect();
    said.extend(leaders.into_iter().map(|leader| worst(replay, &names, leader, most)));
    said
}

pub(crate) fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The row in which an engine is furthest behind the best one.
fn worst(replay: &Replay, names: &[&str], engine: usize, wins: usize) -> String {
    let (name, questions) = (names[engine], QUESTIONS.len());
    let often = format!(
        "{name} is best, alone or with others, in {wins} of the {questions} figures compared"
    );
    let behind = rows(replay).filter(|row| !row.is_tie(engine, row.best()));
    match behind.max_by(|a, b| a.behind(engine).total_cmp(&b.behind(engine))) {
        None => format!("{often}, and behind in no row of the table."),
        Some(row) => format!(
            "{often}. The row of the table in which it is furthest behind is {}: {}, where the \
             best, {}, has {}.",
            row.metric.name,
            row.values[engine].1.text(),
            names[row.best()],
            row.values[row.best()].1.text()
        ),
    }
}

/// A share in per cent, with decimals where they say something.
fn share(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        small if small < 0.01 => "<0.01 %".to_owned(),
        small if small < 1.0 => format!("{small:.2} %"),
        percent => format!("{percent:.1} %"),
    }
}

fn square_steps(histogram: &[[u64; 3]]) -> f64 {
    let holds: u64 = histogram.iter().map(|[_, _, holds]| holds).sum();
    let square = |&[from, to, holds]: &[u64; 3]| {
        let steps = f64::midpoint(from as f64, to as f64);
        steps * steps * holds as f64
    };
    histogram.iter().map(square).fold(0.0, |sum, square| sum + square) / holds.max(1) as f64
}

/// What the lock costs; where that cannot be said why, if there is a lock to ask about.
fn zone_lock(replay: &Replay, model: &Model) -> Result<ZoneLock, Option<String>> {
    let facts = &replay.survey.facts;
    let span = duration(facts.span_ns());
    let cpus =
        u16::try_from(facts.cpus_seen).unwrap_or(u16::MAX).clamp(1, replay.machine.cpus.max(1));
    let used = |one: &EngineOutcome| LockUse {
        holds: one.counters.zone_lock_acquisitions,
        steps: one.counters.zone_lock_work,
        square_steps: square_steps(&one.zone_lock_work_histogram),
        refilled: one.counters.refilled_frames,
        cpus,
        span_ns: facts.span_ns(),
    };
    let first = replay.engines.first().map(used).ok_or(None)?;
    // An engine without the lock does not say what the lock costs here.
    if first.holds == 0 {
        return Err(None);
    }
    if facts.events < LEAST.0 || facts.span_ns() < LEAST.1 {
        let (events, of) = (counted(facts.events, "event"), counted(LEAST.0, "event"));
        return Err(Some(format!(
            "Whether the zone lock is a problem cannot be said of {events} in {span}: that takes \
             {of} and {} at least.",
            duration(LEAST.1)
        )));
    }
    let wait = |one: &EngineOutcome| {
        let used = used(one);
        Wait {
            engine: one.engine.clone(),
            held_share: used.held_share(model),
            waiting_shares: CPUS.map(|cpus| used.waiting_share(model, cpus)),
        }
    };
    let engines: Vec<Wait> = replay.engines.iter().map(wait).collect();
    let now = first.waiting_share(model, cpus);
    let sentences = [
        now_sentence(&engines[0], now, &span, cpus),
        more_sentence(&engines[0]),
        help_sentence(&engines),
    ];
    let sentences = sentences.into_iter().filter(|sentence| !sentence.is_empty()).collect();
    Ok(ZoneLock { sentences, model: model.machine.clone(), cpus: CPUS, engines })
}

/// Whether it is a problem as recorded.
fn now_sentence(first: &Wait, waiting: f64, span: &str, cpus: u16) -> String {
    let is = if waiting < PROBLEM { "No" } else { "Yes" };
    format!(
        "Is the zone lock a problem on this machine of {}? {is}: by the model, {} would have held \
         it for {} of the {span} recorded, and its CPUs would have waited for it for {} of their \
         time.",
        counted(cpus.into(), "CPU"),
        first.engine,
        share(first.held_share),
        share(waiting)
    )
}

/// What it would be with more CPUs.
fn more_sentence(first: &Wait) -> String {
    let shares = CPUS
        .iter()
        .zip(first.waiting_shares)
        .map(|(cpus, waiting)| format!("{} on {cpus} CPUs", share(waiting)));
    let shares: Vec<String> = shares.collect();
    let from = CPUS.iter().zip(first.waiting_shares).find(|(_, waiting)| *waiting >= PROBLEM);
    let least = format!("{:.0} %", PROBLEM * 100.0);
    let from = match from {
        None => format!("None of these is a problem, which begins at {least}"),
        Some((cpus, _)) => format!("With {cpus} CPUs it is a problem: {least} or more"),
    };
    format!(
        "With more CPUs, each as busy as these, the share of their time that they would wait for \
         {}'s zone lock is at least {}. {from}.",
        first.engine,
        listed(&shares.iter().map(String::as_str).collect::<Vec<_>>())
    )
}

/// Which change would help where it is a problem: the others by what is left of the wait on the
/// largest machine.
fn help_sentence(engines: &[Wait]) -> String {
    let last = CPUS.len() - 1;
    let (first, others) = engines.split_first().expect("the one that was asked about");
    if others.is_empty() {
        return String::new();
    }
    if first.waiting_shares[last] < PROBLEM {
        return "The zone lock alone is no reason to change the allocator here.".to_owned();
    }
    let helps = |wait: &&Wait| wait.waiting_shares[last] < first.waiting_shares[last] / 2.0;
    let mut help: Vec<&Wait> = others.iter().filter(helps).collect();
    help.sort_by(|a, b| a.waiting_shares[last].total_cmp(&b.waiting_shares[last]));
    if help.is_empty() {
        return format!("None of the other engines halves the wait on {} CPUs.", CPUS[last]);
    }
    let text = |wait: &&Wait| match wait.held_share {
        0.0 => format!("{} (takes no zone lock)", wait.engine),
        _ => format!("{} ({})", wait.engine, share(wait.waiting_shares[last])),
    };
    let help = unique(help.iter().map(text));
    format!("Engines that more than halve that wait on {} CPUs: {}.", CPUS[last], help.join(", "))
}

/// The answer as text for people: warnings, sentences, and the wait for the zone lock as a table.
pub fn render(answer: &Answer, style: Style) -> String {
    let mut text = String::new();
    let mut say = |sentence: &String| {
        let _ = writeln!(text, "  {}", wrap(sentence, style, "  "));
    };
    for warning in &answer.warnings {
        say(&format!("WARNING: {warning}"));
    }
    answer.sentences.iter().for_each(&mut say);
    let Some(lock) = &answer.zone_lock else { return text };
    lock.sentences.iter().for_each(&mut say);
    let columns = lock.cpus.map(|cpus| (right(format!("wait, {cpus} CPUs")), Room::Always));
    let named =
        [(Cell::new("zone lock, modelled"), Room::Always), (right("held here"), Room::Always)];
    let mut table = Table::new(named.into_iter().chain(columns));
    let names: Vec<&str> = lock.engines.iter().map(|wait| wait.engine.as_str()).collect();
    for (wait, place) in lock.engines.iter().zip(series::places(&names)) {
        let shares = std::iter::once(wait.held_share).chain(wait.waiting_shares);
        let look = &series::LOOKS[place];
        let name = Cell::new(format!("  {} {}", look.glyph, wait.engine)).fg(Color::Of(look.ansi));
        table.row(std::iter::once(name).chain(shares.map(|part| right(share(part)))));
    }
    let legend = format!(
        "Held here: the share of the recorded time that the lock would have been held. Wait: the \
         share of their time that so many CPUs would spend waiting for it. Both are the model's, \
         not measured, and the wait is a floor: requests are taken to come evenly. Shared writes \
         cost nothing in it. Its constants are of: {}.",
        lock.model
    );
    // --wide is for the table of figures: the few columns of this one always fit.
    let own = Style { wide: false, ..style };
    let _ = writeln!(text, "\n{}\n  {}", table.render(own), wrap(&legend, style, "  "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Beginning, Machine, Survey};

    /// An engine of a replay of 1,000 allocations: locks a 1,000 events, writes a 1,000 events,
    /// free blocks at the end.
    fn engine(name: &str, locks: f64, writes: f64, free_blocks_end: u64) -> EngineOutcome {
        let mut one = EngineOutcome {
            engine: name.to_owned(),
            zone_locks_per_1000: locks,
            shared_writes_per_1000: writes,
            free_blocks_end,
            ..EngineOutcome::default()
        };
        (one.counters.allocs, one.counters.frees) = (1000, 1000);
        one.counters.zone_lock_acquisitions = (locks * 20.0) as u64;
        one
    }

    fn replay(engines: Vec<EngineOutcome>) -> Replay {
        let mut survey = Survey::default();
        (survey.facts.cpus_seen, survey.facts.last_ts_ns) = (2, 10_000_000);
        survey.facts.events = 1000;
        let given =
            Beginning { origin: Origin::Given, page_size: Some(4096), ..Beginning::default() };
        Replay {
            survey,
            machine: Machine::new(&given, 1 << 18, 2),
            replayed: 2000,
            injected: 0,
            beginning: Beginning::default(),
            engines,
        }
    }

    fn answer(engines: Vec<EngineOutcome>) -> Answer {
        of(&replay(engines), &Model::standard())
    }

    #[test]
    fn failures_come_first_and_nobody_is_best_then() {
        let mut pressed = engine("6.18", 40.0, 900.0, 10);
        (pressed.counters.allocs, pressed.counters.failed) = (17_219, 61_092);
        let other = engine("pcp-buddy", 3.0, 20.0, 20);
        let said = answer(vec![pressed, other.clone()]);
        assert_eq!((said.sentences, said.zone_lock), (Vec::new(), None));
        assert!(said.warnings[0].contains("6.18 failed 61,092 of 78,311"), "{:?}", said.warnings);
        assert!(!said.warnings[0].contains("pcp-buddy failed"));
        // One in a hundred is not over 1 %.
        let mut few = engine("6.18", 40.0, 900.0, 10);
        (few.counters.allocs, few.counters.failed) = (990, 10);
        assert_eq!(answer(vec![few, other]).warnings, Vec::<String>::new());
    }

    #[test]
    fn ties_are_no_wins() {
        // One block of 1,671 and less than 1 % of writes; the locks differ.
        let engines = |locks| vec![engine("a", locks, 100.0, 1671), engine("b", 1.0, 100.9, 1670)];
        let said = answer(engines(2.0)).sentences;
        assert_eq!(said.len(), 2, "{said:?}");
        let fewest = "Fewest zone locks: b, 1.000 per 1,000 events (-50.0% against a's 2.000).";
        assert_eq!(said[0], fewest);
        let said = answer(engines(1.0)).sentences;
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("On this trace these engines do not differ"));
        // Two that are as good are both named.
        let mut three = engines(2.0);
        three.push(engine("c", 1.005, 100.0, 1671));
        assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
        assert!(answer(three).sentences[0].contains("b and c, 1.000 per"));
    }

    #[test]
    fn each_question_says_its_direction_and_the_winner_its_worst_row() {
        let said = answer(vec![engine("6.18", 40.0, 900.0, 100), engine("b", 0.0, 200.0, 150)]);
        let said = said.sentences;
        let fewest = "Fewest zone locks: b, 0 per 1,000 events (-100.0% against 6.18's 40.0).";
        let most = "Most wholly free blocks at the end: b, 150 (+50.0% against 6.18's 100).";
        assert_eq!([&said[0], &said[2]], [fewest, most]);
        let last = said.last().expect("who leads");
        let best = "b is best, alone or with others, in 3 of the 5 figures compared";
        assert_eq!(*last, format!("{best}, and behind in no row of the table."));
        let mut loses = engine("b", 0.0, 200.0, 150);
        (loses.counters.fallbacks, loses.counters.refills) = (9, 1);
        let said = answer(vec![engine("6.18", 40.0, 900.0, 100), loses]).sentences;
        let worst = "furthest behind is fallbacks: 9, where the best, 6.18, has 0.";
        assert!(said.last().expect("who leads").ends_with(worst), "{said:?}");
    }

    #[test]
    fn the_lock_is_answered_for_here_and_for_more_cpus() {
        let lock = |engines| answer(engines).zone_lock;
        let none = engine("freehold", 0.0, 200.0, 150);
        assert_eq!(lock(vec![none.clone()]), None, "it has no lock to ask about");
        // 800 holds of some 155 ns in ten milliseconds: 1.2 % of them.
        let first = lock(vec![engine("6.18", 40.0, 900.0, 100), none.clone()]).expect("it is said");
        assert!((first.engines[0].held_share - 0.0124).abs() < 0.0005, "{first:?}");
        assert!(first.engines[0].waiting_shares.is_sorted());
        assert_eq!(first.engines[1].waiting_shares, [0.0; 4]);
        let [here, more, help] = &first.sentences[..] else { panic!("{first:?}") };
        let held = "2 CPUs? No: by the model, 6.18 would have held it for 1.2 % of the 10.0 ms";
        assert!(here.contains(held), "{here}");
        assert!(more.ends_with("With 64 CPUs it is a problem: 1 % or more."), "{more}");
        let frees =
            "Engines that more than halve that wait on 256 CPUs: freehold (takes no zone lock).";
        assert_eq!(help, frees);
        // Hardly used: nothing has to change.
        let rare = lock(vec![engine("6.18", 0.5, 900.0, 100), none]).expect("it is said");
        assert!(rare.sentences[1].contains("None of these is a problem"), "{rare:?}");
        assert!(rare.sentences[2].starts_with("The zone lock alone is no reason to change"));
    }

    #[test]
    fn a_recording_too_short_says_nothing_of_the_lock() {
        let said = |events, last_ts_ns| {
            let mut short = replay(vec![engine("6.18", 40.0, 900.0, 100)]);
            (short.survey.facts.events, short.survey.facts.last_ts_ns) = (events, last_ts_ns);
            let said = of(&short, &Model::standard());
            (said.sentences.concat(), said.zone_lock.is_some())
        };
        assert_eq!(said(1000, 10_000_000), (String::new(), true));
        let why = "Whether the zone lock is a problem cannot be said of 2 events in 2.0 us: that \
                   takes 1,000 events and 10.0 ms at least.";
        assert_eq!(said(2, 2_000), (why.to_owned(), false));
        assert!(!said(999, 10_000_000).1 && !said(1000, 9_999_999).1);
    }
}
