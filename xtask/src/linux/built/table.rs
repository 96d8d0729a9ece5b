//! The kernels side by side: rows as JSON, and a table of means with their spread.

use std::fmt::Write as _;

use serde::Serialize;

use super::super::Trouble;
use super::boots;

/// One load in one boot of one kernel.
#[derive(Serialize, Clone, Debug)]
pub(super) struct Row {
    pub(super) kernel: &'static str,
    /// As `uname -r` says.
    pub(super) version: String,
    pub(super) workload: String,
    pub(super) vcpus: u8,
    /// From 1.
    pub(super) boot: u32,
    /// Acquisitions of the zone's lock in `mm/page_alloc.c`, and those that had to wait.
    pub(super) zone_locks: i64,
    pub(super) zone_waits: i64,
    pub(super) freehold_locks: i64,
    /// Of the kernel's per-CPU lists.
    pub(super) refills: i64,
    pub(super) drains: i64,
    /// Whole blocks of 2 MiB in the zone's lists, and in Freehold's books.
    pub(super) free_blocks_after: i64,
    /// Lines of the kernel's log that tell of trouble.
    pub(super) reports: i64,
    #[serde(skip)]
    pub(super) others: Vec<(&'static str, i64)>,
}

#[derive(Serialize)]
struct Report<'a> {
    rows: &'a [Row],
}

/// `{"rows": [...]}`.
///
/// # Errors
///
/// None in practice: a row is numbers and names.
pub(super) fn json(rows: &[Row]) -> Result<String, Trouble> {
    serde_json::to_string_pretty(&Report { rows })
        .map_err(|error| Trouble::Wrong(error.to_string()))
}

/// The mean, and lowest and highest where they differ.
fn spread(values: &[i64]) -> String {
    let (Some(lowest), Some(highest)) = (values.iter().min(), values.iter().max()) else {
        return "-".to_owned();
    };
    let sum: i64 = values.iter().sum();
    let count = i64::try_from(values.len()).unwrap_or(1);
    let mean = (sum + count / 2) / count;
    if lowest == highest { format!("{mean}") } else { format!("{mean} ({lowest} to {highest})") }
}

/// A count of a row, and its name.
type Column = (&'static str, fn(&Row) -> i64);

/// A line for each load and kernel.
pub(super) fn table(rows: &[Row]) -> String {
    let mut kernels: Vec<&str> = Vec::new();
    for row in rows {
        if !kernels.contains(&row.kernel) {
            kernels.push(row.kernel);
        }
    }
    let columns: [Column; 7] = [
        ("zone locks", |row| row.zone_locks),
        ("waits", |row| row.zone_waits),
        ("own locks", |row| row.freehold_locks),
        ("refills", |row| row.refills),
        ("drains", |row| row.drains),
        ("whole blocks", |row| row.free_blocks_after),
        ("reports", |row| row.reports),
    ];
    let mut text = format!("{:8}{:10}", "load", "kernel");
    for (name, _) in &columns {
        let _ = write!(text, "{name:>24}");
    }
    text.push('\n');
    for load in boots::loads() {
        for kernel in &kernels {
            let of = |row: &&Row| row.kernel == *kernel && row.workload == load;
            let rows: Vec<&Row> = rows.iter().filter(of).collect();
            if rows.is_empty() {
                continue;
            }
            let _ = write!(text, "{load:8}{kernel:10}");
            for (_, value) in &columns {
                let values: Vec<i64> = rows.iter().map(|row| value(row)).collect();
                let _ = write!(text, "{:>24}", spread(&values));
            }
            text.push('\n');
        }
    }
    text
}

/// What else was counted, a line for each load and kernel, without what is 0 everywhere.
pub(super) fn others(rows: &[Row]) -> String {
    let mut text = String::new();
    for load in boots::loads() {
        let mut kernels: Vec<&str> = Vec::new();
        for row in rows.iter().filter(|row| row.workload == load) {
            if kernels.contains(&row.kernel) {
                continue;
            }
            kernels.push(row.kernel);
            let same = |other: &&Row| other.workload == load && other.kernel == row.kernel;
            let mut line = String::new();
            for (at, (name, _)) in row.others.iter().enumerate() {
                let values: Vec<i64> =
                    rows.iter().filter(same).map(|row| row.others[at].1).collect();
                if values.iter().any(|&value| value != 0) {
                    let _ = write!(line, ", {name} {}", spread(&values));
                }
            }
            if !line.is_empty() {
                let _ = writeln!(text, "{load}, {}:{}", row.kernel, &line[1..]);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kernel: &'static str, boot: u32, zone_locks: i64) -> Row {
        Row {
            kernel,
            version: "7.1.3".to_owned(),
            workload: "exit".to_owned(),
            vcpus: 2,
            boot,
            zone_locks,
            zone_waits: 1,
            freehold_locks: 0,
            refills: 2,
            drains: 3,
            free_blocks_after: 4,
            reports: 0,
            others: vec![("merges", zone_locks - 10)],
        }
    }

    #[test]
    fn rows_have_the_fields_that_were_asked_for_and_no_others() {
        let json: serde_json::Value =
            serde_json::from_str(&json(&[row("rfc", 1, 5)]).unwrap()).unwrap();
        let fields: Vec<&String> = json["rows"][0].as_object().unwrap().keys().collect();
        let mut wanted = [
            "kernel",
            "version",
            "workload",
            "vcpus",
            "boot",
            "zone_locks",
            "zone_waits",
            "freehold_locks",
            "refills",
            "drains",
            "free_blocks_after",
            "reports",
        ];
        wanted.sort_unstable();
        let mut fields: Vec<&str> = fields.into_iter().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, wanted);
    }

    #[test]
    fn boots_become_a_mean_with_its_spread() {
        let rows = [row("vanilla", 1, 10), row("vanilla", 2, 13), row("rfc", 1, 10)];
        let text = table(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].starts_with("exit    vanilla") && lines[1].contains(" 12 (10 to 13) "));
        assert!(lines[2].starts_with("exit    rfc") && !lines[2].contains("to"));
        assert_eq!(others(&rows), "exit, vanilla: merges 2 (0 to 3)\n");
    }
}
