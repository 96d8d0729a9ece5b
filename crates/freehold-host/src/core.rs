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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use freehold::{
    AllocError, Config, CpuId, FrameRange, Frames, Freehold, On, Owned, PAGEBLOCK_FRAMES, Platform,
};

use crate::Error;
use crate::host::{Engine, Host, OwnedCpu};
use crate::key::Key;
use crate::mapping::Mapping;
use crate::slots::Slots;
use crate::stamp::Stamp;

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
    /// Threads do not find their CPU the short way: see `guard.rs`.
    pub(crate) guarded: bool,
    /// How many blocks there may be.
    blocks: u64,
    /// What `engine` keeps its state in; after it, so that it is unmapped last.
    metadata: Mapping,
}

impl Core {
    pub(crate) fn new(
        config: &Config<'_>,
        host: Host,
        slots: Slots,
        guarded: bool,
    ) -> Result<Self, Error> {
        let stamp = Stamp::new()?;
        let metadata = Mapping::zeroed(config.metadata_size()?)?;
        // SAFETY: the mapping is as long as that, nobody else knows of it, and it is unmapped only
        // when `Core` is dropped, whose `engine` alone has the slice and is gone by then. Every
        // `OwnedCpu`, the other holder of pointers into it, is kept beside an `Arc<Core>` (see
        // `thread.rs`).
        let region: &'static mut [MaybeUninit<u8>] = unsafe {
            std::slice::from_raw_parts_mut(metadata.base().cast().as_ptr(), metadata.len())
        };
        let engine = Freehold::new(config, region, host)?;
        engine.on(slots.keeper()).online()?;
        Ok(Self {
            key: Key::of(&stamp),
            stamp,
            engine,
            slots,
            closed: AtomicBool::new(false),
            owed: AtomicU64::new(0),
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

    /// Gives back what threads have that [ended](crate::ended) without a word.
    pub(crate) fn collect_ended(self: &Arc<Self>) {
        for (cpu, own) in self.slots.left_behind() {
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
