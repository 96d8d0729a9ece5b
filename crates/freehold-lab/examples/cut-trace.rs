//! Cuts a window of rows out of a trace, of any format that is read, into a small Parquet file.
//!
//! ```text
//! cargo run --release -p freehold-lab --example cut-trace -- IN OUT --rows A..B [--name NAME]
//! cargo run --release -p freehold-lab --example cut-trace -- IN --time
//! ```
//!
//! `--time` only reads a trace and says how fast. The sample in `data/` was made with this.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use freehold_trace::{OpenOptions, Source, TraceMeta, TraceReader, TraceWriter};

const USAGE: &str = "usage: cut-trace IN OUT --rows A..B [--name NAME]   (or: cut-trace IN --time)";

struct Arguments {
    input: PathBuf,
    output: Option<PathBuf>,
    rows: std::ops::Range<u64>,
    name: Option<String>,
}

fn main() -> ExitCode {
    let arguments = match arguments(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("error: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut files = Vec::new();
    let (mut rows, mut name, mut time) = (None, None, false);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--rows" => {
                let range = words.next().ok_or("--rows needs A..B")?;
                let ends = range
                    .split_once("..")
                    .and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
                rows = Some(ends.ok_or_else(|| format!("`{range}` is not of the form A..B"))?);
            }
            "--name" => name = Some(words.next().ok_or("--name needs a name")?),
            "--time" => time = true,
            _ => files.push(PathBuf::from(word)),
        }
    }
    let mut files = files.into_iter();
    let input = files.next().ok_or("no trace given")?;
    let output = files.next();
    match (time, &output, rows) {
        (true, None, None) => Ok(Arguments { input, output: None, rows: 0..u64::MAX, name }),
        (false, Some(_), Some(rows)) => Ok(Arguments { input, output, rows, name }),
        _ => Err("give either IN, OUT and --rows, or IN and --time".into()),
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let mut reader =
        TraceReader::open(&Source::from_arg(&arguments.input), OpenOptions::default())?;
    let Some(output) = &arguments.output else { return time(reader) };
    let info = reader.info().clone();
    let mut extra = serde_json::Map::new();
    extra.insert("cut_from".into(), info.name.clone().into());
    extra.insert("cut_rows".into(), vec![arguments.rows.start, arguments.rows.end].into());
    let meta = TraceMeta {
        name: arguments.name.clone().unwrap_or_else(|| info.name.clone()),
        kernel: info.kernel,
        cpus: info.cpus,
        lost_events: info.lost_events,
        extra,
    };
    let mut writer = TraceWriter::create(Path::new(output), meta, 22)?;
    let mut events = Vec::new();
    let mut row = 0u64;
    while row < arguments.rows.end && reader.next_batch(&mut events)? {
        let within = |at: u64| at.saturating_sub(row).min(events.len() as u64) as usize;
        writer.write(&events[within(arguments.rows.start)..within(arguments.rows.end)])?;
        row += events.len() as u64;
    }
    let written = writer.finish()?;
    let bytes = std::fs::metadata(output)?.len();
    println!("{} events in {bytes} bytes; by kind {:?}", written.rows, written.event_counts);
    Ok(())
}

/// Reads the whole trace and says how fast.
fn time(mut reader: TraceReader) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let mut events = Vec::new();
    let (mut rows, mut check) = (0u64, 0u64);
    while reader.next_batch(&mut events)? {
        rows += events.len() as u64;
        check = events.iter().fold(check, |all, event| all ^ event.ts_ns);
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{rows} events ({} other lines) in {seconds:.3} s: {:.1} million a second [{check:x}]",
        reader.ignored(),
        rows as f64 / seconds / 1e6
    );
    Ok(())
}
