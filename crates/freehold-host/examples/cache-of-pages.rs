//! A cache whose entries may vanish: each is a folio of 64 KiB that reclaim may take, unless it was
//! written to since it was last called free.
//! `cargo run --release -p freehold-host --example cache-of-pages`
use std::sync::atomic::Ordering::Relaxed;

use freehold_host::freehold::Order;
use freehold_host::freehold_vm::{Access, VpnRange};
use freehold_host::{HostVm, Stored};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
const SPACE: freehold_host::freehold_vm::SpaceId = HostVm::SPACE;
const ENTRIES: u64 = 100;

/// Entries that are kept, that are gone, and that were written to in time.
pub(crate) fn run() -> Result<(u64, u64, u64), Failure> {
    let host = HostVm::new(ENTRIES << 16)?;
    let (vm, frames) = (host.vm(), host.frames());
    let pages = |entry: u64| host.pages(entry * 16, 16).unwrap_or_default();
    let word = |pages: VpnRange| vm.mmu().words(SPACE, pages.start).map(|words| &words[0]);
    for entry in 0..ENTRIES {
        vm.map_new(
            &frames,
            SPACE,
            pages(entry).start,
            Order::new(4).unwrap_or(Order::ZERO),
            Access::ReadWrite,
        )?;
        word(pages(entry)).ok_or("no such page")?.store(entry + 1, Relaxed);
    }
    // Half of them are needed no more; but one of those is written to after all.
    (0..ENTRIES / 2)
        .try_for_each(|entry| vm.madvise_free(&frames, SPACE, pages(entry)).map(drop))?;
    word(pages(7)).ok_or("no such page")?.store(77, Relaxed);
    let written = u64::from(vm.mmu().stored(SPACE, pages(7).start) == Stored::Kept);
    // Memory is short.
    vm.madvise_pageout(&frames, SPACE, host.pages(0, ENTRIES * 16).ok_or("no such pages")?)?;
    let kept = (0..ENTRIES)
        .filter(|&entry| word(pages(entry)).is_some_and(|word| word.load(Relaxed) != 0))
        .count() as u64;
    println!("{kept} of {ENTRIES} entries kept, {} frames free", host.free_frames());
    Ok((kept, ENTRIES - kept, written))
}

fn main() -> Result<(), Failure> {
    run().map(drop)
}
