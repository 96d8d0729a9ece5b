//! Ranges by their place, isolation, memory and CPUs that come and go.

use freehold::{CpuId, FrameRange, HotplugError, Order, Pfn};

use super::Case;
use super::table::State;
use crate::machine::range;

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
            && self.table.all(part, State::Free)
            && !self.table.has_isolated(part);
        match self.fh.alloc_contig_range(part, |_| false) {
            Ok(()) if is_free => self.keep("alloc_contig_range", part),
            Ok(()) => Err(format!("alloc_contig_range got {part}, which is not free")),
            Err(error) => {
                self.counts.searched += 1;
                if is_free { Err(format!("alloc_contig_range of {part}: {error}")) } else { Ok(()) }
            }
        }
    }

    pub(super) fn alloc_contig_free(&mut self) -> Result<(), String> {
        let most = self.random.pick(&[40, 600, 3000]);
        let count = 1 + self.random.below(most);
        let align = Order::new(self.random.below(11) as u8).unwrap_or(Order::ZERO);
        let anywhere = FrameRange { start: Pfn::new(0), end: Pfn::new(u64::MAX) };
        match self.fh.alloc_contig_free(count, align, anywhere) {
            Ok(found) if found.len() == count && found.start.is_aligned(align) => {
                self.keep("alloc_contig_free", found)
            }
            Ok(found) => Err(format!("alloc_contig_free of {count} is {found}")),
            Err(error) => {
                self.counts.searched += 1;
                let free = self.table.run(count, align);
                free.map_or(Ok(()), |start| {
                    Err(format!("alloc_contig_free of {count}: {error}, and {start:#x} is free"))
                })
            }
        }
    }

    /// Isolation lasts until this is drawn again; what is free there may be taken before it ends.
    pub(super) fn isolate_or_restore(&mut self) -> Result<(), String> {
        let Some(isolated) = self.table.isolated() else {
            let part = self.some_blocks();
            if self.fh.isolate(part).is_ok() {
                self.table.isolate(part, true);
            }
            return Ok(());
        };
        if self.random.percent(40) {
            for start in (isolated.start.get()..isolated.end.get()).step_by(512) {
                self.take_free(start)?;
            }
        }
        self.fh.restore(isolated);
        self.table.isolate(isolated, false);
        Ok(())
    }

    fn take_free(&mut self, start: u64) -> Result<(), String> {
        let taken = self.fh.take_free(range(start, 512));
        let taken = taken.map_err(|error| format!("take_free of {start:#x}: {error}"))?;
        for n in 0..512 {
            let pfn = start + n;
            let got = taken[n as usize / 64] >> (n % 64) & 1 == 1;
            if got != self.table.is_free(pfn) {
                return Err(format!("take_free of {start:#x}: {pfn:#x} taken: {got}"));
            }
            if got {
                self.keep("take_free", range(pfn, 1))?;
            }
        }
        Ok(())
    }

    pub(super) fn change_memory(&mut self) -> Result<(), String> {
        let part = self.some_blocks();
        if !self.is_within(part) {
            return Ok(());
        }
        if self.table.all(part, State::Free) && !self.table.has_isolated(part) {
            return match self.fh.remove_memory(part) {
                Ok(()) => {
                    self.table.set(part, State::Absent);
                    self.table.is_no_cma(part);
                    Ok(())
                }
                Err(HotplugError::NoRoom) => Ok(()),
                Err(error) => Err(format!("remove_memory of {part}, which is free: {error}")),
            };
        }
        if !self.table.all(part, State::Absent) {
            return match self.fh.remove_memory(part) {
                Ok(()) => Err(format!("remove_memory of {part}, which is not free")),
                Err(_) => Ok(()),
            };
        }
        let in_use = self.random.percent(50);
        let added = if in_use { self.fh.add_memory_in_use(part) } else { self.fh.add_memory(part) };
        match added {
            Ok(()) if in_use => {
                self.table.set(part, State::Used);
                self.held.push(part);
            }
            Ok(()) => self.table.set(part, State::Free),
            Err(HotplugError::NoRoom) => {}
            Err(error) => return Err(format!("add_memory of {part}: {error}")),
        }
        Ok(())
    }

    /// Any CPU but the first goes, or comes back.
    pub(super) fn change_cpu(&mut self) -> Result<(), String> {
        let (cpu, is_online) = (CpuId::new(self.cpu), self.is_online());
        if self.cpu == 0 {
            return Ok(());
        }
        if is_online {
            self.online[usize::from(self.cpu)] = self.fh.cpu_offline(cpu).is_err();
            return Ok(());
        }
        self.fh.cpu_online(cpu).map_err(|error| format!("cpu_online: {error}"))?;
        self.online[usize::from(self.cpu)] = true;
        Ok(())
    }
}
