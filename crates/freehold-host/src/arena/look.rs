//! Looking at an arena, and tidying it for that.

use std::sync::atomic::{AtomicU64, Ordering};

use freehold::{CpuId, FRAME_SIZE, Totals, ZoneStats};

use super::Arena;
use crate::arena::Inner;
use crate::stats::Stats;
use crate::{Error, thread};

impl Arena {
    /// Counters, what is in use, free and resident. Has what all threads keep freed first, as
    /// [`free_frames`](Self::free_frames). In a forked child that counts as used.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Inner { core, notes, release, memory, .. } = &*self.inner;
        // Relaxed: statistics.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let forked = core.stamp.is_forked();
        let (frames, free) = (memory.range().len(), self.free_frames());
        let allocs = core.engine.totals().cpus.allocs;
        Stats {
            frames,
            frames_used: frames.saturating_sub(free),
            frames_free: free,
            allocations_by_order: std::array::from_fn(|order| {
                core.kept_taken(order) + allocs.iter().map(|of_type| of_type[order]).sum::<u64>()
            }),
            blocks: frames / freehold::PAGEBLOCK_FRAMES,
            blocks_resident: notes.resident(),
            blocks_released: read(&release.blocks),
            frames_released: read(&release.frames),
            bytes_released: (read(&release.blocks) * freehold::PAGEBLOCK_FRAMES
                + read(&release.frames))
                * FRAME_SIZE,
            release_calls: read(&release.calls),
            release_refused: read(&release.refused),
            blocks_collapsed: read(&release.collapsed),
            passes: read(&release.passes),
            slots: core.slots.exclusive().into(),
            slots_taken: core.slots.taken().into(),
            // Behind a lock, which a forked child must not wait for.
            threads_sharing: if forked { 0 } else { core.slots.sharing().into() },
            biased: core.biased(),
            metadata_bytes: core.metadata_bytes() + notes.bytes(),
            refused_drops: read(&self.refused_drops),
            late_double_frees: core.engine.platform().late_double_frees(),
        }
    }

    /// How many frames are free, wherever they are held. Looks at counters of each CPU; exact while
    /// nothing runs.
    ///
    /// Has what all threads keep freed first, which makes a barrier on each core where there is
    /// any, and waits for threads that take or leave a run at this moment.
    #[must_use]
    pub fn free_frames(&self) -> u64 {
        let engine = &self.core.engine;
        self.core.gather();
        (0..engine.zone_count())
            .filter_map(|zone| engine.zone_stats(zone))
            .map(|zone| zone.free)
            .sum()
    }

    /// The allocator's view of one zone: one for each memory node. Has what all threads keep freed
    /// first, as [`free_frames`](Self::free_frames).
    #[must_use]
    pub fn zone_stats(&self, zone: usize) -> Option<ZoneStats> {
        self.core.gather();
        self.core.engine.zone_stats(zone)
    }

    /// The allocator's counters, over all threads. Has what they all keep freed first, as
    /// [`free_frames`](Self::free_frames).
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.core.gather();
        self.core.engine.totals()
    }

    /// The CPU that the calling thread works on: its own, or one that it shares.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn current_cpu(&self) -> Result<CpuId, Error> {
        thread::enter(&self.core, |cpu| cpu.id())
    }

    /// Gives back what the calling thread's CPU has in hand, so that others can allocate it: for a
    /// thread about to sleep for long. A thread that ends does so by itself. What it has freed is
    /// visible to others without this.
    ///
    /// Has what all threads keep freed first, as [`free_frames`](Self::free_frames).
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn flush(&self) -> Result<(), Error> {
        self.core.gather();
        Ok(thread::enter(&self.core, |cpu| cpu.flush())??)
    }

    /// Gathers all free frames that threads hold in the zones' hands: for tests, and before looking
    /// for very large runs.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn drain(&self) -> Result<(), Error> {
        self.core.check_fork()?;
        self.core.gather();
        self.core.engine.drain_all();
        Ok(())
    }

    /// Checks every invariant of the allocator, and the count of resident blocks. Everybody else
    /// waits meanwhile; only to be relied on while nobody frees.
    ///
    /// # Errors
    ///
    /// [`Error::Broken`] with the first violation, [`Error::Forked`].
    pub fn validate(&self) -> Result<(), Error> {
        let Inner { core, notes, memory, .. } = &*self.inner;
        core.check_fork()?;
        core.engine.validate().map_err(Error::Broken)?;
        let (found, expected) = (notes.resident(), notes.count_resident());
        if found != expected {
            let what = "the count of resident blocks is not the number of blocks noted so";
            return Err(Error::Broken(freehold::Violation {
                pfn: memory.first(),
                what,
                found,
                expected,
            }));
        }
        Ok(())
    }
}
