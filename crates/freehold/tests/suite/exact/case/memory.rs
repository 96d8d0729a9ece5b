//! Ranges by their place, isolation, memory and CPUs that come and go, looks.

use freehold::{AllocError, AllocFlags, CpuId, FrameRange, HotplugError, Order, Pfn};

use super::table::State;
use super::{Books, Case};
use crate::exact::bounds::{blocks, door, free};
use crate::exact::handle::Handle;
use crate::exact::machine::range;

impl Case {
    /// Some blocks of a zone.
    fn some_blocks(&mut self) -> FrameRange {
        let span = self.random.pick(&self.spans);
        let first = self.random.below(span.len() / 512);
        range(span.start.get() + first * 512, (1 + self.random.below(3)) * 512)
    }

    /// Whether a range is within one zone.
    fn is_within(&self, part: FrameRange) -> bool {
        self.spans.iter().any(|span| span.start <= part.start && part.end <= span.end)
    }

    pub(super) fn alloc_contig_range(&mut self) -> Result<(), String> {
        let span = self.random.pick(&self.spans);
        let start = span.start.get() + self.random.below(span.len());
        let most = self.random.pick(&[40, 600, 3000]);
        let part = range(start, 1 + self.random.below(most));
        let is_free = self.is_within(part)
            && self.books.table_ref().is_some_and(|table| table.is_ready(part));
        let (fh, waits) = (self.fh, self.waits());
        let contig = |_: &Handle| fh.alloc_contig_range(part, waits);
        match self.call(blocks("alloc_contig_range", 2), contig)? {
            Ok(()) => self.keep("alloc_contig_range", part),
            Err(error) => {
                self.counts.searched += 1;
                if is_free { Err(format!("alloc_contig_range of {part}: {error}")) } else { Ok(()) }
            }
        }
    }

    /// What to do about a frame in use: nothing can be moved here, but beside others its owner may
    /// free it meanwhile. Not a turn for each run: of 1,500 frames there are 750, five times.
    fn waits(&mut self) -> impl FnMut(FrameRange) -> bool + use<> {
        let is_patient = self.books.table_ref().is_none() && self.random.percent(50);
        let mut turn = 0_u32;
        move |_| {
            turn = (turn + 1) % 256;
            if is_patient && turn == 1 {
                std::thread::yield_now();
            }
            is_patient
        }
    }

    pub(super) fn alloc_contig(&mut self) -> Result<(), String> {
        let most = self.random.pick(&[40, 600, 3000]);
        let count = 1 + self.random.below(most);
        let align = Order::new(self.random.below(11) as u8).unwrap_or(Order::ZERO);
        let anywhere = FrameRange { start: Pfn::new(0), end: Pfn::new(u64::MAX) };
        let (fh, waits) = (self.fh, self.waits());
        let found = if self.random.percent(50) {
            let free = |_: &Handle| fh.alloc_contig_free(count, align, anywhere);
            self.call(blocks("alloc_contig_free", 3), free)?
        } else {
            fh.alloc_contig(count, align, anywhere, waits)
        };
        match (found, self.books.table_ref()) {
            (Ok(found), _) if found.len() == count && found.start.is_aligned(align) => {
                self.keep("alloc_contig", found)
            }
            (Ok(found), _) => Err(format!("alloc_contig of {count} is {found}")),
            (Err(error), Some(table)) => {
                self.counts.searched += 1;
                table.run(count, align).map_or(Ok(()), |start| {
                    Err(format!("alloc_contig of {count}: {error}, and {start:#x} is free"))
                })
            }
            (Err(AllocError::NoRange { .. }), None) => Ok(()),
            (Err(error), None) => Err(format!("alloc_contig of {count}: {error}")),
        }
    }

    /// Isolation lasts until this is drawn again, beside others for a moment; what is free there
    /// may be taken before it ends.
    pub(super) fn isolate_or_restore(&mut self) -> Result<(), String> {
        if let Some(isolated) = self.books.table_ref().and_then(super::table::Table::isolated) {
            return self.end_isolation(isolated);
        }
        let (fh, part) = (self.fh, self.some_blocks());
        let isolated = self.call(blocks("isolate", 2), |_| fh.isolate(part))?.is_ok();
        match &mut self.books {
            Books::Table(table) if isolated => table.isolate(part, true),
            Books::Share(_) if isolated => return self.end_isolation(part),
            _ => {}
        }
        Ok(())
    }

    fn end_isolation(&mut self, isolated: FrameRange) -> Result<(), String> {
        if self.random.percent(40) {
            for start in (isolated.start.get()..isolated.end.get()).step_by(512) {
                self.take_free(start)?;
            }
        }
        self.restore(isolated);
        Ok(())
    }

    fn restore(&mut self, isolated: FrameRange) {
        self.fh.restore(isolated);
        if let Books::Table(table) = &mut self.books {
            table.isolate(isolated, false);
        }
    }

    /// Ends all isolation that lasts.
    pub(super) fn restore_all(&mut self) {
        while let Some(part) = self.books.table_ref().and_then(super::table::Table::isolated) {
            self.restore(part);
        }
    }

    fn take_free(&mut self, start: u64) -> Result<(), String> {
        let fh = self.fh;
        let taken = self.call(blocks("take_free", 2), |_| fh.take_free(range(start, 512)))?;
        let taken = taken.map_err(|error| format!("take_free of {start:#x}: {error}"))?;
        for n in 0..512 {
            let pfn = start + n;
            let got = taken[n as usize / 64] >> (n % 64) & 1 == 1;
            if self.books.table_ref().is_some_and(|table| got != table.is_free(pfn)) {
                return Err(format!("take_free of {start:#x}: {pfn:#x} taken: {got}"));
            }
            if got {
                self.keep("take_free", range(pfn, 1))?;
            }
        }
        Ok(())
    }

    /// Blocks that are all free go, and such as are away come back.
    pub(super) fn change_memory(&mut self) -> Result<(), String> {
        let part = self.some_blocks();
        if !self.is_within(part) {
            return Ok(());
        }
        let table = match &self.books {
            Books::Table(table) => table,
            Books::Share(share) if share.plugs => return self.remove_and_add(part),
            Books::Share(_) => return self.share(),
        };
        let (is_ready, is_away) = (table.is_ready(part), table.all(part, State::Absent));
        if is_away {
            return self.add(part);
        }
        match self.remove(part)? {
            Ok(()) if is_ready => {
                let Books::Table(table) = &mut self.books else { return Ok(()) };
                table.set(part, State::Absent);
                table.is_no_cma(part);
                Ok(())
            }
            Ok(()) => Err(format!("remove_memory of {part}, which is not free")),
            Err(error) if is_ready && error != HotplugError::NoRoom => {
                Err(format!("remove_memory of {part}, which is free: {error}"))
            }
            Err(_) => Ok(()),
        }
    }

    /// Marks of up to a 16th of a zone each, or none; at times some that do not rise.
    pub(crate) fn set_watermarks(&mut self) -> Result<(), String> {
        let zone = self.random.below(self.spans.len() as u64) as usize;
        let frames = self.fh.zone_stats(zone).map_or(0, |stats| stats.managed);
        let most = frames / 16 * u64::from(self.random.percent(60));
        let [a, b, c] = [0; 3].map(|_: u64| self.random.below(most));
        let fh = self.fh;
        if fh.set_watermarks(zone, a + b + c + 1, a + b, a).is_ok() {
            return Err("marks that do not rise were set".to_owned());
        }
        let set = |_: &Handle| fh.set_watermarks(zone, a, a + b, a + b + c);
        self.call(door("set_watermarks", 0, 0), set)?.map_err(|error| error.to_string())
    }

    fn remove(&mut self, part: FrameRange) -> Result<Result<(), HotplugError>, String> {
        let (fh, owners) = (self.fh, self.owners_that_move(part, part.len()));
        self.call(blocks("remove_memory", 3 + owners), |_| fh.remove_memory(part))
    }

    /// Owners whose requests go to another zone first once `part` has gone or come: where it is all
    /// that its zone manages, or the zone manages nothing yet.
    fn owners_that_move(&self, part: FrameRange, managed: u64) -> u64 {
        let Books::Table(_) = &self.books else { return self.online.len() as u64 };
        let zone = self.spans.iter().position(|span| span.contains(part.start));
        let stats = zone.and_then(|zone| self.fh.zone_stats(zone));
        let moves = stats.is_some_and(|stats| stats.managed == managed);
        u64::from(moves && self.handle.owned().is_some())
    }

    /// Memory comes back free, or in use.
    fn add(&mut self, part: FrameRange) -> Result<(), String> {
        let (fh, in_use) = (self.fh, self.random.percent(50));
        let owners = self.owners_that_move(part, 0);
        match &self.books {
            Books::Share(share) if in_use => share.ledger.take(part, share.who),
            _ => {}
        }
        let added = loop {
            let added = self.call(door("add_memory", owners, owners), |_| match in_use {
                true => fh.add_memory_in_use(part),
                false => fh.add_memory(part),
            })?;
            match (&added, &self.books) {
                // Somebody isolates its neighbours just now.
                (Err(HotplugError::Busy { .. }), Books::Share(_)) => std::thread::yield_now(),
                _ => break added,
            }
        };
        match (added, &mut self.books) {
            (Ok(()), Books::Table(table)) => {
                table.set(part, if in_use { State::Used } else { State::Free });
            }
            (Ok(()), Books::Share(_)) => {}
            (Err(HotplugError::NoRoom), Books::Table(_)) => return Ok(()),
            (Err(error), _) => return Err(format!("add_memory of {part}: {error}")),
        }
        self.held.extend(in_use.then_some(part));
        Ok(())
    }

    /// Beside others memory is away for a moment.
    fn remove_and_add(&mut self, part: FrameRange) -> Result<(), String> {
        match self.remove(part)? {
            Ok(()) => self.add(part),
            // In use, or in pieces.
            Err(HotplugError::Busy { .. } | HotplugError::Absent { .. } | HotplugError::NoRoom) => {
                Ok(())
            }
            Err(error) => Err(format!("remove_memory of {part}: {error}")),
        }
    }

    /// Any CPU but the first goes, or comes back.
    pub(super) fn change_cpu(&mut self) -> Result<(), String> {
        let (fh, cpu) = (self.fh, self.handle.cpu());
        if matches!(&self.books, Books::Share(share) if !share.plugs) {
            return self.share();
        }
        if cpu.get() == 0 {
            return Ok(());
        }
        self.handle = Handle::On(fh.on(cpu));
        if !self.online[cpu.index()] {
            return self.bring_back(cpu);
        }
        let gone = self.call(door("cpu_offline", 1, 1), |_| fh.on(cpu).offline())?;
        self.online[cpu.index()] = gone.is_err();
        match gone {
            Err(AllocError::CpuOwned { .. }) if self.books.table_ref().is_none() => Ok(()),
            result => result.map_err(|error| format!("cpu_offline: {error}")),
        }
    }

    fn bring_back(&mut self, cpu: CpuId) -> Result<(), String> {
        let fh = self.fh;
        let back = self.call(door("cpu_online", 1, 1), |_| fh.on(cpu).online())?;
        self.online[cpu.index()] = true;
        back.map_err(|error| format!("cpu_online: {error}"))
    }

    /// All CPUs that this thread has taken away.
    pub(crate) fn bring_all_back(&mut self) -> Result<(), String> {
        let away: Vec<usize> = (0..self.online.len()).filter(|&cpu| !self.online[cpu]).collect();
        away.into_iter().try_for_each(|cpu| self.bring_back(CpuId::new(cpu as u16)))
    }

    /// What can be asked without changing anything. Beside others little of it is sure.
    pub(super) fn look(&mut self) -> Result<(), String> {
        let (fh, cpu) = (self.fh, self.handle.cpu());
        let zone = self.random.below(self.spans.len() as u64) as usize;
        let own = self.held.first().map(|range| range.start);
        let home = own.map(|pfn| self.spans.iter().position(|span| span.contains(pfn)));
        let frames = self.spans[zone].len();
        self.call(free("a look"), |_| {
            let _ = (fh.may_have_free(zone, Order::ZERO, AllocFlags::CMA), fh.totals());
            let stats = fh.zone_stats(zone).ok_or("no statistics of a zone")?;
            let right = [
                stats.managed <= frames,
                fh.pageblocks(zone).all(|block| block.free <= block.frames),
                own.map(|pfn| fh.zone_of(pfn)) == home,
                own.and_then(|pfn| fh.pageblock(pfn)?.holder)
                    .is_none_or(|cpu| cpu.index() < fh.cpu_count()),
                fh.on(cpu).stats().is_some() && fh.on(cpu).holdings().is_some(),
                fh.reserve(zone).is_some(),
            ];
            let wrong = right.iter().position(|is_right| !is_right);
            wrong.map_or(Ok(()), |n| Err(format!("look {n} is wrong")))
        })?
    }
}
