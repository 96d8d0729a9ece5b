//! Allocations, and what an engine may refuse.

use freehold::{AllocError, AllocFlags, CpuId, Migratetype, Order, Pfn, Request};

use super::both::{Both, Checked, Live, blame};

impl Both {
    pub fn take(&mut self, engine: usize, pfn: Pfn, order: Order) -> Checked {
        if !pfn.is_aligned(order) {
            return blame(engine, format!("{pfn} is not aligned to {order}"));
        }
        self.used[engine].take(pfn, order.frames()).or_else(|what| blame(engine, what))
    }

    /// Whether a refusal was right. Both engines have fetched home what there was before they
    /// refused.
    pub fn refused(&self, engine: usize, order: Order, error: AllocError) -> Checked {
        if !matches!(error, AllocError::NoMemory { .. }) {
            return blame(engine, error);
        }
        if order == Order::ZERO && self.free() <= self.reserves[engine] {
            return Ok(());
        }
        // The watermark keeps larger chunks back too, by a rule of each engine's own.
        if order > Order::ZERO && self.reserves[engine] > 0 {
            return Ok(());
        }
        match self.used[engine].run(order) {
            Some(pfn) => blame(
                engine,
                format!("{order} was refused but {pfn} starts such a run of free frames"),
            ),
            None => Ok(()),
        }
    }

    pub fn alloc(
        &mut self,
        cpu: CpuId,
        order: Order,
        migratetype: Migratetype,
        flags: AllocFlags,
    ) -> Checked {
        let request = Request::new(order, migratetype).flags(flags);
        // Half of the calls by the CPU's owner, which takes another path.
        let ours = if (self.in_use + u64::from(cpu.get())).is_multiple_of(2) {
            self.ours.own(cpu).or_else(|error| blame(0, error))?.alloc(request)
        } else {
            self.ours.on(cpu).alloc(request)
        };
        let theirs =
            self.theirs.alloc(cpu, freehold_classic::Request { order, migratetype, flags });
        for (engine, result) in [ours, theirs].into_iter().enumerate() {
            match result {
                Ok(pfn) => self.take(engine, pfn, order)?,
                Err(error) => self.refused(engine, order, error)?,
            }
        }
        match (ours, theirs) {
            (Ok(a), Ok(b)) => {
                self.live.push(Live { order, at: [a, b] });
                self.in_use += order.frames();
                Ok(())
            }
            // Only one of them had room: it gives it back, and the live sets stay the same.
            (Ok(pfn), Err(_)) => self.give_one(0, cpu, pfn, order, false),
            (Err(_), Ok(pfn)) => self.give_one(1, cpu, pfn, order, false),
            (Err(_), Err(_)) => Ok(()),
        }
    }

    pub fn bulk(&mut self, cpu: CpuId, frames: usize, migratetype: Migratetype) -> Checked {
        let mut ours = vec![Pfn::default(); frames];
        let got = self
            .ours
            .on(cpu)
            .alloc_bulk(Request::new(Order::ZERO, migratetype), &mut ours)
            .unwrap_or(0);
        ours.truncate(got);
        let mut slots = vec![None; frames];
        let mut filled = 0;
        // The kernel's stops where a list runs empty; callers call again.
        loop {
            let now = self.theirs.alloc_bulk(cpu, migratetype, AllocFlags::empty(), &mut slots);
            let now = now.or_else(|error| blame(1, error))?;
            if now == filled || now == frames {
                filled = now;
                break;
            }
            filled = now;
        }
        let mut theirs: Vec<Pfn> = slots.into_iter().flatten().collect();
        assert_eq!(theirs.len(), filled);
        for (engine, got) in [&ours, &theirs].into_iter().enumerate() {
            let least = (frames as u64).min(self.free().saturating_sub(self.reserves[engine]));
            if (got.len() as u64) < least {
                return blame(
                    engine,
                    format!(
                        "a bulk call for {frames} gave {} with {} free",
                        got.len(),
                        self.free()
                    ),
                );
            }
        }
        for (engine, got) in [&ours, &theirs].into_iter().enumerate() {
            got.iter()
                .try_for_each(|&pfn| self.used[engine].take(pfn, 1))
                .or_else(|what| blame(engine, what))?;
        }
        // With a watermark one may have gone closer to it than the other.
        while ours.len() > theirs.len() {
            let pfn = ours.pop().unwrap();
            self.give_one(0, cpu, pfn, Order::ZERO, false)?;
        }
        while theirs.len() > ours.len() {
            let pfn = theirs.pop().unwrap();
            self.give_one(1, cpu, pfn, Order::ZERO, false)?;
        }
        self.in_use += ours.len() as u64;
        self.live.extend(
            ours.into_iter().zip(theirs).map(|(a, b)| Live { order: Order::ZERO, at: [a, b] }),
        );
        Ok(())
    }
}
