//! The short way of [`Frames`](crate::Frames): a power of two of frames, up to a block, from the
//! calling thread's own CPU.
//!
//! ```text
//! count = 2^k   k = 0         allocated by code that is compiled into the caller, freed by a call
//!               k = 1 to 9    by code compiled once for each k, which a table by trailing zeros
//!                             leads to; freed likewise
//! others                      runs, or the long way, to which the table leads or that code
//! ```
//!
//! What is known of the order when the program is compiled is worth a third of the instructions,
//! and callers mostly do not know it. The code for an order does all there is to do, so that the
//! callers' part is a table look-up and a call, small enough to be compiled into them, and nothing
//! is gathered in memory on the way: that costs more than the allocation itself.

use freehold::{FrameRange, Migratetype, Order, Pfn, Request};

use super::Arena;
use super::raw::chunk;
use crate::key::Own;
use crate::runs::Run;
use crate::thread;

/// By the trailing zeros of a number of frames.
const WAYS: usize = u64::BITS as usize + 1;

/// Chunks of a lower order lie within one word, of which a CPU may have frames in hand.
const IN_WORD: u8 = 6;

type Take = fn(&Arena, u64) -> Option<Pfn>;
type Give = fn(&Arena, FrameRange);

/// A table in which odd numbers lead to the second, and all but these ways to the first.
macro_rules! ways {
    ($kind:ty: $other:ident, $odd:ident, $($way:ident $($order:literal)*),*) => {{
        let mut ways = [$other as $kind; WAYS];
        ways[0] = $odd;
        $($(ways[$order] = $way::<$order>;)*)*
        ways
    }};
}

// One frame is not looked up there, and other odd numbers are runs.
static TAKE: [Take; WAYS] = ways!(Take: take_none, take_run, take 1 2 3 4 5 6 7 8 9);
static GIVE: [Give; WAYS] = ways!(Give: give_long, give_run, give 1 2 3 4 5, give_far 6 7 8 9);

const fn order(order: u8) -> Order {
    match Order::new(order) {
        Some(order) => order,
        None => Order::ZERO,
    }
}

fn take_none(_: &Arena, _: u64) -> Option<Pfn> {
    None
}

/// `2^ORDER` frames, if that is the number.
#[inline(never)]
fn take<const ORDER: u8>(arena: &Arena, count: u64) -> Option<Pfn> {
    if count == 1 << ORDER { take_chunk::<ORDER>(arena) } else { take_run(arena, count) }
}

/// So many frames that wait. Out of the way of chunks, which save no register for it.
#[inline(never)]
fn take_run(arena: &Arena, count: u64) -> Option<Pfn> {
    let Some(own) = thread::fast(&arena.key) else { return arena.waiting(count) };
    arena.kept_or(own, count, || arena.waiting(count))
}

/// What is kept, or what the CPU has in hand, and else a jump to the far way: with nothing to come
/// back to, no register is saved for it.
#[inline(always)]
fn take_chunk<const ORDER: u8>(arena: &Arena) -> Option<Pfn> {
    let own = if const { ORDER < 9 } { thread::fast(&arena.key) } else { None };
    match own {
        Some(own) if own.runs.may_have(1 << ORDER) => take_kept::<ORDER>(arena, own),
        Some(own) => take_unkept::<ORDER>(arena, own),
        // Blocks find their CPU there.
        None if const { ORDER == 9 } => take_far::<ORDER>(arena),
        None => take_shared::<ORDER>(arena),
    }
}

/// From a CPU that the thread shares, whose frames are marked for nobody to keep.
#[cold]
#[inline(never)]
fn take_shared<const ORDER: u8>(arena: &Arena) -> Option<Pfn> {
    let Some(cpu) = thread::shared(&arena.key).filter(|_| !arena.core.slots.has_free()) else {
        // Another arena has taken the place in the thread's cache; there may be some in hand.
        let again = thread::cache_again(&arena.key);
        return if again { take_chunk::<ORDER>(arena) } else { None };
    };
    let order = const { order(ORDER) };
    let pfn = arena.core.engine.on(cpu).alloc(Request::new(order, Migratetype::Movable)).ok()?;
    if arena.inner.notes.is_news(pfn, order.frames()) {
        arena.note(pfn, order).ok()?;
    }
    Some(pfn)
}

/// What was freed last first, as long as there is some.
#[inline(never)]
fn take_kept<const ORDER: u8>(arena: &Arena, own: &Own) -> Option<Pfn> {
    arena.kept_or(own, 1 << ORDER, || take_unkept::<ORDER>(arena, own))
}

#[inline(always)]
fn take_unkept<const ORDER: u8>(arena: &Arena, own: &Own) -> Option<Pfn> {
    let pfn = if const { ORDER < IN_WORD } { in_hand::<ORDER>(own) } else { None };
    let Some(pfn) = pfn else { return take_far::<ORDER>(arena) };
    if arena.inner.notes.is_news(pfn, const { order(ORDER) }.frames()) {
        return noted::<ORDER>(arena, pfn);
    }
    Some(pfn)
}

#[inline(never)]
fn in_hand<const ORDER: u8>(own: &Own) -> Option<Pfn> {
    own.alloc_in_hand(const { order(ORDER) }, Migratetype::Movable)
}

#[inline(never)]
fn take_far<const ORDER: u8>(arena: &Arena) -> Option<Pfn> {
    let order = const { order(ORDER) };
    if const { ORDER < 9 } {
        let waiting = arena.waiting(order.frames());
        if waiting.is_some() {
            return waiting;
        }
        if const { ORDER > 0 } {
            let waiting = arena.waiting_or_cut(order.frames());
            if waiting.is_some() {
                return waiting;
            }
        }
    }
    let Some(cpu) = thread::fast(&arena.key) else { return take_shared::<ORDER>(arena) };
    let pfn = cpu.alloc(Request::new(order, Migratetype::Movable)).ok()?;
    if arena.inner.notes.is_news(pfn, order.frames()) {
        arena.note(pfn, order).ok()?;
    }
    Some(pfn)
}

#[cold]
#[inline(never)]
fn noted<const ORDER: u8>(arena: &Arena, pfn: Pfn) -> Option<Pfn> {
    let range = chunk(pfn, const { order(ORDER) });
    if const { ORDER > 0 } && arena.core.is_thrifty() && !arena.inner.notes.are_in_memory(range) {
        // What the CPU has in hand was given back: what waits in memory comes first.
        if let Some(waiting) = arena.waiting_or_cut(1 << ORDER) {
            give_to_hand::<ORDER>(arena, range);
            return Some(waiting);
        }
    }
    arena.note(pfn, const { order(ORDER) }).ok()?;
    Some(pfn)
}

/// Frees `2^ORDER` frames, if that is the number.
#[inline(never)]
fn give<const ORDER: u8>(arena: &Arena, range: FrameRange) {
    if range.end.get().wrapping_sub(range.start.get()) != 1 << ORDER {
        return give_run(arena, range);
    }
    give_chunk::<ORDER>(arena, range.start);
}

#[inline(never)]
fn give_one(arena: &Arena, start: Pfn) {
    give_chunk::<0>(arena, start);
}

/// Keeps `2^ORDER` frames, or frees them into the hand of the CPU that leases their word; it looks
/// by itself whether they are a chunk.
#[inline(always)]
fn give_chunk<const ORDER: u8>(arena: &Arena, start: Pfn) {
    let run = (start.get().wrapping_sub(arena.marks.first()), 1 << ORDER);
    let Some((word, mask)) = arena.marks.one(run) else { return give_run_far(arena, run) };
    if !word.any(mask) {
        // Made anew, so that the end need not be kept.
        return give_to_hand::<ORDER>(arena, chunk(start, const { order(ORDER) }));
    }
    let taken =
        |_: &&Own| if ORDER == 0 { word.take_frame_back(mask) } else { word.take_back(mask) };
    match thread::fast(&arena.key).filter(taken) {
        Some(own) => arena.keep(own, run),
        None => give_run_far(arena, run),
    }
}

/// Out of the way of what is kept, which saves no register for it.
#[inline(never)]
fn give_to_hand<const ORDER: u8>(arena: &Arena, range: FrameRange) {
    let freed = |own: &Own| own.free_in_hand(range.start, const { order(ORDER) });
    if !thread::fast(&arena.key).is_some_and(freed) {
        give_far::<ORDER>(arena, range);
    }
}

/// Frees `2^ORDER` frames, if that is the number and they are a chunk: a part of what was allocated
/// may lie anywhere.
#[inline(never)]
fn give_far<const ORDER: u8>(arena: &Arena, range: FrameRange) {
    let (start, order) = (range.start, const { order(ORDER) });
    if range.end.get().wrapping_sub(start.get()) != order.frames() || !start.is_aligned(order) {
        return give_run(arena, range);
    }
    if const { ORDER >= IN_WORD } && arena.marks.any_of_words(start.get(), order.frames()) {
        return give_run(arena, range);
    }
    let freed = |own: &Own| {
        let freed = own.free(start, order).is_ok();
        if const { ORDER < 9 } && freed {
            arena.wait(own, range);
        }
        freed
    };
    match thread::fast(&arena.key) {
        Some(own) if freed(own) => {}
        None => give_shared::<ORDER>(arena, range),
        Some(_) => give_long(arena, chunk(start, order)),
    }
}

/// To a CPU that the thread shares.
#[cold]
#[inline(never)]
fn give_shared<const ORDER: u8>(arena: &Arena, FrameRange { start, .. }: FrameRange) {
    let order = const { order(ORDER) };
    let freed = |cpu| arena.core.engine.on(cpu).free(start, order).is_ok();
    if thread::shared(&arena.key).is_some_and(freed) {
        return;
    }
    // Another arena may have taken the place in the thread's cache.
    if thread::cache_again(&arena.key) {
        return give_far::<ORDER>(arena, chunk(start, order));
    }
    give_long(arena, chunk(start, order));
}

/// Any number of frames that is no power of two, mostly, and all that may be kept.
#[inline(never)]
fn give_run(arena: &Arena, range: FrameRange) {
    // Nothing else of the range is kept in a register.
    let run = arena.run_of(range);
    if !arena.keep_at_hand(run) {
        give_run_far(arena, run);
    }
}

#[inline(never)]
fn give_run_far(arena: &Arena, run: Run) {
    if !arena.give_to_wait(run) {
        give_long(arena, arena.range_of(run));
    }
}

/// The long way: any number of frames, or what the allocator has just refused and will refuse
/// again.
#[inline(never)]
fn give_long(arena: &Arena, range: FrameRange) {
    if let Err(error) = arena.give_range(range) {
        arena.refuse_drop(error);
    }
}

impl Arena {
    /// The order of so many frames, where [`Self::quick`] looks for them.
    pub(crate) fn quick_order(count: u64) -> Option<Order> {
        Order::fitting(count).filter(|&order| order <= Order::PAGEBLOCK && order.frames() == count)
    }

    /// So many neighbouring frames, where the calling thread's own CPU has them at hand.
    #[inline(always)]
    pub(crate) fn quick(&self, count: u64) -> Option<Pfn> {
        if count == 1 {
            take_chunk::<0>(self)
        } else {
            TAKE[count.trailing_zeros() as usize](self, count)
        }
    }

    /// Frees one frame.
    #[inline(always)]
    pub(crate) fn give_frame(&self, start: Pfn) {
        give_one(self, start);
    }

    /// Frees what a handle had: all that its drop does.
    #[inline(always)]
    pub(crate) fn give_frames(&self, range: FrameRange) {
        let count = range.end.get().wrapping_sub(range.start.get());
        if count == 1 {
            self.give_frame(range.start);
        } else {
            GIVE[count.trailing_zeros() as usize](self, range);
        }
    }
}
