//! Areas by plain `mmap` and `munmap`: what a program does that has no allocator of pages.
//!
//! Huge mappings are not asked for, and zeroed pages need nothing: all pages that the system gives are zero.

use std::os::fd::OwnedFd;

use freehold::CpuId;

use super::areas::{Areas, Failed, Kernel, Shape, Thread};
use super::raw::{self, Mapping, PAGE};

/// Nothing: the system has it all.
pub(super) struct Mapped;

impl Areas for Mapped {
    type Area = Mapping;
    type Thread<'a> = MappedThread;

    fn thread(&self, _: CpuId) -> Result<MappedThread, String> {
        Ok(MappedThread { ram: None })
    }

    fn set_kernel(&self, _: Kernel) -> bool {
        false
    }

    fn drain(&self) {}

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn is_memory(&self) -> bool {
        true
    }
}

pub(super) struct MappedThread {
    ram: Option<(OwnedFd, usize)>,
}

impl Thread for MappedThread {
    type Area = Mapping;

    fn vmalloc(&mut self, shape: Shape) -> Result<Mapping, Failed> {
        Ok(Mapping::aligned(shape.pages as usize * PAGE, shape.align as usize * PAGE)?)
    }

    fn vfree(&mut self, area: Mapping) -> Result<(), Failed> {
        drop(area);
        Ok(())
    }

    fn vfree_many(&mut self, areas: &mut Vec<Mapping>) -> Result<(), Failed> {
        areas.clear();
        Ok(())
    }

    fn write(&mut self, area: &Mapping) {
        area.write(0);
    }

    fn prepare_ram(&mut self, pages: u64) -> Result<(), Failed> {
        let len = pages as usize * PAGE;
        self.ram = Some((raw::file(len)?, len));
        Ok(())
    }

    fn map_ram(&mut self) -> Result<Mapping, Failed> {
        let (file, len) = self.ram.as_ref().ok_or(Failed::Abandoned)?;
        Ok(Mapping::of(file, *len)?)
    }

    fn unmap_ram(&mut self, area: Mapping) -> Result<(), Failed> {
        drop(area);
        Ok(())
    }

    fn done_with_ram(&mut self) -> Result<(), Failed> {
        self.ram = None;
        Ok(())
    }
}
