//! What it frees, and how: on its own CPU, in parts, many at once, what others allocated.

use freehold::{FreeError, Pfn};

use super::Worker;
use crate::bounds::{BULK, Door, Kind, free_of};
use crate::handle::Handle;
use crate::ledger::Chunk;

impl Worker {
    /// Frees what another thread has allocated.
    pub(super) fn free_of_pool(&mut self) {
        let world = self.clerk.world;
        let chunk = {
            let mut pool = world.pool();
            let n = pool.len() as u64;
            if n == 0 { None } else { Some(pool.swap_remove(self.random.below(n) as usize)) }
        };
        let Some((chunk, from)) = chunk else { return };
        world.ledger.pass(chunk, from, self.clerk.name());
        self.free(chunk);
    }

    pub(super) fn draw(&mut self) -> Option<Chunk> {
        let n = self.held.len() as u64;
        if n == 0 {
            return None;
        }
        let chunk = self.held.swap_remove(self.random.below(n) as usize);
        self.frames -= chunk.frames;
        Some(chunk)
    }

    pub(super) fn free_some(&mut self) {
        if self.random.below(40) == 0 {
            return self.free_bulk();
        }
        let Some(mut chunk) = self.draw() else { return };
        if chunk.frames > 1 && self.random.below(3) == 0 {
            // A part of it; the rest stays.
            let first = 1 + self.random.below(chunk.frames - 1);
            let rest = Chunk { start: chunk.start + first, frames: chunk.frames - first };
            self.frames += rest.frames;
            self.held.push(rest);
            chunk.frames = first;
        }
        match self.random.below(12) {
            0 if chunk.frames > 1 => self.free_some_of(chunk),
            1..3 => self.free_in_hand(chunk),
            _ => self.free(chunk),
        }
    }

    /// Into the owner's hand; where it has no such word there, as any other chunk.
    fn free_in_hand(&mut self, chunk: Chunk) {
        let order = chunk.order().filter(|order| order.get() <= 5);
        let Some((order, owned)) = order.zip(self.handle.owned()) else { return self.free(chunk) };
        let world = self.clerk.world;
        world.ledger.give(chunk, self.clerk.name());
        let call = (Kind::FreeInHand, Door::Owner);
        let freed = self.clerk.call(call, owned.cpu().get(), chunk.start, || {
            owned.free_in_hand(chunk.range().start, order).then_some(()).ok_or(())
        });
        if freed.is_ok() {
            self.clerk.tally.frees += 1;
            return;
        }
        world.ledger.take(chunk, self.clerk.name());
        self.free(chunk);
    }

    /// Those frames of a chunk that are not wanted any more; the others stay.
    fn free_some_of(&mut self, chunk: Chunk) {
        let wanted = self.random.below(256) as u8;
        let stay = move |pfn: u64| wanted.rotate_left(pfn as u32 / 8) >> (pfn % 8) & 1 == 1;
        let runs = runs_of(chunk, stay);
        let mut asked = chunk.start;
        let mut kept = 0;
        for &(run, stays) in &runs {
            if stays {
                self.frames += run.frames;
                kept += run.frames;
                self.held.push(run);
            } else {
                self.clerk.world.ledger.give(run, self.clerk.name());
            }
        }
        let result = self.on_cpu(Kind::FreeRangeWith, chunk.start, |cpu| {
            cpu.free_range_with(chunk.range(), &mut |pfn| {
                asked = pfn.get() + 1;
                !stay(pfn.get())
            })
        });
        let freed = || runs.iter().filter(|(_, stays)| !stays).map(|&(run, _)| run);
        match result {
            Ok(n) if n == kept && asked == chunk.start + chunk.frames => {
                self.clerk.tally.frees += freed().count() as u64
            }
            Ok(n) => {
                self.clerk.world.ledger.tell(format!("free_range_with kept {n} frames of {kept}"))
            }
            // The runs before the one that was refused are free; that one ends where it had asked,
            // or a frame before.
            Err(FreeError::CpuOffline { .. }) if self.handle.door() == Door::Anybody => {
                let done =
                    |run: &Chunk| run.start + run.frames < asked - u64::from(stay(asked - 1));
                self.clerk.tally.frees += freed().filter(done).count() as u64;
                for run in freed().filter(|run| !done(run)) {
                    self.clerk.world.ledger.take(run, self.clerk.name());
                    self.free(run);
                }
            }
            Err(error) => self
                .clerk
                .world
                .ledger
                .tell(format!("a right free_range_with was refused: {error}")),
        }
    }

    /// Frees a chunk, in a way that suits it.
    pub(super) fn free(&mut self, chunk: Chunk) {
        self.clerk.world.ledger.give(chunk, self.clerk.name());
        let range = chunk.range();
        let start = range.start;
        let by_range = self.random.below(6) == 0;
        let (kind, result) = match chunk.order().filter(|o| !by_range && o.get() <= 10) {
            Some(order) => {
                let kind = free_of(order.get());
                (kind, self.by_any_cpu(kind, chunk.start, |cpu| cpu.free(start, order)))
            }
            None => (
                Kind::FreeRange,
                self.by_any_cpu(Kind::FreeRange, chunk.start, |cpu| cpu.free_range(range)),
            ),
        };
        match result {
            Ok(()) => self.clerk.tally.frees += 1,
            Err(error) => self
                .clerk
                .world
                .ledger
                .tell(format!("a right {} was refused: {error}", kind.name())),
        }
    }

    /// Frees single frames and small chunks together.
    fn free_bulk(&mut self) {
        let mut frames = Vec::new();
        while frames.len() < BULK {
            let Some(chunk) = self.draw() else { break };
            if frames.len() as u64 + chunk.frames > BULK as u64 {
                self.held.push(chunk);
                self.frames += chunk.frames;
                break;
            }
            self.clerk.world.ledger.give(chunk, self.clerk.name());
            frames.extend((chunk.start..chunk.start + chunk.frames).map(Pfn::new));
        }
        let Some(first) = frames.first().map(|pfn| pfn.get()) else { return };
        let result = self.by_any_cpu(Kind::FreeBulk, first, |cpu| {
            cpu.free_bulk(&frames).map_err(|error| error.error)
        });
        match result {
            Ok(()) => self.clerk.tally.frees += frames.len() as u64,
            Err(error) => {
                self.clerk.world.ledger.tell(format!("a right free_bulk was refused: {error}"))
            }
        }
    }

    /// A free on its CPU; where that has gone offline, on one that stays.
    fn by_any_cpu(
        &mut self,
        kind: Kind,
        what: u64,
        f: impl Fn(&Handle) -> Result<(), FreeError>,
    ) -> Result<(), FreeError> {
        let result = self.on_cpu(kind, what, &f);
        let gone = matches!(result, Err(FreeError::CpuOffline { .. }))
            && self.handle.door() == Door::Anybody;
        if !gone {
            return result;
        }
        let stays = Handle::on(self.clerk.world, 0);
        self.clerk.ask(kind, 0, what, || f(&stays))
    }
}

/// The longest runs of a chunk's frames of which all stay, or none, with which it is.
fn runs_of(chunk: Chunk, stay: impl Fn(u64) -> bool) -> Vec<(Chunk, bool)> {
    let mut runs: Vec<(Chunk, bool)> = Vec::new();
    for pfn in chunk.start..chunk.start + chunk.frames {
        match runs.last_mut().filter(|(_, stays)| *stays == stay(pfn)) {
            Some((run, _)) => run.frames += 1,
            None => runs.push((Chunk { start: pfn, frames: 1 }, stay(pfn))),
        }
    }
    runs
}
