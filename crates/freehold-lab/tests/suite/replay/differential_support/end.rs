//! What must hold after every call, and in the end.

use freehold::{AllocFlags, Migratetype, Order};

use super::CPUS;
use super::both::{Both, Checked, blame};
use super::calls::Call;
use super::shape::range;

impl Both {
    /// What both say of themselves.
    pub fn check(&self, thoroughly: bool) -> Checked {
        let ours: u64 =
            (0..self.ours.zone_count()).map(|z| self.ours.zone_stats(z).unwrap().free).sum();
        if ours != self.free() {
            return blame(0, format!("counts {ours} free frames; there are {}", self.free()));
        }
        if thoroughly {
            let theirs = self.theirs.memory_map().free;
            if theirs != self.free() {
                return blame(1, format!("counts {theirs} free frames; there are {}", self.free()));
            }
            self.ours.validate().or_else(|violation| blame(0, violation))?;
            self.theirs.validate().or_else(|violation| blame(1, violation))?;
        }
        Ok(())
    }

    /// All is given back.
    pub fn finish(&mut self) -> Checked {
        self.check(true)?;
        let live = std::mem::take(&mut self.live);
        for (at, live) in live.into_iter().enumerate() {
            self.give(self.cpu(at as u16 % CPUS), live, false)?;
        }
        self.play(Call::Drain)?;
        self.check(true)?;
        // The most chunks that aligned free memory can be made of: a whole engine has no more and
        // no fewer.
        let spans = self.used[0].memory.iter().map(|&(start, end)| range(start, end - start));
        let mut chunks = [0u64; 11];
        spans
            .flat_map(|piece| piece.chunks(Order::LINUX_MAX))
            .for_each(|(_, order)| chunks[order.index()] += 1);
        let theirs = self.theirs.memory_map();
        if theirs.zone_chunks != chunks {
            return blame(
                1,
                format!("is left with chunks {:?}, not {chunks:?}", theirs.zone_chunks),
            );
        }
        let blocks = |(start, end): (u64, u64)| (end / 512).saturating_sub(start.div_ceil(512));
        let blocks: u64 = self.used[0].memory.iter().map(|&piece| blocks(piece)).sum();
        let zones = (0..self.ours.zone_count()).map(|z| self.ours.zone_stats(z).unwrap());
        let ours: u64 = zones.clone().map(|zone| zone.free_blocks).sum();
        if ours != blocks {
            return blame(0, format!("is left with {ours} whole blocks of {blocks}"));
        }
        for (z, zone) in zones.enumerate() {
            let largest = self.ours.largest_possible_order(z);
            if zone.largest_free_order() != largest || zone.free_in_zone != zone.managed {
                return blame(0, format!("zone {z} is left with {zone:?}"));
            }
        }
        // The largest that both know is to be had once more.
        let largest = self.ours.largest_possible_order(0).unwrap().min(Order::LINUX_MAX);
        let before = self.live.len();
        self.alloc(self.cpu(0), largest, Migratetype::Movable, AllocFlags::NO_WATERMARKS)?;
        if self.live.len() != before + 1 {
            return Err(format!("{largest} is not to be had with everything free"));
        }
        Ok(())
    }
}
