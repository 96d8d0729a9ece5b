//! `cargo xtask docs`: whether README and docs say what the commands print.
//!
//! `docs/checked.json` lists blocks of the documents and the command that each comes from:
//!
//! ```text
//!  {"file", "after", "command"}              the fenced block after the line with that text is its output
//!  {..., "rows": ["| {trace/name} | ..."]}   the table's rows come from its JSON (see `render`)
//!  {..., "rows": [...], "first": 12}         the same of the first so many items
//!  {"file", "says", "command"}               the document says that, with figures in its holes
//!  {..., "numbers": true}                    every number of two digits and more in the table
//!                                            there, but for its first column, is one of its
//!  {..., "sentences": true}                  every sentence of the block there is one of its
//!  {..., "slow": true}                       only with --all: takes minutes
//!  {..., "picture": {...}}                   the picture of the table there (see `picture`)
//!  {"command": "... --picture FILE"}         the picture in FILE is the one that the command draws
//! ```
//!
//! Only counts are checked: what depends on the machine or the moment cannot be. Commands that need
//! the recordings are left out, loudly, where those are not.

mod block;
mod picture;
mod render;
// The laboratory's, without the laboratory: this program is built before it.
#[path = "../../../crates/freehold-lab/src/draw/digits.rs"]
#[allow(unreachable_pub)]
mod digits;
#[path = "../../../crates/freehold-lab/src/draw/panels.rs"]
mod draw;
#[path = "../../../crates/freehold-lab/src/draw/series.rs"]
#[allow(dead_code)]
mod series;
#[path = "../../../crates/freehold-lab/src/draw/svg.rs"]
#[allow(dead_code)]
mod svg;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Args;
use serde::Deserialize;

use crate::build::{root, target};

/// Whether README and docs say what the commands print.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Fail where a text differs from what its command prints (the default).
    #[arg(long)]
    check: bool,

    /// Put what the commands print into the texts.
    #[arg(long, conflicts_with = "check")]
    write: bool,

    /// Also the commands that take minutes.
    #[arg(long)]
    all: bool,

    /// Only blocks of files whose name contains this.
    #[arg(long, value_name = "TEXT")]
    file: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    file: String,
    /// A text of a line before the block; the next block is meant.
    #[serde(default)]
    after: String,
    /// A sentence, or a row, with holes for figures.
    says: Option<String>,
    command: String,
    #[serde(default)]
    rows: Vec<String>,
    /// Of how many items there are rows; of all, where it does not say.
    first: Option<usize>,
    #[serde(default)]
    numbers: bool,
    #[serde(default)]
    sentences: bool,
    #[serde(default)]
    slow: bool,
    picture: Option<picture::Picture>,
}

#[derive(Default)]
struct Tally {
    right: usize,
    different: usize,
    /// Different, and not to be rewritten by this program.
    by_hand: usize,
    skipped: usize,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let root = root();
    let entries: Vec<Entry> = serde_json::from_str(&read(&root.join("docs/checked.json"))?)
        .map_err(|error| format!("docs/checked.json: {error}"))?;
    let mut runner = Runner::new(&root)?;
    let _ = fs::remove_dir_all(Drawing::folder());
    fs::create_dir_all(Drawing::folder()).map_err(|error| error.to_string())?;
    let tally = each(&entries, arguments, &root, &mut runner);
    let _ = fs::remove_dir_all(Drawing::folder());
    ended(&tally, arguments)
}

/// Checks, or rewrites, all blocks that are wanted.
fn each(entries: &[Entry], arguments: &Arguments, root: &Path, runner: &mut Runner) -> Tally {
    let mut tally = Tally::default();
    let wanted =
        |entry: &&Entry| arguments.file.as_ref().is_none_or(|part| entry.file.contains(part));
    for entry in entries.iter().filter(wanted) {
        let name = match &entry.says {
            Some(says) => format!("{}, which says '{says}'", entry.file),
            None => format!("{}, after '{}'", entry.file, entry.after),
        };
        let done = one((entry, &name), arguments, root, runner, &mut tally);
        if let Err(error) = done.and_then(|()| picture(entry, arguments, root, &mut tally)) {
            println!("cannot be checked: {name}: {error}");
            tally.by_hand += 1;
        }
    }
    tally
}

/// How it ends; where nothing was compared that is an error.
fn ended(tally: &Tally, arguments: &Arguments) -> Result<ExitCode, String> {
    let Tally { right, different, by_hand, skipped } = *tally;
    if right + different + by_hand == 0 {
        let part = arguments.file.as_deref().unwrap_or_default();
        return Err(format!(
            "nothing was compared: of the files with '{part}' in their names docs/checked.json \
             has {skipped} blocks, and none was run"
        ));
    }
    let became = if arguments.write { "rewritten" } else { "different" };
    println!(
        "docs: {right} blocks and pictures as printed, {different} {became}, {by_hand} to be \
         changed by hand, {skipped} not run"
    );
    let failed = by_hand > 0 || different > 0 && !arguments.write;
    if different > 0 && !arguments.write {
        println!("cargo xtask docs --write puts the new text in");
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Checks, or rewrites, one block.
fn one(
    (entry, name): (&Entry, &str),
    arguments: &Arguments,
    root: &Path,
    runner: &mut Runner,
    tally: &mut Tally,
) -> Result<(), String> {
    if entry.slow && !arguments.all {
        println!("not run (slow, --all runs it): {name}: {}", entry.command);
        tally.skipped += 1;
        return Ok(());
    }
    let Some(mut command) = runner.expand(&entry.command)? else {
        println!("SKIPPED, the recorded traces are not in ../shared/traces: {name}");
        tally.skipped += 1;
        return Ok(());
    };
    let drawing = Drawing::of(&mut command, root)?;
    let path = root.join(&entry.file);
    let text = read(&path)?;
    let output = runner.output(&command)?;
    if let Some(drawing) = drawing {
        compare(&drawing.of_document, &read(&drawing.drawn)?, arguments.write, tally)?;
    }
    if let Some(says) = &entry.says {
        let said = render::said(&json(&output)?, says)?;
        if block::has_words(&text, &said) {
            tally.right += 1;
        } else {
            println!("different: {name}: by {} that is: {said}", entry.command);
            tally.by_hand += 1;
        }
        return Ok(());
    }
    if entry.numbers || entry.sentences {
        let missing = if entry.numbers {
            block::numbers_missing(&text[block::table(&text, &entry.after)?], &output)
        } else {
            block::sentences_missing(&text[block::fenced(&text, &entry.after)?], &output)
        };
        if missing.is_empty() {
            tally.right += 1;
        } else {
            println!("different: {name}: {} does not print {}", entry.command, missing.join(", "));
            tally.by_hand += 1;
        }
        return Ok(());
    }
    let new = expected(entry, &text, &output)?;
    if new == text {
        tally.right += 1;
        return Ok(());
    }
    tally.different += 1;
    if arguments.write {
        fs::write(&path, &new).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("rewritten: {name}");
    } else {
        println!("different: {name}: {}\n{}", entry.command, block::difference(&text, &new));
    }
    Ok(())
}

/// Checks, or draws, the picture of a table.
fn picture(
    entry: &Entry,
    arguments: &Arguments,
    root: &Path,
    tally: &mut Tally,
) -> Result<(), String> {
    let Some(picture) = &entry.picture else { return Ok(()) };
    let path = root.join(&picture.to);
    let new = picture::drawn(picture, &read(&root.join(&entry.file))?, &entry.after)
        .map_err(|error| format!("{}: {error}", picture.to))?;
    compare(&path, &new, arguments.write, tally)
}

/// Compares a picture of the documents with what it has to be, or makes it that.
fn compare(path: &Path, new: &str, write: bool, tally: &mut Tally) -> Result<(), String> {
    let shown = path.display();
    if fs::read_to_string(path).is_ok_and(|old| old == new) {
        tally.right += 1;
        return Ok(());
    }
    tally.different += 1;
    if write {
        fs::write(path, new).map_err(|error| format!("{shown}: {error}"))?;
        println!("drawn: {shown}");
    } else {
        println!("different: {shown} is not the picture of its table, or of its command");
    }
    Ok(())
}

/// The document with the block as the command prints it.
fn expected(entry: &Entry, text: &str, output: &str) -> Result<String, String> {
    if entry.rows.is_empty() {
        let block = block::fenced(text, &entry.after)?;
        return Ok(block::replaced(text, block, &block::whole(output)));
    }
    let document = json(output)?;
    let block = block::table(text, &entry.after)?;
    let rows = render::rows(&document, &entry.rows, entry.first)?;
    Ok(block::replaced(text, block, &rows))
}

fn json(output: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(output).map_err(|error| format!("the command prints no JSON: {error}"))
}

/// A picture that a command draws (`--picture`): it draws into a file of its own, which is then
/// compared with the one of the documents.
struct Drawing {
    of_document: PathBuf,
    drawn: PathBuf,
}

impl Drawing {
    /// Of this run alone: what an earlier one drew would be taken for what this one draws.
    fn folder() -> PathBuf {
        std::env::temp_dir().join(format!("freehold-docs-{}", std::process::id()))
    }

    /// The picture of a command, which is changed to draw elsewhere; `None` where it draws none.
    fn of(words: &mut [String], root: &Path) -> Result<Option<Self>, String> {
        let Some(at) = words.iter().position(|word| word == "--picture") else { return Ok(None) };
        let word = words.get_mut(at + 1).ok_or("--picture without a file")?;
        let of_document = root.join(&*word);
        let name = of_document.file_name().ok_or("--picture without a file")?.to_string_lossy();
        // Each time alike, so that one run of the command does for several blocks.
        let drawn = Self::folder().join(&*name);
        *word = drawn.display().to_string();
        Ok(Some(Self { of_document, drawn }))
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs commands, each once.
struct Runner {
    root: PathBuf,
    freehold: PathBuf,
    outputs: BTreeMap<Vec<String>, String>,
}

impl Runner {
    /// Builds the command; nothing is built where it is up to date.
    fn new(root: &Path) -> Result<Self, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(&cargo);
        build.current_dir(root).args(["build", "--quiet", "--release"]);
        build.args(["-p", "freehold-lab", "--features", "full"]);
        let built = build.status();
        if !built.is_ok_and(|status| status.success()) {
            return Err("the freehold command cannot be built".into());
        }
        let freehold = target().join("release/freehold");
        Ok(Self { root: root.to_owned(), freehold, outputs: BTreeMap::new() })
    }

    /// A command's words, with the recordings in place of `{traces}` and of `{traces/NAME}`; `None`
    /// without their folder. One that is not there is an error.
    fn expand(&self, command: &str) -> Result<Option<Vec<String>>, String> {
        let traces = self.root.join("../shared/traces");
        let mut words = Vec::new();
        if command.contains("{traces") && !traces.is_dir() {
            return Ok(None);
        }
        for word in command.split_whitespace() {
            match word.strip_prefix("{traces").and_then(|rest| rest.strip_suffix('}')) {
                Some("") => {
                    let files = fs::read_dir(&traces).map_err(|error| error.to_string())?;
                    let files = files.flatten().map(|file| file.path());
                    let mut files: Vec<PathBuf> = files
                        .filter(|path| path.extension().is_some_and(|ending| ending == "parquet"))
                        .collect();
                    files.sort();
                    if files.is_empty() {
                        return Err(format!("{} has no recording", traces.display()));
                    }
                    words.extend(files.iter().map(|path| path.display().to_string()));
                }
                Some(name) => {
                    let path = traces.join(format!("{}.parquet", name.trim_start_matches('/')));
                    if !path.exists() {
                        return Err(format!("there is no {}", path.display()));
                    }
                    words.push(path.display().to_string());
                }
                None => words.push(word.to_owned()),
            }
        }
        Ok(Some(words))
    }

    fn output(&mut self, words: &[String]) -> Result<String, String> {
        if let Some(output) = self.outputs.get(words) {
            return Ok(output.clone());
        }
        let begun = Instant::now();
        let (program, rest) = words.split_first().ok_or("an empty command")?;
        let program =
            if program == "freehold" { self.freehold.clone() } else { PathBuf::from(program) };
        let mut command = Command::new(&program);
        command.current_dir(&self.root).args(rest).env("COLUMNS", "120").env("NO_COLOR", "1");
        let done = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
        if !done.status.success() {
            let told = String::from_utf8_lossy(&done.stderr);
            return Err(format!("'{}' ended with {}: {told}", words.join(" "), done.status));
        }
        let output = String::from_utf8(done.stdout).map_err(|error| error.to_string())?;
        println!("{:5.1} s  {}", begun.elapsed().as_secs_f64(), shortened(words));
        self.outputs.insert(words.to_vec(), output.clone());
        Ok(output)
    }
}

/// A command without the folders of its files.
fn shortened(words: &[String]) -> String {
    let short = |word: &String| {
        word.rsplit_once('/').map_or_else(|| word.clone(), |(_, name)| name.to_owned())
    };
    words.iter().map(short).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_compared_with_what_its_command_draws() {
        let folder = std::env::temp_dir().join(format!("freehold-drawing-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(Drawing::folder()).unwrap();
        let of = |words: &mut [String]| Drawing::of(words, &folder).unwrap();
        let mut words: Vec<String> = ["contiguity", "--picture", "a.svg"].map(str::to_owned).into();
        let drawing = of(&mut words).expect("a picture");
        assert_eq!(words[2], drawing.drawn.display().to_string());
        assert_ne!(drawing.drawn, drawing.of_document);
        fs::write(&drawing.drawn, "<svg>new</svg>").unwrap();
        fs::write(&drawing.of_document, "<svg>old</svg>").unwrap();
        let mut tally = Tally::default();
        let new = read(&drawing.drawn).unwrap();
        let mut compared = |write| {
            compare(&drawing.of_document, &new, write, &mut tally).unwrap();
            (tally.right, tally.different)
        };
        assert_eq!(compared(false), (0, 1), "an older core's");
        assert_eq!([compared(true), compared(false)], [(0, 2), (1, 2)]);
        let found = fs::read_to_string(&drawing.of_document).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        fs::remove_dir_all(Drawing::folder()).unwrap();
        assert_eq!(found, "<svg>new</svg>");
        assert!(of(&mut ["contiguity".to_owned()]).is_none());
    }

    #[test]
    fn a_command_that_fails_ends_no_run_and_nothing_compared_is_an_error() {
        let root = root();
        let (freehold, outputs) = (PathBuf::new(), BTreeMap::new());
        let mut runner = Runner { root: root.clone(), freehold, outputs };
        let mut played = |text: &str| {
            let arguments = Arguments { check: true, write: false, all: false, file: None };
            let tally = each(
                &serde_json::from_str::<Vec<Entry>>(text).unwrap(),
                &arguments,
                &root,
                &mut runner,
            );
            (tally.right, tally.by_hand, ended(&tally, &arguments).is_ok())
        };
        let of = |command: &str, more: &str| {
            let says = "\"file\": \"README.md\", \"says\": \"Freehold\"";
            format!("{{{says}, \"command\": \"{command}\"{more}}}")
        };
        let both = format!("[{}, {}]", of("false", ""), of("echo {}", ""));
        assert_eq!(played(&both), (1, 1, true), "two blocks");
        assert_eq!(played(&format!("[{}]", of("echo {}", ", \"slow\": true"))), (0, 0, false));
    }

    #[test]
    fn a_recording_that_is_not_there_is_an_error_and_no_folder_of_them_is_not() {
        let root = std::env::temp_dir().join(format!("freehold-traces-{}", std::process::id()));
        let runner = |below: &str| {
            let (root, freehold) = (root.join(below), PathBuf::new());
            Runner { root, freehold, outputs: BTreeMap::new() }
        };
        fs::create_dir_all(root.join("shared/traces")).unwrap();
        fs::create_dir_all(root.join("main")).unwrap();
        let found = runner("main").expand("freehold {traces/nowhere}");
        let none = runner("main").expand("freehold {traces}");
        let without = runner("").expand("freehold {traces/nowhere}");
        fs::remove_dir_all(&root).unwrap();
        assert!(found.unwrap_err().contains("nowhere.parquet") && none.is_err());
        assert_eq!(without, Ok(None));
    }

    #[test]
    fn every_picture_has_a_command() {
        let root = root();
        let checked = read(&root.join("docs/checked.json")).unwrap();
        for entry in fs::read_dir(root.join("docs/pictures")).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_svg = entry.path().extension().is_some_and(|ending| ending == "svg");
            assert!(!is_svg || checked.contains(&format!("docs/pictures/{name}")), "{name}");
        }
    }
}
