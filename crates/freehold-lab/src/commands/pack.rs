//! `freehold pack`: a trace and the files beside it as one file.

use std::path::PathBuf;

use clap::Args;
use freehold_trace::kernel::Kernel;
use freehold_trace::{TraceMeta, TraceWriter};

use crate::cli::error::CliError;
use crate::cli::input::TraceFile;
use crate::cli::target::{Target, is_dash};
use crate::cli::{Outcome, output};
use crate::tables::thousands;

const EXAMPLES: &str = "\
Examples:
  freehold pack -o one.parquet trace.parquet    with trace.zoneinfo.before.txt and so on
  freehold pack -o one.parquet trace.txt.gz     text becomes Parquet
  freehold pack -o trace.parquet --force trace.parquet

What freehold record writes is one file already. A packed trace can be mailed, piped and kept in \
object storage: every command reads the machine from it, and heeds no file beside it. Rows, the \
recording's description of itself and its losses stay; columns that no replay reads are left out.

Exit codes: 0 written; 2 nothing written.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct PackArgs {
    /// The trace; '-' is standard input.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// The file to write (Parquet); '-' is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the file if it is there already.
    #[arg(long)]
    force: bool,

    /// Leave malformed lines and rows out, and count them, instead of stopping.
    #[arg(long)]
    skip_bad: bool,

    /// The kernel that recorded the trace, as `uname -r` prints it. Default: what the trace or a
    /// copy of /proc/version beside it says.
    #[arg(long, value_name = "VERSION")]
    kernel: Option<Kernel>,
}

pub(super) fn run(args: &PackArgs) -> Result<Outcome, CliError> {
    let to = Some(&args.output).filter(|path| !is_dash(path));
    if to.is_some_and(|path| path.is_file()) && !args.force {
        let exists = format!("{} exists", args.output.display());
        return Err(CliError::new(exists).hint("--force replaces it"));
    }
    Target::TRACE.check(to)?;
    let trace = TraceFile::named(&args.trace, args.skip_bad, args.kernel)?;
    let files = trace.files()?;
    if files.get("zoneinfo").is_none() {
        output::complain(
            "warning: there is no zoneinfo in the trace or beside it: a replay of this file will \
             assume a machine",
        );
    }
    let mut reader = trace.reader()?;
    let meta = TraceMeta::of_copy(reader.info(), files);
    let names = meta.files.names().collect::<Vec<_>>().join(", ");
    let written = Target::TRACE.replace_with(&args.output, |output| {
        let mut writer = TraceWriter::new(output, &args.output, meta, 9)?;
        let mut events = Vec::new();
        while reader.next_batch(&mut events)? {
            writer.write(&events)?;
        }
        // What is left out the file lacks as it does what was lost.
        let lost = reader.lost().saturating_add(reader.skipped());
        if reader.info().lost_events.is_some() || lost > 0 {
            writer.set_lost_events(lost);
        }
        Ok(writer.finish()?)
    })?;
    if let Some(first) = reader.first_skipped() {
        let skipped = thousands(reader.skipped());
        output::complain(&format!(
            "warning: {}: {skipped} malformed rows or lines left out, the first: {first}",
            trace.shown()
        ));
    }
    output::complain(&format!(
        "wrote {}: {} rows; in it: {}",
        args.output.display(),
        thousands(written.rows),
        if names.is_empty() { "no file of the machine" } else { &names }
    ));
    Ok(Outcome::Fine)
}
