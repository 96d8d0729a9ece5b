//! From a thread to its CPU: two loads and a comparison where all is as usual.
//!
//! ```text
//! FAST     8 x (arena's number, CPU handle    plain thread-local cells: no destructor, no flag
//!               or the number of a shared CPU)
//! ENTRIES  every arena the thread has used    gives the slots back when the thread ends
//! ```
//!
//! `FAST` is a cache of `ENTRIES` in which each arena has one place, the same on every thread,
//! which it shares with no other while there are no more arenas than places. It holds the arena's
//! number as the arena's [stamp](crate::stamp) shows it, so a hit means at once: this thread has a
//! slot of its own there, and this is not a forked child. Where another arena has the place by now,
//! one look at `ENTRIES` puts it right, and the call goes on as if nothing had been.
//!
//! A thread whose thread-local storage is gone already (a destructor that drops frames) works as a
//! guest of a shared CPU for that one call.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr::NonNull;
use std::sync::Arc;

use freehold::CpuId;

use crate::Error;
use crate::core::{Core, Cpu};
use crate::key::Own;
use crate::key::{Fast, Key, WAYS};

/// No arena has this number; nor is it what a forked child reads.
const NOBODY: u64 = u64::MAX;

/// A thread's arenas by number. Numbers are drawn once each, so that a multiplication spreads them.
type Entries = HashMap<u64, Entry, BuildHasherDefault<Spread>>;

/// The hasher of [`Entries`]: 2^64 divided by the golden ratio, as in Fibonacci hashing (Knuth, The
/// Art of Computer Programming, volume 3, section 6.4).
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0 ^ u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

thread_local! {
    static FAST: [Fast; WAYS] = const { [const { Fast::nobodys(NOBODY) }; WAYS] };
    static ENTRIES: RefCell<Entries> =
        const { RefCell::new(HashMap::with_hasher(BuildHasherDefault::new())) };
    /// Whether there is anything in `ENTRIES`, whose first use takes a lock of the C library's: it
    /// has a destructor.
    static KNOWN: Cell<bool> = const { Cell::new(false) };
}

/// What a thread has in one arena.
struct Entry {
    core: Arc<Core>,
    id: u64,
    seat: Seat,
}

#[derive(Clone, Copy)]
enum Seat {
    /// What the slot has is boxed, and the slots know where.
    Exclusive(CpuId, NonNull<Own>),
    Shared(CpuId),
}

impl Seat {
    /// A slot for the calling thread alone, if there is one.
    fn exclusive(core: &Arc<Core>) -> Option<Self> {
        let mut cpu = core.slots.take(&core.engine);
        if cpu.is_none() && core.slots.is_look_due() {
            core.collect_ended();
            cpu = core.slots.take(&core.engine);
        }
        let cpu = cpu?;
        // SAFETY: the handle goes into an entry, which drops it before its `Arc<Core>`; see `Drop`.
        let Ok(owned) = (unsafe { core.own(cpu) }) else {
            core.slots.give(&core.engine, cpu);
            return None;
        };
        let own = NonNull::from(Box::leak(Box::new(Own::new(owned, core.runs()))));
        core.slots.boxed(cpu, own);
        Some(Self::Exclusive(cpu, own))
    }

    /// Runs `f` on the CPU of a seat that the calling thread has.
    fn run<R>(self, core: &Core, f: impl FnOnce(Cpu<'_>) -> R) -> R {
        match self {
            // SAFETY: as in `fast`: the entry lives while the arena does and this thread runs.
            Self::Exclusive(_, own) => f(Cpu::Owned(unsafe { own.as_ref() })),
            Self::Shared(cpu) => f(Cpu::Shared(core.engine.on(cpu))),
        }
    }
}

impl Entry {
    fn new(core: &Arc<Core>, id: u64) -> Self {
        let seat = Seat::exclusive(core);
        let seat = seat.unwrap_or_else(|| Seat::Shared(core.slots.join(&core.engine)));
        Self { core: Arc::clone(core), id, seat }
    }

    fn cache(&self) {
        if self.core.guarded {
            return;
        }
        FAST.with(|fast| {
            let fast = &fast[self.core.key().way()];
            match self.seat {
                Seat::Exclusive(_, own) => {
                    fast.own.set(own);
                    fast.id.set(self.id);
                }
                Seat::Shared(cpu) => fast.shared.set((self.id, cpu)),
            }
        });
    }

    fn uncache(&self) {
        FAST.with(|fast| {
            let fast = &fast[self.core.key().way()];
            if fast.id.get() == self.id {
                fast.id.set(NOBODY);
                fast.own.set(NonNull::dangling());
            }
            if fast.shared.get().0 == self.id {
                fast.shared.set((NOBODY, CpuId::new(0)));
            }
        });
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.uncache();
        let core = &self.core;
        if core.stamp.is_forked() {
            // The slot is the parent's; a lock here may be held by a thread that does not exist in
            // this process.
            return;
        }
        match self.seat {
            Seat::Exclusive(cpu, own) => {
                // SAFETY: boxed by this entry's thread, which has just forgotten where, and is not
                // gone: nobody else drops it. Whoever else looks at it has the table locked, as
                // this has.
                core.slots.unboxed(cpu, || core.free_last(unsafe { &mut *own.as_ptr() }));
                // SAFETY: likewise, and nobody else knows of it any more.
                drop(unsafe { Box::from_raw(own.as_ptr()) });
                if !core.is_closed() {
                    core.slots.give(&core.engine, cpu);
                }
            }
            Seat::Shared(cpu) => core.slots.leave(&core.engine, cpu),
        }
    }
}

/// The calling thread's own CPU, if the cache knows it.
#[inline(always)]
pub(crate) fn fast(key: &Key) -> Option<&Own> {
    // SAFETY: the core lives: the caller has the arena, or the core itself.
    let id = unsafe { key.id() };
    FAST.with(|fast| {
        // SAFETY: `Key::of` takes one of the places, and nothing else makes a key.
        let fast = unsafe { &*fast.as_ptr().byte_add(key.offset()) };
        if fast.id.get() != id {
            return None;
        }
        // SAFETY: where the number is an arena's, the pointer is to the boxed handle of this
        // thread's entry for it, which clears the cell before it drops the handle. An entry goes
        // when its thread ends or when its arena is closed, which cannot be while somebody has a
        // reference to the arena.
        Some(unsafe { fast.own.get().as_ref() })
    })
}

/// The CPU that the calling thread shares, if the cache knows it. Whoever allocates there looks for
/// a [free slot](crate::slots::Slots::has_free) first.
#[inline(always)]
pub(crate) fn shared(key: &Key) -> Option<CpuId> {
    // SAFETY: the core lives: the caller has the arena, or the core itself.
    let id = unsafe { key.id() };
    FAST.with(|fast| {
        // SAFETY: as in `fast`.
        let fast = unsafe { &*fast.as_ptr().byte_add(key.offset()) };
        let (number, cpu) = fast.shared.get();
        (number == id).then_some(cpu)
    })
}

/// Whether the calling thread has a CPU of its own in that arena, which [`fast`] finds from then
/// on.
#[cold]
#[inline(never)]
pub(crate) fn cache_again(key: &Key) -> bool {
    if !KNOWN.get() || shared(key).is_some() {
        return false;
    }
    // SAFETY: the core lives: the caller has the arena.
    let id = unsafe { key.id() };
    let again = ENTRIES.try_with(|entries| {
        // Borrowed where this is a signal handler, or a destructor inside a change.
        let Ok(entries) = entries.try_borrow() else { return false };
        let short =
            |entry: &&Entry| matches!(entry.seat, Seat::Exclusive(..)) && !entry.core.guarded;
        let exclusive = entries.get(&id).filter(short);
        exclusive.inspect(|entry| entry.cache()).is_some()
    });
    again.unwrap_or(false)
}

/// Runs `f` on the calling thread's CPU.
#[inline(always)]
pub(crate) fn enter<R>(core: &Arc<Core>, f: impl FnOnce(Cpu<'_>) -> R) -> Result<R, Error> {
    match fast(&core.key()) {
        Some(own) => Ok(f(Cpu::Owned(own))),
        None => enter_slow(core, f),
    }
}

#[cold]
#[inline(never)]
fn enter_slow<R>(core: &Arc<Core>, f: impl FnOnce(Cpu<'_>) -> R) -> Result<R, Error> {
    core.check_fork()?;
    if let Some(cpu) = shared(&core.key()).filter(|_| !core.slots.has_free()) {
        return Ok(f(Cpu::Shared(core.engine.on(cpu))));
    }
    let id = core.stamp.id();
    let seat = ENTRIES.try_with(|entries| {
        // Borrowed where this is a signal handler.
        let Ok(mut entries) = entries.try_borrow_mut() else { return Err(Error::Reentered) };
        if !entries.contains_key(&id) {
            if entries.len() == entries.capacity() {
                // A good moment to let go of arenas that are gone.
                entries.retain(|_, entry| !entry.core.is_closed());
            }
            KNOWN.set(true);
        }
        let entry = entries.entry(id).or_insert_with(|| Entry::new(core, id));
        if let Seat::Shared(cpu) = entry.seat {
            if let Some(own) = core.slots.has_free().then(|| Seat::exclusive(core)).flatten() {
                entry.uncache();
                entry.seat = own;
                core.slots.leave(&core.engine, cpu);
            }
        }
        entry.cache();
        Ok(entry.seat)
    });
    match seat {
        Ok(seat) => Ok(seat?.run(core, f)),
        Err(_) => {
            let guest = Guest { core, cpu: core.slots.join(&core.engine) };
            Ok(f(Cpu::Shared(core.engine.on(guest.cpu))))
        }
    }
}

/// Runs `f`, which frees, on a CPU that takes no waiting to find: the calling thread's own or the
/// one it shares, or else nobody's. A thread that has none here is not given one: making a CPU's
/// slot ready takes locks, whose holder may be doing whatever.
#[inline(always)]
pub(crate) fn enter_to_free<R>(core: &Core, f: impl FnOnce(Cpu<'_>) -> R) -> Result<R, Error> {
    match fast(&core.key()) {
        Some(own) => Ok(f(Cpu::Owned(own))),
        None => enter_to_free_slow(core, f),
    }
}

#[cold]
#[inline(never)]
fn enter_to_free_slow<R>(core: &Core, f: impl FnOnce(Cpu<'_>) -> R) -> Result<R, Error> {
    core.check_fork()?;
    if let Some(cpu) = shared(&core.key()) {
        return Ok(f(Cpu::Shared(core.engine.on(cpu))));
    }
    let id = core.stamp.id();
    // Where the storage is gone already, nobody's CPU will do.
    let find = |entries: &RefCell<Entries>| {
        let entries = entries.try_borrow().ok()?;
        let entry = entries.get(&id)?;
        entry.cache();
        Some(entry.seat)
    };
    let seat = if KNOWN.get() { ENTRIES.try_with(find).ok().flatten() } else { None };
    Ok(match seat {
        Some(seat) => seat.run(core, f),
        None => f(Cpu::Shared(core.keeper())),
    })
}

/// A visit to a shared CPU by a thread without thread-local storage.
struct Guest<'a> {
    core: &'a Core,
    cpu: CpuId,
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.core.slots.leave(&self.core.engine, self.cpu);
    }
}

/// Lets go of what the calling thread has in an arena that is being dropped.
pub(crate) fn forget(core: &Core) {
    let id = core.stamp.id();
    // Where the storage is gone, so is the entry. In a forked child the number is 0 and no entry
    // has it.
    let gone = ENTRIES.try_with(|entries| entries.borrow_mut().remove(&id));
    drop(gone);
}

#[cfg(test)]
mod tests {
    use freehold::Order;

    use super::*;
    use crate::Arena;

    /// Of more arenas than there are places two share one, and each is found there in its turn.
    #[test]
    fn arenas_that_share_a_place_are_both_found_by_the_short_way() {
        let arenas: Vec<_> = (0..=WAYS).map(|_| Arena::with_size(2 << 20).unwrap()).collect();
        let strangers = Arena::with_size(2 << 20).unwrap();
        arenas.iter().for_each(|arena| drop(arena.frames(1).unwrap()));
        let missed = |arena: &Arena| fast(&arena.core().key()).is_none();
        assert!(arenas.iter().any(missed), "{} arenas have {WAYS} places", arenas.len());
        for _ in 0..2 {
            for arena in &arenas {
                let key = arena.core().key();
                assert!(fast(&key).is_some() || cache_again(&key), "its place is another's");
                assert!(arena.quick(1).is_some_and(|pfn| arena.give(pfn, Order::ZERO).is_ok()));
            }
        }
        assert!(!cache_again(&strangers.core().key()), "this thread has no CPU there");
    }

    /// A CPU that nobody shares any more is offline.
    #[test]
    fn a_thread_that_moves_up_or_ends_its_arena_forgets_the_cpu_that_it_shared() {
        for slots in [0, 1] {
            let arena = Arena::builder(2 << 20).slots(slots).build().unwrap();
            let core = Arc::clone(&arena.inner.core);
            let key = core.key();
            let seats = || (fast(&key).is_some(), shared(&key).is_some());
            let use_it = || drop(arena.frames(1).unwrap());
            let both = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    use_it();
                    both.wait();
                    both.wait();
                });
                both.wait();
                use_it();
                assert_eq!(seats(), (false, true));
                both.wait();
                other.join().unwrap();
            });
            while core.slots.taken() != 0 {
                std::thread::yield_now();
            }
            use_it();
            assert_eq!(seats(), (slots == 1, slots == 0));
            drop(arena);
            assert_eq!(seats(), (false, false));
        }
    }
}
