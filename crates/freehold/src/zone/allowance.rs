//! What a CPU may take of a zone without asking it: its allowance.
//!
//! ```text
//! what is free      the zone's own count and all CPUs' allowances
//! the zone's count  granted by compare-exchange, as long as the rest keeps the mark
//! an allowance      never below 0; changed by plain stores, by a thread inside the CPU's state
//! ```
//!
//! | | the CPU's allowance | the zone's own count |
//! |---|---|---|
//! | frames are freed into a word | grows | |
//! | it has grown beyond [`most`](crate::cpu::CpuState::most) | down to the next grant | grows |
//! | frames are taken out of a word | shrinks | |
//! | it would be below 0 | what is missing, and the next grant | shrinks, or refuses: the frames go back |
//!
//! The zone's own count is a lower bound, since no allowance is below 0. A grant that leaves the
//! mark leaves it whatever other CPUs do meanwhile: what they may take was granted before. So no
//! request passes the mark, and none has to add up what all CPUs have.
//!
//! A CPU keeps of what it frees up to what is left above the mark, divided by the CPUs online; a
//! grant is half of that. With less left than CPUs both are 0: every frame is a compare-exchange.
//!
//! Where only what other CPUs may take is missing, one [recall](crate::cpu::recall) has them tell.
//! A request that may not wait adds up instead, and counts on it: **it may pass its mark by what
//! other CPUs take of their allowances at that moment**.
//!
//! Frames are of three kinds, since not every request may use each: ordinary ones, whole blocks
//! among them; HIGHATOMIC; CMA. A thread that takes frames while their block changes its kind
//! counts them for the old one, so that one kind may have too many for good and the other less than
//! none. Only their sum is exact.

use super::supply::{Free, Supply};
use crate::alloc::watch::ANY;
use crate::block::{FRAMES, HIGH_ATOMIC, TYPES, Tag};
use crate::cpu::{By, Cpu};
use crate::primitive::{AtomicU64, Count, Ordering, Relaxed};
use crate::{AllocFlags, Freehold, Platform};

pub(crate) const KINDS: usize = 3;
/// Of the three ordinary migratetypes, and whole blocks.
pub(crate) const ORDINARY: usize = 0;
pub(crate) const RESERVED: usize = 1;
pub(crate) const CMA_KIND: usize = 2;

/// The kind of a block's frames, by its migratetype.
pub(crate) const fn kind_of(migratetype: usize) -> usize {
    migratetype.saturating_sub(HIGH_ATOMIC - 1)
}

/// What is asked of a zone.
#[derive(Clone, Copy)]
struct Ask {
    kind: usize,
    frames: u64,
    /// So many frames of those kinds that count have to be left; 0: nothing is asked.
    mark: u64,
    /// Free HIGHATOMIC frames count.
    reserves: bool,
}

/// Frames that a thread outside every CPU's state has been granted, for as long as this lives: what
/// it takes meanwhile the zone's count loses once more.
pub(crate) struct Granted<'z> {
    supply: &'z Supply,
    kind: usize,
    frames: u64,
}

impl Drop for Granted<'_> {
    fn drop(&mut self) {
        if self.frames != 0 {
            self.supply.add_free(self.kind, self.frames);
        }
    }
}

impl Supply {
    /// Frames of a kind have come, and are nobody's allowance.
    pub(crate) fn add_free(&self, kind: usize, frames: u64) {
        // SeqCst: whether somebody watches for it is read next.
        self.free[kind].fetch_add(frames, Ordering::SeqCst);
    }

    /// Frames of a kind are gone, or have been granted, whatever the mark.
    pub(crate) fn sub_free(&self, kind: usize, frames: u64) {
        // SeqCst: a thread that counts on the sum of several counts reads the others next.
        self.free[kind].fetch_sub(frames, Ordering::SeqCst);
    }

    fn count(&self, kind: usize) -> i64 {
        // SeqCst: of two that each take from one kind and then read the other one sees both.
        self.free[kind].load(Ordering::SeqCst) as i64
    }

    /// What counts for a request besides the frames of the kind that it takes, a number that may be
    /// below 0: see the module's documentation.
    fn beside(&self, ask: Ask) -> i64 {
        let reserved = self.count(RESERVED);
        // No more than HIGHATOMIC blocks can have.
        let there = reserved.clamp(0, (self.high_atomic_blocks.get() * FRAMES as u64) as i64);
        let strange = reserved - there;
        let others = match ask.kind {
            CMA_KIND => self.count(ORDINARY),
            _ => self.count(CMA_KIND).min(0),
        };
        strange + others + if ask.reserves { there } else { 0 }
    }

    /// How many frames a request may still take of that kind, by the zone's own count; below 0
    /// where the mark is passed already.
    fn rest(&self, ask: Ask) -> i64 {
        let mark = ask.mark.min(i64::MAX as u64) as i64;
        (self.count(ask.kind) + self.beside(ask)).saturating_sub(mark)
    }

    /// Grants what is asked, and up to `more` of the rest above the mark: how many, and the rest.
    ///
    /// # Errors
    ///
    /// What is left, where the zone would not keep the mark.
    fn grant(&self, ask: Ask, more: impl Fn(i64) -> u64) -> Result<(u64, i64), i64> {
        if ask.mark == 0 {
            let frames = ask.frames + more(i64::MAX);
            self.sub_free(ask.kind, frames);
            return Ok((frames, i64::MAX));
        }
        let own = &self.free[ask.kind];
        loop {
            // Relaxed: the exchange checks it.
            let seen = own.get();
            let mark = ask.mark.min(i64::MAX as u64) as i64;
            let left = (seen as i64 + self.beside(ask)).saturating_sub(mark);
            let spare = left.saturating_sub_unsigned(ask.frames);
            if spare < 0 {
                return Err(left);
            }
            let frames = ask.frames + more(left).min(spare as u64 / 2);
            // SeqCst: as in `count`. Relaxed on failure: it is read again.
            let granted = own.compare_exchange_weak(
                seen,
                seen.wrapping_sub(frames),
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            if granted.is_err() {
                continue;
            }
            // Of several kinds each is granted by itself: of two that take the last frames the
            // later one sees that there are too few, and looks again.
            let alone = ask.kind == ORDINARY && !ask.reserves;
            if alone || self.rest(Ask { frames: 0, ..ask }) >= 0 {
                return Ok((frames, left.saturating_sub_unsigned(frames)));
            }
            self.add_free(ask.kind, frames);
        }
    }

    /// Grants what is asked for, if the zone keeps the mark.
    fn grants(&self, ask: Ask) -> bool {
        self.grant(ask, |_| 0).is_ok()
    }

    /// [`grant`](Self::grant) for a thread that may not wait until others have told: it counts on
    /// what they have. `own` of that is the thread's already.
    fn grant_by_sum(&self, by: By<'_, '_, impl Platform>, ask: Ask, own: u64) -> bool {
        let needed = ask.mark.saturating_add(own);
        let usable = |free: Free| free.usable(ask.reserves, ask.kind == CMA_KIND);
        // Before the sum: of two one sees what the other takes.
        self.sub_free(ask.kind, ask.frames);
        let enough = usable(self.free(by.fh)) >= needed;
        if !enough {
            self.add_free(ask.kind, ask.frames);
        }
        enough
    }

    /// The largest allowance that a CPU keeps of what it frees, from now on: two grants. None while
    /// every frame counts for somebody.
    pub(crate) fn next_most(&self, fh: &Freehold<'_, impl Platform>) -> u64 {
        let ask = Ask { kind: ORDINARY, frames: 0, mark: self.min.get(), reserves: false };
        self.most_of(fh, if ask.mark == 0 { 0 } else { self.rest(ask) })
    }

    /// [`next_most`](Self::next_most), where so many frames are left above the mark.
    fn most_of(&self, fh: &Freehold<'_, impl Platform>, rest: i64) -> u64 {
        let most = 2 * self.fold.get();
        if self.min.get() == 0 {
            return most;
        }
        if rest <= 0 || fh.failing.any() || fh.watch.is_for(ANY) {
            return 0;
        }
        (2 * rest as u64 / self.shares.get().max(1)).min(most)
    }

    /// Makes sure that so many frames of blocks of that type may be taken under the mark of these
    /// flags, before they are looked for: `None` where the zone would not keep it. What is taken in
    /// the end is paid for by [`By::pay`], by the min mark.
    pub(crate) fn reserve<'z>(
        &'z self,
        by: By<'_, '_, impl Platform>,
        migratetype: usize,
        frames: u64,
        flags: AllocFlags,
    ) -> Option<Granted<'z>> {
        let (kind, mark) = (kind_of(migratetype), self.min_mark(flags));
        let nothing = Granted { supply: self, kind, frames: 0 };
        // Without a mark what is found is free.
        if self.min.get() == 0 || kind == RESERVED {
            return Some(nothing);
        }
        let own = by.cpu().map(|cpu| &cpu.counts_of(usize::from(self.id))[migratetype]);
        let has = own.map_or(0, |own| own.get());
        let missing = frames.saturating_sub(has);
        let ask = Ask { kind, frames: missing, mark, reserves: false };
        let lowered = mark < self.min.get();
        if missing == 0 || own.is_some() && !lowered && self.rest(ask) >= missing as i64 {
            return Some(nothing);
        }
        let may_count = own.is_none() || flags.contains(AllocFlags::NO_LOCK);
        if (own.is_some() && !lowered || !self.grants(ask))
            && !(may_count && self.grant_by_sum(by, ask, has))
        {
            return None;
        }
        by.wrote(self, 1);
        match own {
            Some(own) => {
                own.add(missing);
                Some(nothing)
            }
            None => Some(Granted { frames: missing, ..nothing }),
        }
    }

    /// Whether so many whole blocks may be handed out as such, under the mark of these flags: their
    /// frames do not count any more. HIGHATOMIC frames count if `reserves` and the flags say so.
    pub(crate) fn grant_blocks(
        &self,
        by: By<'_, '_, impl Platform>,
        blocks: u64,
        flags: AllocFlags,
        reserves: bool,
    ) -> bool {
        let ask = Ask {
            kind: ORDINARY,
            frames: blocks * FRAMES as u64,
            mark: self.min_mark(flags),
            reserves: reserves && flags.may_use_reserve(),
        };
        let may_count = by.cpu().is_none() || flags.contains(AllocFlags::NO_LOCK);
        let granted = self.grants(ask)
            || by.cpu().is_some_and(|cpu| cpu.tell_all()) && self.grants(ask)
            || may_count && self.grant_by_sum(by, ask, 0);
        if granted {
            by.wrote(self, 1);
        }
        granted
    }

    /// Whole blocks that were granted are not taken.
    pub(crate) fn give_back_blocks(&self, fh: &Freehold<'_, impl Platform>, blocks: u64) {
        self.add_free(ORDINARY, blocks * FRAMES as u64);
        fh.watch.came(ANY);
    }

    /// Whether a request that takes such frames leaves the zone its mark, by the zone's own count
    /// and that CPU's allowance. A glance: it is what is taken that is paid for.
    pub(crate) fn leaves_mark(
        &self,
        by: By<'_, '_, impl Platform>,
        migratetype: usize,
        frames: u64,
        flags: AllocFlags,
    ) -> bool {
        let (kind, mark) = (kind_of(migratetype), self.min_mark(flags));
        let own = by.cpu().map_or(0, |cpu| cpu.counts_of(usize::from(self.id))[migratetype].get());
        let missing = frames.saturating_sub(own);
        let rest = || self.rest(Ask { kind, frames: 0, mark, reserves: false });
        mark == 0 || missing == 0 || kind == RESERVED || rest() >= missing as i64
    }

    /// A CPU has taken more of that type than it was allowed: what is missing is granted, or it has
    /// to put the last `frames` back. Whether it was granted, and the most that it keeps now.
    fn top_up(
        &self,
        by: By<'_, '_, impl Platform>,
        counts: &[AtomicU64; 8],
        migratetype: usize,
        frames: u64,
    ) -> (bool, u64) {
        let (own, kind) = (&counts[migratetype], kind_of(migratetype));
        if kind == ORDINARY {
            // What it may take of another ordinary type will do.
            for other in counts[..HIGH_ATOMIC].iter().filter(|other| (other.get() as i64) > 0) {
                let moved = other.get().min((own.get() as i64).min(0).unsigned_abs());
                other.sub(moved);
                own.add(moved);
            }
        }
        let missing = (own.get() as i64).min(0).unsigned_abs();
        if missing == 0 {
            return (true, self.next_most(by.fh));
        }
        // The reserve is there to be used.
        let mark = if kind == RESERVED { 0 } else { self.min.get() };
        // By what is seen of ordinary frames as these are granted, not by another look.
        let most = |rest| match kind {
            ORDINARY => self.most_of(by.fh, rest),
            _ => self.next_most(by.fh),
        };
        let more = |rest| if kind == RESERVED { 0 } else { most(rest) / 2 };
        let granted = self.grant(Ask { kind, frames: missing, mark, reserves: false }, more);
        own.add(granted.map_or(frames, |(frames, _)| frames));
        by.wrote(self, 1);
        self.update_mode();
        let (Ok((_, rest)) | Err(rest)) = granted;
        (granted.is_ok(), most(rest))
    }

    /// Tells the zone of what a CPU is allowed beyond `keep` of each type; whether there was any.
    fn take_back(&self, counts: &[AtomicU64; 8], keep: u64) -> bool {
        let mut told = false;
        for (migratetype, own) in counts[..TYPES].iter().enumerate() {
            let frames = own.get();
            if frames > keep {
                own.set(keep);
                self.add_free(kind_of(migratetype), frames - keep);
                told = true;
            }
        }
        told
    }
}

impl<P: Platform> By<'_, '_, P> {
    /// Frames came into a word of a block, or, as a number that wraps, did not in the end.
    #[inline(always)]
    pub(crate) fn count_free(self, tag: Tag, frames: u64) {
        match self.cpu() {
            Some(cpu) if cpu.is_home(tag.zone()) => {
                cpu.allowance[tag.migratetype()].add(frames);
            }
            _ => self.count_free_elsewhere(tag, frames),
        }
    }

    #[cold]
    #[inline(never)]
    fn count_free_elsewhere(self, tag: Tag, frames: u64) {
        let (zone, migratetype) =
            (&self.fh.zones[tag.zone() % self.fh.zones.len()], tag.migratetype());
        match self.cpu() {
            Some(cpu) => {
                let counts = cpu.counts_of(usize::from(zone.id));
                counts[migratetype].add(frames);
                let (most, now) = (zone.next_most(self.fh), counts[migratetype].get() as i64);
                if now < 0 {
                    // A free that was refused, of which the zone was told already.
                    counts[migratetype].set(0);
                    zone.sub_free(kind_of(migratetype), now.unsigned_abs());
                } else if now > most as i64 {
                    zone.take_back(counts, most / 2);
                    self.fh.watch.came(ANY);
                    self.wrote(zone, 1);
                    zone.update_mode();
                }
            }
            None => {
                zone.add_free(kind_of(migratetype), frames);
                self.fh.watch.came(ANY);
                zone.update_mode();
            }
        }
    }

    /// Frames were taken out of a word of a block. Whether that leaves the zone its mark: otherwise
    /// they have to go back, and nothing was counted. A thread outside every CPU's state has
    /// [reserved](super::supply::Supply::reserve) them before.
    #[inline(always)]
    pub(crate) fn pay(self, tag: Tag, frames: u64) -> bool {
        match self.cpu() {
            Some(cpu) if cpu.is_home(tag.zone()) => {
                let own = &cpu.allowance[tag.migratetype()];
                let left = own.get().wrapping_sub(frames);
                own.set(left);
                left as i64 >= 0 || cpu.pay_by_zone(tag.migratetype(), frames)
            }
            _ => self.pay_elsewhere(tag, frames),
        }
    }

    #[cold]
    #[inline(never)]
    fn pay_elsewhere(self, tag: Tag, frames: u64) -> bool {
        let (zone, migratetype) =
            (&self.fh.zones[tag.zone() % self.fh.zones.len()], tag.migratetype());
        let Some(cpu) = self.cpu() else {
            zone.sub_free(kind_of(migratetype), frames);
            zone.update_mode();
            return true;
        };
        let counts = cpu.counts_of(usize::from(zone.id));
        counts[migratetype].sub(frames);
        counts[migratetype].get() as i64 >= 0 || zone.top_up(self, counts, migratetype, frames).0
    }
}

impl<'m, P: Platform> Cpu<'_, 'm, P> {
    /// The home zone pays what is missing, if it keeps its mark.
    #[cold]
    #[inline(never)]
    fn pay_by_zone(self, migratetype: usize, frames: u64) -> bool {
        let (paid, most) = self.home().top_up(self.by(), &self.allowance, migratetype, frames);
        self.set_most(most);
        paid
    }

    /// What it may take of a zone, by migratetype.
    fn counts_of(self, zone: usize) -> &'m [AtomicU64; 8] {
        if self.is_home(zone) { &self.cpu.allowance } else { &self.cursors(zone).allowance }
    }

    /// Two grants: so a CPU that frees and allocates in turn asks seldom.
    fn set_most(self, most: u64) {
        if self.most.get() == most {
            return;
        }
        // SeqCst, both: a request that is about to fail counts itself and then writes 0 here. One
        // of the two sees the other.
        self.most.store(most, Ordering::SeqCst);
        if self.fh.failing.any() {
            self.most.store(0, Ordering::SeqCst);
        }
    }

    /// Whether the zone is to be told of what this CPU has freed of a type.
    #[inline(always)]
    pub(crate) fn is_to_tell(self, migratetype: usize) -> bool {
        self.allowance[migratetype].get() > self.most.get()
    }

    /// Tells the home zone of all but the next grant, after a free of that type, if it is time.
    #[inline(always)]
    pub(crate) fn tell_after_free(self, migratetype: usize) {
        if self.is_to_tell(migratetype) {
            self.tell();
        }
    }

    /// Tells the home zone of all but the next grant.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell(self) {
        let zone = self.home();
        let most = zone.next_most(self.fh);
        if zone.take_back(&self.allowance, most / 2) {
            self.fh.watch.came(ANY);
            self.by().wrote(zone, 1);
            zone.update_mode();
        }
        self.set_most(most);
    }

    /// Tells all zones of all that this CPU may take; whether there was anything.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_all(self) -> bool {
        let mut any = false;
        for (z, zone) in self.fh.zones.iter().enumerate() {
            let away = zone.take_back(&self.cursors(z).allowance, 0);
            let home = self.is_home(z) && zone.take_back(&self.allowance, 0);
            if away || home {
                any = true;
                self.fh.watch.came(ANY);
                self.by().wrote(zone, 1);
                zone.update_mode();
            }
        }
        let home = self.home();
        self.set_most(home.next_most(self.fh));
        any
    }

    /// Whether it may take anything of any zone; by a glance.
    pub(crate) fn may_take_any(self) -> bool {
        self.all_counts().any(|own| own.get() != 0)
    }

    /// All that it may take, by zone and type: nothing below 0 outside its state.
    pub(crate) fn all_counts(self) -> impl Iterator<Item = &'m AtomicU64> {
        let zones = (0..self.fh.zones.len()).map(move |z| &self.cursors(z).allowance);
        zones.chain([&self.cpu.allowance]).flatten()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::tests::testing::*;

    const FRAMES: u64 = 1 << 14;
    const MIN: u64 = 800;

    /// A machine all of whose frames down to `left` above the mark are in use.
    fn nearly_full(cpus: u16, left: u64) -> (Machine, Vec<Pfn>) {
        let fh = machine(cpus, FRAMES);
        fh.set_watermarks(0, MIN, MIN, MIN).unwrap();
        let take = |_| fh.here().alloc(movable(0)).unwrap();
        let frames = (0..FRAMES - MIN - left).map(take).collect();
        (fh, frames)
    }

    /// Likewise, and some of what is above the mark is what CPU 1 may take.
    fn with_allowance(cpus: u16, left: u64) -> Machine {
        let (fh, frames) = nearly_full(cpus, left);
        fh.cpus[1].most.set(64);
        let freed = frames.iter().step_by(97).take(30);
        freed.for_each(|&frame| fh.on(CpuId::new(1)).free(frame, Order::ZERO).unwrap());
        fh.here().flush().unwrap();
        fh
    }

    /// How many single frames CPU 0 gets.
    fn all_of(fh: &Machine, flags: AllocFlags) -> u64 {
        core::iter::from_fn(|| fh.here().alloc(movable(0).flags(flags)).ok()).count() as u64
    }

    /// As many lines are looked at for a sum as there are CPUs.
    #[test]
    fn no_step_near_the_mark_sums_up_what_cpus_have() {
        for left in [0, 1, 40, 3000] {
            let (fh, mut frames) = nearly_full(64, left);
            let zone = &fh.zones[0];
            assert!(zone.is_tight());
            let before = zone.counters.sums.get();
            let steps = frames.len();
            for step in 0..steps {
                let cpu = fh.on(CpuId::new((step % 3) as u16));
                cpu.free(frames.swap_remove(step * 7919 % frames.len()), Order::ZERO).unwrap();
                frames.push(cpu.alloc(movable(0)).unwrap());
            }
            let sums = zone.counters.sums.get() - before;
            assert!(sums * 50 <= steps as u64, "{left} left: {sums} in {steps} steps");
        }
    }

    /// A run that this CPU has freed serves its next request: the board is asked now and then.
    /// (With `debug-poison` each frame that is freed is written first, the long way.)
    #[test]
    #[cfg(not(feature = "debug-poison"))]
    fn runs_near_the_mark_are_taken_again_without_the_board() {
        for order in [3, 6] {
            let (fh, request) = (machine(2, 1 << 16), movable(order));
            fh.set_watermarks(0, MIN, MIN, MIN).unwrap();
            let cpu = fh.here();
            let fill = || (fh.zones[0].free(&fh).all > MIN + 300).then(|| cpu.alloc(request).ok());
            let mut runs: Vec<Pfn> = core::iter::from_fn(|| fill().flatten()).collect();
            assert!(fh.zones[0].is_tight());
            let refills = || fh.cpus[0].counters.refills.get();
            let (before, steps) = (refills(), runs.len() as u64);
            for step in 0..runs.len() {
                cpu.free(runs.swap_remove(step * 7919 % runs.len()), request.order()).unwrap();
                runs.push(cpu.alloc(request).unwrap());
            }
            let asked = refills() - before;
            assert!(asked * 2 < steps, "order {order}: {asked} in {steps} steps");
        }
    }

    /// What other CPUs have freed and keep to themselves is asked for, and the blocks that they use
    /// stay theirs. (With `debug-poison` a CPU's first frame leaves it none.)
    #[test]
    #[cfg(not(feature = "debug-poison"))]
    fn what_other_cpus_may_take_is_found_and_their_blocks_stay() {
        let (fh, frames) = nearly_full(8, 300);
        let others = || (1..8).map(CpuId::new);
        for (cpu, frames) in others().zip(frames.chunks(40)) {
            fh.on(cpu).alloc(movable(0)).unwrap();
            for &frame in frames.iter().step_by(9) {
                fh.on(cpu).free(frame, Order::ZERO).unwrap();
            }
        }
        let uses_a_block = |cpu: CpuId| !fh.cpu(&fh.cpus[cpu.index()]).is_empty();
        assert!(others().all(uses_a_block));
        let kept =
            |cpu: &CpuId| fh.cpus[cpu.index()].allowance[Migratetype::Movable as usize].get() != 0;
        assert!(others().any(|cpu| kept(&cpu)), "nobody keeps anything to itself");
        // Down to what the others have, and one more.
        while fh.zones[0].free[super::ORDINARY].get() > MIN {
            fh.here().alloc(movable(0)).unwrap();
        }
        fh.here().flush().unwrap();
        fh.here().alloc(movable(0)).unwrap();
        assert!(others().all(uses_a_block));
        assert!(!others().any(|cpu| kept(&cpu)));
        all_of(&fh, AllocFlags::empty());
        assert_eq!(fh.zones[0].free(&fh).all, MIN);
        fh.validate().unwrap();
    }

    /// Each kind of request takes what is above its own mark, whoever has the frames.
    #[test]
    fn each_mark_is_kept_to_the_frame() {
        let marks = [
            (AllocFlags::empty(), MIN),
            (AllocFlags::MIN_RESERVE, MIN / 2),
            (AllocFlags::NON_BLOCK, MIN - MIN / 4),
            (AllocFlags::OOM, MIN / 2),
            (AllocFlags::NO_LOCK, MIN),
            (AllocFlags::NO_LOCK | AllocFlags::MIN_RESERVE, MIN / 2),
            (AllocFlags::NO_WATERMARKS, 0),
        ];
        for (flags, mark) in marks {
            let fh = with_allowance(4, 200);
            all_of(&fh, flags);
            assert_eq!(fh.zones[0].free(&fh).all, mark, "{flags:?}");
            fh.validate().unwrap();
        }
    }

    /// A thread in no CPU's state, too, takes what is above its mark.
    #[test]
    fn an_interrupt_keeps_its_mark_to_the_frame() {
        for (flags, mark) in [(AllocFlags::empty(), MIN), (AllocFlags::MIN_RESERVE, MIN / 2)] {
            let fh = with_allowance(2, 100);
            let request = movable(0).flags(flags | AllocFlags::NO_LOCK);
            let alloc = || fh.outside().alloc(CpuId::new(0), &request);
            while alloc().is_ok() {}
            assert_eq!(alloc(), Err(AllocError::WouldBlock));
            assert_eq!(fh.zones[0].free(&fh).all, mark, "{flags:?}");
            fh.validate().unwrap();
        }
    }

    /// What a grant gives beside what was asked for, it leaves to others, too: a run of 64 frames
    /// is most of what there is above the mark.
    #[test]
    fn a_grant_leaves_as_much_as_it_gives() {
        for left in 68..192 {
            let (fh, _) = nearly_full(1, left);
            fh.here().flush().unwrap();
            fh.here().alloc(movable(6)).unwrap();
            let own = fh.cpus[0].allowance[Migratetype::Movable as usize].get();
            let rest = fh.zones[0].free[super::ORDINARY].get() - MIN;
            assert!(0 < own && own <= rest, "{left} left: {own} granted, {rest} for others");
        }
    }

    /// As many frames as CPUs are left: too few for a grant to each, and enough for a frame.
    #[test]
    fn a_cpu_keeps_what_it_frees_where_there_is_a_frame_for_each() {
        for (left, kept) in [(63, 0), (64, 1), (127, 1), (140, 2)] {
            let (fh, frames) = nearly_full(64, left);
            let own = || fh.cpus[0].allowance[Migratetype::Movable as usize].get();
            // Down to the first grant that is none.
            fh.cpu(&fh.cpus[0]).tell_all();
            for &frame in frames.iter().step_by(97).take(kept) {
                fh.here().free(frame, Order::ZERO).unwrap();
            }
            assert_eq!(own(), kept as u64, "{left} left");
            fh.here().free(frames[96], Order::ZERO).unwrap();
            assert_eq!(own(), kept as u64 / 2, "{left} left");
            fh.validate().unwrap();
        }
    }

    /// A frame in another zone than its CPU's own, near the mark, so that the zone is told of it at
    /// once; and at some step of the free somebody else frees it.
    #[test]
    fn a_refused_free_in_another_zone_leaves_no_debt() {
        let world = || {
            let fh: &Machine = Box::leak(Box::new(two_zones(1, 1024)));
            // The other one keeps the block from becoming whole.
            let take = || fh.here().alloc(movable(0).below(Pfn::new(1024)));
            let [pfn, _] = [(); 2].map(|()| take().unwrap());
            fh.drain_all();
            fh.set_watermarks(0, 1024, 1024, 1024).unwrap();
            (fh, pfn)
        };
        let mut refused = 0;
        for n in stops_of(world, |(fh, pfn)| fh.here().free(pfn, Order::ZERO).unwrap()) {
            let (fh, pfn) = world();
            let (key, frame) = (pfn.get() / 64, 1 << (pfn.get() % 64));
            let other = move || _ = Freeing::of(fh, None).word(key, frame, 1);
            let (freed, _) = interrupted(n, other, || fh.here().free(pfn, Order::ZERO));
            refused += u32::from(freed.is_err());
            fh.validate().unwrap_or_else(|violation| panic!("step {n}: {violation}"));
        }
        assert!(refused > 0, "at no step is it refused");
    }
}
