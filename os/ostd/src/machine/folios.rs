//! Folios in address spaces: freehold-vm's `Vm` over the processor's page tables.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use freehold::Order;
use freehold_vm::{
    Access, Frame, IntervalNode, Mapping, PageTable, Space, SpaceId, TABLE_ENTRIES, Vm, VmError,
    Vpn,
};
use spin::Once;

use super::mmu::Hardware;
use super::probe::{PageFault, probe_read, probe_write};
use super::spaces::{MAX_SPACES, USER};
use super::tables::{address, words};
use super::{cpu, zone};

/// Tables of an address space: 16 MiB.
const TABLES: u64 = 8;
/// Pages of an address space.
pub(crate) const PAGES: u64 = TABLES * TABLE_ENTRIES;
const MAPPINGS: usize = 4096;

/// Room for `n` values, for good.
fn slice_of<T>(n: usize, init: impl FnMut(usize) -> T) -> &'static mut [T] {
    (0..n).map(init).collect::<Vec<_>>().leak()
}

/// All folios.
pub(crate) fn vm() -> &'static Vm<'static, Hardware> {
    static VM: Once<Vm<'static, Hardware>> = Once::new();
    VM.call_once(|| {
        let frames = slice_of(zone::FRAMES as usize, |_| Frame::new());
        let mappings = slice_of(MAPPINGS, |_| Mapping::new());
        let spaces = slice_of(MAX_SPACES, |i| {
            let tables = slice_of(TABLES as usize, |_| PageTable::new());
            let vmas = slice_of(64, |_| IntervalNode::new());
            Space::new(SpaceId::new(i as u16), USER, tables, vmas)
        });
        Vm::new(Hardware, zone::first(), frames, mappings, spaces)
    })
}

/// A page of an address space, by number.
pub(crate) const fn page(i: u64) -> Vpn {
    Vpn::new(USER.get() + i)
}

/// Writes the first word of a page as a program does: through the page tables that are loaded. A
/// page that is not there gets a fresh one, of zeros. Returns how many faults it took, and whether
/// the page had to be made.
pub(crate) fn write(space: SpaceId, vpn: Vpn, value: u64) -> Result<(u32, bool), VmError> {
    let (mut faults, mut made) = (0, false);
    // SAFETY: where the spaces have their folios there are only folios' frames, which are used as
    // shared words.
    while let Err(fault) = unsafe { probe_write(address(vpn), value) } {
        faults += 1;
        made |= resolve(space, vpn, fault)?;
    }
    Ok((faults, made))
}

/// Reads the first word of a page; `None` where there is no page. Returns how many faults it took,
/// too.
pub(crate) fn read(space: SpaceId, vpn: Vpn) -> Result<(Option<u64>, u32), VmError> {
    let mut faults = 0;
    loop {
        // SAFETY: as in `write`.
        match unsafe { probe_read(address(vpn)) } {
            Ok(value) => return Ok((Some(value), faults)),
            Err(_) if vm().settled(space, vpn)?.is_present() => faults += 1,
            Err(_) => return Ok((None, faults + 1)),
        }
    }
}

/// What a page-fault handler does: `true` where it made a page.
fn resolve(space: SpaceId, vpn: Vpn, fault: PageFault) -> Result<bool, VmError> {
    // Reclaim may have had the entry in its hand just then.
    let entry = vm().settled(space, vpn)?;
    if entry.is_present() && (entry.is_writable() || !fault.is_write()) {
        return Ok(false);
    }
    let frames = cpu::frames();
    let folio = vm().folio_alloc(frames, Order::ZERO)?;
    // Relaxed: the entry publishes it.
    words(folio.pfn()).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    let mapped = vm().map(folio, (0, 1), space, vpn, Access::ReadWrite);
    vm().put(frames, folio.pfn())?;
    match mapped {
        Ok(()) => Ok(true),
        // Somebody else was first.
        Err(VmError::Occupied { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
