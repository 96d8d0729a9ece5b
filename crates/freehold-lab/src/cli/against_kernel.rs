//! `freehold replay --against-kernel`: finds the zoneinfo, builds the machine it describes, compares.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::CliError;
use super::input::TraceFile;
use super::replay::{self as command, Done, ReplayArgs};
use crate::engines::{EngineSpec, PagesetTuning, ZoneTuning};
use crate::replay::against_kernel::{self, Zone};
use crate::replay::sizing;
use crate::trace::zoneinfo;

pub(super) fn run(
    args: &ReplayArgs,
    zoneinfo: Option<&Path>,
    specs: &[EngineSpec],
    trace: &TraceFile,
) -> Result<Done, CliError> {
    let path = match zoneinfo {
        Some(path) => path.to_owned(),
        None => beside(trace)?,
    };
    let zones = read_zones(&path)?;
    let survey = command::survey(args, trace)?;
    let counts = against_kernel::count_kernel(trace, &zones)
        .map_err(|error| CliError::new(format!("{}: {error}", trace.shown())))?;
    let zone = against_kernel::main_zone(&counts, &zones).ok_or_else(|| {
        CliError::new(format!("{}: the kernel took nothing from any zone of {}", trace.shown(), path.display())).hint(
            "record the events kmem:mm_page_alloc_zone_locked and mm_page_pcpu_drain too, and the zoneinfo with them",
        )
    })?;
    let cpus = command::cpus(args, &survey)?.unwrap_or_else(|| sizing::default_cpus(&survey));
    let machine = against_kernel::machine(&zones[zone], cpus);
    let replay = command::drive(args, specs, trace, &survey, machine)?;
    let comparison = Some(against_kernel::compare(&replay, counts, zone));
    Ok(Done { replay, comparison })
}

/// `NAME.zoneinfo.before.txt` beside `NAME.parquet` (or whatever the trace's ending is).
fn beside(trace: &TraceFile) -> Result<PathBuf, CliError> {
    let none = |why: String| CliError::new(why).hint("name the zoneinfo with --zoneinfo FILE");
    let path = trace.path().ok_or_else(|| none(format!("{} has no zoneinfo beside it", trace.shown())))?;
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // trace.tracefs.txt.gz belongs to trace.zoneinfo.before.txt: try without one ending after the other.
    let mut stem = file.as_str();
    while let Some((shorter, _)) = stem.rsplit_once('.') {
        stem = shorter;
        let candidate = path.with_file_name(format!("{stem}.zoneinfo.before.txt"));
        if candidate.is_file() {
            return Ok(candidate);
        }
    }
    let first = file.split('.').next().unwrap_or_default();
    Err(none(format!("there is no {}", path.with_file_name(format!("{first}.zoneinfo.before.txt")).display())))
}

fn read_zones(path: &Path) -> Result<Vec<Zone>, CliError> {
    let text =
        fs::read_to_string(path).map_err(|error| CliError::new(format!("cannot read {}: {error}", path.display())))?;
    let zones = zoneinfo::parse(&text).map_err(|error| CliError::new(format!("{}: {error}", path.display())))?;
    Ok(zones.iter().filter(|zone| zone.managed > 0).map(zone_of).collect())
}

fn zone_of(zone: &zoneinfo::Zone) -> Zone {
    let pagesets = zone.pagesets.iter().map(|set| PagesetTuning {
        cpu: set.cpu,
        count: set.count,
        high: set.high,
        batch: set.batch,
        high_min: set.high_min,
        high_max: set.high_max,
    });
    Zone {
        start: freehold::Pfn::new(zone.start_pfn),
        spanned: zone.spanned,
        tuning: ZoneTuning {
            name: zone.name.clone(),
            free: zone.free,
            min: zone.min,
            low: zone.low,
            high: zone.high,
            managed: zone.managed,
            cma: zone.cma,
            pagesets: pagesets.collect(),
        },
    }
}
