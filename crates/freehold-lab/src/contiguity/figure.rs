//! What is found of a cell, and how it is written.

use freehold::{Order, PAGEBLOCK_FRAMES};
use serde::Serialize;

use crate::tables::{thousands, unique};

/// A figure at three orders.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ByOrder {
    /// The largest that the kernel counts as cheap.
    #[serde(rename = "3")]
    pub order3: f64,
    #[serde(rename = "4")]
    pub order4: f64,
    /// A huge page.
    #[serde(rename = "9")]
    pub order9: f64,
}

impl ByOrder {
    pub const ORDERS: [u8; 3] = [3, 4, 9];

    pub(super) fn by(index: impl Fn(Order) -> f64) -> Self {
        let [order3, order4, order9] =
            Self::ORDERS.map(|order| Order::new(order).map_or(0.0, &index));
        Self { order3, order4, order9 }
    }

    /// Each order with its figure.
    pub fn each(self) -> [(u8, f64); 3] {
        let [three, four, nine] = Self::ORDERS;
        [(three, self.order3), (four, self.order4), (nine, self.order9)]
    }

    /// The figure at one of [`ORDERS`](Self::ORDERS); NaN at any other.
    pub fn at(self, order: u8) -> f64 {
        let found = self.each().into_iter().find(|(known, _)| *known == order);
        found.map_or(f64::NAN, |(_, value)| value)
    }

    pub(super) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self::by(|order| change(self.at(order.get())))
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self::by(|order| self.at(order.get()) - other.at(order.get()))
    }

    /// The mean of several; NaN of none.
    pub(super) fn mean(all: impl Iterator<Item = Self> + Clone) -> Self {
        let n = all.clone().count() as f64;
        let sum = all.fold(Self::default(), |sum, one| sum.minus(one.map(|value| -value)));
        sum.map(|sum| sum / n)
    }
}

/// What a workload found; `None` where it does not ask.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Figures {
    /// The share of free memory that cannot serve a request, by order; by frames free next to each
    /// other. At the end; of a load that fills memory the mean of its second half.
    pub unusable: Option<ByOrder>,
    /// That share by chunks as they lie on the engine's lists, neighbours on different lists apart.
    pub unusable_lists: Option<ByOrder>,
    pub zone_lock_acquisitions: Option<u64>,
    /// Writes to lines that all CPUs share: see
    /// [`Counters::shared_writes`](crate::engine::Counters::shared_writes).
    pub shared_writes: Option<u64>,
    /// Times the zone lock was taken for each 1,000 frames allocated.
    pub zone_locks_per_1000: Option<f64>,
    /// Writes to lines that all CPUs share, for each 1,000 frames allocated.
    pub shared_writes_per_1000: Option<f64>,
    /// The share of free memory that can serve requests of order 9, as `unusable`.
    pub order9_share: Option<f64>,
    pub order9_failures: Option<u64>,
    /// Blocks in which chunks of more than one migratetype are in use at the end.
    pub mixed_blocks: Option<u64>,
    /// The share of memory that idle CPUs hold free.
    pub idle_share: Option<f64>,
    pub free_blocks: Option<u64>,
    /// Of all orders.
    pub failures: Option<u64>,
    pub heavy_barriers: Option<u64>,
    /// Frames that the engine has moved by itself while the load ran, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrated: Option<u64>,
}

impl Figures {
    /// Of what shares nothing, since all of it is one.
    pub(super) fn without_locks(self) -> Self {
        Self {
            zone_lock_acquisitions: None,
            shared_writes: None,
            zone_locks_per_1000: None,
            shared_writes_per_1000: None,
            heavy_barriers: None,
            ..self
        }
    }
}

/// [`Moment::at`] when the page cache has been dropped, and when no process is left.
pub(super) const DROPPED: f64 = 1.5;
pub(super) const GONE: f64 = 2.0;
/// From this [`Moment::at`] on memory has been full for a while.
const PRESSED: f64 = 0.48;

/// Memory while a load fills it, by the books: by frames free next to each other, the zone's
/// and the CPUs'.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Moment {
    /// The share of the load that is done; 1.5 when it is over and the page cache has been dropped,
    /// 2 when no process is left either.
    pub at: f64,
    pub used_percent: f64,
    /// The share of free memory that can serve requests, by order.
    pub contiguity: ByOrder,
    /// The share of free memory in blocks without an unmovable or reclaimable frame: what migration
    /// could make whole.
    pub movable_share: f64,
    #[serde(skip)]
    pub free_beside_movable: u64,
    pub free_blocks: u64,
    /// Blocks with an unmovable or reclaimable frame.
    pub unmovable_blocks: u64,
    /// Regions of 1 GiB that have such a block.
    pub unmovable_regions: u64,
    pub reclaimed: u64,
    /// Frames that compaction would migrate so that 90 % of free memory is whole, the emptiest
    /// blocks first.
    pub compact_frames: u64,
    /// Frames that it would migrate by rising address, as kcompactd goes.
    pub compact_frames_by_address: u64,
}

impl Moment {
    /// The mean of a figure over the moments at which memory has been full for a while.
    pub(super) fn under_pressure(all: &[Self], figure: impl Fn(&Self) -> f64) -> Option<f64> {
        let pressed = |moment: &&Self| (PRESSED..=1.0).contains(&moment.at);
        let values: Vec<f64> = all.iter().filter(pressed).map(figure).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}

fn moment(cell: &Cell, at: f64) -> Option<&Moment> {
    cell.moments.iter().find(|moment| moment.at == at)
}

/// What one way of moving came to.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Moved {
    /// The share of free memory that serves order 9 afterwards.
    pub order9: f64,
    /// Whole blocks afterwards: huge pages that can be had.
    pub huge_pages: u64,
    /// Frames moved, and how many of them lie beside what cannot move since.
    pub frames: u64,
    pub beside: u64,
    /// Looks at blocks and frames that found them.
    pub steps: u64,
    /// Requests that waited for it, one that compacts or a block being emptied; and those that
    /// were deferred.
    pub stalls: u64,
    pub deferred: u64,
}

/// What a machine's memory comes to by movement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Movement {
    /// The share of free memory that serves order 9, and whole blocks, before anything moved.
    pub order9_before: f64,
    pub huge_pages_before: u64,
    /// What could be whole if all that is free beside movable frames alone were in one place.
    pub huge_pages_most: u64,
    /// By the engine's own means, where it has some.
    pub own: Option<Moved>,
    /// By a model of the kernel's two scanners: to the target, to the score at which kcompactd's
    /// own compaction stops, and for requests of order 9, which take what they are given; then with
    /// `vm.defrag_mode` by kcompactd, and for requests beside it.
    pub scanners: Moved,
    pub proactive: Moved,
    pub requests: Moved,
    pub defrag: Moved,
    pub defrag_requests: Moved,
    /// Those that an ideal compactor would make of all that is free, also beside what cannot move.
    pub huge_pages_ideal: u64,
    /// What is free and in no whole block after the engine's own way.
    pub left: Option<Left>,
    /// Frames to move with the emptiest blocks first, and by rising address.
    pub ideal_frames: u64,
    pub address_frames: u64,
    /// Before anything moved, and after the engine's own way.
    pub regions: Regions,
    pub regions_after: Option<Regions>,
}

/// Free frames that serve no request of order 9.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Left {
    /// In blocks with a frame that cannot move, how many such blocks there are, and in others.
    pub beside_unmovable: u64,
    pub blocks_unmovable: u64,
    pub beside_movable: u64,
    /// Of all these, those that CPUs have in hand.
    pub in_hand: u64,
}

/// Regions of 1 GiB, of those that are all there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Regions {
    pub whole: u64,
    /// Without a frame that cannot move.
    pub movable: u64,
    /// That would be whole if frames moved from those to anywhere else: no more than fit into what
    /// is free.
    pub order18: u64,
    /// Frames to move for that, from the emptiest regions and from the lowest.
    pub ideal_frames: u64,
    pub address_frames: u64,
}

impl Regions {
    pub(super) fn of(layout: &Layout, free: u64) -> Self {
        let region = 1 << (18 - Order::PAGEBLOCK.get());
        let used = layout.chunks_exact(region).filter_map(|blocks| blocks.iter().copied().sum());
        let mut used: Vec<u64> = used.collect();
        let order18 = used.len().min((free >> 18) as usize);
        let address_frames = used[..order18].iter().sum();
        used.sort_unstable();
        Self {
            whole: used.iter().filter(|&&used| used == 0).count() as u64,
            movable: used.len() as u64,
            order18: order18 as u64,
            ideal_frames: used[..order18].iter().sum(),
            address_frames,
        }
    }
}

/// Frames in use of each block; `None` of one that holds what cannot move.
pub type Layout = Vec<Option<u64>>;
/// How much is to be whole: 90 % of what is free, or a part of a block more.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Free frames, which movement does not change.
    pub(super) free: u64,
    /// Whole blocks before anything moves.
    pub(super) whole: u64,
}

impl Wanted {
    /// Blocks to be had beside those that are whole.
    pub(super) fn blocks(self) -> u64 {
        (self.free * 9).div_ceil(10 * PAGEBLOCK_FRAMES).saturating_sub(self.whole)
    }

    /// Whether so many blocks more are enough.
    pub(super) fn is_reached(self, more: u64) -> bool {
        more >= self.blocks()
    }

    pub(super) fn share(self, more: u64) -> f64 {
        ((self.whole + more) * PAGEBLOCK_FRAMES) as f64 / self.free.max(1) as f64
    }

    pub(super) fn moved(self, more: u64, frames: u64, steps: u64) -> Moved {
        let (order9, huge_pages) = (self.share(more), self.whole + more);
        Moved { order9, huge_pages, frames, steps, ..Moved::default() }
    }
}

/// A row of the output.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Cell {
    pub workload: &'static str,
    pub cpus: u16,
    pub memory_mib: u64,
    /// The percentage of memory in use; with a load that fills memory, from where on page cache is
    /// reclaimed.
    pub used_percent: Option<f64>,
    /// How many chunks were to be allocated, where that is given: `aging`, `two-cpu-mix`, which
    /// takes a tenth, and the loads that fill memory.
    pub allocations: Option<u64>,
    pub seed: u64,
    pub engine: String,
    /// What is a guess in the engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guesses: Option<&'static str>,
    #[serde(flatten)]
    pub figures: Figures,
    /// Of a load that fills memory: what memory is like as it goes on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moments: Vec<Moment>,
    /// Where blocks were emptied afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub movement: Option<Movement>,
    /// Memory before, between and after.
    #[serde(skip)]
    pub layouts: Option<[Layout; 3]>,
}

/// Cells of one workload, machine and level: what is compared.
pub(super) fn same_place(a: &Cell, b: &Cell) -> bool {
    (a.workload, a.cpus, a.memory_mib, a.used_percent)
        == (b.workload, b.cpus, b.memory_mib, b.used_percent)
}

/// Engines in the order in which they come.
pub(super) fn engines(cells: &[Cell]) -> Vec<&str> {
    unique(cells.iter().map(|cell| cell.engine.as_str()))
}

/// What a workload is, and what is shown of it.
pub struct About {
    pub name: &'static str,
    pub what: &'static str,
    /// The percentages of memory in use that it is run at; one `None` where it finds its own.
    pub levels: &'static [Option<u8>],
    /// What is shown of it, the most important first.
    pub figures: &'static [Figure],
}

/// A figure of a cell: what it is called, what it is, and how it is written.
#[derive(Clone, Copy)]
pub struct Figure {
    pub name: &'static str,
    pub value: fn(&Cell) -> Option<f64>,
    pub text: fn(f64) -> String,
}

fn share(value: f64) -> String {
    format!("{value:.3}")
}

fn count(value: f64) -> String {
    if value.fract() == 0.0 { thousands(value as u64) } else { format!("{value:.1}") }
}

fn rate(value: f64) -> String {
    format!("{value:.2}")
}

fn number(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

const fn figure(
    name: &'static str,
    value: fn(&Cell) -> Option<f64>,
    text: fn(f64) -> String,
) -> Figure {
    Figure { name, value, text }
}

pub(super) const UNUSABLE3: Figure =
    figure("unusable, order 3", |c| c.figures.unusable.map(|u| u.order3), share);
pub(super) const UNUSABLE4: Figure =
    figure("unusable, order 4", |c| c.figures.unusable.map(|u| u.order4), share);
pub(super) const UNUSABLE9: Figure =
    figure("unusable, order 9", |c| c.figures.unusable.map(|u| u.order9), share);
pub(super) const LOCKS: Figure =
    figure("zone locks / 1,000 frames", |c| c.figures.zone_locks_per_1000, rate);
pub(super) const SHARED_WRITES: Figure =
    figure("shared writes / 1,000 frames", |c| c.figures.shared_writes_per_1000, rate);
pub(super) const ORDER9: Figure = figure("free as order 9", |c| c.figures.order9_share, share);
pub(super) const FAILURES9: Figure =
    figure("order-9 failures", |c| number(c.figures.order9_failures), count);
pub(super) const MIXED: Figure = figure("mixed blocks", |c| number(c.figures.mixed_blocks), count);
pub(super) const IDLE: Figure = figure("held by idle CPUs", |c| c.figures.idle_share, share);
pub(super) const FREE: Figure = figure("free blocks", |c| number(c.figures.free_blocks), count);
pub(super) const DROPPED9: Figure = figure(
    "order 9, cache dropped",
    |c| moment(c, DROPPED).map(|moment| moment.contiguity.order9),
    share,
);
pub(super) const MOVABLE: Figure = figure(
    "free beside movable only",
    |c| Moment::under_pressure(&c.moments, |moment| moment.movable_share),
    share,
);

/// Shown of loads after which blocks are emptied.
pub(super) const MOVED: [Figure; 16] = [
    figure("order 9 before", |c| Some(c.movement?.order9_before), share),
    figure("order 9 after", |c| Some(moved(c)?.order9), share),
    figure("frames moved", |c| number(Some(moved(c)?.frames)), count),
    figure("ideal", |c| number(Some(c.movement?.ideal_frames)), count),
    figure("by address", |c| number(Some(c.movement?.address_frames)), count),
    figure("huge pages", |c| number(Some(moved(c)?.huge_pages)), count),
    figure("steps", |c| number(Some(moved(c)?.steps)), count),
    figure("scanners: order 9", |c| Some(c.movement?.scanners.order9), share),
    figure("scanners: frames", |c| number(Some(c.movement?.scanners.frames)), count),
    figure("scanners: huge", |c| number(Some(c.movement?.scanners.huge_pages)), count),
    figure("scanners: steps", |c| number(Some(c.movement?.scanners.steps)), count),
    figure("kcompactd: huge", |c| number(Some(c.movement?.proactive.huge_pages)), count),
    figure("requests: huge", |c| number(Some(c.movement?.requests.huge_pages)), count),
    figure("defrag mode: huge", |c| number(Some(c.movement?.defrag.huge_pages)), count),
    figure("stalls", |c| number(Some(c.movement?.requests.stalls)), count),
    figure("order 18", |c| number(Some(c.movement?.regions.order18)), count),
];

fn moved(cell: &Cell) -> Option<Moved> {
    cell.movement?.own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_less_than_ninety_percent_is_wanted() {
        let of = |free, whole| Wanted { free, whole }.blocks();
        assert_eq!([of(5120, 0), of(9045, 0), of(9045, 15), of(9045, 17)], [9, 16, 1, 0]);
    }

    /// Four regions: one that cannot move, three with 1, 9 and 5 frames in use; and a part of one.
    #[test]
    fn regions_are_had_where_what_is_in_them_fits_elsewhere() {
        let mut layout: Layout = vec![Some(0); 4 * 512 + 9];
        layout[0] = None;
        (layout[512], layout[1024], layout[1536]) = (Some(1), Some(9), Some(5));
        let of = |regions: f64| {
            let of = Regions::of(&layout, (regions * f64::from(1 << 18)) as u64);
            (of.order18, of.ideal_frames, of.address_frames)
        };
        assert_eq!([0.99, 1.0, 2.5, 9.0].map(of), [(0, 0, 0), (1, 1, 1), (2, 6, 10), (3, 15, 15)]);
        layout[1536] = Some(0);
        let of = Regions::of(&layout, 1 << 20);
        assert_eq!((of.whole, of.movable), (1, 3));
    }
}
