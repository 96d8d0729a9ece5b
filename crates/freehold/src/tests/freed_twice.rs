//! Frees that go wrong at the same moment: several CPUs free the same frames. The first is stopped
//! at each of its steps, the second comes meanwhile, and is stopped by a third.
//!
//! Nobody can say which is right, but: of the frees of one frame all but one are refused, or told
//! to the host as late double frees; the frame is free once, is handed out once, and everything
//! comes home.

use crate::tests::testing::*;

const FRAMES: u64 = 4 * 512;

/// How frames are freed; each is all of them or none where they lie in one word or are one block.
#[derive(Clone, Copy, Debug)]
enum How {
    Chunk,
    Bulk,
    Range,
    /// In no CPU's state.
    Outside,
    /// By the CPU's owner, the short way of runs first.
    AtHand,
}

const WAYS: [How; 5] = [How::Chunk, How::Bulk, How::Range, How::Outside, How::AtHand];

impl How {
    /// Frees these frames on a CPU; how many it says were freed.
    fn free(self, fh: &Machine, cpu: u16, frames: FrameRange) -> u64 {
        let door = fh.on(CpuId::new(cpu));
        let order = frames.chunks(Order::MAX).next().filter(|(_, o)| o.frames() == frames.len());
        let done = match (self, order) {
            (Self::Chunk, Some((pfn, order))) => door.free(pfn, order),
            (Self::Bulk, _) if frames.len() <= 64 => {
                let list: Vec<Pfn> = (frames.start.get()..frames.end.get()).map(Pfn::new).collect();
                return door
                    .free_bulk(&list)
                    .map_or_else(|error| error.freed as u64, |()| list.len() as u64);
            }
            (Self::Outside, _) => Freeing::of(fh, None).range(frames),
            (Self::AtHand, _) => {
                let owned = fh.own(CpuId::new(cpu)).unwrap();
                let freed = owned.free_run_at_hand(frames.start, frames.len());
                if freed { Ok(()) } else { owned.free_range(frames) }
            }
            _ => door.free_range(frames),
        };
        if done.is_ok() { frames.len() } else { 0 }
    }
}

/// A machine, and frames of it that are in use: as many as that from that offset on of a chunk all
/// of which was had by CPU 0, and of which the rest is free already.
fn in_use(order: u8, offset: u64, frames: u64) -> (&'static Machine, FrameRange) {
    let fh = leaked(machine(3, FRAMES));
    let order = of_order(order);
    let pfn = fh.here().alloc(Request::new(order, Migratetype::Movable)).unwrap().get();
    let range = frames_at(pfn + offset, frames);
    let end = Pfn::new(pfn + order.frames());
    for rest in [
        FrameRange { start: Pfn::new(pfn), end: range.start },
        FrameRange { start: range.end, end },
    ] {
        if !rest.is_empty() {
            fh.on(CpuId::new(1)).free_range(rest).unwrap();
        }
    }
    (fh, range)
}

/// All memory is there, each frame once. `freed` by calls that free all or nothing.
fn check(fh: &Machine, frames: FrameRange, freed: Option<u64>) {
    if freed.is_none() {
        // What nobody has freed: the refused calls stopped before it.
        (frames.start.get()..frames.end.get())
            .for_each(|pfn| _ = fh.here().free(Pfn::new(pfn), Order::ZERO));
    }
    // What came into the words of a whole block is told when that is taken.
    let request = |order| Request::new(order, Migratetype::Movable);
    let all = |order| core::iter::from_fn(move || fh.here().alloc(request(order)).ok());
    let blocks: Vec<Pfn> = all(Order::PAGEBLOCK).collect();
    blocks.into_iter().for_each(|pfn| fh.here().free(pfn, Order::PAGEBLOCK).unwrap());
    let mut frames_had: Vec<u64> = all(Order::ZERO).map(Pfn::get).collect();
    frames_had.sort_unstable();
    assert!(frames_had.iter().copied().eq(0..FRAMES), "frames are lost, or there twice");
    if let Some(freed) = freed {
        assert_eq!(freed - fh.totals().late_double_frees, frames.len());
    }
    frames_had.into_iter().for_each(|pfn| fh.here().free(Pfn::new(pfn), Order::ZERO).unwrap());
    fh.drain_all();
    fh.validate().unwrap();
}

/// `others` are what each of two others frees, given what the first one does.
fn race(
    (order, offset, frames): (u8, u64, u64),
    exact: bool,
    others: fn(FrameRange, u64) -> [FrameRange; 2],
) {
    let world = || in_use(order, offset, frames);
    for (way, how) in WAYS.into_iter().enumerate() {
        for n in stops_of(world, |(fh, range)| _ = how.free(fh, 0, range)) {
            let (fh, range) = world();
            let [second, third] = others(range, n);
            let freed = Rc::new(Cell::new(0));
            let (by_second, by_third) = (freed.clone(), freed.clone());
            let (next, last) = (WAYS[(way + n as usize) % 5], WAYS[n as usize / 5 % 5]);
            let third = move || by_third.set(by_third.get() + last.free(fh, 2, third));
            let second = move || {
                let stops = Vec::from([(n * 7 % 60 + 1, Box::new(third) as Other)]);
                let freed = interrupted_by(stops, || next.free(fh, 1, second)).0;
                by_second.set(by_second.get() + freed);
            };
            let stops = Vec::from([(n, Box::new(second) as Other)]);
            let first = interrupted_by(stops, || how.free(fh, 0, range)).0;
            check(fh, range, exact.then_some(freed.get() + first));
        }
    }
}

fn same(range: FrameRange, _: u64) -> [FrameRange; 2] {
    [range, range]
}

#[test]
fn two_and_three_free_the_same_frame() {
    race((0, 0, 1), true, same);
}

#[test]
fn two_and_three_free_the_same_run() {
    (1..6).for_each(|order| race((order, 0, 1 << order), true, same));
}

#[test]
fn two_and_three_free_the_same_word() {
    race((6, 0, 64), true, same);
}

#[test]
fn two_and_three_free_the_same_words() {
    [7, 8].into_iter().for_each(|order| race((order, 0, 1 << order), false, same));
}

#[test]
fn two_and_three_free_the_same_block() {
    race((9, 0, 512), true, same);
}

#[test]
fn two_and_three_free_the_same_block_that_is_split() {
    race((9, 1, 511), false, same);
}

#[test]
fn one_frees_a_block_and_others_frames_of_it() {
    for order in [6, 9, 10] {
        race((order, 0, 1 << order), false, |range, n| {
            let frame = |n: u64| frames_at(range.start.get() + n * 37 % range.len(), 1);
            [frame(n), frame(2 * n)]
        });
    }
}

#[test]
fn two_and_three_free_the_same_range() {
    for (offset, frames) in [(0, 700), (41, 600), (500, 30), (300, 1)] {
        race((10, offset, frames), false, same);
    }
}

/// Right frees: the halves of a block that was taken whole, by two CPUs at the same moment.
#[test]
fn two_free_their_halves_of_a_block() {
    for how in WAYS {
        let world = || in_use(9, 0, 512);
        let half = |range: FrameRange, n: u64| frames_at(range.start.get() + n * 256, 256);
        for n in stops_of(world, |(fh, range)| _ = how.free(fh, 0, half(range, 0))) {
            let (fh, range) = world();
            let other = move || assert_eq!(WAYS[n as usize % 5].free(fh, 1, half(range, 1)), 256);
            let stops = Vec::from([(n, Box::new(other) as Other)]);
            let (freed, left) = interrupted_by(stops, || how.free(fh, 0, half(range, 0)));
            assert_eq!(freed, 256);
            if left == 0 {
                check(fh, range, Some(512));
            }
        }
    }
}

/// A free frame is freed once more while its word comes into its owner's hand, by the second free
/// in a row, and goes back: that is refused, or accepted and told late. Nothing is allocated
/// meanwhile, since a free of a frame that somebody else has by then is a right one.
#[test]
fn free_frames_freed_while_their_words_come_and_go_are_neither_lost_nor_doubled() {
    let world = || {
        let (fh, range) = in_use(9, 0, 512);
        let first = range.start.get();
        // Not by a recall, after which nobody leases a word at once.
        fh.on(CpuId::new(1)).free(Pfn::new(first + 8), Order::ZERO).unwrap();
        fh.on(CpuId::new(1)).flush().unwrap();
        (fh, first)
    };
    let come_and_go = |(fh, first): (&'static Machine, u64)| {
        (1..4).for_each(|n| fh.here().free(Pfn::new(first + n), Order::ZERO).unwrap());
        fh.here().flush().unwrap();
    };
    let mut told = 0;
    for n in stops_of(world, come_and_go) {
        let (fh, first) = world();
        let accepted = Rc::new(Cell::new(0));
        let note = accepted.clone();
        let wrong = move || {
            let freed = fh.on(CpuId::new(1)).free(Pfn::new(first + 8), Order::ZERO);
            note.set(u64::from(freed.is_ok()));
        };
        let stops = Vec::from([(n, Box::new(wrong) as Other)]);
        interrupted_by(stops, || come_and_go((fh, first)));
        for rest in [(0, 1), (4, 4), (9, 503)] {
            let rest = frames_at(first + rest.0, rest.1);
            fh.on(CpuId::new(2)).free_range(rest).unwrap();
        }
        told += accepted.get();
        let range = frames_at(first, 512);
        check(fh, range, Some(512 + accepted.get()));
    }
    assert!(told > 0, "no free came while the word was on its way");
}
