//! What the threads of a process share of an arena, and what may outlive it: the allocator, its
//! metadata, the slots.
//!
//! A thread that has used an arena holds a counted reference to this until it ends (or meets
//! another arena after this one is gone), because its CPU handle points into it. The frames
//! themselves are not in here: they are unmapped when the [`Arena`](crate::Arena) is dropped,
//! whatever threads are still about.

use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use freehold::{
    AllocError, Config, CpuId, FrameRange, Frames, Freehold, On, Owned, PAGEBLOCK_FRAMES, Pfn,
    Platform,
};

use crate::host::{Engine, Host, OwnedCpu};
use crate::key::Key;
use crate::key::Own;
use crate::mapping::Metadata;
use crate::marks::Marks;
use crate::runs::{LONGEST, Places, Run, Runs};
use crate::slots::Slots;
use crate::stamp::Stamp;
use crate::stops::{Stopped, Stops};
use crate::{Error, sys};

/// The part of an arena, and the number of frames (8 MiB), that a thread keeps at most of what it
/// has freed; and the part that all threads keep together.
const KEEP_PART: u64 = 256;
const KEEP_MOST: u64 = 2048;
const KEEP_PART_OF_ALL: u64 = 8;

/// Orders of runs that threads keep.
const ORDERS: usize = LONGEST.ilog2() as usize + 1;

/// See the module's documentation.
pub(crate) struct Core {
    pub(crate) stamp: Stamp,
    key: Key,
    pub(crate) engine: Engine,
    pub(crate) slots: Slots,
    /// The arena has been dropped: threads let go of what they hold when they next look.
    closed: AtomicBool,
    /// Blocks that may have been freed into and wait to be collected.
    owed: AtomicU64,
    pub(crate) stops: Stops,
    /// Memory was given back out of blocks in use.
    thrifty: AtomicBool,
    /// Kept runs that were handed out, by order.
    taken: [AtomicU64; ORDERS],
    pub(crate) marks: Marks,
    /// The most frames that a thread keeps.
    keep: u32,
    /// Threads do not find their CPU the short way: see `guard.rs`.
    pub(crate) guarded: bool,
    /// How many blocks there may be.
    blocks: u64,
    /// What `engine` keeps its state in; after it, so that it is unmapped last.
    metadata: Metadata,
}

impl Core {
    pub(crate) fn new(
        config: &Config<'_>,
        host: Host,
        slots: Slots,
        guarded: bool,
    ) -> Result<Self, Error> {
        let stamp = Stamp::new()?;
        let spans = || config.zones.iter().map(|zone| zone.span);
        let first = spans().map(|span| span.start.get()).min().unwrap_or(0);
        let frames = spans().map(|span| span.end.get()).max().unwrap_or(0) - first;
        // The marks are behind it, so that there is one mapping.
        let size = config.metadata_size()?;
        let metadata = Metadata::new(size.next_multiple_of(64) + Marks::bytes(frames))?;
        // SAFETY: within the mapping, which is zero and unmapped when `Core` is dropped; nobody has
        // marks who has not a part in that.
        let marks = unsafe {
            let behind = metadata.base().cast::<u8>().add(size.next_multiple_of(64));
            Marks::new(behind, Pfn::new(first), frames)
        };
        // SAFETY: the mapping is longer than that, nobody else knows of it, and it is unmapped only
        // when `Core` is dropped, whose `engine` alone has the slice and is gone by then. Every
        // `OwnedCpu`, the other holder of pointers into it, is kept beside an `Arc<Core>` (see
        // `thread.rs`).
        let region: &'static mut [MaybeUninit<u8>] =
            unsafe { std::slice::from_raw_parts_mut(metadata.base().cast().as_ptr(), size) };
        let barrier = host.has_heavy_barrier();
        let engine = Freehold::new(config, region, host)?;
        engine.on(slots.keeper()).online()?;
        let part = KEEP_PART.max(KEEP_PART_OF_ALL * u64::from(slots.exclusive()));
        Ok(Self {
            key: Key::of(&stamp),
            stamp,
            engine,
            slots,
            closed: AtomicBool::new(false),
            owed: AtomicU64::new(0),
            stops: Stops::new(barrier),
            thrifty: AtomicBool::new(false),
            taken: Default::default(),
            marks,
            // Places tell of 16 TiB.
            keep: if frames >> 32 == 0 && !guarded {
                (frames / part).min(KEEP_MOST) as u32
            } else {
                0
            },
            guarded,
            blocks: config.zones.iter().map(|zone| zone.span.len() / PAGEBLOCK_FRAMES).sum(),
            metadata,
        })
    }

    /// By what a thread finds its CPU.
    #[inline(always)]
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// Bytes of metadata.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.metadata.len() as u64
    }

    /// The CPU that no thread has.
    pub(crate) fn keeper(&self) -> On<'_, 'static, Host> {
        self.engine.on(self.slots.keeper())
    }

    /// Brings home what was freed into about that many blocks that the zones hold.
    ///
    /// Blocks that were handed out whole, two or more at a time, are the zones'. What is freed into
    /// them waits for somebody to collect it, which the allocator leaves until it has nothing else:
    /// right for a machine, where all memory is alike. Here memory that was never touched is not,
    /// and should not be touched while other memory is free.
    pub(crate) fn collect(&self, blocks: u64) {
        // 32 blocks of each zone a call. It cannot fail: the keeper is always online.
        for _ in 0..blocks.div_ceil(32) {
            let _ = self.keeper().tick();
        }
    }

    /// Leaves [`Self::collect`] to whoever next wants memory: it takes locks, and a free must not
    /// wait.
    pub(crate) fn owe(&self, blocks: u64) {
        // Relaxed: a hint; what is to be collected is found in the blocks.
        self.owed.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Collects what frees have left. A load where there is nothing.
    pub(crate) fn collect_owed(&self) {
        if self.owed.load(Ordering::Relaxed) != 0 {
            // A block may have been freed into many times since.
            self.collect(self.owed.swap(0, Ordering::Relaxed).min(self.blocks));
        }
    }

    /// What a thread has for its runs.
    pub(crate) fn runs(&self) -> Runs {
        Runs::new(self.keep)
    }

    /// The most frames that a thread keeps.
    pub(crate) fn most_kept(&self) -> u64 {
        self.keep.into()
    }

    /// Memory that was given back is used last from now on.
    pub(crate) fn keep_to_memory(&self) {
        // Relaxed: a hint.
        self.thrifty.store(true, Ordering::Relaxed);
        self.engine.keep_to_memory();
    }

    /// Whether memory was given back out of blocks in use.
    pub(crate) fn is_thrifty(&self) -> bool {
        self.thrifty.load(Ordering::Relaxed)
    }

    /// Frees what all threads keep, since it is to be seen by everybody. Waits for threads that are
    /// inside their own at this moment, and for whoever else frees it.
    pub(crate) fn gather(&self) {
        let keeps = self.stops.keeps();
        drop(self.hold_kept(keeps));
    }

    /// A request has failed that began when [`keeps`](Stops::keeps) was `seen`:
    /// [gathers](Self::gather) for another attempt, during which no thread keeps anything. `None`
    /// where none has since, so that trying again cannot help.
    pub(crate) fn hold_kept(&self, seen: u64) -> Option<Stopped<'_>> {
        let since = self.stops.kept_since(seen) && !self.stamp.is_forked();
        since.then(|| self.keep_nothing())
    }

    /// Frees what all threads keep, and none keeps anything until what is returned is dropped.
    pub(crate) fn keep_nothing(&self) -> Stopped<'_> {
        let platform = self.engine.platform();
        let stopped = self.stops.stop(|| {
            let (me, mut others) = (sys::thread_number(), false);
            self.slots.each_own(|thread, _| others |= thread != me);
            if others && self.biased() {
                platform.heavy_barrier();
            } else {
                fence(Ordering::SeqCst);
            }
        });
        self.slots.each_own(|_, own| {
            self.free_kept(own.runs.door.stopped(&stopped, || platform.relax()));
        });
        // Last, so that whoever is told finds all of it freed.
        stopped.gathered();
        stopped
    }

    /// Frees what is kept in those places, which are the caller's for now.
    pub(crate) fn free_kept(&self, places: &Places) {
        places.all_kept(
            |run| self.free_one(run, |_| false, |range| self.keeper().free_range(range).is_ok()),
            |frames, times| {
                let order = frames.max(1).next_power_of_two().ilog2() as usize;
                // Relaxed: a statistic.
                self.taken[order % ORDERS].fetch_add(times, Ordering::Relaxed);
            },
        );
    }

    /// Frees a kept run that is the caller's: at hand, all or none of it, or else word by word. Of
    /// each the allocator takes all frames or none, so that where it refuses one nothing is half
    /// done.
    #[inline(always)]
    pub(crate) fn free_one(
        &self,
        (first, frames): Run,
        at_hand: impl Fn(FrameRange) -> bool,
        free: impl Fn(FrameRange) -> bool,
    ) {
        let mut at = self.marks.first() + first;
        let end = at + frames;
        self.marks.let_go(at, frames);
        if at_hand(FrameRange { start: Pfn::new(at), end: Pfn::new(end) }) {
            return;
        }
        while at < end {
            let next = end.min((at / 64 + 1) * 64);
            let range = FrameRange { start: Pfn::new(at), end: Pfn::new(next) };
            if !free(range) {
                self.free_each(range, &free);
            }
            at = next;
        }
    }

    /// Some frames of a word were freed a second time, after their marks had gone and before they
    /// were the allocator's: the others go home.
    #[cold]
    #[inline(never)]
    fn free_each(&self, run: FrameRange, free: impl Fn(FrameRange) -> bool) {
        for start in (run.start.get()..run.end.get()).map(Pfn::new) {
            if !free(FrameRange { start, end: Pfn::new(start.get() + 1) }) {
                self.engine.platform().late_double_free(start);
            }
        }
    }

    /// Kept runs that were handed out, by order, as far as they were gathered.
    pub(crate) fn kept_taken(&self, order: usize) -> u64 {
        // Relaxed: a statistic.
        self.taken.get(order).map_or(0, |taken| taken.load(Ordering::Relaxed))
    }

    /// Gives back what threads have that ended without a word: by the system call `exit` of their
    /// own, or in a program whose C library runs no destructors of thread-local storage. Where a
    /// thread finds no free slot, in a pass, and where the arena goes.
    pub(crate) fn collect_ended(self: &Arc<Self>) {
        let mut from = 0;
        while let Some((cpu, own)) = self.slots.left_behind(from, |own| self.free_last(own)) {
            from = cpu.index() + 1;
            // SAFETY: its thread boxed it, and is gone without having dropped it; the slots know of
            // it once, and no more.
            drop(unsafe { Box::from_raw(own.as_ptr()) });
            if !self.is_closed() {
                self.slots.give(&self.engine, cpu);
            }
            // SAFETY: the thread counted itself when it took the slot. The caller has a count of
            // its own.
            unsafe { Arc::decrement_strong_count(Arc::as_ptr(self)) };
        }
    }

    /// Frees what a thread keeps that has ended, or is about to.
    pub(crate) fn free_last(&self, own: &mut Own) {
        if !self.is_closed() {
            self.free_kept(own.runs.door.ended());
        }
    }

    /// Owners use the biased lock.
    pub(crate) fn biased(&self) -> bool {
        self.engine.platform().has_heavy_barrier()
    }

    pub(crate) fn close(&self) {
        // Release, with the load below: a thread that sees it does so after the arena's last call.
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// An error in a forked child, where no lock may be touched.
    pub(crate) fn check_fork(&self) -> Result<(), Error> {
        if self.stamp.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// Takes that CPU for the caller.
    ///
    /// # Safety
    ///
    /// The handle must be dropped or forgotten before this `Core` is dropped.
    pub(crate) unsafe fn own(&self, cpu: CpuId) -> Result<OwnedCpu, AllocError> {
        let owned = self.engine.own(cpu)?;
        // SAFETY: only the lifetime of the borrow of `engine` is made longer, which stays where it
        // is (behind an `Arc`) until `Core` is dropped; the caller promises that the handle is gone
        // by then.
        Ok(unsafe { std::mem::transmute::<Owned<'_, 'static, Host>, OwnedCpu>(owned) })
    }
}

/// The CPU a call is made on: frames come from it and go to it, by whichever door.
pub(crate) enum Cpu<'a> {
    /// The thread's own.
    Owned(&'a OwnedCpu),
    /// One shared with other threads.
    Shared(On<'a, 'static, Host>),
}

impl<'a> Deref for Cpu<'a> {
    type Target = dyn Frames + 'a;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        match self {
            Cpu::Owned(cpu) => *cpu,
            Cpu::Shared(cpu) => cpu,
        }
    }
}

impl Cpu<'_> {
    /// Any number of neighbouring frames, wherever they start; and how many are free behind them.
    pub(crate) fn alloc_run(&self, count: u64) -> Result<(FrameRange, u64), AllocError> {
        match self {
            Cpu::Owned(cpu) => cpu.alloc_run_and_rest(count),
            Cpu::Shared(cpu) => cpu.alloc_run_and_rest(count),
        }
    }

    pub(crate) fn flush(&self) -> Result<(), AllocError> {
        match self {
            Cpu::Owned(cpu) => cpu.flush(),
            Cpu::Shared(cpu) => cpu.flush(),
        }
    }

    pub(crate) fn id(&self) -> CpuId {
        match self {
            Cpu::Owned(cpu) => cpu.cpu(),
            Cpu::Shared(cpu) => cpu.cpu(),
        }
    }
}
