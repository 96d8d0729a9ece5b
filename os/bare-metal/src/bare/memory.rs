//! From the memory map to a running allocator, and the kernel's own page tables.
//!
//! ```text
//!   RAM of the memory map
//!     - frame 0, the trampoline's page, the kernel's image
//!     - reserved: page tables of the kernel's half (the direct map's, the image's), freehold's metadata
//!     = all the rest is freehold's, in the zones DMA, DMA32 and Normal
//! ```
//!
//! There is no other allocator, not even an early one: what is reserved stays so.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{
    Config, FRAME_SIZE, FrameRange, Freehold, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn, Request,
    ZoneConfig,
};
use freehold_kernel::memory_map::{MemoryMap, ZONES};
use freehold_kernel::paging::{NO_EXECUTE, index, page_of};
use freehold_vm::{Entry, Vpn};
use spin::Once;

use crate::boot::TRAMPOLINE;
use crate::layout::{BOOT_MAPPED, KERNEL_BASE, VMALLOC, direct, words};
use crate::platform::Machine;
use crate::start_info::StartInfo;
use crate::{apic, cpu, say, tables, tlb};

static FREEHOLD: Once<Freehold<'static, Machine>> = Once::new();
/// The kernel's level 4 table.
static ROOT: AtomicU64 = AtomicU64::new(0);
/// The frame behind the last one there is.
static END: AtomicU64 = AtomicU64::new(0);
/// One that other CPUs start with: as the kernel's, and the first memory where it is.
static START_ROOT: AtomicU64 = AtomicU64::new(0);

const READ: u64 = 1;
const WRITE: u64 = 1 << 1;

unsafe extern "C" {
    static text_start: u8;
    static text_end: u8;
    static rodata_end: u8;
    static kernel_end: u8;
    static kernel_physical_start_address: u64;
    static boot_pml4_address: u64;
}

/// The only allocator.
pub(crate) fn freehold() -> &'static Freehold<'static, Machine> {
    FREEHOLD.get().expect("made at boot")
}

/// The only allocator, where it is there already.
pub(crate) fn try_freehold() -> Option<&'static Freehold<'static, Machine>> {
    FREEHOLD.get()
}

/// The frame behind the last one there is.
pub(crate) fn end() -> Pfn {
    // Relaxed: set before other CPUs start.
    Pfn::new(END.load(Ordering::Relaxed))
}

/// The kernel's page tables.
pub(crate) fn root() -> Pfn {
    // Relaxed: set before other CPUs start.
    Pfn::new(ROOT.load(Ordering::Relaxed))
}

/// The page tables that other CPUs start with: below 4 GiB.
pub(crate) fn start_root() -> Pfn {
    // Relaxed: as in `root`.
    Pfn::new(START_ROOT.load(Ordering::Relaxed))
}

fn reserve(map: &mut MemoryMap, frames: u64) -> FrameRange {
    // What the boot code's page tables show.
    let limit = Pfn::new(BOOT_MAPPED / FRAME_SIZE);
    map.reserve(frames, limit)
        .unwrap_or_else(|| panic!("no {frames} neighbouring frames in the memory map"))
}

/// Makes the kernel's page tables in frames of the map, changes to them, then makes the allocator
/// of what is left. The first CPU, once.
pub(crate) fn init(info: &StartInfo, cpus: usize) {
    let built = MemoryMap::from_firmware(info.pieces().iter().copied());
    let mut map = built.unwrap_or_else(|error| panic!("{error}"));
    let ram = map.frames();
    // SAFETY: written by the linker, never changed.
    let image_start = unsafe { kernel_physical_start_address };
    let image_end = &raw const kernel_end as u64 - KERNEL_BASE;
    for (start, end) in
        [(0, FRAME_SIZE), (TRAMPOLINE, TRAMPOLINE + FRAME_SIZE), (image_start, image_end)]
    {
        map.take_bytes(start, end).unwrap_or_else(|error| panic!("{error}"));
    }
    END.store(map.end().get(), Ordering::Relaxed);
    let end = map.end().get() * FRAME_SIZE;
    let tables = make_tables(&mut map, end.max(BOOT_MAPPED));

    let zones = ZONES.map(|zone| map.zone(zone));
    let mut configs = [ZoneConfig::new(&[]); ZONES.len()];
    let mut n = 0;
    for zone in zones.iter().filter(|zone| zone.frames() > 0) {
        configs[n] = ZoneConfig::new(zone.ranges());
        n += 1;
    }
    // The zones are measured before the metadata is reserved, and after: it can only become less.
    let config = Config { online: 1, ..Config::new(cpus as u16, &configs[..n]) };
    let size =
        Freehold::<Machine>::metadata_size(&config).unwrap_or_else(|error| panic!("{error}"));
    let metadata = reserve(&mut map, (size as u64).div_ceil(FRAME_SIZE));

    let zones = ZONES.map(|zone| map.zone(zone));
    let mut configs = [ZoneConfig::new(&[]); ZONES.len()];
    let mut names = [""; ZONES.len()];
    let mut n = 0;
    for (zone, span) in zones.iter().zip(ZONES).filter(|(zone, _)| zone.frames() > 0) {
        (configs[n], names[n]) = (ZoneConfig::new(zone.ranges()), span.name);
        n += 1;
    }
    let config = Config { online: 1, ..Config::new(cpus as u16, &configs[..n]) };
    let at = direct(metadata.start.get() * FRAME_SIZE) as *mut MaybeUninit<u8>;
    // SAFETY: RAM that was reserved for this, seen in the direct map for good; nobody else has it.
    let region =
        unsafe { core::slice::from_raw_parts_mut(at, (metadata.len() * FRAME_SIZE) as usize) };
    let freehold =
        Freehold::new(&config, region, Machine).unwrap_or_else(|error| panic!("{error}"));
    let freehold = FREEHOLD.call_once(|| freehold);

    say!(
        "memory: {} KiB of RAM; kernel image {} KiB at {image_start:#x}",
        ram * 4,
        (image_end - image_start) / 1024
    );
    say!(
        "  reserved: {} KiB of page tables, {} KiB of freehold's metadata",
        tables * 4,
        metadata.len() * 4
    );
    for (z, name) in names[..n].iter().enumerate() {
        let Some(stats) = freehold.zone_stats(z) else { continue };
        let blocks = stats.managed / PAGEBLOCK_FRAMES;
        let marks = stats.watermarks;
        say!(
            "  zone {name:6} {} frames ({} MiB, {blocks} pageblocks), watermarks {marks:?}",
            stats.managed,
            stats.managed >> 8
        );
    }
}

/// The kernel's half of the address space; returns how many frames it took.
fn make_tables(map: &mut MemoryMap, direct_end: u64) -> u64 {
    let mut taken = 0;
    let mut table = |map: &mut MemoryMap| {
        taken += 1;
        let pfn = reserve(map, 1).start;
        tables::clear(pfn);
        pfn
    };
    let root = table(map);
    let mut entry = |map: &mut MemoryMap, vpn: Vpn, level: u32| {
        tables::walk_or_make(root, vpn, level, || Some(table(map)), |_| {})
            .unwrap_or_else(|error| panic!("{error}"))
    };
    // Relaxed throughout: nobody walks these tables yet; loading CR3 orders it all.
    // The direct map. The local APIC's registers are not memory.
    for physical in (0..direct_end).step_by(2 << 20) {
        let uncached = if physical == apic::PHYSICAL & !0x1f_ffff { tables::UNCACHED } else { 0 };
        let bits = physical | READ | WRITE | Entry::HUGE.bits() | NO_EXECUTE | uncached;
        entry(map, page_of(direct(physical)), 2).store(bits, Ordering::Relaxed);
    }
    // The image, with the rights of its parts.
    let [text, rodata, data, end] =
        [&raw const text_start, &raw const text_end, &raw const rodata_end, &raw const kernel_end]
            .map(|s| s as u64);
    for (from, to, rights) in [
        (text, rodata, READ),
        (rodata, data, READ | NO_EXECUTE),
        (data, end, READ | WRITE | NO_EXECUTE),
    ] {
        for address in (from..to).step_by(FRAME_SIZE as usize) {
            entry(map, page_of(address), 1)
                .store((address - KERNEL_BASE) | rights, Ordering::Relaxed);
        }
    }
    // A level 3 table for virtual areas, which every address space will point to.
    entry(map, VMALLOC.start, 3);

    // For other CPUs: the same, and the first memory where it is.
    let start = table(map);
    // SAFETY: written by the linker, never changed.
    let boot = unsafe { boot_pml4_address } / FRAME_SIZE;
    for i in 0..freehold_kernel::paging::ENTRIES {
        let from = if i == index(Vpn::new(0), 4) { Pfn::new(boot) } else { root };
        words(start)[i].store(words(from)[i].load(Ordering::Relaxed), Ordering::Relaxed);
    }
    ROOT.store(root.get(), Ordering::Relaxed);
    START_ROOT.store(start.get(), Ordering::Relaxed);
    // SAFETY: the new tables show the image and the direct map as the boot code's do, so that what
    // runs goes on.
    unsafe { tlb::load(root.get() * FRAME_SIZE) };
    taken
}

/// Room for `n` values, made by `init`, in frames of the allocator's. Never given back.
///
/// # Panics
///
/// Where there are no neighbouring frames for them.
pub(crate) fn slice_of<T>(n: usize, mut init: impl FnMut(usize) -> T) -> &'static mut [T] {
    const { assert!(align_of::<T>() <= FRAME_SIZE as usize) };
    let frames = ((n * size_of::<T>()) as u64).div_ceil(FRAME_SIZE).next_power_of_two();
    let order = Order::fitting(frames).unwrap_or(Order::ZERO);
    let pfn = cpu::frames().alloc(Request::new(order, Migratetype::Unmovable));
    let pfn = pfn.unwrap_or_else(|error| panic!("no room for {n} records: {error}"));
    let first = direct(pfn.get() * FRAME_SIZE) as *mut T;
    // SAFETY: the frames were just allocated, so they are nobody else's; they have room for `n`
    // values, aligned to a frame; each is written before the slice is made. The direct map stays.
    unsafe {
        for i in 0..n {
            first.add(i).write(init(i));
        }
        core::slice::from_raw_parts_mut(first, n)
    }
}
