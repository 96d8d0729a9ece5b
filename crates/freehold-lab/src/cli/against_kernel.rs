//! `freehold replay --against-kernel`: finds the zoneinfo, builds the machine it describes, compares.

use std::path::{Path, PathBuf};

use super::error::CliError;
use super::input::TraceFile;
use super::replay::{self as command, Done, ReplayArgs, StartingLists};
use crate::engines::{EngineSpec, PagesetTuning, ZoneTuning};
use crate::replay::against_kernel::{self, Zone};
use crate::replay::{sizing, starting_lists};
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
    let mut zones = read_zones(&path)?;
    let survey = command::survey(args, trace)?;
    let counts =
        against_kernel::count_kernel(trace, &zones).map_err(|error| CliError::from_reader(&error.to_string()))?;
    let zone = against_kernel::main_zone(&counts, &zones).ok_or_else(|| {
        CliError::new(format!("{}: the kernel took nothing from any zone of {}", trace.shown(), path.display())).hint(
            "record the events kmem:mm_page_alloc_zone_locked and mm_page_pcpu_drain too, and the zoneinfo with them",
        )
    })?;
    match args.starting_lists() {
        StartingLists::Trace => starting_lists::reconstruct(trace, &mut zones[zone])
            .map_err(|error| CliError::from_reader(&error.to_string()))?,
        StartingLists::Zoneinfo => starting_lists::assume_single_frames(&mut zones[zone]),
    }
    let cpus = command::cpus(args, &survey)?.unwrap_or_else(|| sizing::default_cpus(&survey));
    let machine = against_kernel::machine(&zones[zone], cpus);
    let replay = command::drive(args, specs, trace, &survey, machine)?;
    let comparison = Some(against_kernel::compare(&replay, counts, zone));
    Ok(Done { replay, comparison })
}

fn beside(trace: &TraceFile) -> Result<PathBuf, CliError> {
    trace.path().and_then(|path| zoneinfo::beside(path, "zoneinfo")).ok_or_else(|| {
        CliError::new(format!("{}: there is no zoneinfo beside it", trace.shown()))
            .hint("copy /proc/zoneinfo to NAME.zoneinfo.before.txt when recording, or name one with --zoneinfo FILE")
    })
}

fn read_zones(path: &Path) -> Result<Vec<Zone>, CliError> {
    let zones = zoneinfo::read(path).map_err(|error| CliError::from_reader(&error.to_string()))?;
    Ok(zones.iter().filter_map(zone_of).collect())
}

/// A zone with memory in it; `None` for an empty one.
fn zone_of(zone: &zoneinfo::Zone) -> Option<Zone> {
    let pagesets = zone.pagesets.iter().map(|set| PagesetTuning {
        cpu: set.cpu.get(),
        count: set.count,
        high: set.high,
        batch: set.batch,
        high_min: set.high_min.unwrap_or(set.high),
        high_max: set.high_max.unwrap_or(set.high),
        lists: Vec::new(),
    });
    Some(Zone {
        start: zone.start_pfn.filter(|_| zone.managed > 0)?,
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
    })
}
