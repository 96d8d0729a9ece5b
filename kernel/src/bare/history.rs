//! Command-line word `history`: what a second allocator does is written down step by step, and
//! judged on the host.
//!
//! ```text
//!   the machine's allocator gives three runs of frames
//!     the subject's memory     32 MiB: what the second allocator hands out; nobody writes to it
//!     the subject's metadata
//!     the history              64 MiB: a head of 40 bytes, then one record after the other
//!                              "FREEHOLD", "HISTORY1", number of records, whether there was room for all, 0
//! ```
//!
//! The machine's memory is a file of the host's (`cargo xtask qemu --history`), which looks for the
//! head at every 2 MiB. Each CPU makes random calls of its own: through its handle and through the
//! shared door, of every order, and frees what others allocated. The machine's own allocator goes
//! on unheard.

extern crate alloc;

use alloc::boxed::Box;
use core::alloc::{GlobalAlloc, Layout};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use freehold::conformance::record::{Record, WORDS};
use freehold::conformance::{Cell, Op, Shape, Step};
use freehold::{
    Config, CpuId, FrameRange, Freehold, Migratetype, Order, Owned, Pfn, Request, ZoneConfig,
};
use freehold_kernel::suite::Numbers;

use crate::platform::Machine;
use crate::{cpu, jobs, memory, say};

/// The order of the subject's memory, and the bytes of the history.
const SUBJECT: u8 = 13;
const HISTORY: usize = 64 << 20;
/// Of a call that frees nothing, or gets nothing.
const NO_FRAMES: FrameRange = FrameRange { start: Pfn::new(0), end: Pfn::new(0) };
/// What the host looks for.
const HEAD: [u64; 2] = [u64::from_le_bytes(*b"FREEHOLD"), u64::from_le_bytes(*b"HISTORY1")];
/// Calls of each CPU.
const CALLS: u32 = 2500;
/// Chunks that a CPU has at a time, and that wait to be freed by any.
const HELD: usize = 64;
const OFFERED: usize = 32;

type Subject = Freehold<'static, Machine>;

/// How often a CPU that looks whether another one has left lets others go first.
const PAUSE: u32 = 50;

/// What the witness needs while it gets to know the allocator; never given back.
struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;
static ROOM: [AtomicU64; 128 << 10] = [const { AtomicU64::new(0) }; 128 << 10];
static USED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: each piece lies in `ROOM`, which is never used otherwise, and behind the pieces before
// it; it is aligned as asked.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let room = ROOM.as_ptr().addr();
        let mut at = 0;
        // Relaxed: a number that nobody gets twice.
        let got = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            at = (room + used).next_multiple_of(layout.align()) - room;
            Some(at + layout.size()).filter(|&end| end <= size_of_val(&ROOM))
        });
        match got {
            Ok(_) => ROOM.as_ptr().cast::<u8>().cast_mut().wrapping_add(at),
            Err(_) => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

/// Where records go. Whoever writes one has a place that is nobody else's; what comes first has the
/// lower one.
struct Book {
    records: &'static [[AtomicU64; WORDS]],
    next: AtomicUsize,
}

impl Book {
    fn write(&self, record: Record) {
        // Relaxed: steps are made under the witness's lock, and a call's beginning and end by who
        // makes its steps.
        let at = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(place) = self.records.get(at) {
            place
                .iter()
                .zip(record.encode())
                .for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        }
    }

    fn write_shape(&self, shape: &Shape) {
        self.write(Record::Machine(shape.cpus, shape.sections.0, shape.sections.1));
        shape
            .zones
            .iter()
            .for_each(|&(span, first, groups)| self.write(Record::Zone(span, first, groups)));
        shape.memory.iter().for_each(|&range| self.write(Record::Memory(range)));
    }

    /// The head, when all is written. Whether there was room for it.
    fn close(&self) -> (usize, bool) {
        let wanted = self.next.load(Ordering::Relaxed);
        let fits = wanted < self.records.len();
        let head = [HEAD[0], HEAD[1], wanted.min(self.records.len() - 1) as u64, fits.into(), 0];
        self.records[0]
            .iter()
            .zip(head)
            .for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        (wanted, fits)
    }
}

/// The frames of a chunk.
fn frames(first: Pfn, order: Order) -> FrameRange {
    FrameRange { start: first, end: Pfn::new(first.get() + order.frames()) }
}

/// The allocator that is looked at.
fn subject() -> &'static Subject {
    let order = Order::new(SUBJECT).unwrap_or(Order::ZERO);
    let pfn = memory::freehold().alloc(Request::new(order, Migratetype::Unmovable));
    let memory = [frames(
        pfn.unwrap_or_else(|error| panic!("no room for a history: {error}; it needs 256M")),
        order,
    )];
    let zones = [ZoneConfig::new(&memory)];
    let config = Config { group: Some(2), ..Config::new(cpu::count() as u16, &zones) };
    let size = Subject::metadata_size(&config).unwrap_or_else(|error| panic!("{error}"));
    let region = memory::slice_of(size, |_| MaybeUninit::uninit());
    Box::leak(Box::new(
        Freehold::new(&config, region, Machine).unwrap_or_else(|error| panic!("{error}")),
    ))
}

fn book() -> &'static Book {
    let records = memory::slice_of(HISTORY / size_of::<[AtomicU64; WORDS]>(), |_| {
        [const { AtomicU64::new(0) }; WORDS]
    });
    Box::leak(Box::new(Book { records, next: AtomicUsize::new(0) }))
}

/// Chunks as PFN and order in one word; 0 is none.
fn packed(pfn: Pfn, order: Order) -> u64 {
    pfn.get() << 8 | u64::from(order.get()) | 1 << 7
}

/// One CPU's calls.
struct Caller<'a> {
    who: u16,
    book: &'a Book,
    subject: &'static Subject,
    owned: Owned<'static, 'static, Machine>,
    random: Numbers,
    held: [u64; HELD],
    offered: &'a [AtomicU64; OFFERED],
}

impl Caller<'_> {
    fn below(&mut self, n: u64) -> u64 {
        (self.random.next() >> 16) % n
    }

    fn alloc(&mut self) -> u64 {
        let order = [0, 0, 0, 0, 0, 1, 2, 3, 5, 6, 7, 8, 9, 9, 10][self.below(15) as usize];
        let order = Order::new(order).unwrap_or(Order::ZERO);
        let kinds = [
            Migratetype::Movable,
            Migratetype::Movable,
            Migratetype::Unmovable,
            Migratetype::Reclaimable,
        ];
        let request = Request::new(order, kinds[self.below(4) as usize]);
        let shared = self.below(3) == 0;
        self.book.write(Record::Begin(self.who, NO_FRAMES));
        let got = if shared { self.subject.alloc(request) } else { self.owned.alloc(request) };
        let got_frames = got.map_or(NO_FRAMES, |pfn| frames(pfn, order));
        self.book.write(Record::End(self.who, got.is_ok(), got_frames));
        got.map_or(0, |pfn| packed(pfn, order))
    }

    fn free(&mut self, chunk: u64) {
        if chunk == 0 {
            return;
        }
        let (pfn, order) =
            (Pfn::new(chunk >> 8), Order::new(chunk as u8 & 0x7f).unwrap_or(Order::ZERO));
        let shared = self.below(3) == 0;
        self.book.write(Record::Begin(self.who, frames(pfn, order)));
        let done = if shared { self.subject.free(pfn, order) } else { self.owned.free(pfn, order) };
        self.book.write(Record::End(self.who, done.is_ok(), NO_FRAMES));
        done.unwrap_or_else(|error| panic!("a right free is refused: {error}"));
    }

    /// What is in one of its places goes, to be freed by it or by whoever finds it; and something
    /// else comes there.
    fn one(&mut self) {
        let place = self.below(HELD as u64) as usize;
        let mut chunk = core::mem::take(&mut self.held[place]);
        if self.below(3) == 0 {
            let offer = self.below(OFFERED as u64) as usize;
            // AcqRel: whoever gets a chunk frees it after it was allocated.
            chunk = self.offered[offer].swap(chunk, Ordering::AcqRel);
        }
        self.free(chunk);
        self.held[place] = self.alloc();
    }

    fn all(mut self) {
        (0..CALLS).for_each(|_| self.one());
        (0..HELD).for_each(|place| {
            let chunk = core::mem::take(&mut self.held[place]);
            self.free(chunk);
        });
    }
}

/// Does it; whether everything came home and there was room for the history.
pub(crate) fn run() -> bool {
    let (subject, book) = (subject(), book());
    book.write_shape(&subject.shape());
    let told = Box::new(|step: &Step| {
        book.write(Record::Step(cpu::index() as u16, *step));
        // Who waits for somebody to leave must not have the witness's lock all the time.
        let waits = step.op == Op::Load && matches!(step.cell, Cell::Busy(_) | Cell::Intruder(_));
        if waits { PAUSE } else { 0 }
    });
    let witnessed = subject.witnessed(told);
    book.write(Record::Quiet(0));
    let offered = [const { AtomicU64::new(0) }; OFFERED];
    jobs::run_on_all(&|me| {
        let owned = subject.own(CpuId::new(me as u16)).unwrap_or_else(|error| panic!("{error}"));
        let random = Numbers((me as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (who, offered) = (me as u16, &offered);
        Caller { who, book, subject, owned, random, held: [0; HELD], offered }.all();
    });
    jobs::run_on(1, &|_| {
        let owned = subject.own(CpuId::new(0)).unwrap_or_else(|error| panic!("{error}"));
        let mut caller = Caller {
            who: 0,
            book,
            subject,
            owned,
            random: Numbers(1),
            held: [0; HELD],
            offered: &offered,
        };
        // Relaxed: all others are through.
        offered.iter().for_each(|offer| caller.free(offer.swap(0, Ordering::Relaxed)));
    });
    book.write(Record::Quiet(0));
    drop(witnessed);
    subject.drain_all();
    let (wanted, fits) = book.close();
    let home = subject.zone_stats(0).is_some_and(|stats| stats.free == stats.managed)
        && subject.validate().is_ok();
    say!(
        "history: {wanted} records of {} CPUs{}",
        cpu::count(),
        if fits { "" } else { ", more than there is room for" }
    );
    home && fits
}
