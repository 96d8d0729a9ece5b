//! Budgets inside one arena, as a tree: who has how much, who may have no more, and all of one
//! freed at once.
//!
//! ```text
//! database            hard 8,000    charged 5,216 = what its children are charged, and its own
//!   |- query 17       soft 2,000    charged 2,016 = 1,990 used + 26 in stock
//!   '- query 18                     charged 3,200
//!
//! owners   |..|17: 5 frames|.|18: 1|...      8 bytes a frame, written where an allocation begins
//! ```
//!
//! A tenant is charged, and each of its ancestors with it, for [`BATCH`] frames more than it asks
//! for, and what it frees stays its stock. So most allocations and frees touch its own stock alone,
//! whatever the depth of the tree. Near a limit stocks are given back before anybody is refused or
//! called, so that limits are of frames in use. Whoever had to give its stock back keeps none until
//! it is next charged, and beyond a soft limit nobody below it does, until it has fallen by an
//! eighth.
//!
//! All of a tenant's frames are found by the owners of those blocks that it has allocated in: it
//! keeps a bit for each, which it shares with the block 512 further on. A frame remembers its last
//! owner, whose bit is there already and who lives: none remembers a tenant that was removed.

mod charges;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold::{FrameRange, PAGEBLOCK_FRAMES, Pfn};

use crate::Error;
use crate::arena::Handle;
use crate::mapping::Mapping;
use crate::watch::called;

/// Frames that a tenant is charged for ahead.
const BATCH: i64 = 32;
/// No tenant's index: of a frame that nobody has had, and above whoever has nobody above it.
const NONE: u32 = 0;
/// Added to a stock of which nothing is kept: each look whether there is enough finds that out.
const TIGHT: i64 = i64::MIN / 2;
/// Indices of tenants.
const MOST: u32 = 1 << 16;
/// Where in a tenant's number its index is: there it says how far its slot is from the first.
const INDEX: u32 = (MOST - 1) << SHIFT;
const SHIFT: u32 = size_of::<Slot>().trailing_zeros();
const BITS: u64 = 512;

/// One of the [`Tenants`] of an arena: a number, which is not used again for a long time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tenant(u32);

impl Tenant {
    /// Of whoever has the slot with that index for so many a time, around the index.
    fn new(index: u32, times: u32) -> Self {
        let below = (1 << SHIFT) - 1;
        Self((times & !below) << MOST.ilog2() | index << SHIFT | times & below)
    }

    #[inline(always)]
    fn index(self) -> u32 {
        (self.0 & INDEX) >> SHIFT
    }
}

/// What a tenant and all below it may have, in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Beyond this the callback is called, once until it has fallen by an eighth. `u64::MAX` is
    /// none; otherwise at most `hard`, beyond which nothing comes.
    pub soft: u64,
    /// Beyond this the callback is called, and the allocation refused if that has not helped, or if
    /// it alone is for more.
    pub hard: u64,
}

impl Limits {
    /// As much as there is.
    pub const NONE: Self = Self { soft: u64::MAX, hard: u64::MAX };

    fn check(self) -> Result<(), Error> {
        if self.soft <= self.hard || self.soft == Self::NONE.soft {
            return Ok(());
        }
        let allowed = "at most the hard limit, or u64::MAX for none";
        Err(Error::Knob { knob: "soft", value: self.soft, allowed })
    }
}

/// What a tenant has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Frames in use, by itself and all below it.
    pub frames: u64,
    /// What it may have.
    pub limits: Limits,
}

/// Why a tenant is asked to free something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// It is beyond its soft limit.
    Soft,
    /// An allocation, its own or one below it, is about to be refused.
    Hard,
    /// It is beyond its soft limit, and [`Tenants::press`] was called.
    System,
}

type OnPressure = Arc<dyn Fn(Tenant, Cause, Usage) + Send + Sync>;

/// What is known of a tenant; all zeros is nobody.
#[repr(align(128))]
struct Slot {
    /// The tenant's number; 0 for none.
    id: AtomicU32,
    parent: AtomicU32,
    times: AtomicU32,
    /// Frames that it is charged for and does not use. [`TIGHT`] less where a free gives them back
    /// at once: from when somebody lacked them until it is charged again.
    stock: AtomicI64,
    charged: AtomicU64,
    soft: AtomicU64,
    hard: AtomicU64,
    /// The callback has been told that the soft limit is behind it.
    told: AtomicBool,
    blocks: [AtomicU64; (BITS / 64) as usize],
}

/// Of a frame: how many an allocation has that begins there, 0 for none; and the number of whose
/// it is or was last.
struct Owner {
    count: AtomicU32,
    tenant: AtomicU32,
}

const _: () = assert!(size_of::<Slot>() == 128);

/// Bytes of all slots, which lie before the first owner.
const SLOTS: usize = MOST as usize * size_of::<Slot>();

/// Where the first frame has its owner, and frame 0 would have it.
struct Owners(*const Owner, *const Owner);

// SAFETY: what is reached by it is atomic.
unsafe impl Send for Owners {}
// SAFETY: likewise.
unsafe impl Sync for Owners {}

/// What a stock has, whether it is tight or not.
fn in_stock(stock: i64) -> i64 {
    if stock < TIGHT / 2 { stock - TIGHT } else { stock }
}

/// Which slots were ever used, and which of them are free again.
struct Tree {
    used: u32,
    free: Vec<u32>,
}

/// Budgets inside one arena, as a tree: what a tenant may have is of frames that it and all below
/// it use. An allocation and a free take constant time; beyond a soft limit, and near a hard one,
/// time proportional to the depth of the tree; a refusal, time proportional to the number of
/// tenants.
///
/// ```
/// use freehold_host::{Arena, Limits, Tenants};
///
/// let tenants = Tenants::new(Arena::with_size(64 << 20)?.leak())?;
/// let database = tenants.add(None, Limits { soft: 60, hard: 100 })?;
/// let query = tenants.add(Some(database), Limits::NONE)?;
/// tenants.alloc(query, 90)?;
/// assert!(tenants.alloc(query, 11).is_err());
/// assert_eq!(tenants.usage(database)?.frames, 90);
/// // SAFETY: nobody uses these frames.
/// assert_eq!(unsafe { tenants.remove(database) }?, 90);
/// # Ok::<(), freehold_host::Error>(())
/// ```
// Orderings: all is counters (Relaxed), but for the number of a tenant, with which its slot is
// published.
pub struct Tenants<H: Handle = &'static crate::Arena> {
    arena: H,
    /// The arena's first frame, and how many it has.
    first: u64,
    frames: u64,
    /// The most frames that may be asked for.
    most: u64,
    _tables: Mapping,
    owners: Owners,
    tree: Mutex<Tree>,
    on_pressure: Option<OnPressure>,
}

impl<H: Handle> Tenants<H> {
    /// No tenants yet, in that arena. What is allocated otherwise is nobody's, and fine.
    ///
    /// Takes addresses: 8 bytes for each frame and 128 for each of 65,535 tenants, of which those
    /// are backed that are used.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] where there are no addresses for that.
    pub fn new(arena: H) -> Result<Self, Error> {
        let (first, frames) = (arena.range().start.get(), arena.range().len());
        let tables = Mapping::zeroed(SLOTS + frames as usize * size_of::<Owner>())?;
        let owner: *const Owner =
            tables.base().as_ptr().cast_const().wrapping_byte_add(SLOTS).cast();
        Ok(Self {
            arena,
            first,
            frames,
            most: frames.min(u32::MAX.into()),
            _tables: tables,
            owners: Owners(owner, owner.wrapping_sub(first as usize)),
            tree: Mutex::new(Tree { used: NONE + 1, free: Vec::new() }),
            on_pressure: None,
        })
    }

    /// Called for a tenant that is to free something, on the thread that allocates or
    /// [presses](Self::press), with no lock held: it may free, allocate and trim. What it allocates
    /// itself calls no callback.
    #[must_use]
    pub fn on_pressure(
        mut self,
        callback: impl Fn(Tenant, Cause, Usage) + Send + Sync + 'static,
    ) -> Self {
        self.on_pressure = Some(Arc::new(callback));
        self
    }

    #[inline(always)]
    fn at(&self, index: u32) -> &Slot {
        self.of(Tenant(index << SHIFT))
    }

    /// Of that tenant, or whoever has it since.
    #[inline(always)]
    fn of(&self, tenant: Tenant) -> &Slot {
        self.of_before(self.owners.0, tenant)
    }

    /// [`of`](Self::of), by the place of the first owner, where that is in a register already.
    #[inline(always)]
    fn of_before(&self, first_owner: *const Owner, tenant: Tenant) -> &Slot {
        debug_assert_eq!(first_owner, self.owners.0);
        let slots = first_owner.cast::<Slot>().wrapping_byte_sub(SLOTS);
        // SAFETY: the mapping has `MOST` slots, and zeros are a slot; all of it is atomic.
        unsafe { &*slots.wrapping_byte_add((tenant.0 & INDEX) as usize) }
    }

    /// Of one of the arena's frames.
    #[inline(always)]
    fn owner(&self, frame: u64) -> &Owner {
        // SAFETY: the mapping is as long as the arena, whose frames alone are asked for; zeros are
        // a value.
        unsafe { &*self.owners.1.wrapping_add(frame as usize) }
    }

    #[inline(always)]
    fn slot(&self, tenant: Tenant) -> Result<&Slot, Error> {
        let slot = self.of(tenant);
        if slot.id.load(Ordering::Acquire) == tenant.0 { Ok(slot) } else { Err(unknown(tenant)) }
    }

    /// Not in a forked child, whose parent may have it locked for ever.
    fn tree(&self) -> Result<MutexGuard<'_, Tree>, Error> {
        self.arena.inner.core.check_fork()?;
        Ok(self.tree.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A new tenant, below another or by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Knob`] where the parent does not live, 65,535 tenants do, or the soft limit is above
    /// the hard one; [`Error::Forked`].
    pub fn add(&self, parent: Option<Tenant>, limits: Limits) -> Result<Tenant, Error> {
        limits.check()?;
        let mut tree = self.tree()?;
        let parent = match parent {
            Some(parent) => {
                self.slot(parent)?;
                parent.index()
            }
            None => NONE,
        };
        let index = match tree.free.pop() {
            Some(index) => index,
            None if tree.used < MOST => {
                tree.used += 1;
                tree.used - 1
            }
            None => {
                let allowed = "at most 65535 at once";
                return Err(Error::Knob { knob: "tenants", value: u64::from(MOST), allowed });
            }
        };
        let slot = self.at(index);
        slot.clear();
        slot.parent.store(parent, Ordering::Relaxed);
        slot.soft.store(limits.soft, Ordering::Relaxed);
        slot.hard.store(limits.hard, Ordering::Relaxed);
        // How often the slot was somebody's, never 0.
        let times = slot.times.load(Ordering::Relaxed) % u32::from(u16::MAX) + 1;
        slot.times.store(times, Ordering::Relaxed);
        let tenant = Tenant::new(index, times);
        slot.id.store(tenant.0, Ordering::Release);
        Ok(tenant)
    }

    /// Sets what a tenant may have. What it has already stays.
    ///
    /// # Errors
    ///
    /// [`Error::Knob`] where it does not live, or the soft limit is above the hard one.
    pub fn limit(&self, tenant: Tenant, limits: Limits) -> Result<(), Error> {
        limits.check()?;
        let slot = self.slot(tenant)?;
        slot.soft.store(limits.soft, Ordering::Relaxed);
        slot.hard.store(limits.hard, Ordering::Relaxed);
        Ok(())
    }

    /// So many neighbouring frames for a tenant: see [`Arena::frames`](crate::Arena::frames).
    ///
    /// # Errors
    ///
    /// [`Error::TenantLimit`] where it, or one above it, may not have more; [`Error::Knob`] where it does
    /// not live; those of [`Arena::frames`](crate::Arena::frames). Nothing is charged then.
    #[inline]
    pub fn alloc(&self, tenant: Tenant, count: u64) -> Result<FrameRange, Error> {
        // Frames first, and then their price: that one remembers the tenant says that this lives.
        // What is rare is the last thing that is done, so that the usual way keeps little in
        // registers.
        let Some(start) = self.arena.quick(count) else { return self.alloc_far(tenant, count) };
        let owner = self.owner(start.get());
        let range = FrameRange { start, end: Pfn::new(start.get() + count) };
        if owner.tenant.load(Ordering::Relaxed) != tenant.0 {
            return self.alloc_other(tenant, range);
        }
        // Few: they were at hand.
        let taken = count as i64;
        if self.of(tenant).stock.fetch_sub(taken, Ordering::Relaxed) - taken < 0 {
            return self.alloc_unpaid(tenant, range);
        }
        // Release: see `remove`.
        owner.count.store(count as u32, Ordering::Release);
        Ok(range)
    }

    /// Frames are another tenant's than before.
    #[cold]
    #[inline(never)]
    fn alloc_other(&self, tenant: Tenant, range: FrameRange) -> Result<FrameRange, Error> {
        #[cfg(test)]
        crate::meanwhile::happens();
        let count = range.len() as i64;
        let less = |stock: i64| (stock >= count).then_some(stock - count);
        let pays = |slot: &Slot| {
            slot.stock.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
        };
        if self.slot(tenant).is_ok_and(pays) {
            return self.owned_by(tenant, range);
        }
        self.arena.give_frames(range);
        self.alloc_far(tenant, range.len())
    }

    /// The stock has not had the frames that were taken from it: they go home before anybody is
    /// asked to free something.
    #[cold]
    #[inline(never)]
    fn alloc_unpaid(&self, tenant: Tenant, range: FrameRange) -> Result<FrameRange, Error> {
        self.of(tenant).stock.fetch_add(range.len() as i64, Ordering::Relaxed);
        self.arena.give_frames(range);
        self.alloc_far(tenant, range.len())
    }

    /// The price first, and then the frames, wherever they come from.
    #[inline(never)]
    fn alloc_far(&self, tenant: Tenant, count: u64) -> Result<FrameRange, Error> {
        // A dead number changes nothing of whoever has its slot now, or is about to have it.
        let slot = self.slot(tenant)?;
        if count > self.most {
            return Err(Error::NoRun { frames: count });
        }
        let taken = count as i64;
        if slot.stock.fetch_sub(taken, Ordering::Relaxed) - taken < 0 {
            #[cfg(test)]
            crate::meanwhile::happens();
            self.pay(tenant, count)?;
        }
        let found = self.arena.quick(count).map_or_else(|| self.arena.several(count), Ok);
        match found {
            Ok(start) => {
                self.owned_by(tenant, FrameRange { start, end: Pfn::new(start.get() + count) })
            }
            Err(error) => {
                self.of(tenant).stock.fetch_add(taken, Ordering::Relaxed);
                Err(self.slot(tenant).map_or_else(|dead| dead, |_| error))
            }
        }
    }

    /// A tenant has those frames from now on, if it lives; else they go home.
    fn owned_by(&self, tenant: Tenant, range: FrameRange) -> Result<FrameRange, Error> {
        let slot = match self.slot(tenant) {
            Ok(slot) => slot,
            Err(error) => {
                self.arena.give_frames(range);
                // It was taken from whoever has that slot now.
                self.of(tenant).stock.fetch_add(range.len() as i64, Ordering::Relaxed);
                return Err(error);
            }
        };
        let block = (range.start.get() - self.first) / PAGEBLOCK_FRAMES % BITS;
        let bits = &slot.blocks[(block / 64) as usize];
        if bits.load(Ordering::Relaxed) >> (block % 64) & 1 == 0 {
            bits.fetch_or(1 << (block % 64), Ordering::Relaxed);
        }
        let owner = self.owner(range.start.get());
        owner.tenant.store(tenant.0, Ordering::Relaxed);
        // Release: see `remove`.
        owner.count.store(range.len() as u32, Ordering::Release);
        Ok(range)
    }

    /// Frees an allocation of whichever tenant, by its first frame; returns how many frames it had.
    /// To the limits they are free when the call begins: until it has ended, another tenant may be
    /// granted their number. So the arena has out, beyond the limits, at most one allocation for
    /// each thread in here, and an arena that has no other frames refuses that tenant as out of memory.
    ///
    /// # Safety
    ///
    /// Nobody uses these frames any more.
    ///
    /// # Errors
    ///
    /// [`Error::NoAllocation`] where none of a tenant begins there, [`Error::OutsideArena`].
    /// Nothing has changed then. In a forked child nothing but the child's own counts changes.
    #[inline]
    pub unsafe fn free(&self, start: Pfn) -> Result<u64, Error> {
        let number = start.get().wrapping_sub(self.first);
        if number >= self.frames {
            return Err(Error::OutsideArena { pfn: start });
        }
        let first_owner = self.owners.0;
        // SAFETY: as in `owner`.
        let owner = unsafe { &*first_owner.wrapping_add(number as usize) };
        // The next owner of the frame writes there: so before it is free. Of two frees one has it.
        let count = owner.count.swap(0, Ordering::Relaxed);
        let tenant = Tenant(owner.tenant.load(Ordering::Relaxed));
        // Before it is free, so that nothing is kept in a register meanwhile.
        let freed = i64::from(count);
        let stock = &self.of_before(first_owner, tenant).stock;
        if stock.fetch_add(freed, Ordering::Relaxed) + freed < 0 {
            self.settle(start);
            return self.give_run(start, count);
        }
        if count != 1 {
            return self.give_run(start, count);
        }
        self.arena.give_frame(start);
        Ok(1)
    }

    /// Frames that are in their tenant's stock go home, where there are any.
    #[inline(never)]
    fn give_run(&self, start: Pfn, count: u32) -> Result<u64, Error> {
        #[cfg(test)]
        crate::meanwhile::happens();
        let count = u64::from(count);
        if count == 0 {
            return Err(Error::NoAllocation { pfn: start });
        }
        self.arena.give_frames(FrameRange { start, end: Pfn::new(start.get() + count) });
        Ok(count)
    }

    /// Gives back what the tenant of a frame has in stock, if that is tight.
    #[cold]
    #[inline(never)]
    fn settle(&self, start: Pfn) {
        let tenant = Tenant(self.owner(start.get()).tenant.load(Ordering::Relaxed));
        let all = |stock: i64| (TIGHT + 1..TIGHT / 2).contains(&stock).then_some(TIGHT);
        let stock = &self.of(tenant).stock;
        if let Ok(had) = stock.fetch_update(Ordering::Relaxed, Ordering::Relaxed, all) {
            self.uncharge(tenant.index(), in_stock(had) as u64);
        }
    }

    /// What a tenant has. Exact while nothing runs; takes time proportional to the number of
    /// tenants.
    ///
    /// # Errors
    ///
    /// [`Error::Knob`] where it does not live.
    pub fn usage(&self, tenant: Tenant) -> Result<Usage, Error> {
        self.slot(tenant)?;
        let tree = self.tree()?;
        Ok(self.usage_of(&tree, tenant.index()))
    }

    fn usage_of(&self, tree: &Tree, index: u32) -> Usage {
        self.usage_with(index, self.stocks(tree)[index as usize])
    }

    fn usage_with(&self, index: u32, stocks: u64) -> Usage {
        let slot = self.at(index);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Usage {
            frames: read(&slot.charged).saturating_sub(stocks),
            limits: Limits { soft: read(&slot.soft), hard: read(&slot.hard) },
        }
    }

    /// By index, what a tenant and all below it have in stock.
    fn stocks(&self, tree: &Tree) -> Vec<u64> {
        let mut stocks = vec![0; tree.used as usize];
        for index in self.bottom_up(tree) {
            let slot = self.at(index);
            let own = in_stock(slot.stock.load(Ordering::Relaxed)).max(0) as u64;
            stocks[index as usize] += own;
            stocks[slot.above()] += stocks[index as usize];
        }
        stocks
    }

    /// Frees all frames of a tenant and of those below it, and ends them all; returns how many
    /// frames that were. Takes time proportional to the blocks that they have allocated in, and to
    /// the number of tenants.
    ///
    /// # Safety
    ///
    /// Nobody uses these frames any more; nobody allocates for these tenants, or frees what they
    /// have, meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Knob`] where it does not live, [`Error::Forked`]; what the arena says of the first
    /// frames that it refuses: the others have been freed.
    pub unsafe fn remove(&self, tenant: Tenant) -> Result<u64, Error> {
        let mut tree = self.tree()?;
        self.slot(tenant)?;
        let top = tenant.index();
        let ending = self.below(&tree, top);
        let mut is_ending = vec![false; tree.used as usize];
        let mut bits = [0; (BITS / 64) as usize];
        for &index in &ending {
            is_ending[index as usize] = true;
            for (all, bits) in bits.iter_mut().zip(&self.at(index).blocks) {
                *all |= bits.load(Ordering::Relaxed);
            }
        }
        let all = self.arena.range();
        let (mut freed, mut refused) = (0, None);
        let blocks = (0..all.len() / PAGEBLOCK_FRAMES).filter(|block| {
            let bit = block % BITS;
            bits[(bit / 64) as usize] >> (bit % 64) & 1 != 0
        });
        for frame in blocks.flat_map(|block| (0..PAGEBLOCK_FRAMES).map(move |n| (block, n))) {
            let frame = all.start.get() + frame.0 * PAGEBLOCK_FRAMES + frame.1;
            let owner = self.owner(frame);
            let tenant = owner.tenant.load(Ordering::Relaxed);
            if !is_ending[Tenant(tenant).index() as usize] {
                continue;
            }
            // Acquire: a count of another tenant's is seen with the owner, so the exchange fails.
            let count = u64::from(owner.count.load(Ordering::Acquire));
            let relaxed = Ordering::Relaxed;
            let ends = owner.tenant.compare_exchange(tenant, NONE, relaxed, relaxed).is_ok();
            if !ends || count == 0 {
                continue;
            }
            owner.count.store(0, Ordering::Relaxed);
            let (start, end) = (Pfn::new(frame), Pfn::new(frame + count));
            match self.arena.give_range(FrameRange { start, end }) {
                Ok(()) => freed += count,
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        self.uncharge(top, self.at(top).charged.load(Ordering::Relaxed));
        for index in ending {
            self.at(index).id.store(0, Ordering::Relaxed);
            tree.free.push(index);
        }
        refused.map_or(Ok(freed), Err)
    }

    /// A tenant and all below it.
    fn below(&self, tree: &Tree, top: u32) -> Vec<u32> {
        let mut is_below = vec![false; tree.used as usize];
        let mut all = self.bottom_up(tree);
        all.reverse();
        all.retain(|&index| {
            let is = index == top || is_below[self.at(index).above()];
            is_below[index as usize] = is;
            is
        });
        all
    }

    /// All that live, each before the one above it. An index says nothing of that: it is used
    /// again.
    fn bottom_up(&self, tree: &Tree) -> Vec<u32> {
        #[cfg(test)]
        tests::LOOKS_AT_ALL.set(tests::LOOKS_AT_ALL.get() + 1);
        let live =
            || (NONE + 1..tree.used).filter(|&at| self.at(at).id.load(Ordering::Relaxed) != 0);
        let mut children = vec![0_u32; tree.used as usize];
        live().for_each(|index| children[self.at(index).above()] += 1);
        let mut all: Vec<_> = live().filter(|&index| children[index as usize] == 0).collect();
        let mut next = 0;
        while let Some(&index) = all.get(next) {
            next += 1;
            let above = self.at(index).above();
            children[above] -= 1;
            if children[above] == 0 && above != NONE as usize {
                all.push(above as u32);
            }
        }
        all
    }

    /// Calls the callback for each tenant beyond its soft limit: for a program that has heard
    /// that memory is short, from [`Psi`](crate::Psi) or whatever else. Returns how many there are.
    /// Takes time proportional to the number of tenants.
    pub fn press(&self) -> usize {
        let beyond: Vec<_> = {
            let Ok(tree) = self.tree() else { return 0 };
            let stocks = self.stocks(&tree).into_iter();
            let all = (NONE..).zip(stocks).map(|(at, stocks)| (at, self.usage_with(at, stocks)));
            let live = all.map(|(at, usage)| (self.at(at).tenant(), usage));
            let live = live.filter(|(tenant, _)| tenant.0 != 0);
            live.filter(|(_, usage)| usage.frames > usage.limits.soft).collect()
        };
        for &(tenant, usage) in &beyond {
            self.tell(tenant, Cause::System, usage);
        }
        beyond.len()
    }

    fn tell(&self, tenant: Tenant, cause: Cause, usage: Usage) {
        if let Some(callback) = &self.on_pressure {
            called(|| callback(tenant, cause, usage));
        }
    }

    /// The tenant and those above it.
    fn upwards(&self, index: u32) -> impl Iterator<Item = (u32, &Slot)> {
        let mut at = index;
        std::iter::from_fn(move || {
            let here = (at != NONE).then(|| (at, self.at(at)))?;
            at = here.1.parent.load(Ordering::Relaxed);
            Some(here)
        })
    }
}

impl Slot {
    fn tenant(&self) -> Tenant {
        Tenant(self.id.load(Ordering::Relaxed))
    }

    /// The index of the one above it.
    fn above(&self) -> usize {
        self.parent.load(Ordering::Relaxed) as usize
    }

    /// As if nobody had had it.
    fn clear(&self) {
        self.told.store(false, Ordering::Relaxed);
        self.stock.store(0, Ordering::Relaxed);
        self.charged.store(0, Ordering::Relaxed);
        self.blocks.iter().for_each(|bits| bits.store(0, Ordering::Relaxed));
    }
}

#[cold]
fn unknown(tenant: Tenant) -> Error {
    Error::Knob { knob: "tenant", value: tenant.0.into(), allowed: "one that lives" }
}

impl<H: Handle> fmt::Debug for Tenants<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let live = |tree: &Tree| tree.used - NONE - 1 - tree.free.len() as u32;
        let live = self.tree().map(|tree| live(&tree)).ok();
        f.debug_struct("Tenants").field("live", &live).finish_non_exhaustive()
    }
}
