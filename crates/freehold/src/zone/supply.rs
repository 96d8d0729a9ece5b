//! Below how many free frames a zone serves whom, and when the host hears of it.
//!
//! What is free is counted by the zone and by each CPU: see [`allowance`](super::allowance). What
//! CPUs have in hand does not count. No request passes its mark, but for one that may not wait: by
//! what other CPUs take of their allowances at that moment.
//!
//! The mode of a zone, which is one of [`mode`]'s, says only what is worth trying. Where it is LEAN
//! the first request that may wait, or tick, has all hands [emptied](crate::cpu::recall), and CPUs
//! take nothing in hand: what is in the hand of a CPU with an owner cannot be had without waiting.
//!
//! **Shared words** are those that a zone's CPUs may lease where there are fewer of them than CPUs.
//! All that CPUs lease is at most 1 % of a zone, rounded up to a word. Mostly that is some words
//! for each CPU, and nobody counts them. On a machine with less than 25 MiB for each CPU it is less
//! than one: a CPU takes one of what is left before it leases. A CPU that finds none left takes its
//! frames straight from the blocks' words, and says that it wants one. Who has one gives it up at
//! its next tick with nothing in hand, or where its word is used up and somebody wants one. Then it
//! takes some frames as the others did before it asks again.

use crate::block::{CMA, FRAMES, TYPES};
use crate::cpu::By;
use crate::primitive::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, Relaxed};
use crate::zone::allowance::{CMA_KIND, KINDS, ORDINARY, RESERVED, kind_of};
use crate::{AllocFlags, Freehold, Platform, Request};

const WORD: u64 = 64;

/// How a zone's memory stands, which decides what a CPU may do without asking.
pub(crate) mod mode {
    /// Best fit.
    pub(crate) const ORDINARY: u8 = 0;
    /// Nearly all of it is whole: whatever is at hand will do.
    pub(crate) const ROOMY: u8 = 1;
    /// Near its min mark: what is taken in hand has to be asked for.
    pub(crate) const TIGHT: u8 = 2;
    /// Nearer still: what CPUs may have in hand would be as much as is left, so they have nothing.
    pub(crate) const LEAN: u8 = 3;
}

/// What a zone has to give: its free frames by kind, what of them may be taken, and by whom.
///
/// Lines that every CPU reads come first. What changes with each grant is on others.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct Supply {
    /// The zone's number.
    pub(crate) id: u8,
    /// One of [`mode`]'s. Written only where it changes, since every CPU reads it.
    pub(crate) mode: AtomicU8,
    /// It has become LEAN, and nobody has emptied the hands yet.
    pub(crate) hands_to_empty: AtomicBool,
    /// Parts of blocks have no memory: what is at hand may cost most, so it is never roomy.
    pub(crate) thrifty: AtomicBool,
    /// Each CPU has blocks of its own in use.
    pub(crate) spread: AtomicBool,
    /// The marks follow the kernel's formulae when the amount of memory changes.
    pub(crate) kernel_marks: AtomicBool,
    /// The level has changed and nobody has told the host yet.
    pub(crate) level_changed: AtomicBool,
    /// The pressure level last told to the host: 0 none, 1 below low, 2 below min.
    pub(crate) level: AtomicU32,
    /// The largest allowance, in frames.
    pub(crate) fold: AtomicU64,
    /// Into so many allowances what is left above the mark is divided.
    pub(crate) shares: AtomicU64,
    /// With fewer ordinary frames it becomes TIGHT, or stays so; and LEAN. See
    /// [`set_modes`](Self::set_modes).
    pub(crate) tight_below: [AtomicU64; 2],
    pub(crate) lean_below: [AtomicU64; 2],
    /// Its own count when it was last summed up for the host.
    pub(crate) summed_at: AtomicU64,
    /// Frames there are; changes at hotplug.
    pub(crate) managed: AtomicU64,
    /// CMA blocks there are. None: a request that would take CMA frames is an ordinary one.
    pub(crate) cma_blocks: AtomicU64,
    pub(crate) min: AtomicU64,
    pub(crate) low: AtomicU64,
    pub(crate) high: AtomicU64,
    /// What its CPUs may lease, where each has no word of its own.
    pub(crate) words: SharedWords,
    /// How many bits are set in the bitmap, less those that somebody is about to clear.
    pub(crate) whole_blocks: Apart,
    /// Free frames by kind, without all CPUs' allowances: may be below 0. See [`super::allowance`].
    pub(crate) free: [AtomicU64; KINDS],
    /// HIGHATOMIC blocks there are.
    pub(crate) high_atomic_blocks: AtomicU64,
    pub(crate) counters: ZoneCounters,
}

/// A count on a line of its own, behind which the others follow that are written as often.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct Apart(pub(crate) AtomicU64);

/// Statistics, each an atomic addition by a thread that did it.
#[derive(Default)]
pub(crate) struct ZoneCounters {
    pub(crate) fallbacks: AtomicU64,
    pub(crate) mixed: AtomicU64,
    /// Writes to what all CPUs share that no CPU counts.
    pub(crate) shared_writes: AtomicU64,
    /// Sums of free frames over all CPUs.
    #[cfg(test)]
    pub(crate) sums: AtomicU64,
}

impl Supply {
    /// Whole blocks that nobody has claimed.
    pub(crate) fn wholes(&self) -> u64 {
        self.whole_blocks.0.get()
    }

    /// Claims `n` whole blocks: a thread that has claimed them finds as many bits set, since a bit
    /// is set before it is counted.
    pub(crate) fn claim_wholes(&self, n: u64) -> bool {
        let mut count = self.wholes();
        while count >= n {
            // Release: a thread that finds the block gone sees that a CPU is inside its door with
            // it. Relaxed on failure: a thread that claims one by the count looks for its bit.
            let claimed = self.whole_blocks.0.compare_exchange_weak(
                count,
                count - n,
                Ordering::Release,
                Ordering::Relaxed,
            );
            match claimed {
                Ok(_) => return true,
                Err(now) => count = now,
            }
        }
        false
    }

    /// How many blocks the zone has.
    pub(crate) fn blocks(&self) -> u64 {
        self.managed.get() >> 9
    }

    #[inline(always)]
    pub(crate) fn is_roomy(&self) -> bool {
        self.mode.get() == mode::ROOMY
    }

    /// Whether one of so many frames is free.
    pub(crate) fn has_free_of(&self, frames: u64) -> bool {
        let free = self.free[ORDINARY].get() as i64;
        free.max(0) as u64 * frames >= self.managed.get()
    }

    #[inline(always)]
    pub(crate) fn is_tight(&self) -> bool {
        self.mode.get() >= mode::TIGHT
    }

    /// Whether CPUs are to have nothing in hand.
    #[inline(always)]
    pub(crate) fn is_lean(&self) -> bool {
        self.mode.get() == mode::LEAN
    }

    /// Whether they may have something in hand all the same.
    #[inline(always)]
    pub(crate) fn has_hands_to_empty(&self) -> bool {
        self.is_lean() && self.hands_to_empty.get()
    }

    /// The min watermark as far as the request's flags lower it (Linux 7.3): MIN_RESERVE takes half
    /// off, NON_BLOCK a further quarter, OOM half of what is left, NO_WATERMARKS all.
    pub(crate) fn min_mark(&self, flags: AllocFlags) -> u64 {
        if flags.contains(AllocFlags::NO_WATERMARKS) {
            return 0;
        }
        let mut min = self.min.get();
        if flags.contains(AllocFlags::MIN_RESERVE) {
            min -= min / 2;
        }
        if flags.contains(AllocFlags::NON_BLOCK) {
            min -= min / 4;
        }
        if flags.contains(AllocFlags::OOM) {
            min -= min / 2;
        }
        min
    }

    /// Free frames as the zone alone knows of them: not more than there are.
    fn roughly_free(&self) -> u64 {
        let all = self.free.iter().fold(0, |sum: u64, n| sum.wrapping_add(n.get()));
        (all as i64).max(0) as u64
    }

    /// By how much the zone's own count may be too low: each type's allowance may be twice a grant,
    /// and of one a free has just come.
    fn untold(&self, cpus: usize) -> u64 {
        (2 * self.fold.get() * TYPES as u64 + FRAMES as u64) * cpus as u64
    }

    /// The types of block to look at: the request's own, and CMA before it (over half of the zone's
    /// free frames are CMA) or after it, where there is CMA and it will do.
    pub(crate) fn types_for(&self, request: &Request) -> [Option<usize>; 2] {
        let own = request.migratetype as usize;
        if !request.cma() || self.cma_blocks.get() == 0 {
            return [Some(own), None];
        }
        let cma = (self.free[CMA_KIND].get() as i64).max(0) as u64;
        if cma > self.roughly_free() / 2 { [Some(CMA), Some(own)] } else { [Some(own), Some(CMA)] }
    }

    /// Notes how its memory stands. After counts have changed by more than a few frames.
    pub(crate) fn update_mode(&self) {
        let before = self.mode.get();
        let left = (self.free[ORDINARY].get() as i64).max(0) as u64;
        let now = if left >= self.tight_below[usize::from(before >= mode::TIGHT)].get() {
            let roomy = !self.thrifty.get() && self.wholes() * 8 > self.blocks() * 7;
            if roomy { mode::ROOMY } else { mode::ORDINARY }
        } else if left < self.lean_below[usize::from(before == mode::LEAN)].get() {
            mode::LEAN
        } else {
            mode::TIGHT
        };
        if before != now {
            self.mode.set(now);
            if now == mode::LEAN {
                // Release: who empties the hands has what the CPUs asked see the mode.
                self.hands_to_empty.store(true, Ordering::Release);
            }
        }
    }

    /// Its watermarks: min, low and high. With the hotplug lock.
    pub(crate) fn set_marks(&self, [min, low, high]: [u64; 3]) {
        self.min.set(min);
        self.low.set(low);
        self.high.set(high);
        self.set_modes();
    }

    /// Computes below how many frames its mode is which, after marks, memory or CPUs have changed.
    ///
    /// It is near its mark where a CPU's allowance would be less than a word, and a block besides
    /// were missing. Where less is left than all hands may have CPUs have nothing in hand, so that
    /// a request that may not wait can have all that is free.
    pub(crate) fn set_modes(&self) {
        let near = WORD * self.shares.get() + FRAMES as u64;
        let lean = near.min(self.managed.get() / 100);
        let below = |more| match self.min.get() {
            0 => 0,
            min => min.saturating_add(more),
        };
        // Not back and forth: every CPU reads it, and each time that it becomes LEAN hands are
        // emptied, which leaves more above the mark.
        let marks = [below(near), below(near + near / 8), below(lean), below(2 * lean)];
        self.tight_below.iter().chain(&self.lean_below).zip(marks).for_each(|(n, m)| n.set(m));
    }

    /// Free frames of a zone, all CPUs' allowances summed up: exact while nothing runs. Looks at a
    /// line or two of each CPU.
    pub(crate) fn free(&self, fh: &Freehold<'_, impl Platform>) -> Free {
        #[cfg(test)]
        crate::primitive::Count::add(&self.counters.sums, 1);
        let z = usize::from(self.id);
        let mut sums: [u64; KINDS] = core::array::from_fn(|kind| self.free[kind].get());
        let mut add = |counts: &[AtomicU64; 8]| {
            for (migratetype, count) in counts[..TYPES].iter().enumerate() {
                let sum = &mut sums[kind_of(migratetype)];
                *sum = sum.wrapping_add(count.get());
            }
        };
        for cpu in fh.cpus {
            add(&fh.cpu(cpu).cursors(z).allowance);
            if cpu.home_zone.get() as usize == z {
                add(&cpu.allowance);
            }
        }
        // Somebody is between taking frames and counting them; or see `allowance` on kinds.
        let least = |sum: u64| (sum as i64).max(0) as u64;
        Free {
            all: least(sums.iter().fold(0, |sum: u64, n| sum.wrapping_add(*n))),
            high_atomic: least(sums[RESERVED]).min(self.high_atomic_blocks.get() * FRAMES as u64),
            cma: least(sums[CMA_KIND]),
        }
    }

    /// Whether a zone has what a request asks for above its mark, with all that CPUs may take.
    /// HIGHATOMIC frames count if the flags allow it.
    pub(crate) fn has_for(&self, fh: &Freehold<'_, impl Platform>, request: &Request) -> bool {
        let (flags, frames) = (request.flags, request.order.frames());
        let needed = self.min_mark(flags).saturating_add(frames);
        self.free(fh).usable(flags.may_use_reserve(), request.cma()) >= needed
    }

    /// Whether a CPU may lease words of a zone: that keeps its mark, whatever lower one the request
    /// has, unless it has none. From order 6 on whole words are taken instead, and where nobody has
    /// anything in hand just what is asked for.
    #[inline]
    pub(crate) fn may_lease(
        &self,
        by: By<'_, '_, impl Platform>,
        migratetype: usize,
        order: u32,
        flags: AllocFlags,
    ) -> bool {
        !self.is_tight() || {
            let word = if self.is_lean() { 0 } else { 6 };
            let (flags, frames) = (flags & AllocFlags::NO_WATERMARKS, 1 << order.max(word));
            self.reserve(by, migratetype, frames, flags).is_some()
        }
    }

    /// Compares the free frames with the marks; a change is told later, at the edge of the API.
    pub(crate) fn update_level(&self, fh: &Freehold<'_, impl Platform>) {
        // Mostly what is whole alone says that there is none, and none was told.
        if self.level.get() == 0 && self.wholes() * FRAMES as u64 > self.high.get() {
            return;
        }
        let level_of = |free: u64| {
            if free < self.min.get() {
                2
            } else if free < self.low.get() {
                1
            } else if free > self.high.get() || self.high.get() == 0 {
                0
            } else {
                // Between low and high: what was told last stays true, but below-min is over.
                self.level.get().min(1)
            }
        };
        let rough = self.roughly_free();
        let mut level = level_of(rough);
        if level != level_of(rough + self.untold(fh.cpus.len())) {
            // As many lines are looked at as there are CPUs: once for some frames.
            let far = rough.abs_diff(self.summed_at.get()) >= self.shares.get() / 8;
            if !far {
                return;
            }
            self.summed_at.set(rough);
            level = level_of(self.free(fh).all);
        }
        if level != self.level.get() {
            self.level.set(level);
            // Release: see `tell_pressure`.
            self.level_changed.store(true, Ordering::Release);
        }
    }
}

/// Frames that are free, and nobody's hand has.
#[derive(Clone, Copy, Default)]
pub(crate) struct Free {
    pub(crate) all: u64,
    pub(crate) high_atomic: u64,
    pub(crate) cma: u64,
}

impl Free {
    /// Of these, what a request may count on: not HIGHATOMIC frames unless it may use reserves, nor
    /// CMA frames unless those will do.
    pub(crate) fn usable(self, reserves: bool, cma: bool) -> u64 {
        let reserved = if reserves { 0 } else { self.high_atomic };
        self.all.saturating_sub(reserved + if cma { 0 } else { self.cma })
    }
}

/// min, low and high of a zone, in frames; see [`Watermarks::Kernel`](crate::Watermarks::Kernel).
pub(crate) fn kernel_watermarks(managed: u64, total: u64) -> [u64; 3] {
    if total == 0 {
        return [0; 3];
    }
    let min_kib = (total * 4 * 16).isqrt().clamp(128, 262_144);
    // At most 2^16 times the 2^40 frames that a zone may end at.
    let min = min_kib / 4 * managed / total;
    let gap = (min / 4).max(managed / 1000);
    [min, min + gap, min + 2 * gap]
}

/// So often a CPU that has given up its share for others does without before it asks for one again.
const LETS_OTHERS: u32 = 8;

/// See the module's documentation. On lines of its own: what it counts changes often.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct SharedWords {
    most: AtomicU64,
    taken: AtomicU64,
    /// Somebody has found none left since one was given up for that.
    wanted: AtomicBool,
}

impl SharedWords {
    /// How many there are; with fewer than are taken none is to be had for a while.
    pub(crate) fn set_most(&self, most: u64) {
        self.most.set(most);
    }

    /// Takes one, for a CPU that gives it back; `false` where none is left.
    pub(crate) fn take(&self) -> bool {
        let most = self.most.get();
        if self.taken.get() >= most {
            // Without a write, mostly: many may ask.
            if !self.wanted.get() {
                self.wanted.set(true);
            }
            return false;
        }
        // Relaxed, both: a number, which nothing else follows from.
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        if taken >= most {
            self.give_back();
        }
        taken < most
    }

    /// Whether somebody wants one: told once, to the CPU that gives one up. A preference: if it is
    /// lost somebody asks again.
    pub(crate) fn take_wish(&self) -> bool {
        let wanted = self.wanted.get();
        if wanted {
            self.wanted.set(false);
        }
        wanted
    }

    fn give_back(&self) {
        // Relaxed: as above.
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a CPU has one of them. Under its door.
#[derive(Default)]
pub(crate) struct Share {
    has: AtomicBool,
    /// So often it does without one before it asks again: others want one.
    lets_others: AtomicU32,
}

impl Share {
    /// Whether the CPU has one, or gets one now.
    #[cold]
    pub(crate) fn has_or_gets(&self, words: &SharedWords) -> bool {
        if !self.has.get() && self.lets_others.get() != 0 {
            self.lets_others.set(self.lets_others.get() - 1);
            return false;
        }
        self.has.set(self.has.get() || words.take());
        self.has.get()
    }

    /// Gives it up.
    #[inline(always)]
    pub(crate) fn give_up(&self, words: &SharedWords) {
        if self.has.get() {
            self.has.set(false);
            words.give_back();
        }
    }

    /// Has given it up for others.
    pub(crate) fn let_others(&self) {
        self.lets_others.set(LETS_OTHERS);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{ORDINARY, RESERVED};
    use crate::tests::testing::*;

    const MIN: u64 = 800;

    /// Words of a block are claimed past the leases, and past the look at the mark.
    #[test]
    fn chunks_of_every_order_leave_the_min_mark() {
        for order in 0..10 {
            let fh = machine(1, 1 << 14);
            fh.set_watermarks(0, MIN, 2 * MIN, 3 * MIN).unwrap();
            let taken = exhaust(&fh, movable(order)).len() as u64;
            let (free, size) = (fh.zones[0].free(&fh).all, 1 << order);
            assert_eq!((1 << 14) - taken * size, free);
            assert!((MIN..MIN + size).contains(&free), "order {order}: {free}");
        }
    }

    #[test]
    fn bulk_calls_leave_the_min_mark() {
        let fh = machine(1, 1 << 14);
        fh.set_watermarks(0, MIN, 2 * MIN, 3 * MIN).unwrap();
        let mut out = [Pfn::new(0); 64];
        while fh.here().alloc_bulk(movable(0), &mut out).is_ok() {}
        assert_eq!(fh.zones[0].free(&fh).all, MIN);
    }

    /// What a CPU takes of a zone that is not its home is told as well: nobody's home may be short
    /// of memory.
    #[test]
    fn a_zone_that_is_nobodys_home_keeps_its_mark() {
        for order in [0, 3, 6] {
            let fh = two_zones(1, 1 << 14);
            [0, 1].into_iter().for_each(|z| fh.set_watermarks(z, MIN, 2 * MIN, 3 * MIN).unwrap());
            exhaust(&fh, movable(order));
            for zone in fh.zones {
                let free = zone.free(&fh).all;
                assert!((MIN..MIN + (1 << order)).contains(&free), "order {order}: {free}");
            }
        }
    }

    /// A CPU that frees and allocates nothing tells the zone: up to a known number of frames. The
    /// frames of a block are no runs, and so nothing new to the board.
    #[test]
    fn a_cpu_that_only_frees_tells_the_zone() {
        for zones in [1, 2] {
            let fh = if zones == 1 { machine(2, 1 << 14) } else { two_zones(2, 1 << 14) };
            for z in 0..zones {
                fh.set_watermarks(z, MIN, 2 * MIN, 3 * MIN).unwrap();
            }
            let request = movable(0).flags(crate::AllocFlags::NO_WATERMARKS);
            let all: Vec<Pfn> = exhaust(&fh, request);
            assert_eq!(all.len(), zones << 14);
            assert!(fh.zones.iter().all(|zone| zone.is_tight()));
            let other = fh.on(CpuId::new(1));
            for frame in (0..512).step_by(2) {
                for start in fh.zones.iter().map(|zone| zone.span.start.get()) {
                    for block in 0..32 {
                        other.free(Pfn::new(start + block * 512 + frame), Order::ZERO).unwrap();
                    }
                }
            }
            for zone in fh.zones {
                let (rough, free) = (zone.roughly_free(), zone.free(&fh).all);
                let untold = zone.untold(fh.cpus.len());
                assert_eq!(free, 1 << 13);
                assert!(rough <= free && free <= rough + untold, "{rough} of {free}");
                assert!(untold < free, "the bound says nothing");
            }
        }
    }

    #[test]
    fn nothing_is_above_the_highest_mark() {
        let fh = machine(1, 1 << 14);
        fh.set_watermarks(0, u64::MAX, u64::MAX, u64::MAX).unwrap();
        for order in [0, 6, 9, 10] {
            let none = Err(AllocError::NoMemory { order: of_order(order) });
            assert_eq!(fh.here().alloc(movable(order)), none);
        }
    }

    /// Frames are taken by somebody who read the tag just before the block got another type, and
    /// freed by somebody who read it afterwards: the old type has less than none, the new one more
    /// than there are, and the zone as many as before.
    #[test]
    fn a_type_with_less_than_no_frames_changes_no_sum() {
        let fh = machine(1, 1024);
        let cpu = fh.here();
        let frame = cpu.alloc(movable(0)).unwrap();
        cpu.flush().unwrap();
        let (block, _) = place(&fh, frame);
        let before = block.tag.get();
        assert!(fh.outside().retype(block, before, Migratetype::Unmovable as usize));
        // All 511 free frames are taken, counted for the old type, and freed, counted for the new
        // one.
        fh.outside().count_free(before, 511u64.wrapping_neg());
        let after = block.tag.get();
        fh.outside().count_free(after, 511);
        assert_eq!(fh.zones[0].free(&fh).all, 1023);
        fh.validate().unwrap();
    }

    /// A block's free frames count for the kind of its type.
    #[test]
    fn free_frames_of_a_block_that_changes_its_kind_change_theirs() {
        let fh = machine(1, 1024);
        let pfn = fh.here().alloc(movable(0)).unwrap();
        fh.here().flush().unwrap();
        let (block, _) = place(&fh, pfn);
        let counts = || [ORDINARY, RESERVED].map(|kind| fh.zones[0].free[kind].get() as i64);
        let [ordinary, reserved] = counts();
        let become_of = |kind: Migratetype| {
            assert!(fh.outside().retype(block, block.tag.get(), kind as usize));
            counts()
        };
        assert_eq!(become_of(Migratetype::HighAtomic), [ordinary - 511, reserved + 511]);
        assert_eq!(become_of(Migratetype::Movable), [ordinary, reserved]);
        fh.validate().unwrap();
    }

    /// A CPU takes a word to lease it, finds that the block has got another type, and puts it back:
    /// what the type's change has counted is without that word. The sum is right all the same, when
    /// one type has fewer frames than none.
    #[test]
    fn a_word_away_while_its_block_changes_type_is_counted_once() {
        let fh = machine(1, 1024);
        let pfn = fh.here().alloc(movable(0)).unwrap();
        fh.here().flush().unwrap();
        let (block, w) = place(&fh, pfn);
        let line = block.line;
        let other = (w + 1) % 8;
        let away = line.take_word(other);
        let unmovable = Migratetype::Unmovable as usize;
        assert!(fh.outside().retype(block, block.tag.get(), unmovable));
        assert_eq!((away, line.put_back(other, away)), (!0, (!0, 0)));
        fh.validate().unwrap();
        fh.here().free(pfn, Order::ZERO).unwrap();
        fh.drain_all();
        fh.validate().unwrap();
        assert_eq!(fh.zone_blocks(0).unwrap().free_blocks, 2);
    }
}
