//! The machine that a replay is on: the recorded one where its description lies beside the trace.

use std::path::Path;

use freehold::{FrameRange, Migratetype, Order};
use freehold_trace::buddyinfo::{PageTypeInfo, ZoneFree, parse_buddyinfo, parse_pagetypeinfo};
use freehold_trace::ticks::{self, Tick};
use freehold_trace::zoneinfo;

use super::passes;
use super::replay_args::{Common, Machine, MachineArgs};
use freehold_labkit::cli::error::CliError;
use freehold_labkit::cli::input::TraceFile;
use freehold_labkit::cli::size::Memory;
use freehold_labkit::engines::{MachineConfig, RecordedZone};
use freehold_labkit::replay::against_kernel;
use freehold_labkit::replay::fill::{Contents, Layout};
use freehold_labkit::replay::{Beginning, Origin, Survey, sizing};

/// The zones of the machine that a trace was recorded on, and what was in them.
pub(super) struct Recorded {
    pub(super) zones: Vec<RecordedZone>,
    contents: Vec<Contents>,
    /// When the periodic work ran, if that was recorded.
    pub(super) ticks: Option<Vec<Tick>>,
    /// What the zones were read from.
    pub(super) shown: String,
}

impl Recorded {
    /// Reads the descriptions beside a trace; `None` without a zoneinfo.
    pub(super) fn beside(
        trace: &TraceFile,
        zoneinfo: Option<&Path>,
    ) -> Result<Option<Self>, CliError> {
        let found = match zoneinfo {
            Some(path) => Some((path.display().to_string(), zoneinfo::read(path)?)),
            None => trace.state("zoneinfo", zoneinfo::parse)?,
        };
        let Some((shown, all)) = found else { return Ok(None) };
        let buddies = trace.state("buddyinfo", parse_buddyinfo)?.map(|(_, zones)| zones);
        let types = trace.state("pagetypeinfo", parse_pagetypeinfo)?.map(|(_, types)| types);
        let found = all
            .into_iter()
            .filter(|zone| zone.managed > 0 && zone.start_pfn.is_some())
            .map(|zone| {
                let mut contents = contents(&zone, buddies.as_deref(), types.as_ref());
                let of = RecordedZone { info: zone, lists: Vec::new() };
                let range = cma_of(&of);
                if range.is_none() || contents.free_cma.iter().all(|&chunks| chunks == 0) {
                    // pagetypeinfo tells nothing apart.
                    contents.set_cma(range, of.info.managed);
                }
                contents.cma = range;
                (of, contents)
            });
        let (zones, contents) = found.unzip();
        let ticks = trace.state(ticks::KIND, ticks::parse)?.map(|(_, ticks)| ticks);
        Ok(Some(Self { zones, contents, ticks, shown }))
    }

    /// Makes that share of a zone's memory CMA, whatever it had.
    fn set_cma(&mut self, zone: usize, share: f64, origin: Origin) -> Result<(), CliError> {
        let (zone, contents) = (&mut self.zones[zone], &mut self.contents[zone]);
        let managed = zone.info.managed;
        let (frames, most) = (sizing::cma_frames(managed, share), contents.most_cma(managed));
        if frames > most && origin == Origin::Recorded {
            let percent = most * 100 / managed.max(1);
            let others = "pageblocks of other types are as recorded";
            return Err(CliError::new(format!(
                "so much of zone {} cannot be CMA: {others}",
                zone.info.name
            ))
            .hint(format!("up to {percent} % can; with --machine pristine or a SIZE more")));
        }
        zone.info.cma = frames;
        contents.set_cma(cma_of(zone), managed);
        Ok(())
    }

    /// The state of one zone's memory.
    pub(super) fn layout(&self, zone: usize) -> Layout {
        Layout::new(&self.contents[zone], self.zones[zone].info.managed)
    }

    /// What was free and in use of one zone, in a machine of that zone alone.
    fn beginning(&self, zone: usize, origin: Origin) -> Beginning {
        let layout = (origin == Origin::Recorded).then(|| self.layout(zone));
        Beginning { origin, layout, ticks: self.ticks.clone(), ..Beginning::default() }
    }
}

/// Where the CMA of a zone is in a replay.
fn cma_of(zone: &RecordedZone) -> Option<FrameRange> {
    against_kernel::machine(zone, 1).cma().pop()
}

/// What a replay is on, before the trace has been read.
pub(super) enum Choice {
    /// A zone of the recorded machine; whether with what was in it.
    Recorded(Recorded, Origin),
    /// A machine without a history.
    Sized(Option<Memory>),
}

/// Decides by the arguments and what lies beside the trace.
pub(super) fn choose(
    common: &Common,
    machine: &MachineArgs,
    trace: &TraceFile,
) -> Result<Choice, CliError> {
    let wanted = machine.machine;
    if let Some(Machine::Memory(memory)) = wanted {
        return Ok(Choice::Sized(Some(memory)));
    }
    let origin =
        if wanted == Some(Machine::Pristine) { Origin::Pristine } else { Origin::Recorded };
    match Recorded::beside(trace, common.zoneinfo.as_deref())? {
        Some(recorded) => Ok(Choice::Recorded(recorded, origin)),
        None if wanted.is_some() => Err(no_zoneinfo(trace)),
        None => Ok(Choice::Sized(None)),
    }
}

pub(super) fn no_zoneinfo(trace: &TraceFile) -> CliError {
    CliError::new(format!("{}: there is no zoneinfo beside it", trace.shown()))
        .hint("copy /proc/zoneinfo to NAME.zoneinfo.before.txt when recording, or name one with --zoneinfo FILE")
}

impl Choice {
    /// Whether frames that the trace frees without having allocated them are there from the
    /// beginning.
    pub(super) fn is_filled(&self) -> bool {
        matches!(self, Self::Recorded(_, Origin::Recorded))
    }

    /// The machine, and the state it begins in.
    pub(super) fn machine(
        self,
        common: &Common,
        wanted: &MachineArgs,
        trace: &TraceFile,
        survey: &Survey,
    ) -> Result<(MachineConfig, Beginning), CliError> {
        let cpus = passes::cpus(common, survey)?;
        match self {
            Self::Recorded(mut recorded, origin) => {
                let zone = against_kernel::busiest_zone(trace, &recorded.zones)?.ok_or_else(|| {
                    CliError::new(format!("{}: its frames lie in no zone of {}", trace.shown(), recorded.shown))
                        .hint("name the zoneinfo of the machine that recorded it with --zoneinfo, or a --machine SIZE")
                })?;
                wanted.cma.map_or(Ok(()), |share| recorded.set_cma(zone, share, origin))?;
                let machine = against_kernel::machine(&recorded.zones[zone], cpus);
                let cma = machine.cma();
                Ok((machine, Beginning { cma, ..recorded.beginning(zone, origin) }))
            }
            Self::Sized(memory) => {
                let frames = memory.map(|memory| memory.frames);
                let origin = if memory.is_some() { Origin::Given } else { Origin::Assumed };
                let machine = sizing::machine(survey, wanted.warm, frames, cpus);
                let cma_frames =
                    wanted.cma.map_or(0, |share| sizing::cma_frames(machine.memory_frames, share));
                let machine = MachineConfig { cma_frames, ..machine };
                Ok((
                    machine.clone(),
                    Beginning { origin, cma: machine.cma(), ..Beginning::default() },
                ))
            }
        }
    }
}

/// What was free in a zone, by the best description there is.
fn contents(
    zone: &zoneinfo::Zone,
    buddies: Option<&[ZoneFree]>,
    types: Option<&PageTypeInfo>,
) -> Contents {
    let held = zone.pagesets.iter().map(|set| set.count).sum();
    let mut contents = Contents { held, ..Contents::default() };
    let movable = Migratetype::Movable.index();
    let buddies = buddies
        .and_then(|zones| zones.iter().find(|of| of.node == zone.node && of.zone == zone.name));
    let Some(types) = types
        .filter(|types| types.free.iter().any(|of| of.node == zone.node && of.zone == zone.name))
    else {
        // Of no type that is known: movable, as most memory is; of no order that is known: as large
        // as can be.
        match buddies {
            Some(buddies) => {
                contents.free[movable].iter_mut().zip(&buddies.chunks).for_each(|(n, m)| *n = *m)
            }
            None => {
                contents.free[movable][Order::LINUX_MAX.index()] =
                    zone.free / Order::LINUX_MAX.frames()
            }
        }
        return contents;
    };
    let mut at_least = false;
    for of in types.free.iter().filter(|of| of.node == zone.node && of.zone == zone.name) {
        // HIGHATOMIC and isolated chunks serve no ordinary request: they stay in use.
        let list = match of.migratetype {
            Migratetype::Cma => Some(&mut contents.free_cma),
            other => contents.free.get_mut(other.index()),
        };
        let Some(free) = list else { continue };
        free.iter_mut().zip(&of.chunks).for_each(|(n, m)| *n += m);
        at_least |= of.at_least;
    }
    if let Some(buddies) = buddies.filter(|_| at_least) {
        // pagetypeinfo stops counting at 100,000, buddyinfo does not.
        for (order, total) in buddies.chunks.iter().enumerate().take(Order::LINUX_MAX.index() + 1) {
            let known: u64 =
                contents.free.iter().chain([&contents.free_cma]).map(|chunks| chunks[order]).sum();
            contents.free[movable][order] += total.saturating_sub(known);
        }
    }
    if let Some(blocks) =
        types.blocks.iter().find(|of| of.node == zone.node && of.zone == zone.name)
    {
        contents.blocks.iter_mut().zip(blocks.blocks).for_each(|(n, m)| *n = m);
    }
    contents
}
