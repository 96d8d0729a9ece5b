//! Splitting allocations, and freeing ranges and arrays of single frames in the largest possible
//! chunks.
//!
//! ```text
//!   frames   3   4   5   6   7   8   9  10  11  12        frame 7 is still referenced elsewhere
//!           put put put put  -  put put put put put
//!           |--- run 1 ---|     |----- run 2 ----|
//!   chunks  |3| |4  5| |6|      |8  9  10 11| |12|        instead of nine single frees
//! ```
//!
//! Every frame has its own reference count, so each is put and prepared singly; only what follows,
//! getting the frames back onto lists, is done by chunk. Source: "Free contiguous order-0 pages
//! efficiently".

use freehold::{CpuId, FrameRange, FreeError, Order, Pfn};

use crate::Classic;
use crate::free::Loose;
use crate::page::{Kind, Put, State};
use crate::switches::Switch;

impl Classic {
    /// Turns the allocated chunk of order `from` at `pfn` into chunks of order `to`, each with one
    /// reference. Source: Linux, `split_page` (there `to` is always 0).
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then. A chunk with more than one reference cannot be
    /// split and counts as [`FreeError::WrongOrder`].
    pub fn split(&self, pfn: Pfn, from: Order, to: Order) -> Result<(), FreeError> {
        let Loose { frame, .. } = self.locate(pfn, from)?;
        let frames = &self.zone.frames;
        // Seized, so that nobody takes or drops a reference while the one record becomes many.
        let references = frames.seize(frame, from.get())?;
        if to >= from || references != 1 {
            if references == 1 {
                frames.let_go(frame);
            }
            let wrong = FreeError::WrongOrder { pfn, allocated: from, freed: to };
            return if to == from && references == 1 { Ok(()) } else { Err(wrong) };
        }
        let migratetype = frames.state(frame).migratetype();
        // From the last part to the first, so that the head covers all of it until the rest has
        // heads of its own.
        for part in (frame..frame + from.frames() as u32).step_by(to.frames() as usize).rev() {
            frames.set(part, State::allocated(to.get(), migratetype));
        }
        Ok(())
    }

    /// Takes one more reference of the chunk that starts at `pfn`.
    ///
    /// # Errors
    ///
    /// See [`FreeError`].
    pub fn get(&self, pfn: Pfn) -> Result<(), FreeError> {
        self.zone.frames.get(self.find(pfn)?)
    }

    /// Drops one reference of every frame of `range`, which must be single frames (allocated with
    /// order 0, or split), and frees those that have none left. Returns how many were kept because
    /// of further references.
    ///
    /// With switch `contig-free`, runs of freed frames go back in the largest aligned chunks;
    /// without it, one by one.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    pub fn free_contig_range(&self, cpu: CpuId, range: FrameRange) -> Result<u64, FreeError> {
        self.check_cpu(cpu).map_err(|cpu| FreeError::CpuOffline { cpu })?;
        if range.is_empty() {
            return Err(FreeError::ZeroLength);
        }
        self.find(range.start)?;
        let end = self.zone.frames.pfn(self.zone.end);
        if range.end > end {
            return Err(FreeError::PastEnd { pfn: end });
        }
        let frames = range.start.get()..range.end.get();
        let dropped = self.drop_references(frames.map(|pfn| (Pfn::new(pfn), Order::ZERO)))?;
        Ok(self.free_runs(cpu, dropped))
    }

    /// Drops one reference of each of the single frames of `pfns`, in whatever order they are, and
    /// frees those that have none left, neighbours in the array that are neighbours in memory
    /// together. Returns how many were kept. Source: Linux 7.2, `free_pages_bulk`, which vfree
    /// uses.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    pub fn free_array(&self, cpu: CpuId, pfns: &[Pfn]) -> Result<u64, FreeError> {
        self.check_cpu(cpu).map_err(|cpu| FreeError::CpuOffline { cpu })?;
        let dropped = self.drop_references(pfns.iter().map(|&pfn| (pfn, Order::ZERO)))?;
        Ok(self.free_runs(cpu, dropped))
    }

    /// Prepares single frames and frees runs of neighbours; how many were kept.
    fn free_runs(&self, cpu: CpuId, dropped: Vec<(Put, Loose)>) -> u64 {
        let kept = dropped.iter().filter(|(put, _)| *put == Put::Kept).count() as u64;
        let mut run: Option<(Loose, u32)> = None;
        for (put, loose) in dropped {
            let prepared = self.prepare(put, loose);
            run = match (run, prepared) {
                (Some((start, len)), Some(next))
                    if self.on.has(Switch::ContigFree) && next.frame == start.frame + len =>
                {
                    Some((start, len + 1))
                }
                (run, next) => {
                    self.free_run(cpu, run);
                    next.map(|next| (next, 1))
                }
            };
        }
        self.free_run(cpu, run);
        kept
    }

    /// Frees one run of prepared frames in the largest aligned chunks.
    fn free_run(&self, cpu: CpuId, run: Option<(Loose, u32)>) {
        let Some((start, len)) = run else { return };
        let frames = &self.zone.frames;
        let Some(range) = FrameRange::new(frames.pfn(start.frame), u64::from(len)) else { return };
        let mut frame = start.frame;
        let any = self.on.has(Switch::ContigMaxOrder);
        let largest = if any { Order::LINUX_MAX } else { Order::PAGEBLOCK };
        for (_, order) in range.chunks(largest) {
            // One chunk from now on: its parts are tails, its head is on its way.
            for part in frame + 1..frame + order.frames() as u32 {
                frames.set(part, State::TAIL);
            }
            let migratetype = frames.state(frame).migratetype();
            frames.set(frame, State::new(Kind::Freeing, order.get(), migratetype));
            self.free_one(cpu, Loose { frame, order: order.get() });
            frame += order.frames() as u32;
        }
    }
}
