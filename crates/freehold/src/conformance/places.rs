//! Which cell an address is, of one allocator.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::offset_of;
use core::ptr;

use super::{Cell, Op, Step};
use crate::block::WORDS;
use crate::block::tag::TagCell;
use crate::block::words::{Head, Line, Links};
use crate::cpu::lease::SLOTS;
use crate::cpu::state::KEPT;
use crate::group::Stock;
use crate::group::lock::Lock;
use crate::primitive::Plain;
use crate::{Freehold, Platform};

/// Something that there is many of, one behind the other.
struct Region {
    start: usize,
    end: usize,
    stride: usize,
    /// For each byte of one of them which cell begins there, where one does; for cells of the
    /// first.
    cells: Box<[Option<Cell>]>,
    /// How a cell of the first becomes one of the n-th.
    shift: fn(Cell, usize) -> Cell,
}

impl Region {
    fn new<T>(
        first: *const T,
        count: usize,
        cells: Vec<(usize, Cell)>,
        shift: fn(Cell, usize) -> Cell,
    ) -> Self {
        let (start, stride) = (first.addr(), size_of::<T>());
        let mut table = vec![None; stride].into_boxed_slice();
        cells.into_iter().for_each(|(at, cell)| table[at] = Some(cell));
        Self { start, end: start + stride * count, stride, cells: table, shift }
    }
}

/// See the module's documentation.
pub(super) struct Places(Vec<Region>);

fn address<T>(of: &T) -> usize {
    ptr::from_ref(of).addr()
}

fn nth(cell: Cell, n: usize) -> Cell {
    let (block, cpu) = (n as u32, n as u16);
    match cell {
        Cell::Tag(_) => Cell::Tag(block),
        Cell::Class(_) => Cell::Class(block),
        Cell::Lease(_, w) => Cell::Lease(block, w),
        Cell::Word(_, w) => Cell::Word(block, w),
        Cell::List(_) => Cell::List(block),
        Cell::Next(_) => Cell::Next(block),
        Cell::Busy(_) => Cell::Busy(cpu),
        Cell::Intruder(_) => Cell::Intruder(cpu),
        Cell::Online(_) => Cell::Online(cpu),
        Cell::Kept(_, k) => Cell::Kept(cpu, k),
        Cell::Key(_, slot) => Cell::Key(cpu, slot),
        Cell::Mask(_, slot) => Cell::Mask(cpu, slot),
        Cell::At(_, slot) => Cell::At(cpu, slot),
        // The zone itself is number 0, its groups follow.
        Cell::Lock(z, first) => Cell::Lock(z, first + cpu),
        Cell::Head(z, first) => Cell::Head(z, first + cpu),
        Cell::Rest(z, first) => Cell::Rest(z, first + cpu),
        Cell::Bits(z, _) => Cell::Bits(z, block),
        Cell::Section(_) => Cell::Section(block),
        Cell::Hotplug => Cell::Hotplug,
    }
}

/// A holder's cells, from where it begins.
fn holder(start: usize, lock: &Lock, stock: &Stock, z: u8, group: u16) -> Vec<(usize, Cell)> {
    let (head, rest) = stock.inbox.addresses();
    vec![
        (address(lock) - start, Cell::Lock(z, group)),
        (head - start, Cell::Head(z, group)),
        (rest - start, Cell::Rest(z, group)),
    ]
}

impl Places {
    pub(super) fn of<P: Platform>(fh: &Freehold<'_, P>) -> Self {
        let (lines, heads, links, blocks) = fh.map.blocks.bases();
        let words = (0..WORDS).map(|w| (w * size_of::<u64>(), Cell::Word(0, w as u8))).collect();
        let mut regions = vec![
            Region::new::<Line>(lines, blocks, words, nth),
            Region::new::<Head>(heads, blocks, Head::cells(), nth),
            Region::new::<Links>(
                links,
                blocks,
                vec![
                    (offset_of!(Links, list), Cell::List(0)),
                    (offset_of!(Links, inbox_next), Cell::Next(0)),
                ],
                nth,
            ),
            Region::new(
                fh.map.sections.as_ptr(),
                fh.map.sections.len(),
                vec![(0, Cell::Section(0))],
                nth,
            ),
            Region::new(&raw const fh.hotplug, 1, vec![(0, Cell::Hotplug)], nth),
        ];
        if let Some(cpu) = fh.cpus.first() {
            let start = address(cpu);
            let (busy, intruder) = cpu.door.addresses();
            let mut cells = vec![
                (busy - start, Cell::Busy(0)),
                (intruder - start, Cell::Intruder(0)),
                (address(&cpu.online) - start, Cell::Online(0)),
            ];
            cells
                .extend((0..KEPT).map(|k| (address(&cpu.kept[k]) - start, Cell::Kept(0, k as u8))));
            for slot in 0..SLOTS {
                let (key, mask, at) = cpu.leases.slot(slot).addresses();
                let slot = slot as u8;
                cells.extend([
                    (key - start, Cell::Key(0, slot)),
                    (mask - start, Cell::Mask(0, slot)),
                ]);
                cells.push((at - start, Cell::At(0, slot)));
            }
            regions.push(Region::new(fh.cpus.as_ptr(), fh.cpus.len(), cells, nth));
        }
        for (z, zone) in (0..).zip(fh.zones) {
            let cells = holder(address(zone), &zone.lock, &zone.stock, z, 0);
            regions.push(Region::new(ptr::from_ref(zone), 1, cells, nth));
            if let Some(group) = zone.groups.first() {
                let cells = holder(address(group), &group.lock, &group.stock, z, 1);
                regions.push(Region::new(zone.groups.as_ptr(), zone.groups.len(), cells, nth));
            }
            let words = zone.bitmap.words();
            regions.push(Region::new(
                words.as_ptr(),
                words.len(),
                vec![(0, Cell::Bits(z, 0))],
                nth,
            ));
        }
        Self(regions)
    }

    /// The lowest address of all and the first behind them.
    pub(super) fn span(&self) -> (usize, usize) {
        let start = self.0.iter().map(|region| region.start).min().unwrap_or(0);
        (start, self.0.iter().map(|region| region.end).max().unwrap_or(0))
    }

    pub(super) fn cell(&self, at: usize) -> Option<Cell> {
        let region = self.0.iter().find(|region| region.start <= at && at < region.end)?;
        let offset = at - region.start;
        region.cells[offset % region.stride]
            .map(|cell| (region.shift)(cell, offset / region.stride))
    }
}

/// Tells what is there already.
pub(super) fn initial<P: Platform>(fh: &Freehold<'_, P>, told: &mut super::Told) {
    let mut tell = |cell: Cell, value: u64| {
        told(&Step { cell, op: Op::Initial, with: value, old: value, new: value });
    };
    for (s, section) in (0..).zip(fh.map.sections) {
        tell(Cell::Section(s), section.get().into());
    }
    for (z, zone) in (0..).zip(fh.zones) {
        (0..).zip(zone.bitmap.words()).for_each(|(w, word)| tell(Cell::Bits(z, w), word.get()));
    }
    for index in fh.map.all() {
        let (head, line, b) = (fh.map.head(index), fh.map.line(index), index.get());
        (0..WORDS).for_each(|w| tell(Cell::Word(b, w as u8), line.word(w)));
        tell(Cell::List(b), fh.map.links(index).list.get().into());
        tell(Cell::Class(b), head.class().into());
        tell(Cell::Tag(b), head.tag.get().value().into());
    }
    for (c, cpu) in (0..).zip(fh.cpus) {
        tell(Cell::Online(c), cpu.online.get().into());
    }
}

const _: () = assert!(size_of::<TagCell>() == 4);
