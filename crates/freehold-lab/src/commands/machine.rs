//! The machine that a replay is on: the recorded one where its description lies beside the trace.

use freehold::{FrameRange, Migratetype, Order};
use freehold_trace::buddyinfo::{BlockType, parse_buddyinfo, parse_pagetypeinfo};
use freehold_trace::machine::{
    Files, Machine as Described, PageSize, Pages, Parts, Told, ZoneState,
};
use freehold_trace::ticks::{self, Tick};
use freehold_trace::zoneinfo;
use std::path::Path;

use super::passes;
use super::replay_args::{Common, Machine, MachineArgs, ZoneName};
use crate::cli::error::CliError;
use crate::cli::input::TraceFile;
use crate::cli::output;
use crate::engines::{MachineConfig, RecordedZone};
use crate::replay::account::Account;
use crate::replay::fill::recorded::{self, Block};
use crate::replay::fill::{Beside, Contents, Layout, assumed_lists};
use crate::replay::of_zone::{RowsOf, rows_of};
use crate::replay::{Beginning, Origin, Survey, sizing};
use crate::tables::thousands;

/// The zones of the machine that a trace was recorded on, and what was in them.
pub struct Recorded {
    pub zones: Vec<RecordedZone>,
    contents: Vec<Contents>,
    /// What the files say of each.
    pub accounts: Vec<Account>,
    /// What the files say of each that contradicts itself.
    doubts: Vec<Vec<String>>,
    /// When the periodic work ran, if that was recorded.
    pub ticks: Option<Vec<Tick>>,
    /// What the zones were read from.
    pub shown: String,
}

impl Recorded {
    /// Reads the descriptions beside a trace; `None` without a zoneinfo.
    pub fn beside(args: &Common, trace: &TraceFile) -> Result<Option<Self>, CliError> {
        let Some((shown, zones)) = trace.state("zoneinfo", zoneinfo::parse)? else {
            return Ok(None);
        };
        let buddies = trace.state("buddyinfo", parse_buddyinfo)?.map(|(_, zones)| zones);
        let types = trace.state("pagetypeinfo", parse_pagetypeinfo)?.map(|(_, types)| types);
        let mut parts = Parts { zones: Some(zones), buddies, types, ..Parts::default() };
        let said = |bytes| PageSize { bytes, told: Told::Said };
        parts.page_size = trace.page_size().map(said);
        let text = |text: &str| Ok(text.to_owned());
        if let Some((_, text)) = trace.state("meminfo", text)? {
            parts.add_meminfo(&text);
        }
        for kind in ["uname", "version"] {
            parts.about.extend(trace.state(kind, text)?.map(|(_, text)| text));
        }
        let described = Described::new(parts, args.page_size)
            .map_err(|error| CliError::new(format!("{shown}: {error}")).hint(COPY))?;
        let pages = trace.state("pages", Pages::parse)?.map(|(_, pages)| pages);
        let recorded = Self::of(&described, pages.as_ref(), shown);
        let ticks = trace.state(ticks::KIND, ticks::parse)?.map(|(_, ticks)| ticks);
        Ok(Some(Self { ticks, ..recorded }))
    }

    /// What files describe, as `look` reads them.
    fn described(args: &Common, path: &Path) -> Result<Self, CliError> {
        let shown = path.display().to_string();
        let files = if path.is_dir() { Files::in_directory(path) } else { Some(Files::at(path)) };
        let files = files.ok_or_else(|| {
            CliError::new(format!("{shown}: there is no zoneinfo and no buddyinfo in it"))
        })?;
        let parts = Parts::read(&files)?;
        parts.notes.iter().for_each(|note| output::complain(&format!("note: {note}")));
        let pages = parts.pages(&files)?;
        let described = Described::new(parts, args.page_size)
            .map_err(|error| CliError::new(format!("{shown}: {error}")))?;
        if !described.zones.iter().all(|zone| zone.is_sized) {
            let error = format!("{shown}: it does not say how large the machine's zones are");
            return Err(CliError::new(error).hint("a zoneinfo and a Mem-Info report say it"));
        }
        Ok(Self::of(&described, pages.as_ref(), shown))
    }

    fn of(described: &Described, pages: Option<&Pages>, shown: String) -> Self {
        for doubt in &described.doubts {
            output::complain(&format!("warning: {shown}: {doubt}"));
        }
        let (mut zones, mut all, mut accounts) = (Vec::new(), Vec::new(), Vec::new());
        let doubts = described.zones.iter().map(|zone| zone.doubts.clone()).collect();
        for zone in &described.zones {
            let mut contents = contents(described, zone);
            let of = zone.info.clone();
            let range = cma_of(&of);
            if range.is_some() && zone.types.is_empty() {
                // No file tells CMA's free chunks from the others: as full as the rest, unless
                // zoneinfo counts them.
                contents.set_cma(range, of.managed);
            }
            contents.cma = range;
            let mut account = account(described, zone);
            let others = described.zones.iter().filter(|other| zone.info != other.info);
            account.guessed.extend(others.filter(|other| zone.overlaps(other)).map(|other| {
                let (name, node) = (&other.info.name, other.info.node);
                format!(
                    "which rows lie in zone {name} of node {node}, whose span overlaps this one"
                )
            }));
            if let Some(pages) = pages {
                by_page(&mut contents, &mut account, pages, zone);
            }
            zones.push(of);
            all.push(contents);
            accounts.push(account);
        }
        Self { zones, contents: all, accounts, doubts, ticks: None, shown }
    }

    /// Refuses a machine that is not the recorded one.
    pub fn compare(
        &self,
        zone: usize,
        trace: &TraceFile,
        layout: &Layout,
        machine: &MachineConfig,
    ) -> Result<(), CliError> {
        if let Some(doubt) = self.doubts[zone].first() {
            return Err(CliError::new(format!("{}: {doubt}", self.shown)).hint(COPY));
        }
        let account = &self.accounts[zone];
        let differences =
            account.differences(layout, machine.cma().iter().map(FrameRange::len).sum());
        let Some(worst) = differences.iter().find(|difference| difference.is_too_large) else {
            return Ok(());
        };
        let (trace, zone) = (trace.shown(), &account.zone);
        Err(CliError::new(format!(
            "{trace}: zone {zone} cannot be built as recorded: {worst}"
        ))
        .hint(
            "compare buddyinfo and pagetypeinfo beside the trace with its zoneinfo; --machine SIZE \
             replays on a machine of that size, all of it free",
        ))
    }

    /// The zone for all rows, where none lies in any: the one that is wanted, else the largest.
    fn one_zone(&mut self, wanted: Option<&ZoneName>) -> Result<usize, CliError> {
        let is = |zone: &RecordedZone| wanted.is_none_or(|wanted| wanted.is(zone.node, &zone.name));
        let fitting = (0..self.zones.len()).filter(|&at| is(&self.zones[at]));
        let largest = fitting.max_by_key(|&at| self.zones[at].managed);
        let at = largest.ok_or_else(|| {
            let wanted = wanted.map_or_else(|| "with memory".to_owned(), ZoneName::to_string);
            CliError::new(format!("{}: there is no zone {wanted} in it", self.shown))
        })?;
        let Account { zone, guessed, .. } = &mut self.accounts[at];
        guessed.push(format!(
            "which rows lie in which zone: all are replayed in zone {zone}, though their frames \
             lie in none of {}",
            self.shown
        ));
        Ok(at)
    }

    /// Makes that share of a zone's memory CMA, whatever it had.
    fn set_cma(&mut self, index: usize, share: f64) -> Result<(), CliError> {
        let (zone, contents) = (&mut self.zones[index], &mut self.contents[index]);
        let managed = zone.managed;
        let (frames, most) = (sizing::cma_frames(managed, share), contents.most_cma(managed));
        if frames > most {
            let percent = most * 100 / managed.max(1);
            let others = "pageblocks of other types are as recorded";
            let wanted = share * 100.0;
            return Err(CliError::new(format!(
                "{wanted} % of zone {} cannot be CMA: {others}",
                zone.name
            ))
            .hint(format!("up to {percent} % can; with --machine SIZE up to 90 %")));
        }
        zone.cma = frames;
        contents.set_cma(cma_of(zone), managed);
        self.accounts[index].by_page = false;
        (self.accounts[index].cma, self.accounts[index].cma_of_unknown_size) = (None, 0);
        Ok(())
    }

    /// The state of one zone's memory, with what is beside its free chunks.
    pub fn layout(&self, zone: usize, beside: &Beside) -> Layout {
        // The last region, which the zone may only have a part of, is built whole.
        let frames = MachineConfig::of_zone(&self.zones[zone], 1).memory_frames;
        Layout::new(&self.contents[zone], beside, frames)
    }

    /// What was free and in use of one zone, in a machine of that zone alone.
    fn beginning(&self, zone: usize, origin: Origin, survey: &Survey, cpus: u16) -> Beginning {
        let beside = Beside::new(assumed_lists(&self.zones[zone], cpus), &survey.warm);
        let layout = Some(self.layout(zone, &beside));
        let account = Some(self.accounts[zone].clone());
        Beginning { origin, layout, account, ticks: self.ticks.clone(), ..Beginning::default() }
    }
}

/// What to do where files are of different moments.
const COPY: &str = "copy zoneinfo, buddyinfo and pagetypeinfo one after the other on the machine \
                    that was recorded; --machine SIZE replays without them";

/// Where the CMA of a zone is in a replay.
fn cma_of(zone: &RecordedZone) -> Option<FrameRange> {
    MachineConfig::of_zone(zone, 1).cma().pop()
}

/// What a replay is on, before the trace has been read.
pub enum Choice {
    /// A zone of the recorded machine; whether with what was in it.
    Recorded(Recorded, Origin),
    /// A machine without a history, of so many frames; bytes of a page, where they are known.
    Sized(Option<u64>, Option<u64>),
}

/// Decides by the arguments and what lies beside the trace.
pub fn choose(
    common: &Common,
    machine: &MachineArgs,
    trace: &TraceFile,
) -> Result<Choice, CliError> {
    let wanted = machine.machine.as_ref();
    let page_size = common.page_size.or_else(|| trace.page_size());
    let origin = match wanted {
        Some(Machine::Memory(memory)) => {
            let frames = (memory << 12).div_ceil(page_size.unwrap_or(4096));
            return Ok(Choice::Sized(Some(frames), page_size));
        }
        Some(Machine::Described(path)) => {
            return Ok(Choice::Recorded(Recorded::described(common, path)?, Origin::Described));
        }
        Some(Machine::Recorded) | None => Origin::Recorded,
    };
    match Recorded::beside(common, trace)? {
        Some(recorded) => Ok(Choice::Recorded(recorded, origin)),
        None if wanted.is_some() => Err(no_zoneinfo(trace)),
        None => Ok(Choice::Sized(None, page_size)),
    }
}

pub fn no_zoneinfo(trace: &TraceFile) -> CliError {
    CliError::new(format!("{}: there is no zoneinfo beside it", trace.shown()))
        .hint("copy /proc/zoneinfo to NAME.zoneinfo.before.txt beside it when recording")
}

impl Choice {
    /// Whether frames that the trace frees without having allocated them are there from the
    /// beginning.
    pub fn is_filled(&self) -> bool {
        matches!(self, Self::Recorded(..))
    }

    /// The zones of a recorded machine that are replayed, with the rows of each, and where the rows
    /// of others lie; `None` where the machine has no zones of its own.
    pub fn zones(
        &mut self,
        wanted: Option<&ZoneName>,
        trace: &TraceFile,
    ) -> Result<Zones, CliError> {
        let Self::Recorded(recorded, origin) = self else {
            return Ok(Zones { replayed: vec![None], rows: Vec::new() });
        };
        let rows = rows_of(trace, &recorded.zones)?;
        let of_zones = &rows[..recorded.zones.len()];
        if *origin == Origin::Described && of_zones.iter().all(|of| of.rows == 0) {
            let replayed = vec![Some(recorded.one_zone(wanted)?)];
            return Ok(Zones { replayed, rows: Vec::new() });
        }
        let all: u64 = rows.iter().map(|of| of.rows).sum();
        let is = |of: &RowsOf| match wanted {
            Some(wanted) => wanted.is(of.node, &of.zone) && of.rows > 0,
            None => of.rows > 0 && of.rows * LEAST_ROWS >= all,
        };
        let mut replayed: Vec<usize> = (0..of_zones.len()).filter(|&at| is(&rows[at])).collect();
        replayed.sort_by_key(|&at| std::cmp::Reverse(rows[at].rows));
        let lie: Vec<String> = rows.iter().filter(|of| of.rows > 0).map(RowsOf::told).collect();
        if replayed.is_empty() {
            let (trace, shown) = (trace.shown(), &recorded.shown);
            let most = of_zones.iter().filter(|of| of.rows > 0).max_by_key(|of| of.rows);
            return Err(match wanted.zip(most) {
                Some((wanted, RowsOf { node, zone, .. })) => {
                    let lie = lie.join(", ");
                    CliError::new(format!("{trace}: none of its rows lies in zone {wanted}: {lie}"))
                        .hint(format!("--zone {node}:{zone}"))
                }
                None => CliError::new(format!("{trace}: its frames lie in no zone of {shown}"))
                    .hint(
                        "put the zoneinfo of the machine that recorded it beside it, or name a \
                         --machine SIZE",
                    ),
            });
        }
        Ok(Zones { replayed: replayed.into_iter().map(Some).collect(), rows })
    }

    pub fn all_zones(&self) -> &[RecordedZone] {
        match self {
            Self::Recorded(recorded, _) => &recorded.zones,
            Self::Sized(..) => &[],
        }
    }

    /// The machine of that zone, and the state it begins in.
    pub fn machine(
        &mut self,
        common: &Common,
        wanted: &MachineArgs,
        trace: &TraceFile,
        zone: Option<usize>,
        survey: &Survey,
    ) -> Result<(MachineConfig, Beginning), CliError> {
        let cpus = passes::cpus(common, survey)?;
        match self {
            Self::Recorded(recorded, origin) => {
                let (zone, origin) = (zone.unwrap_or(0), *origin);
                wanted.cma.map_or(Ok(()), |share| recorded.set_cma(zone, share))?;
                let cpus = passes::cpus_of(common, &recorded.zones[zone], cpus);
                let machine = MachineConfig::of_zone(&recorded.zones[zone], cpus);
                let cma = machine.cma();
                let beginning = recorded.beginning(zone, origin, survey, cpus);
                if let Some(layout) = &beginning.layout {
                    recorded.compare(zone, trace, layout, &machine)?;
                }
                Ok((machine, Beginning { cma, ..beginning }))
            }
            Self::Sized(memory, page_size) => {
                let origin = if memory.is_some() { Origin::Given } else { Origin::Assumed };
                let machine = sizing::machine(survey, wanted.warm, *memory, cpus);
                let cma_frames =
                    wanted.cma.map_or(0, |share| sizing::cma_frames(machine.memory_frames, share));
                let machine = MachineConfig { cma_frames, ..machine };
                let (cma, page_size) = (machine.cma(), *page_size);
                Ok((machine, Beginning { origin, cma, page_size, ..Beginning::default() }))
            }
        }
    }
}

/// A zone is replayed of its own accord where one row in so many lies in it.
const LEAST_ROWS: u64 = 100;

/// What is replayed of a trace.
pub struct Zones {
    /// Which zones, the one with the most rows first; `None`: a machine without zones of its own.
    pub replayed: Vec<Option<usize>>,
    /// How many rows lie where; empty without zones.
    pub rows: Vec<RowsOf>,
}

/// What the files say of a zone.
fn account(machine: &Described, zone: &ZoneState) -> Account {
    let blocks = |of| zone.of(of).map_or(0, |of| of.blocks) * machine.pageblock_order.frames();
    Account {
        node: zone.info.node,
        zone: zone.info.name.clone(),
        page_size: machine.page_size.bytes,
        page_size_told: machine.page_size.told != Told::Assumed,
        pageblock_order: machine.pageblock_order.get(),
        max_order: machine.max_order.get(),
        managed: zone.info.managed,
        free: zone.free(),
        isolated: zone.free_of(Migratetype::Isolate),
        held: zone.held(),
        cma: Some(zone.info.cma),
        cma_of_unknown_size: zone.cma().map_or(zone.info.free_cma.unwrap_or(0), |_| 0),
        blocks: [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable]
            .map(blocks),
        by_page: false,
        guessed: guesses(zone),
    }
}

/// Puts free memory where its pages were recorded to be, if that is the same moment's, and can be
/// told from CMA.
fn by_page(contents: &mut Contents, account: &mut Account, pages: &Pages, zone: &ZoneState) {
    let blocks = recorded::blocks(pages, &zone.info);
    let free: u64 = blocks.iter().map(Block::free_frames).sum();
    let counted = account.free.saturating_sub(account.isolated);
    // Without counts by order there is nothing to draw from.
    let apart = counted / if zone.chunks.is_empty() { 100 } else { 10 };
    let told = [free, counted].map(thousands);
    if contents.cma.is_some() || free.abs_diff(counted) > apart {
        let why = match contents.cma {
            Some(_) => "no page says whether it is CMA".to_owned(),
            None => format!("{} pages are recorded as free and {} counted", told[0], told[1]),
        };
        account.guessed.push(format!("where free memory lies, though pages were recorded: {why}"));
        return;
    }
    if free.abs_diff(counted) > counted / 100 {
        account.guessed.push(format!(
            "which of {} pages that were free a moment earlier make up the {} counted",
            told[0], told[1]
        ));
    }
    if zone.chunks.is_empty() {
        contents.free[Migratetype::Movable.index()] = recorded::chunks(&blocks);
    }
    if !zone.types.is_empty() {
        account.guessed.push(
            "which type each pageblock is of: as many blocks and free chunks of each as counted, \
             where what is in them fits best; page cache may be of either"
                .to_owned(),
        );
    }
    let frames = MachineConfig::of_zone(&zone.info, 1).memory_frames;
    contents.regions = recorded::by_type(blocks, contents, frames / Order::LINUX_MAX.frames());
    account.by_page = true;
}

/// What no file says of a zone, and what is taken instead.
fn guesses(zone: &ZoneState) -> Vec<String> {
    let mut guessed = Vec::new();
    if zone.chunks.is_empty() {
        guessed.push("the orders of free memory: chunks are as large as can be".to_owned());
    }
    if zone.types.is_empty() {
        guessed.push("migratetypes: all pageblocks and all free memory begin movable".to_owned());
    }
    match zone.info.held {
        _ if !zone.info.pagesets.is_empty() => {}
        Some(held) => guessed.push(format!(
            "what each CPU's lists hold and may hold: the {} pages of all are shared out evenly, \
             with the limits that a kernel sets at boot",
            thousands(held)
        )),
        None => guessed.push(
            "what CPUs' lists hold and may hold: they begin empty, with the limits that a kernel \
             sets at boot"
                .to_owned(),
        ),
    }
    guessed
}

/// What was free in a zone, by the best description there is.
///
/// * HighAtomic's, Reserve's and Rbin's free chunks are put among the movable ones, where their
///   blocks are: every type may have them in the end. Isolated ones stay in use.
/// * Chunks above order 10 are as many of order 10.
/// * pagetypeinfo may be of a moment after buddyinfo, and stops counting a list at 100,000: what
///   buddyinfo has more or less of an order is movable, as most memory is.
fn contents(machine: &Described, zone: &ZoneState) -> Contents {
    let movable = Migratetype::Movable.index();
    let mut contents = Contents::default();
    let mut counted = folded(&zone.chunks);
    if zone.chunks.is_empty() {
        // Of no order that is known: as large as can be, and what is left over in smaller chunks.
        counted = std::array::from_fn(|order| zone.info.free >> order & 1);
        counted[Order::LINUX_MAX.index()] = zone.info.free / Order::LINUX_MAX.frames();
    }
    for of in &zone.types {
        let list = match of.of {
            BlockType::Of(Migratetype::Isolate) => None,
            BlockType::Of(Migratetype::Cma) => Some(&mut contents.free_cma),
            BlockType::Of(Migratetype::HighAtomic) | BlockType::Reserve | BlockType::Rbin => {
                Some(&mut contents.free[movable])
            }
            BlockType::Of(other) => contents.free.get_mut(other.index()),
        };
        let chunks = folded(&of.chunks);
        match list {
            Some(free) => free.iter_mut().zip(chunks).for_each(|(sum, n)| *sum += n),
            None => {
                counted.iter_mut().zip(chunks).for_each(|(all, n)| *all = all.saturating_sub(n))
            }
        }
        // In blocks of order 9, of which a region has two.
        let (order, own) = (machine.pageblock_order.get(), Order::PAGEBLOCK.get());
        if let BlockType::Of(of_type) = of.of
            && let Some(blocks) = contents.blocks.get_mut(of_type.index())
        {
            *blocks = if order >= own {
                of.blocks << (order - own)
            } else {
                of.blocks.div_ceil(1 << (own - order))
            };
        }
    }
    settle(&mut contents, &counted);
    contents
}

/// Makes the chunks of all types together as many of each order as were counted.
fn settle(contents: &mut Contents, counted: &[u64]) {
    for (order, &counted) in counted.iter().enumerate() {
        let Contents { free: [unmovable, movable, reclaimable], free_cma, .. } = contents;
        let known = unmovable[order] + movable[order] + reclaimable[order] + free_cma[order];
        movable[order] += counted.saturating_sub(known);
        let mut too_many = known.saturating_sub(counted);
        for list in [movable, unmovable, reclaimable, free_cma] {
            let less = list[order].min(too_many);
            list[order] -= less;
            too_many -= less;
        }
    }
}

/// Chunks by order, those above order 10 as so many of order 10.
fn folded(chunks: &[u64]) -> [u64; Order::LINUX_MAX.index() + 1] {
    let mut folded = [0; Order::LINUX_MAX.index() + 1];
    for (order, n) in chunks.iter().enumerate() {
        let at = order.min(Order::LINUX_MAX.index());
        folded[at] += n.saturating_mul(1 << (order - at));
    }
    folded
}
