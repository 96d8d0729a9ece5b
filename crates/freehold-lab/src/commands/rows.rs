//! A replay as rows: one for each recording, zone and engine, and one for a recording that cannot
//! be read. The columns are those of `columns.tsv`, which is also their documentation.

use std::fs::File;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::cli::error::CliError;
use crate::cli::given::Form;
use crate::cli::output;
use crate::cli::provenance::{About, PROGRAM, command_line, sha256};
use crate::cli::rows::{Kind, Rows};
use crate::cli::target::Target;
use crate::replay::Replay;
use crate::tables::answer::Answer;

/// A line for each column: its name, its type, where `--json` has it, what it means.
///
/// Names stay; columns may be added behind these.
const COLUMNS: &str = include_str!("columns.tsv");
/// Another number where a column's name or meaning changes.
const SCHEMA: u64 = 1;

struct Column {
    name: &'static str,
    kind: Kind,
    /// Where the value is; empty for what only a row has.
    from: &'static str,
}

static TABLE: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let column = |line: &'static str| {
        let mut cells = line.split('\t');
        let mut next = || cells.next().unwrap_or_default();
        let (name, kind, from) = (next(), next(), next());
        let kind = match kind {
            "int" => Kind::Int,
            "real" => Kind::Real,
            "bool" => Kind::Bool,
            _ => Kind::Text,
        };
        Column { name, kind, from }
    };
    // The first line has the headings.
    COLUMNS.lines().skip(1).map(column).collect()
});

/// Rows of what was found so far.
pub(super) struct Replays {
    rows: Rows,
    form: Form,
    is_first: bool,
}

impl Replays {
    pub(super) fn new(form: Form) -> Self {
        let columns = TABLE.iter().map(|column| (column.name.to_owned(), column.kind)).collect();
        Self { rows: Rows { columns, rows: Vec::new() }, form, is_first: true }
    }

    /// Adds the rows of one recording: its zones, and what each answers.
    pub(super) fn add(
        &mut self,
        about: &About,
        zones: &[(&Replay, Option<&Answer>)],
    ) -> Result<(), CliError> {
        for (replay, answer) in zones {
            let mut all = serde_json::to_value(replay)?;
            all["about"] = serde_json::to_value(about)?;
            all["warnings"] = match answer.map(|answer| &answer.warnings[..]) {
                None | Some([]) => Value::Null,
                Some(warnings) => json!(warnings.join(" ")),
            };
            for (at, engine) in replay.engines.iter().enumerate() {
                let wait = answer.and_then(|answer| answer.zone_lock.as_ref());
                let wait =
                    wait.and_then(|lock| lock.engines.iter().find(|w| w.engine == engine.engine));
                all["wait"] = serde_json::to_value(wait)?;
                all["engine"] = all["engines"][at].clone();
                let (status, error) = match engine.whole {
                    true => ("ok", None),
                    false => ("not_whole", Some(engine.errors.join("; "))),
                };
                self.row(&all, status, error);
            }
        }
        Ok(())
    }

    /// Adds the row of a recording that cannot be read.
    pub(super) fn add_unreadable(&mut self, path: &Path, error: &CliError) {
        let is_file = path.is_file().then(|| File::open(path).ok()).flatten();
        let about = json!({
            "program": PROGRAM,
            "command": command_line(),
            "path": path.display().to_string(),
            "sha256": is_file.and_then(|file| sha256(file).ok()),
        });
        self.row(&json!({"about": about}), "unreadable", Some(error.message().to_owned()));
    }

    fn row(&mut self, all: &Value, status: &str, error: Option<String>) {
        let value = |column: &Column| match column.name {
            "schema" => json!(SCHEMA),
            "status" => json!(status),
            "error" => json!(error),
            _ => all.pointer(&format!("/{}", column.from)).cloned().unwrap_or_default(),
        };
        self.rows.rows.push(TABLE.iter().map(value).collect());
    }

    /// Prints what there is, where it is text for standard output: a run that is killed has lost
    /// nothing before.
    pub(super) fn flush(&mut self, to: Option<&Path>) -> Result<(), CliError> {
        if self.form == Form::Parquet || to.is_some() {
            return Ok(());
        }
        output::print(&self.rows.text(self.form, self.is_first))?;
        self.is_first = false;
        self.rows.rows.clear();
        Ok(())
    }

    /// Writes what is left.
    pub(super) fn finish(mut self, to: Option<&Path>) -> Result<(), CliError> {
        self.flush(to)?;
        let to = to.unwrap_or(Path::new("-"));
        match self.form {
            Form::Parquet => {
                Target::ROWS.replace_with(to, |out| self.rows.parquet(out).map_err(CliError::from))
            }
            _ if self.rows.rows.is_empty() => Ok(()),
            form => Target::ROWS.replace(to, &self.rows.text(form, true)),
        }
    }
}
