//! Whether a Parquet trace is what was written: what the file says of its own contents, held
//! against what is read.
//!
//! ```text
//!  columns   a sum over all rows    a damaged page, header or index
//!  pagetrace CRC-32 of the JSON     a damaged description: CPUs, GFP bits, the sums themselves
//! ```
//!
//! Files by others have neither, or checksums of pages, which the `parquet` crate verifies. A
//! damaged page of theirs may still decode, so what else the file says is checked: the counts of
//! events, CPUs, the order of time.

use parquet::file::metadata::KeyValue;
use serde::Serialize;
use serde_json::{Value, json};

use super::schema::{COLUMNS, EVENTS};

/// The key under which the checksum of the description stands.
pub(super) const CHECK_KEY: &str = "pagetrace-crc32";
/// The field of the description that has the columns' sums.
pub(super) const SUMS: &str = "column_sums";

/// What a file says it is protected with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Checksums {
    /// Columns and description: nothing can be damaged unseen.
    All,
    /// None of ours: damage shows only where something contradicts something else.
    None,
}

/// The sum of a column: of every value with its row, so that exchanged rows show too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ColumnSum {
    sum: u64,
    rows: u64,
}

impl ColumnSum {
    #[inline]
    pub(super) fn add(&mut self, values: impl ExactSizeIterator<Item = u64>) {
        let rows = values.len() as u64;
        let mut row = self.rows.wrapping_mul(ROW);
        for value in values {
            // Odd factors and a shift: one changed value always changes the sum, several do but by
            // chance in 2^64.
            let mixed = (value ^ row).wrapping_mul(VALUE);
            self.sum = self.sum.wrapping_add((mixed ^ mixed >> 29).wrapping_mul(VALUE));
            row = row.wrapping_add(ROW);
        }
        self.rows += rows;
    }
}

const ROW: u64 = 0x9e37_79b9_7f4a_7c15;
const VALUE: u64 = 0xd6e8_feb8_6659_fd93;

/// The sums as the description has them.
pub(super) fn described(sums: &[ColumnSum]) -> Value {
    sums.iter()
        .zip(&COLUMNS)
        .map(|(sum, def)| (def.name.to_owned(), json!(format!("{:016x}", sum.sum))))
        .collect()
}

/// The checksum that stands beside a description.
pub(super) fn check_of(description: &str) -> KeyValue {
    KeyValue::new(CHECK_KEY.to_owned(), format!("{:08x}", crc32fast::hash(description.as_bytes())))
}

/// What a file promises, and what has been seen of it.
#[derive(Debug)]
pub(super) struct Integrity {
    /// The columns' sums, where the description has them.
    promised: Option<[u64; COLUMNS.len()]>,
    sums: [ColumnSum; COLUMNS.len()],
    /// Events by kind, where the description has them.
    counts: Option<[u64; EVENTS.len()]>,
    rows: Option<u64>,
    seen: [u64; EVENTS.len()],
    /// CPUs of the machine, where the description has them.
    cpus: Option<u64>,
}

impl Integrity {
    /// What the description (and the checksum beside it) promises.
    pub(super) fn new(description: Option<&str>, check: Option<&str>) -> Result<Self, String> {
        let json: Value =
            description.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let sums = json.get(SUMS);
        match (description, check) {
            (Some(text), Some(check)) if check_of(text).value.as_deref() != Some(check) => {
                return Err(
                    "its description of itself does not have the checksum that stands beside it"
                        .into(),
                );
            }
            (None, Some(_)) => {
                return Err(
                    "its description of itself is missing, only the checksum of it is left".into(),
                );
            }
            (_, None) if sums.is_some() => {
                return Err("the checksum of its description of itself is missing".into());
            }
            _ => {}
        }
        let promised = sums.map(|sums| {
            let mut all = [0; COLUMNS.len()];
            for (sum, def) in all.iter_mut().zip(&COLUMNS) {
                let text = sums.get(def.name).and_then(Value::as_str);
                *sum = text
                    .and_then(|text| u64::from_str_radix(text, 16).ok())
                    .ok_or_else(|| format!("the sum of column `{}` is missing", def.name))?;
            }
            Ok::<_, String>(all)
        });
        let counts = json.get("event_counts").map(|counts| {
            let of = |name: &&str| counts.get(*name).and_then(Value::as_u64).unwrap_or(0);
            let mut all = [0; EVENTS.len()];
            all.iter_mut().zip(&EVENTS).for_each(|(count, name)| *count = of(name));
            all
        });
        Ok(Self {
            promised: promised.transpose()?,
            sums: [ColumnSum::default(); COLUMNS.len()],
            // Some recorders count what they saw, not what they wrote into this file.
            counts: counts.filter(|counts| {
                json.get("rows").and_then(Value::as_u64) == Some(counts.iter().sum())
            }),
            rows: json.get("rows").and_then(Value::as_u64),
            seen: [0; EVENTS.len()],
            cpus: json.get("cpus").and_then(Value::as_u64).filter(|cpus| *cpus > 0),
        })
    }

    /// What protects the file.
    pub(super) fn checksums(&self) -> Checksums {
        if self.promised.is_some() { Checksums::All } else { Checksums::None }
    }

    /// Values of a column were read.
    pub(super) fn values(&mut self, at: usize, values: &[u64]) {
        if self.promised.is_some() {
            self.sums[at].add(values.iter().copied());
        }
    }

    /// Whether a row's CPU is one that the machine has, as far as the file says; for files that
    /// have no sums.
    #[inline]
    pub(super) fn has_cpu(&self, cpu: u64) -> bool {
        self.promised.is_some() || self.cpus.is_none_or(|cpus| cpu < cpus)
    }

    /// Counts an event of that number.
    #[inline]
    pub(super) fn event(&mut self, number: u64) {
        if let Some(seen) = self.seen.get_mut(number as usize) {
            *seen += 1;
        }
    }

    /// Everything has been read.
    pub(super) fn ends(&self, skipped: u64) -> Result<(), String> {
        if let Some(promised) = &self.promised {
            for ((sum, promised), def) in self.sums.iter().zip(promised).zip(&COLUMNS) {
                if sum.sum != *promised {
                    return Err(format!(
                        "column `{}` does not have the sum that it was written with",
                        def.name
                    ));
                }
            }
        }
        // What was left out on request cannot be counted.
        if skipped > 0 {
            return Ok(());
        }
        let rows = self.seen.iter().sum::<u64>();
        if let Some(said) = self.rows.filter(|said| *said != rows) {
            return Err(format!("it has {rows} rows, not {said} as it says"));
        }
        if let Some(counts) = self.counts {
            for ((seen, said), name) in self.seen.iter().zip(counts).zip(EVENTS) {
                if *seen != said {
                    return Err(format!("it has {seen} events `{name}`, not {said} as it says"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_knows_values_and_their_rows() {
        let sum = |values: &[u64]| {
            let mut sum = ColumnSum::default();
            sum.add(values.iter().copied());
            sum
        };
        assert_ne!(sum(&[1, 2]), sum(&[2, 1]));
        assert_ne!(sum(&[1, 2]), sum(&[1, 3]));
        assert_ne!(sum(&[0, 0]).sum, sum(&[0]).sum);
        let mut parts = sum(&[5, 6, 7]);
        parts.add([8, 9].into_iter());
        assert_eq!(parts, sum(&[5, 6, 7, 8, 9]), "however it is cut");
    }
}
