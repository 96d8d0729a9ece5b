use std::cell::RefCell;
use std::io::Write;
use std::time::Duration;

use freehold::{Config, Freehold, Pfn, SingleCpu, Watermarks, ZoneConfig};
use freehold_vm::{Frame, IntervalNode, Mapping, PageTable, Space, Vm, Vma};

use super::*;
use crate::userfault::Fault;

type Meanwhile = Box<dyn FnMut()>;

thread_local! {
    static MEANWHILE: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
}

/// Called when pages have been protected and have no entries yet.
pub(super) fn protected() {
    MEANWHILE.with_borrow_mut(|meanwhile| meanwhile.iter_mut().for_each(|meanwhile| meanwhile()));
}

fn leak<T>(n: usize, make: impl FnMut() -> T) -> &'static mut [T] {
    Vec::leak(std::iter::repeat_with(make).take(n).collect())
}

/// A write to a page that nothing is mapped at, of which the handler hears while a read-only folio
/// is being mapped there.
#[test]
fn a_late_write_does_not_take_the_protection_off_a_page_that_is_being_mapped_read_only() {
    let first = Vpn::new(512);
    let range = VpnRange::new(first, 512).unwrap();
    let mmu = match HostMmu::new(1, range) {
        Ok(mmu) => mmu,
        Err(error) => return drop(writeln!(std::io::stderr(), "SKIPPED a late write: {error}")),
    };
    let pages = Arc::clone(&mmu.pages);
    let space = SpaceId::new(0);
    let spaces = leak(1, || {
        Space::new(space, first, leak(1, PageTable::new), leak(4, IntervalNode::<Vma>::new))
    });
    let vm = Vm::new(mmu, Pfn::new(512), leak(512, Frame::new), leak(64, Mapping::new), spaces);
    let memory = [FrameRange::new(Pfn::new(512), 512).unwrap()];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    let frames = Freehold::leaked(&Config::new(1, &[zone]), SingleCpu).unwrap();
    vm.add_vma(space, range, Vma { access: Access::ReadWrite, droppable: false }).unwrap();

    let (handled, heard) = std::sync::mpsc::channel();
    MEANWHILE.set(Some(Box::new(move || {
        let (pages, handled) = (Arc::clone(&pages), handled.clone());
        std::thread::spawn(move || {
            let address = pages.bytes(7, 1).0.addr().get() as u64;
            super::faults::handle(&pages, Fault::at(address));
            handled.send(()).unwrap();
        });
        // It waits for the lock, which this thread has. Without, it is done long before this is
        // over.
        std::thread::sleep(Duration::from_millis(200));
    })));
    vm.map_new(&frames, space, first, Order::new(6).unwrap(), Access::Read).unwrap();
    MEANWHILE.set(None);
    heard.recv_timeout(Duration::from_secs(10)).unwrap();
    let stats = vm.mmu().stats();
    assert_eq!((stats.late_writes, stats.refused_writes), (0, 1), "the write was let through");
}
