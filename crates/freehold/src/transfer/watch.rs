//! A request that came to nothing is not tried again before something has come that could help.
//!
//! ```text
//! who fails                                      who puts frames where requests look
//!   watches for that class and above               the word; the count; the board's bit; the zone's bit
//!   looks everywhere, asks all CPUs                is the class watched for?  the next generation begins
//!   the board has nothing? remembers the generation
//! ```
//!
//! Each side writes one place and then reads the other's, sequentially consistently: either the
//! failing request finds the frames, or the generation that it remembers is over.
//!
//! Its next request fails at once while all of these hold: the request asks for no less than the one
//! before, that generation has not ended, and no CPU has anything in hand that would be asked for.
//! What comes into a hand tells nobody, so a CPU says so before its hand gets anything
//! ([`Freehold::holds`]); where all hands are empty, which is one number, nobody's is looked at.
//!
//! A run of a smaller class ends no generation. Where a zone has frames and a watermark keeps them
//! back, every frame counts: [`ANY`] is watched for then, and each free looks.
//!
//! Whoever raises a block's class looks twice, before and after: in between the run is neither new
//! to another free nor on the board yet, and whoever waits for it must go the long way, which waits
//! for the CPU that is about to tell.

use crate::block::NONE;
use crate::cpu::inside::Inside;
use crate::cpu::state::CpuState;
use crate::primitive::{AtomicU64, Ordering, Plain, acquire_fence};
use crate::zone::Zone;
use crate::{AllocFlags, Freehold, Migratetype, Order, Platform, Request};

/// The class that every frame has.
pub(crate) const ANY: u8 = 0;
/// Nothing is watched for.
const NOTHING: u64 = 0xff;

/// The generation, and in its lowest byte the smallest class that somebody watches for in it.
pub(crate) struct Watch(AtomicU64);

impl Watch {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(1 << 8 | NOTHING))
    }

    /// From now on what comes of that class and above ends the generation, which is returned.
    fn begin(&self, class: u8) -> u64 {
        loop {
            let seen = self.0.load(Ordering::SeqCst);
            let now = seen & !NOTHING | (seen & NOTHING).min(u64::from(class));
            // SeqCst: the board, hands and counts are read next; see the module's documentation.
            if self.0.compare_exchange(seen, now, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return now >> 8;
            }
        }
    }

    /// Whether that generation goes on.
    #[inline(always)]
    fn goes_on(&self, generation: u64) -> bool {
        self.0.load(Ordering::SeqCst) >> 8 == generation
    }

    /// Something of that class has come.
    #[inline(always)]
    pub(crate) fn came(&self, class: u8) {
        // SeqCst: what has come was written before; see the module's documentation.
        let seen = self.0.load(Ordering::SeqCst);
        if class >= seen as u8 {
            self.end(class, seen);
        }
    }

    #[cold]
    #[inline(never)]
    fn end(&self, class: u8, mut seen: u64) {
        while class >= seen as u8 {
            match self.0.compare_exchange(
                seen,
                (seen | NOTHING) + (1 << 8),
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

/// What a request asked for that came to nothing, as one number: the type and the flags, and the
/// order in the lowest byte. None of a request with limits of its own, or that may not wait.
fn key_of(request: &Request) -> Option<u64> {
    let ordinary = !request.is_limited()
        && request.node.is_none()
        && request.align <= request.order
        && request.order <= Order::PAGEBLOCK
        && Migratetype::PCP.contains(&request.migratetype)
        && !request.flags.contains(AllocFlags::NO_LOCK);
    ordinary.then(|| key(request.order, request.migratetype, request.flags))
}

#[inline(always)]
fn key(order: Order, migratetype: Migratetype, flags: AllocFlags) -> u64 {
    u64::from(flags.bits()) << 16 | (migratetype as u64) << 8 | u64::from(order.get())
}

impl<'m, P: Platform> Inside<'_, 'm, P> {
    /// Whether such a request has come to nothing here, and nothing has come since.
    #[inline(always)]
    pub(crate) fn is_futile(
        &self,
        order: Order,
        migratetype: Migratetype,
        flags: AllocFlags,
    ) -> bool {
        let generation = self.cpu.futile.get();
        generation != 0 && self.is_still_futile(generation, key(order, migratetype, flags))
    }

    #[inline(never)]
    fn is_still_futile(&self, generation: u64, key: u64) -> bool {
        let (fh, failed) = (self.fh, self.cpu.futile_request.get());
        let goes_on = || fh.watch.goes_on(generation);
        if key >> 8 != failed >> 8 || key < failed || !self.cpu.online.get() || !goes_on() {
            return false;
        }
        // SeqCst: a CPU that has given back what it had has told of that before.
        if fh.holding.0.load(Ordering::SeqCst) != 0 && self.somebody_has((failed & 0xff) as u8) {
            return false;
        }
        goes_on()
    }

    /// Whether any CPU, this one too, has something in hand for a request of that order, or may be
    /// on its way with it. By a glance.
    #[cold]
    #[inline(never)]
    fn somebody_has(&self, order: u8) -> bool {
        let wanted = if self.cpu.futile_for_mark.get() { None } else { Order::new(order) };
        // Acquire: as `recall`.
        acquire_fence();
        self.fh.cpus.iter().any(|cpu| {
            let here = core::ptr::eq(cpu, self.cpu);
            !here && cpu.door.is_occupied() || self.fh.has_for(cpu, wanted)
        })
    }

    /// [`is_futile`](Self::is_futile) of any request.
    pub(crate) fn is_futile_request(&self, request: &Request) -> bool {
        key_of(request).is_some()
            && self.is_futile(request.order, request.migratetype, request.flags)
    }

    /// A request is about to look everywhere for the last time, `for_mark` where frames are short of
    /// a watermark. What [`remember`](Self::remember) is to be given.
    pub(crate) fn begin_watch(&self, request: &Request, for_mark: bool) -> u64 {
        self.cpu.futile.set(0);
        self.fh.watch.begin(if for_mark { ANY } else { request.order.get() + 1 })
    }

    /// A request has come to nothing in that generation. Remembered only where each zone shows that
    /// it has nothing for it: others may have been faster each time that this one had found some.
    pub(crate) fn remember(&self, request: &Request, for_mark: bool, generation: u64) {
        let fh = self.fh;
        self.cpu.holds_nothing(fh);
        let mut zones = fh.zonelist(self.id.index(), None).map(|z| &fh.zones[z]);
        let hopeless = |zone: &Zone<'m>| {
            zone.is_empty_from(request.order.get() + 1, request.cma())
                || for_mark
                    && zone.high_atomic_blocks.get() == 0
                    && !fh.allows(zone, request.order.frames(), request.flags, request.cma(), true)
        };
        let Some(key) = key_of(request).filter(|_| zones.all(hopeless)) else { return };
        self.cpu.futile_request.set(key);
        self.cpu.futile_for_mark.set(for_mark);
        self.cpu.futile.set(generation);
    }
}

impl CpuState<'_> {
    /// A CPU that has nothing in hand says so.
    pub(crate) fn holds_nothing<P: Platform>(&self, fh: &Freehold<'_, P>) {
        let empty = self.leases.held() == 0
            && self.kept.iter().all(|kept| kept.get() == NONE)
            && (0..fh.zones.len())
                .all(|z| fh.cursors_of(self, z).places().all(|place| place.get() == NONE));
        if self.holds.get() && empty {
            self.holds.set(false);
            // SeqCst: what it had is told of by now.
            fh.holding.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl<P: Platform> Freehold<'_, P> {
    /// A CPU is about to have something in hand, or a block that it takes its next words from. By who
    /// is inside.
    #[inline]
    pub(crate) fn holds(&self, cpu: &CpuState<'_>) {
        if !cpu.holds.get() {
            cpu.holds.set(true);
            // SeqCst: before it takes anything.
            self.holding.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Zone<'_> {
    /// Whether the board has nothing of that class and above, and the bitmap has nothing.
    fn is_empty_from(&self, class: u8, cma: bool) -> bool {
        self.wholes() == 0 && self.board.is_empty_from(class, cma)
    }
}
