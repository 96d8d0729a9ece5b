//! `freehold look`: how fragmented a machine's memory is, of this machine or of copies of its
//! files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use freehold_trace::StateError;
use freehold_trace::machine::{Files, Look, Machine, PageSize, Pages, Parts, Told};

use crate::cli::error::CliError;
use crate::cli::given::{Form, Printed};
use crate::cli::size::{parse_page_size, whole};
use crate::cli::target::{Target, is_dash};
use crate::cli::{Outcome, output, rows, stop};
use crate::look::pressure::{self, Counters};
use crate::look::threshold::Threshold;
use crate::look::{Document, Named, page, pages, prometheus};
use crate::tables::table::Style;

const EXAMPLES: &str = "\
Examples:
  freehold look                                 this machine (as root: by type too)
  freehold look --watch 5                       again every five seconds, until Ctrl-C
  freehold look recording/                      copies of another machine's files
  freehold look before/ after/                  two of them compared
  freehold look --pages                         what each block of memory holds (root)
  journalctl -k | freehold look -               the last report of memory running out
  freehold look --json | jq '.zones[] | {zone, free, whole_free_blocks}'
  freehold look --fail-if 'unusable[9]>0.8'     exit code 1 where that holds
  freehold look --watch 5 --fail-if 'compact_fail>0' && echo interrupted
  freehold look trace.parquet                   the machine in a packed recording
  freehold look --prometheus /var/lib/node_exporter/freehold.prom --watch 60

A directory has zoneinfo, buddyinfo and pagetypeinfo as in /proc, or NAME.zoneinfo.before.txt and \
so on, or is the root of a sosreport; for --pages kpageflags, too, or NAME.pages.before.txt. A \
file has any of them or a kernel log with a Mem-Info report \
(memory ran out, an allocation failed, sysrq-m), plain, gzip or zstd, with anything around it. \
--json prints \
{\"name\", \"page_size\", \"page_size_told\", \"page_size_by\", \"pageblock_order\", \"pageblock_order_told\", \"max_order\", \"total\", \"zones\": \
[{\"node\", \"zone\", \"managed\", \"free\", \"watermarks\", \"held\", \"cma\", \"cma_free\", \"blocks\", \"whole_free_blocks\", \
\"mixed_blocks\", \"orders\": [{\"order\", \"chunks\", \"pages\", \"unusable_index\"}], \"types\": \
[...]}]} with amounts in \
pages, and {\"machines\": [...]} of two.";

#[derive(Args, Clone, PartialEq, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LookArgs {
    /// A machine: a directory with copies of its files, one of them, or a kernel log; '-' is
    /// standard input. Two are compared. Default: /proc of this machine.
    #[arg(value_name = "MACHINE", num_args = 0..=2)]
    machines: Vec<PathBuf>,

    #[command(flatten)]
    printed: Printed,

    /// Look again every SECONDS seconds, 1 to 86,400, until Ctrl-C.
    #[arg(long, value_name = "SECONDS", value_parser = whole(1..=86_400u32))]
    watch: Option<u32>,

    /// Also write the figures of one machine to this file in Prometheus's text format; a reader
    /// always finds a whole file. '-' is standard output, where nothing else is printed then.
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,

    /// Also draw memory block by block: what is free, anonymous, of files, huge, slab, unmovable.
    /// Of this machine by /proc/kpageflags, which is root's.
    #[arg(long, conflicts_with = "json")]
    pages: bool,

    /// Also write the figures of one machine, and what --pages draws, to this file, as a page of
    /// HTML.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// End with 1 where this holds, for example 'unusable[9]>0.8' or 'free<0.05', in any zone; may
    /// be given several times. With --watch as soon as one holds.
    #[arg(long, value_name = "FIGURE>NUMBER")]
    fail_if: Vec<Threshold>,

    /// The page size of the machine, where nothing says it.
    #[arg(long, value_name = "SIZE", value_parser = parse_page_size)]
    page_size: Option<u64>,
}

pub(crate) fn run(args: &LookArgs) -> Result<Outcome, CliError> {
    let machines: Vec<&Path> = match &args.machines[..] {
        [] => vec![Path::new("/proc")],
        named => named.iter().map(PathBuf::as_path).collect(),
    };
    for (path, what) in [
        (&args.prometheus, "--prometheus writes one machine's figures"),
        (&args.html, "--html writes one machine's page"),
    ] {
        if path.is_some() && machines.len() > 1 {
            let message = format!("{what}, and two are named");
            return Err(CliError::new(message).hint("name one of them"));
        }
    }
    Target::METRICS.check(args.prometheus.as_ref())?;
    Target::HTML.check(args.html.as_ref())?;
    let mut before = Before::default();
    let Some(seconds) = args.watch else {
        let failed = show(args, &machines, &mut before)?;
        return Ok(if failed { Outcome::Worse } else { Outcome::Fine });
    };
    let stop = stop::on_signals(false);
    let mut is_first = true;
    // Relaxed: a flag that says nothing about other memory.
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        if args.printed.is_text() && output::style(&args.printed).color {
            // Clears the screen, and writes from its top.
            output::print("\x1b[2J\x1b[H")?;
        }
        match show(args, &machines, &mut before) {
            Ok(false) => {}
            Ok(true) => return Ok(Outcome::Worse),
            // What never worked will not; a full disk may be emptied.
            Err(error) if is_first || error.is_broken_pipe() => return Err(error),
            Err(error) => output::complain(&format!("{error}\n  the watch goes on")),
        }
        is_first = false;
        let period = Duration::from_secs(seconds.into());
        while begun.elapsed() < period && !stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(50).min(period.saturating_sub(begun.elapsed())));
        }
    }
    Ok(Outcome::Interrupted)
}

/// What the last look of a watch leaves to the next.
#[derive(Default)]
struct Before {
    counters: Option<Counters>,
    /// The columns of its csv, which are printed again only where others follow.
    heading: String,
}

/// Shows the machines once; whether a threshold holds.
fn show(args: &LookArgs, machines: &[&Path], before: &mut Before) -> Result<bool, CliError> {
    let looks = machines.iter().map(|path| look(args, path));
    let looks = looks.collect::<Result<Vec<(Named, Option<Pages>)>, CliError>>()?;
    let (mut looks, pages): (Vec<Named>, Vec<_>) = looks.into_iter().unzip();
    let now = Path::new("/proc");
    for (named, _) in looks.iter_mut().zip(machines).filter(|(_, path)| **path == now) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        named.unix_time = since.ok().map(|time| time.as_secs_f64());
        let counters = Counters::read(now);
        named.pressure = Some(pressure::of(now, counters.as_ref(), before.counters.as_ref()));
        before.counters = counters;
    }
    for named in looks.iter_mut().filter(|_| !args.fail_if.is_empty()) {
        let mut all = Vec::new();
        for threshold in &args.fail_if {
            match threshold.found(named) {
                Ok(failed) => all.extend(failed),
                // A rate is known from the second look on.
                Err(why) if args.watch.is_some() => output::complain(&format!("note: {why}")),
                Err(why) => {
                    let hint = "name another figure; a rate needs two looks: --watch SECONDS";
                    return Err(CliError::new(why).hint(hint));
                }
            }
        }
        all.iter().for_each(|failed| output::complain(&format!("FAILED {failed}")));
        named.failed = Some(all);
    }
    print(args, &looks, &pages, &mut before.heading)?;
    Ok(looks.iter().any(|named| named.failed.as_ref().is_some_and(|all| !all.is_empty())))
}

fn print(
    args: &LookArgs,
    looks: &[Named],
    pages: &[Option<Pages>],
    heading: &mut String,
) -> Result<(), CliError> {
    if let (Some(path), [one], [pages]) = (&args.html, looks, pages) {
        Target::HTML.replace(path, &pages::html(one, pages.as_ref()))?;
        if args.watch.is_none() && !is_dash(path) {
            output::complain(&format!("wrote {}", path.display()));
        }
    }
    let text = |style: Style| {
        let mut text: String = match looks {
            [one, other] => page::compare(one, other, style),
            looks => looks.iter().map(|one| page::render(one, style)).collect(),
        };
        for (named, pages) in looks.iter().zip(pages) {
            text.extend(pages.as_ref().map(|pages| pages::render(named, pages, style)));
        }
        text
    };
    if let (Some(path), [one]) = (&args.prometheus, looks) {
        Target::METRICS.replace(path, &prometheus::render(one))?;
        // Nothing that a reader of metrics would stumble over.
        if is_dash(path) {
            return Ok(());
        }
    }
    let document = match looks {
        [one] => Document::One(one),
        machines => Document::Two { machines },
    };
    match args.watch {
        Some(_) if args.printed.json => {
            output::print(&format!("{}\n", serde_json::to_string(&document)?))
        }
        Some(_) if args.printed.format == Some(Form::Csv) => {
            let csv = rows::of_document(&serde_json::to_value(document)?, Form::Csv)?;
            let (names, lines) = csv.split_once('\n').unwrap_or_default();
            if names == heading {
                return output::print(lines);
            }
            names.clone_into(heading);
            output::print(&csv)
        }
        _ => output::result(&args.printed, &document, text),
    }
}

/// The zoneinfo of each machine in a directory that has no plain `zoneinfo`: of each name the copy
/// from before a recording, where there are several.
fn machines_in(directory: &Path) -> Option<BTreeSet<String>> {
    if directory.join("zoneinfo").exists() {
        return None;
    }
    let names = fs::read_dir(directory)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let found = names.filter(|name| name.contains("zoneinfo") && !name.contains(".after."));
    Some(found.collect())
}

/// A machine, and with `--pages` what each of its pages is.
fn look(args: &LookArgs, path: &Path) -> Result<(Named, Option<Pages>), CliError> {
    let files = if path.is_dir() { Files::in_directory(path) } else { Some(Files::at(path)) };
    let files = files.ok_or_else(|| {
        CliError::new(format!("{}: there is no zoneinfo and no buddyinfo in it", path.display()))
            .hint(
                "copy /proc/zoneinfo, /proc/buddyinfo and /proc/pagetypeinfo of the machine into it",
            )
    })?;
    if let Some(others) = machines_in(path).filter(|found| found.len() > 1) {
        output::complain(&format!(
            "warning: {} has files of {} machines, and shown is {}; name another's zoneinfo: {}",
            path.display(),
            others.len(),
            files.states[0].display(),
            others.into_iter().collect::<Vec<_>>().join(", ")
        ));
    }
    let name = match path.as_os_str().to_str() {
        Some("/proc") => "this machine".to_owned(),
        Some("-") => "standard input".to_owned(),
        _ => path.display().to_string(),
    };
    // This machine knows how large its pages are.
    let own = || PageSize { bytes: rustix::param::page_size() as u64, told: Told::Said };
    let own = (path == Path::new("/proc")).then(own);
    let (machine, pages) = read(args, &files, own).map_err(|error| {
        let error = CliError::from(error);
        let (shown, message) = (path.display().to_string(), error.message());
        let message =
            if message.contains(&shown) { message.into() } else { format!("{shown}: {message}") };
        let hint = if is_dash(path) || path.exists() {
            "what is read: copies of zoneinfo, buddyinfo and pagetypeinfo, whole and of one machine, \
             and a kernel log with a Mem-Info report; each may be pasted with prompts around"
        } else {
            "name a directory with copies of the machine's files, or one file"
        };
        CliError::new(message).hint(error.own_hint().unwrap_or(hint))
    })?;
    let look = Look::new(&machine);
    for doubt in &look.doubts {
        output::complain(&format!("warning: {name}: {doubt}: of different moments, or wrong?"));
    }
    if args.pages && pages.is_none() {
        let message = format!("{}: what its pages are is not known", path.display());
        return Err(CliError::new(message).hint(
            "kpageflags is root's; of another machine copy it beside its zoneinfo, or record there \
             as root, which keeps it",
        ));
    }
    Ok((Named::new(name, look), pages))
}

fn read(
    args: &LookArgs,
    files: &Files,
    own: Option<PageSize>,
) -> Result<(Machine, Option<Pages>), StateError> {
    let mut parts = Parts::read(files)?;
    parts.page_size = own.or(parts.page_size);
    parts.notes.iter().for_each(|note| output::complain(&format!("note: {note}")));
    let pages = if args.pages { parts.pages(files)? } else { None };
    Ok((Machine::new(parts, args.page_size)?, pages))
}
