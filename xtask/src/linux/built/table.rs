//! The kernels side by side: rows as JSON, and a table of means with their spread.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

/// One load in one boot of one kernel.
#[derive(Serialize, Clone, Debug)]
pub(super) struct Row {
    pub(super) kernel: &'static str,
    /// As `uname -r` says.
    pub(super) version: String,
    pub(super) workload: String,
    pub(super) vcpus: u8,
    /// Into which the kernel has cut the memory.
    pub(super) nodes: u8,
    pub(super) boot: u32,
    /// Acquisitions of zones' locks in `mm/page_alloc.c`, those that had to wait, and those of
    /// zones that are Freehold's.
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
    /// Free pages in the zones' lists after the load, as `/proc/buddyinfo` tells, order by order.
    #[serde(skip)]
    pub(super) free_by_order: Vec<i64>,
}

/// `{"rows": [...], "details": [...]}`: a detail for each row, in their order, whose counts are
/// those that are not 0.
pub(super) fn json(rows: &[Row]) -> String {
    let detail = |row: &Row| {
        let counts = row.others.iter().copied().filter(|&(_, count)| count != 0);
        json!({"kernel": row.kernel, "workload": row.workload, "vcpus": row.vcpus,
            "boot": row.boot, "buddyinfo_after": row.free_by_order,
            "counts": counts.collect::<BTreeMap<_, _>>()})
    };
    format!("{:#}", json!({"rows": rows, "details": rows.iter().map(detail).collect::<Vec<_>>()}))
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

/// The boots of a kernel with so many CPUs, and what they counted of a load.
struct Group<'a> {
    workload: &'a str,
    vcpus: u8,
    kernel: &'static str,
    rows: Vec<&'a Row>,
}

impl Group<'_> {
    fn spread(&self, count: impl Fn(&Row) -> i64) -> String {
        spread(&self.rows.iter().map(|row| count(row)).collect::<Vec<i64>>())
    }
}

/// Load by load, in the order of the first boot; then by CPUs, then the kernels in their order.
fn groups(rows: &[Row]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group> = Vec::new();
    for row in rows {
        let of = |group: &&mut Group| {
            (group.workload, group.vcpus, group.kernel)
                == (row.workload.as_str(), row.vcpus, row.kernel)
        };
        match groups.iter_mut().find(of) {
            Some(group) => group.rows.push(row),
            None => {
                let Row { workload, vcpus, kernel, .. } = row;
                groups.push(Group { workload, vcpus: *vcpus, kernel, rows: vec![row] });
            }
        }
    }
    let mut loads: Vec<&str> = Vec::new();
    for group in &groups {
        if !loads.contains(&group.workload) {
            loads.push(group.workload);
        }
    }
    let place = |load: &str| loads.iter().position(|&known| known == load);
    groups.sort_by_key(|group| (place(group.workload), group.vcpus));
    groups
}

/// A line for each load, number of CPUs and kernel.
pub(super) fn table(rows: &[Row]) -> String {
    let columns: [Column; 7] = [
        ("zone locks", |row| row.zone_locks),
        ("waits", |row| row.zone_waits),
        ("of its zones", |row| row.freehold_locks),
        ("refills", |row| row.refills),
        ("drains", |row| row.drains),
        ("whole blocks", |row| row.free_blocks_after),
        ("reports", |row| row.reports),
    ];
    let mut text = format!("{:8}{:>4} {:13}", "load", "cpus", "kernel");
    for (name, _) in &columns {
        let _ = write!(text, "{name:>24}");
    }
    text.push('\n');
    for group in groups(rows) {
        let _ = write!(text, "{:8}{:>4} {:13}", group.workload, group.vcpus, group.kernel);
        for (_, value) in &columns {
            let _ = write!(text, "{:>24}", group.spread(value));
        }
        text.push('\n');
    }
    text
}

/// What else was counted, a line for each of them: without what is 0 everywhere, and with the mean
/// of what is free in the zones' lists.
pub(super) fn others(rows: &[Row]) -> String {
    let mut text = String::new();
    for group in groups(rows) {
        let first = group.rows[0];
        let mut line: Vec<String> = Vec::new();
        for (at, (name, _)) in first.others.iter().enumerate() {
            if group.rows.iter().any(|row| row.others[at].1 != 0) {
                line.push(format!("{name} {}", group.spread(|row| row.others[at].1)));
            }
        }
        let boots = i64::try_from(group.rows.len()).unwrap_or(1);
        let free = (0..first.free_by_order.len()).map(|order| {
            let sum: i64 = group.rows.iter().map(|row| row.free_by_order[order]).sum();
            format!(" {}", (sum + boots / 2) / boots)
        });
        line.push(format!("buddyinfo{}", free.collect::<String>()));
        let (Group { workload, vcpus, kernel, .. }, line) = (&group, line.join(", "));
        let _ = writeln!(text, "{workload}, {vcpus} CPUs, {kernel}: {line}");
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
            nodes: 1,
            boot,
            zone_locks,
            zone_waits: 1,
            freehold_locks: 0,
            refills: 2,
            drains: 3,
            free_blocks_after: 4,
            reports: 0,
            others: vec![("merges", zone_locks - 10)],
            free_by_order: vec![zone_locks, 7],
        }
    }

    #[test]
    fn rows_have_the_fields_that_were_asked_for_and_no_others() {
        let text = super::json(&[row("rfc", 1, 5)]);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["details"][0]["counts"], serde_json::json!({"merges": -5}));
        assert_eq!(json["details"][0]["buddyinfo_after"], serde_json::json!([5, 7]));
        let fields: Vec<&String> = json["rows"][0].as_object().unwrap().keys().collect();
        let wanted = "boot drains free_blocks_after freehold_locks kernel nodes refills reports \
            vcpus version workload zone_locks zone_waits";
        let mut fields: Vec<&str> = fields.into_iter().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields.join(" "), wanted);
    }

    #[test]
    fn boots_become_a_mean_with_its_spread() {
        let mut rows = vec![row("vanilla", 1, 10), row("vanilla", 2, 13), row("rfc", 1, 10)];
        // Of another number of CPUs: another line, though it came last.
        rows.push(Row { vcpus: 8, ..row("vanilla", 1, 50) });
        let text = table(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[1].starts_with("exit       2 vanilla"), "{text}");
        assert!(lines[1].contains(" 12 (10 to 13) "));
        assert!(lines[2].starts_with("exit       2 rfc") && !lines[2].contains("to"));
        assert!(lines[3].starts_with("exit       8 vanilla") && lines[3].contains(" 50 "));
        let text = others(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "exit, 2 CPUs, vanilla: merges 2 (0 to 3), buddyinfo 12 7");
        // What is nothing is not told.
        assert_eq!(lines[1], "exit, 2 CPUs, rfc: buddyinfo 10 7");
    }
}
