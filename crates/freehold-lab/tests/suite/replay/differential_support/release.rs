//! Frees of every kind, splits, and ranges.

use std::collections::BTreeSet;

use freehold::{CpuId, Order, Pfn};

use super::BASE;
use super::both::{Both, Checked, Live, blame};
use super::shape::range;
use super::used::Used;

impl Both {
    pub fn give_one(
        &mut self,
        engine: usize,
        cpu: CpuId,
        pfn: Pfn,
        order: Order,
        owned: bool,
    ) -> Checked {
        self.used[engine].give(pfn, order.frames());
        if engine == 1 {
            return self.theirs.free(cpu, pfn, order).map(drop).or_else(|error| blame(1, error));
        }
        if owned {
            return self.ours.own(cpu).unwrap().free(pfn, order).or_else(|error| blame(0, error));
        }
        self.ours.on(cpu).free(pfn, order).or_else(|error| blame(0, error))
    }

    pub fn give(&mut self, cpu: CpuId, live: Live, owned: bool) -> Checked {
        self.in_use -= live.order.frames();
        (0..2).try_for_each(|engine| self.give_one(engine, cpu, live.at[engine], live.order, owned))
    }

    /// Into parts of order `to`, which take the place of the allocation from `at` on; how many.
    pub fn split(&mut self, at: usize, to: Order) -> Checked<usize> {
        let Live { order, at: [a, b] } = self.live[at];
        if to >= order {
            return Ok(1);
        }
        // Freehold's allocations carry no order: there is nothing to do.
        self.theirs.split(b, order, to).or_else(|error| blame(1, error))?;
        let parts = (0..order.frames()).step_by(to.frames() as usize);
        let parts = parts
            .map(|behind| Live { order: to, at: [a, b].map(|pfn| Pfn::new(pfn.get() + behind)) });
        let parts: Vec<_> = parts.collect();
        let count = parts.len();
        self.live.splice(at..=at, parts);
        Ok(count)
    }

    pub fn free_range(&mut self, cpu: CpuId, at: usize, from: u64, len: u64, keep: u64) -> Checked {
        let frames = self.split(at, Order::ZERO)? as u64;
        let from = from % frames;
        let len = 1 + (len - 1) % (frames - from);
        let part: Vec<Live> = self.live[at + from as usize..at + (from + len) as usize].to_vec();
        let is_kept = |behind: u64| keep > 1 && behind.is_multiple_of(keep);
        let ranges = part[0].at.map(|pfn| range(pfn.get(), len));
        for behind in (0..len).filter(|&behind| is_kept(behind)) {
            let pfn = part[behind as usize].at[1];
            self.theirs.get(pfn).or_else(|error| blame(1, error))?;
        }
        let first = ranges[0].start.get();
        let ours = if keep == 0 {
            self.ours.on(cpu).free_range(ranges[0]).map(|()| 0)
        } else {
            self.ours.on(cpu).free_range_with(ranges[0], |pfn| !is_kept(pfn.get() - first))
        };
        let ours = ours.or_else(|error| blame(0, error))?;
        let theirs =
            self.theirs.free_contig_range(cpu, ranges[1]).or_else(|error| blame(1, error))?;
        if ours != theirs {
            return Err(format!(
                "freehold kept {ours} frames of a range, the kernel's design {theirs}"
            ));
        }
        let mut behind = 0;
        self.live.retain({
            let mut number = 0;
            move |_| {
                let inside = number >= at as u64 + from && number < at as u64 + from + len;
                number += 1;
                let stays = !inside || is_kept(behind);
                behind += u64::from(inside);
                stays
            }
        });
        for (_, live) in (0..len).zip(&part).filter(|&(behind, _)| !is_kept(behind)) {
            (0..2).for_each(|engine| self.used[engine].give(live.at[engine], 1));
            self.in_use -= 1;
        }
        Ok(())
    }

    pub fn free_bulk(&mut self, cpu: CpuId, pick: usize, frames: usize, step: usize) -> Checked {
        let singles: Vec<usize> = (0..self.live.len())
            .filter(|&at| self.live[at].order == Order::ZERO)
            .skip(pick % 97)
            .step_by(step)
            .collect();
        let chosen: BTreeSet<usize> = singles.into_iter().take(frames).collect();
        let mut lists = [Vec::new(), Vec::new()];
        for &at in &chosen {
            let live = self.live[at];
            (0..2).for_each(|engine| {
                lists[engine].push(live.at[engine]);
                self.used[engine].give(live.at[engine], 1);
            });
        }
        if pick.is_multiple_of(2) {
            lists.iter_mut().for_each(|list| list.reverse());
        }
        let mut number = 0;
        self.live.retain(|_| {
            number += 1;
            !chosen.contains(&(number - 1))
        });
        self.in_use -= chosen.len() as u64;
        self.ours.on(cpu).free_bulk(&lists[0]).or_else(|error| blame(0, error))?;
        self.theirs.free_array(cpu, &lists[1]).map(drop).or_else(|error| blame(1, error))
    }

    pub fn wrong_free(&mut self, cpu: CpuId, frame: u64) -> Checked {
        let pfn = Pfn::new(BASE - 100 + frame % (self.used[0].frames.len() as u64 + 200));
        let in_use = |used: &Used| used.exists(pfn.get()) && !used.is_free(pfn.get());
        if !in_use(&self.used[0]) && self.ours.on(cpu).free(pfn, Order::ZERO).is_ok() {
            return blame(0, format!("freed {pfn}, which was not in use"));
        }
        if !in_use(&self.used[1]) && self.theirs.free(cpu, pfn, Order::ZERO).is_ok() {
            return blame(1, format!("freed {pfn}, which was not in use"));
        }
        Ok(())
    }

    pub fn contig(&mut self, cpu: CpuId, frame: u64, len: u64) -> Checked {
        let span = self.used[0].spans[(frame % self.used[0].spans.len() as u64) as usize];
        let start = span.start.get() + frame / 7 % span.len();
        let wanted = range(start, len.min(span.end.get() - start));
        let results = [
            self.ours.alloc_contig_range(wanted, |_| false),
            self.theirs.alloc_contig_range(cpu, wanted, &mut |_| false),
        ];
        for (engine, result) in results.into_iter().enumerate() {
            let free =
                (wanted.start.get()..wanted.end.get()).all(|pfn| self.used[engine].is_free(pfn));
            if result.is_ok() != free {
                return blame(
                    engine,
                    format!("{wanted} is {}free, but: {result:?}", if free { "" } else { "not " }),
                );
            }
        }
        if results[0].is_ok() {
            self.ours.on(cpu).free_range(wanted).or_else(|error| blame(0, error))?;
        }
        if results[1].is_ok() {
            self.theirs
                .free_contig_range(cpu, wanted)
                .map(drop)
                .or_else(|error| blame(1, error))?;
        }
        Ok(())
    }
}
