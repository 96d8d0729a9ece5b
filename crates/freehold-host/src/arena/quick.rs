//! The short way of [`Frames`](crate::Frames): a power of two of frames, up to a block, from the
//! calling thread's own CPU.
//!
//! ```text
//! count = 2^k   k = 0         allocated by code that is compiled into the caller
//!               k = 1 to 9    by code compiled once for each k, which a table by trailing zeros
//!                             leads to; freed likewise
//! others                      the long way, to which the table leads or that code
//! ```
//!
//! What is known of the order when the program is compiled is worth a third of the instructions,
//! and callers mostly do not know it. The code for an order does all there is to do, so that the
//! callers' part is a table look-up and a call, small enough to be compiled into them, and nothing
//! is gathered in memory on the way: that costs more than the allocation itself.

use freehold::{FrameRange, Migratetype, Order, Pfn, Request};

use super::Arena;
use crate::key::Own;
use crate::thread;

/// By the trailing zeros of a number of frames.
const WAYS: usize = u64::BITS as usize + 1;

/// Chunks of a lower order lie within one word, of which a CPU may have frames in hand.
const IN_WORD: u8 = 6;

type Take = fn(&Arena, u64) -> Option<Pfn>;
type Give = fn(&Arena, FrameRange);

/// A table in which all but these ways lead to the first.
macro_rules! ways {
    ($kind:ty: $other:ident, $($way:ident $($order:literal)*),*) => {{
        let mut ways = [$other as $kind; WAYS];
        $($(ways[$order] = $way::<$order>;)*)*
        ways
    }};
}

static TAKE: [Take; WAYS] = ways!(Take: take_none, take 0 1 2 3 4 5 6 7 8 9);
static GIVE: [Give; WAYS] = ways!(Give: give_long, give 0 1 2 3 4 5, give_far 6 7 8 9);

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
    arena.kept_or(count, || arena.waiting(count))
}

/// What the CPU has in hand, and else a jump to the far way: with nothing to come back to, no
/// register is saved for it.
#[inline(always)]
fn take_chunk<const ORDER: u8>(arena: &Arena) -> Option<Pfn> {
    let own = if const { ORDER < IN_WORD } { thread::fast(&arena.key) } else { None };
    let Some(pfn) = own.and_then(in_hand::<ORDER>) else { return take_far::<ORDER>(arena) };
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
    if const { ORDER < 9 } {
        return arena.kept_or(1 << ORDER, || take_farther::<ORDER>(arena));
    }
    take_farther::<ORDER>(arena)
}

/// Out of the way of what is kept, as above.
#[inline(never)]
fn take_farther<const ORDER: u8>(arena: &Arena) -> Option<Pfn> {
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
    let pfn = {
        let Some(cpu) = thread::fast(&arena.key) else {
            // Another arena has taken the place in the thread's cache; there may be some in hand.
            let again = thread::cache_again(&arena.key);
            return if again { take_chunk::<ORDER>(arena) } else { None };
        };
        cpu.alloc(Request::new(order, Migratetype::Movable)).ok()?
    };
    if arena.inner.notes.is_news(pfn, order.frames()) {
        arena.note(pfn, order).ok()?;
    }
    Some(pfn)
}

#[cold]
#[inline(never)]
fn noted<const ORDER: u8>(arena: &Arena, pfn: Pfn) -> Option<Pfn> {
    arena.note(pfn, const { order(ORDER) }).ok()?;
    Some(pfn)
}

/// Frees `2^ORDER` frames, if that is the number, into the hand of the CPU that leases their word;
/// it looks by itself whether they are a chunk.
#[inline(never)]
fn give<const ORDER: u8>(arena: &Arena, range: FrameRange) {
    let (start, order) = (range.start, const { order(ORDER) });
    if range.end.get().wrapping_sub(start.get()) != order.frames() {
        return give_run(arena, range);
    }
    let run = (start.get().wrapping_sub(arena.marks.first()), order.frames());
    let Some((word, mask)) = arena.marks.one(run) else { return give_run(arena, range) };
    if !word.any(mask) {
        return give_to_hand::<ORDER>(arena, range);
    }
    match thread::fast(&arena.key).filter(|_| word.take_back(mask)) {
        Some(own) => arena.keep(own, run),
        None => give_run_far(arena, range),
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
    if !thread::own(&arena.key).is_some_and(freed) {
        // Made anew, so that the end need not be kept.
        give_long(arena, FrameRange { start, end: Pfn::new(start.get() + order.frames()) });
    }
}

/// Any number of frames that is no power of two, mostly, and all that may be kept.
#[inline(never)]
fn give_run(arena: &Arena, range: FrameRange) {
    if !arena.keep_at_hand(range) {
        give_run_far(arena, range);
    }
}

#[inline(never)]
fn give_run_far(arena: &Arena, range: FrameRange) {
    if !arena.give_to_wait(range) {
        give_long(arena, range);
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

    /// Frees what a handle had: all that its drop does.
    #[inline(always)]
    pub(crate) fn give_frames(&self, range: FrameRange) {
        let count = range.end.get().wrapping_sub(range.start.get());
        GIVE[count.trailing_zeros() as usize](self, range);
    }
}
