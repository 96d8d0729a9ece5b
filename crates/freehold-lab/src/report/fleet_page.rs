//! The page of many machines: the verdict and where the figures come from, distributions, which
//! design helps which, the worst machines, and a section for each machine.
//!
//! A machine's section is shown to whoever follows a link to it, by the style alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::embed;
use super::fleet::{Fleet, MEASURES, Measure, Recording, SHOWN, figure, text};
use super::page;
use super::table::{Table, cells, plain};
use crate::cli::error::CliError;
use crate::cli::provenance::command_line;
use crate::results::rows;
use crate::tables::answer::listed;
use crate::tables::better::Better;
use crate::tables::number::{counted, read};
use crate::tables::{are_equal, thousands, unique};

/// So many bytes of machines' sections.
const SECTIONS: usize = 4_400_000;
/// So many machines, kinds, programs and reasons are named.
const NAMED: usize = 20;

/// The page as text.
pub(super) fn render(tables: &[rows::Table], title: &str) -> Result<String, CliError> {
    let fleet = Fleet::new(tables)?;
    let (mut sections, mut shown) = (String::new(), BTreeMap::new());
    let worst = MEASURES.iter().flat_map(|measure| worst(&fleet, measure));
    // The worst first, where there is no room for all.
    let worst: Vec<&str> = worst.map(|of| &*of.machine).collect();
    for machine in unique(worst.into_iter().chain(fleet.machines())) {
        let section = section(&fleet, machine, shown.len());
        if sections.len() + section.len() <= SECTIONS {
            sections.push_str(&section);
            shown.insert(machine, shown.len());
        }
    }
    let made = Page { fleet: &fleet, shown };
    let mut html = made.verdict() + &about(tables);
    MEASURES.iter().for_each(|measure| html.push_str(&made.distribution(measure)));
    let [steps, longest, _, unusable, _] = &MEASURES;
    html += &(made.kinds(steps) + &made.kinds(unusable));
    html += &(made.worst(longest) + &made.worst(unusable));
    html.push_str(&made.unreadable());
    let links: Vec<String> = made.shown.keys().map(|machine| made.link(machine)).collect();
    let _ = writeln!(html, "<h2 id=\"all\">Machines</h2>\n<p>{}</p>", links.join(" "));
    let left = fleet.machines().len() - links.len();
    if left > 0 {
        let left = counted(left as u64, "machine");
        let _ = writeln!(html, "<p>{left} had no room: make a page of fewer rows.</p>");
    }
    Ok(page::framed(title, &(html + &sections)))
}

struct Page<'f> {
    fleet: &'f Fleet,
    /// The number of the section of each machine that has one.
    shown: BTreeMap<&'f str, usize>,
}

impl Page<'_> {
    fn baseline(&self) -> &str {
        self.fleet.engines.first().map_or("", |engine| engine)
    }

    fn link(&self, machine: &str) -> String {
        let name = embed::text(machine);
        let at = self.shown.get(machine);
        at.map_or(name.clone(), |at| format!("<a href=\"#m{at}\">{name}</a>"))
    }

    /// Ratios to the baseline by recording, from the least to the most.
    fn ratios(&self, engine: &str, measure: &Measure) -> Vec<(f64, &Recording)> {
        let ratio = |of| Some((Recording::ratio(of, self.baseline(), engine, measure.column)?, of));
        let mut ratios: Vec<_> = self.fleet.recordings.iter().filter_map(ratio).collect();
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        ratios
    }

    /// Who is best at what, on how many, and what makes the figures worth less.
    fn verdict(&self) -> String {
        let fleet = self.fleet;
        let mut said = format!(
            "{}; {} could not be read.",
            fleet.told(),
            thousands(fleet.unreadable.len() as u64)
        );
        for (measure, what) in
            [(&MEASURES[0], "Fewest steps under the zone lock"), (&MEASURES[3], "Least fragmented")]
        {
            let counts = fleet.engines.iter().map(|engine| {
                let is_best = |of: &&Recording| is_best(fleet, of, engine, measure);
                (fleet.recordings.iter().filter(is_best).count(), engine.as_str())
            });
            let counts: Vec<(usize, &str)> = counts.collect();
            let Some(most) = counts.iter().map(|(count, _)| *count).max() else { continue };
            let best = counts.iter().filter(|(count, _)| *count == most);
            let best = listed(&best.map(|(_, engine)| *engine).collect::<Vec<_>>());
            let _ = write!(said, " {what}: {best}, on {} of them.", thousands(most as u64));
        }
        let mut html = format!("<p class=\"verdict\">{}</p>\n", embed::text(&said));
        for (column, value, said) in [
            ("machine_origin", "assumed", "of an assumed machine, since nothing says which it was"),
            ("status", "not_whole", "of replays that lost frames or failed their checks"),
        ] {
            let rows = fleet.recordings.iter().flat_map(|of| &of.rows);
            let count = rows.filter(|row| text(row, column) == value).count();
            if count > 0 {
                let rows = counted(count as u64, "row");
                let _ = writeln!(html, "<p class=\"warning\">{rows} {said}.</p>");
            }
        }
        html
    }

    /// A measure over all recordings: the figures, their ratios to the baseline's, gains and
    /// losses.
    fn distribution(&self, measure: &Measure) -> String {
        let base = self.baseline();
        let caption = format!("{}: figures, and their ratio to {base}'s", measure.said);
        let headings = "|10 %|median|90 %|most|ratio, 10 %|median|90 %|better|worse|worst machine";
        let mut table = Table::new(&caption, &headings.split('|').collect::<Vec<_>>());
        for engine in &self.fleet.engines {
            let all = self.fleet.recordings.iter();
            let figures = sorted(all.filter_map(|of| of.figure(engine, measure.column)));
            let ratios = self.ratios(engine, measure);
            let mut row = quantiles(&figures, &[0.1, 0.5, 0.9, 1.0]);
            let parts: Vec<f64> = ratios.iter().map(|(ratio, _)| *ratio).collect();
            row.extend(quantiles(&parts, &[0.1, 0.5, 0.9]));
            let count = |is: fn(f64) -> bool| {
                plain(parts.iter().filter(|ratio| is(measure.worse(**ratio))).count() as f64)
            };
            row.extend([count(|worse| worse < 0.0), count(|worse| worse > 0.0)]);
            let worst = if measure.better == Better::More { ratios.first() } else { ratios.last() };
            let worst = worst.filter(|(ratio, _)| measure.worse(*ratio) > 0.0);
            let worst =
                worst.map(|(ratio, of)| format!("{}, {}", self.link(&of.machine), read(*ratio)));
            row.push(format!("<td>{}</td>", worst.unwrap_or_default()));
            table.row(engine, &row);
        }
        table.finished()
    }

    /// A table with a column for each engine.
    fn by_engine(&self, caption: &str, first: [&str; 2]) -> Table {
        let engines = self.fleet.engines.iter().map(String::as_str);
        Table::new(caption, &first.into_iter().chain(engines).collect::<Vec<_>>())
    }

    /// What each design does to machines of a kind.
    fn kinds(&self, measure: &Measure) -> String {
        let caption = format!("Medians by kernel and load: {}", measure.said);
        let engines = &self.fleet.engines;
        let mut table = self.by_engine(&caption, ["kernel; events a second and CPU", "recordings"]);
        for (kind, of) in self.fleet.kinds().into_iter().take(NAMED) {
            let halves = engines.iter().map(|engine| {
                let all = sorted(of.iter().filter_map(|of| of.figure(engine, measure.column)));
                quantile(&all, 0.5)
            });
            let mut row = vec![plain(of.len() as f64)];
            row.extend(cells(&halves.collect::<Vec<_>>(), measure.better));
            table.row(kind, &row);
        }
        table.finished()
    }

    /// Where the baseline does worst, with what the others do there.
    fn worst(&self, measure: &Measure) -> String {
        let caption = format!("Worst machines by {}, with {}", measure.said, self.baseline());
        let engines = &self.fleet.engines;
        let mut table = self.by_engine(&caption, ["", "kernel; load"]);
        for of in worst(self.fleet, measure) {
            let figures = engines.iter().map(|engine| of.figure(engine, measure.column));
            let mut row = vec![format!("<td>{}</td>", embed::text(&of.kind))];
            row.extend(cells(&figures.collect::<Vec<_>>(), measure.better));
            table.linked_row(&self.link(&of.machine), &row);
        }
        table.finished()
    }

    fn unreadable(&self) -> String {
        let all = &self.fleet.unreadable;
        let said = |row, column| embed::text(text(row, column));
        let item = |row| format!("<li>{}: {}</li>\n", said(row, "path"), said(row, "error"));
        let items: String = all.iter().take(NAMED).map(item).collect();
        match all.len() {
            0 => String::new(),
            count => format!("<h2>Could not be read: {count}</h2>\n<ul>\n{items}</ul>\n"),
        }
    }
}

/// Where the figures come from.
fn about(tables: &[rows::Table]) -> String {
    let rows = || tables.iter().flat_map(|table| &table.rows);
    let programs: BTreeSet<&str> = rows().map(|row| text(row, "program")).collect();
    let first = rows().next().map_or("", |row| text(row, "command"));
    let mut about = vec![("this page", command_line()), ("first command", first.to_owned())];
    about.extend(programs.iter().take(NAMED).map(|program| ("program", (*program).to_owned())));
    about.extend(tables.iter().take(NAMED).flat_map(|table| {
        [("table", table.name.clone()), ("sha256 of the table", table.sha256.clone())]
    }));
    about.push(("sha256 of each trace", "in the section of its machine".to_owned()));
    embed::list(&about)
}

/// A machine's own section: what is known of each recording, and the figures of each engine.
fn section(fleet: &Fleet, machine: &str, at: usize) -> String {
    let mut html = format!("<section class=\"machine\" id=\"m{at}\">");
    let _ = writeln!(html, "<h3>{}</h3>", embed::text(machine));
    let headings: Vec<&str> = [""].into_iter().chain(SHOWN.map(|(_, said)| said)).collect();
    let from = fleet.recordings.partition_point(|of| &*of.machine < machine);
    for of in fleet.recordings[from..].iter().take_while(|of| of.machine == machine) {
        let row = &of.rows[0];
        let number = |column| figure(row, column).map_or("?".into(), read);
        let known = format!(
            "{}; sha256 {}; {}; zone {}; {} CPUs, {} pages, {} machine",
            text(row, "path"),
            text(row, "sha256"),
            text(row, "kernel"),
            text(row, "zone"),
            number("machine_cpus"),
            number("machine_frames"),
            text(row, "machine_origin")
        );
        let _ = writeln!(html, "<p>{}</p>", embed::text(&known));
        for said in
            unique(of.rows.iter().flat_map(|row| [text(row, "warnings"), text(row, "error")]))
        {
            if !said.is_empty() {
                let _ = writeln!(html, "<p class=\"warning\">{}</p>", embed::text(said));
            }
        }
        let mut table = Table::new("", &headings);
        for row in &of.rows {
            let said = |column| figure(row, column).map(read).unwrap_or_default();
            let cell = |(column, _)| format!("<td>{}</td>", said(column));
            table.row(text(row, "engine"), &SHOWN.map(cell));
        }
        html.push_str(&table.finished());
    }
    html + "<p><a href=\"#all\">All machines</a></p></section>\n"
}

/// The recordings on which the baseline does worst, one of a machine.
fn worst<'f>(fleet: &'f Fleet, measure: &Measure) -> Vec<&'f Recording> {
    let Some(base) = fleet.engines.first() else { return Vec::new() };
    let figure = |of: &'f Recording| Some((of.figure(base, measure.column)?, of));
    let mut all: Vec<(f64, &Recording)> = fleet.recordings.iter().filter_map(figure).collect();
    all.sort_by(|a, b| match measure.better {
        Better::More => a.0.total_cmp(&b.0),
        Better::Less | Better::Neither => b.0.total_cmp(&a.0),
    });
    let mut seen = BTreeSet::new();
    all.into_iter().map(|(_, of)| of).filter(|of| seen.insert(&of.machine)).take(NAMED).collect()
}

/// Whether no engine of a recording has a better figure, by over a hundredth.
fn is_best(fleet: &Fleet, of: &Recording, engine: &str, measure: &Measure) -> bool {
    let Some(own) = of.figure(engine, measure.column) else { return false };
    let all = fleet.engines.iter().filter_map(|engine| of.figure(engine, measure.column));
    let best = all.reduce(if measure.better == Better::More { f64::max } else { f64::min });
    best.is_some_and(|best| are_equal(own, best))
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value that this share of all does not exceed.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    sorted.get((sorted.len().saturating_sub(1) as f64 * share).round() as usize).copied()
}

fn quantiles(sorted: &[f64], shares: &[f64]) -> Vec<String> {
    let cell = |share: &f64| quantile(sorted, *share).map_or_else(|| "<td></td>".to_owned(), plain);
    shares.iter().map(cell).collect()
}
