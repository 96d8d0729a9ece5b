//! What the guest measured: lines of fields with tabs between them, as a table and as JSON.

use std::fmt::Write;

use serde::Serialize;

use super::Trouble;

/// One workload by one side.
#[derive(Serialize, PartialEq, Debug)]
pub(crate) struct Measured {
    /// What was done.
    work: String,
    /// By whom.
    side: String,
    /// Of the rounds, an operation each.
    median: f64,
    lowest: f64,
    highest: f64,
    rounds: u32,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    kernel: &'a str,
    cpus: u8,
    run_by: &'a str,
    unit: &'a str,
    results: &'a [Measured],
    said: Vec<&'a str>,
}

/// Whether it is a line of the benchmark.
pub(crate) fn is_result(line: &str) -> bool {
    line.starts_with("bench\t")
}

fn result(line: &str) -> Option<Measured> {
    let fields: Vec<&str> = line.strip_prefix("bench\t")?.split('\t').collect();
    let [work, side, median, lowest, highest, rounds] = fields[..] else { return None };
    // In hundredths.
    let number = |text: &str| text.parse::<f64>().ok().map(|hundredths| hundredths / 100.0);
    Some(Measured {
        work: work.to_owned(),
        side: side.to_owned(),
        median: number(median)?,
        lowest: number(lowest)?,
        highest: number(highest)?,
        rounds: rounds.parse().ok()?,
    })
}

/// All that was measured, in the guest's order.
pub(crate) fn results(lines: &[String]) -> Vec<Measured> {
    lines.iter().filter_map(|line| result(line)).collect()
}

/// A line for each workload, a column for each side.
pub(crate) fn table(results: &[Measured], unit: &str) -> String {
    let distinct = |of: fn(&Measured) -> &str| {
        let mut names: Vec<&str> = Vec::new();
        for name in results.iter().map(of) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    };
    let (works, sides) = (distinct(|one| &one.work), distinct(|one| &one.side));
    let mut text = String::new();
    if works.is_empty() {
        return text;
    }
    let _ = write!(text, "{:28}", format!("{unit} an operation, median"));
    for side in &sides {
        let _ = write!(text, "  {side:>24}");
    }
    text.push('\n');
    for work in works {
        let _ = write!(text, "{work:28}");
        for side in &sides {
            let one = results.iter().find(|one| one.work == work && one.side == *side);
            let _ = write!(
                text,
                "  {:>24}",
                one.map_or_else(String::new, |one| format!("{:.1}", one.median))
            );
        }
        text.push('\n');
    }
    text
}

/// All of it for other programs.
///
/// # Errors
///
/// Where it cannot be put into words, which should not be.
pub(crate) fn json(
    results: &[Measured],
    unit: &str,
    kernel: &str,
    run_by: &str,
    cpus: u8,
    lines: &[String],
) -> Result<String, Trouble> {
    let said = lines
        .iter()
        .map(String::as_str)
        .filter(|line| !line.is_empty() && !is_result(line))
        .collect();
    let report = Report { kernel, cpus, run_by, unit, results, said };
    serde_json::to_string_pretty(&report).map_err(|error| Trouble::Wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_lines_become_a_table() {
        let line = |side: &str, median: u32| format!("bench\tpair\t{side}\t{median}\t100\t900\t7");
        let lines = [
            "guest: Linux".to_owned(),
            line("kernel", 250),
            line("freehold", 120),
            "bench\tcut".to_owned(),
        ];
        let results = results(&lines);
        assert_eq!(results.len(), 2);
        assert_eq!((results[0].median, results[0].highest, results[0].rounds), (2.5, 9.0, 7));
        let table = table(&results, "ns");
        let words: Vec<&str> =
            table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
        assert_eq!(words, ["pair", "2.5", "1.2"]);
        let json = json(&results, "ns", "6.1", "KVM", 2, &lines).unwrap();
        assert!(json.contains("\"side\": \"freehold\"") && json.contains("guest: Linux"), "{json}");
    }
}
