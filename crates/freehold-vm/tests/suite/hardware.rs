//! An [`Mmu`] that keeps the entries elsewhere, as hardware does, and whose CPU sets young and
//! dirty bits behind everybody's back: the mechanisms must go through the trait alone. The software
//! entries stay empty throughout.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::common::*;
use freehold_vm::{Access, Entry, Flush, MapError, Mmu, Slots, SpaceId, UnmapPath, Vm, VmError};

const SPACE: SpaceId = SpaceId::new(0);
const PAGES: usize = 1024;

/// Page tables that a CPU walks by itself.
struct Hardware {
    entries: Vec<AtomicU64>,
    shootdowns: AtomicU64,
}

impl Hardware {
    fn new() -> Self {
        Self {
            entries: (0..PAGES).map(|_| AtomicU64::new(0)).collect(),
            shootdowns: AtomicU64::new(0),
        }
    }

    fn at(&self, slots: Slots<'_>) -> &[AtomicU64] {
        let first = (slots.first().get() - BASE) as usize;
        &self.entries[first..first + slots.len() as usize]
    }

    /// What the CPU does by itself.
    fn cpu(&self, page: u64, write: bool) -> bool {
        let entry = &self.entries[page as usize];
        let now = Entry::from_bits(entry.load(SeqCst));
        if !now.is_present() || (write && !now.is_writable()) {
            return false;
        }
        let bits = if write { Entry::HARDWARE } else { Entry::YOUNG };
        entry.compare_exchange(now.bits(), now.with(bits).bits(), SeqCst, SeqCst).is_ok()
    }
}

impl Mmu for Hardware {
    fn flush(&self, _: &[Flush]) {
        self.shootdowns.fetch_add(1, SeqCst);
    }
    fn load(&self, slots: Slots<'_>) -> Entry {
        Entry::from_bits(self.at(slots)[0].load(SeqCst))
    }
    fn map_entries(&self, slots: Slots<'_>, first: Entry) -> Result<(), MapError> {
        self.restore(slots, first);
        Ok(())
    }
    fn restore(&self, slots: Slots<'_>, first: Entry) {
        for (i, entry) in self.at(slots).iter().enumerate() {
            assert_eq!(
                entry.swap(first.advance(i as u64).bits(), SeqCst),
                0,
                "an entry was overwritten"
            );
        }
    }
    fn get_and_clear(&self, slots: Slots<'_>) -> Entry {
        let all = self.at(slots).iter().map(|entry| Entry::from_bits(entry.swap(0, SeqCst)));
        all.reduce(|merged, entry| merged.with(entry.only(Entry::HARDWARE))).unwrap()
    }
    fn clear_bits(&self, slots: Slots<'_>, bits: Entry) -> Entry {
        let clear =
            |entry: &AtomicU64| Entry::from_bits(entry.fetch_and(!bits.bits(), SeqCst)).only(bits);
        self.at(slots).iter().map(clear).fold(Entry::NONE, Entry::with)
    }
    fn replace(&self, slots: Slots<'_>, old: Entry, new: Entry) -> Result<(), Entry> {
        let replaced = self.at(slots)[0].compare_exchange(old.bits(), new.bits(), SeqCst, SeqCst);
        replaced.map(|_| ()).map_err(Entry::from_bits)
    }
}

fn software_entries_are_unused(vm: &Vm<'_, Hardware>) {
    let space = vm.space(SPACE).unwrap();
    assert!((0..PAGES as u64).all(|page| space.entry_at(vpn(page)) == Entry::NONE));
}

#[test]
fn bits_that_hardware_sets_are_found() {
    for path in UnmapPath::ALL {
        let fh = frames(8, 1);
        let vm = vm(Hardware::new(), 8, 1, PAGES as u64, 64);
        vm.set_unmap_path(path);
        vm.add_vma(SPACE, pages(0, PAGES as u64), RW).unwrap();
        // Across a table's end, too.
        for page in [0, 100, 505] {
            vm.map_new(&fh, SPACE, vpn(page), order(4), Access::ReadWrite).unwrap();
        }
        let hardware = vm.mmu();
        assert!((0..16).all(|i| hardware.cpu(i, true)
            && hardware.cpu(100 + i, true)
            && hardware.cpu(505 + i, true)));
        assert_eq!(vm.madvise_free(&fh, SPACE, pages(0, PAGES as u64)), Ok(48));
        assert_eq!(hardware.shootdowns.load(SeqCst), 1, "one for all three, as they were dirty");
        // Written to behind everybody's back.
        assert!(hardware.cpu(100, true));
        assert_eq!(vm.madvise_pageout(&fh, SPACE, pages(0, PAGES as u64)), Ok(32));
        assert!(!hardware.cpu(0, false) && !hardware.cpu(510, false));
        assert!((0..16).all(|i| hardware.cpu(100 + i, true)), "all as before");
        assert_eq!(vm.stats().redirtied, 1);
        // Pins, protection, splitting go the same way.
        let pin = vm.pin(&fh, SPACE, vpn(101), true).unwrap();
        let folio = vm.folio_state(pin).unwrap().folio;
        vm.get(folio).unwrap();
        assert_eq!(vm.split(&fh, folio), Err(VmError::Busy { pfn: folio.pfn() }));
        vm.put(&fh, folio.pfn()).unwrap();
        vm.unpin(&fh, pin, true).unwrap();
        vm.protect(SPACE, pages(100, 8), Access::Read).unwrap();
        assert!(!hardware.cpu(100, true) && hardware.cpu(100, false) && hardware.cpu(108, true));
        software_entries_are_unused(&vm);
        assert_eq!(vm.unmap(&fh, SPACE, pages(0, PAGES as u64)), Ok(16));
        assert_all_free(&fh);
    }
}

/// Reclaim takes entries away and puts them back; a handler that looks in between must not believe
/// that they are gone.
#[test]
fn a_fault_handler_does_not_see_the_middle_of_reclaim() {
    let fh = frames(8, 1);
    let vm = vm(Hardware::new(), 8, 1, PAGES as u64, 64);
    vm.add_vma(SPACE, pages(0, PAGES as u64), RW).unwrap();
    vm.map_new(&fh, SPACE, vpn(32), order(5), Access::ReadWrite).unwrap();
    // A pin keeps the folio, however often reclaim takes its entries away to find that out.
    let pin = vm.pin(&fh, SPACE, vpn(40), true).unwrap();
    let rounds = 2_000;
    let done = std::sync::atomic::AtomicBool::new(false);
    let unsettled = std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                vm.madvise_free(&fh, SPACE, pages(0, 64)).unwrap();
                assert_eq!(vm.madvise_pageout(&fh, SPACE, pages(0, 64)), Ok(0));
            }
            done.store(true, SeqCst);
        });
        let mut unsettled = 0;
        while !done.load(SeqCst) {
            unsettled += u64::from(vm.mmu().entries[63].load(SeqCst) == 0);
            assert!(vm.settled(SPACE, vpn(63)).unwrap().is_present());
        }
        unsettled
    });
    eprintln!("the entry was away {unsettled} times without the lock, never with it");
    vm.unpin(&fh, pin, false).unwrap();
    assert!(vm.mmu().cpu(63, true));
    assert!(vm.settled(SPACE, vpn(63)).unwrap().has(Entry::HARDWARE));
    assert_eq!(vm.settled(SPACE, vpn(64)), Ok(Entry::NONE));
    assert!(matches!(vm.settled(SPACE, vpn(PAGES as u64)), Err(VmError::OutOfSpace { .. })));
    assert_eq!(vm.unmap(&fh, SPACE, pages(0, PAGES as u64)), Ok(32));
    assert_all_free(&fh);
}
