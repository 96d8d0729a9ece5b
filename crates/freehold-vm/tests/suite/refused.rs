//! A machine that cannot take pages away: areas stay as they are, or wait for a purge, and nothing
//! is lost.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::common::*;
use freehold::{FrameRange, Order};
use freehold_vm::{
    Access, Flush, IntervalNode, Layout, MapError, Mmu, RunNode, SpaceId, Vmalloc, VmallocError,
    Vpn, VpnRange,
};

const LIMIT: MapError = MapError::Limit { limit: "mappings" };

#[derive(Default)]
struct Machine(Mutex<(BTreeMap<u64, u64>, bool, Option<u64>)>);

impl Machine {
    fn refuse(&self, flushes: bool, maps_left: Option<u64>) {
        let mut state = self.0.lock().unwrap();
        (state.1, state.2) = (flushes, maps_left);
    }
    fn mapped(&self) -> usize {
        self.0.lock().unwrap().0.len()
    }
}

impl Mmu for &Machine {
    fn map(
        &self,
        _: SpaceId,
        at: Vpn,
        frames: FrameRange,
        _: Access,
        _: Order,
    ) -> Result<(), MapError> {
        let mut state = self.0.lock().unwrap();
        if state.2 == Some(0) {
            return Err(LIMIT);
        }
        state.2 = state.2.map(|left| left - 1);
        for i in 0..frames.len() {
            assert!(state.0.insert(at.get() + i, frames.start.get() + i).is_none(), "mapped twice");
        }
        Ok(())
    }
    fn unmap(&self, _: SpaceId, _: VpnRange) {}
    fn flush(&self, batch: &[Flush]) {
        self.try_flush(batch).unwrap();
    }
    fn try_flush(&self, batch: &[Flush]) -> Result<(), MapError> {
        let mut state = self.0.lock().unwrap();
        if state.1 {
            return Err(LIMIT);
        }
        state.0.retain(|vpn, _| !batch.iter().any(|flush| flush.range.contains(Vpn::new(*vpn))));
        Ok(())
    }
}

fn areas(machine: &Machine) -> Vmalloc<'static, &Machine> {
    Vmalloc::new(
        machine,
        SpaceId::new(0),
        pages(0, 4096),
        leak(16, IntervalNode::new),
        leak(64, RunNode::new),
    )
}

#[test]
fn what_cannot_be_taken_away_stays_or_waits() {
    let machine = Machine::default();
    let fh = frames(1024, 1);
    let free = || fh.zone_stats(0).unwrap().free;
    let all = free();
    let vm = areas(&machine);
    let made: Vec<Vpn> = (0..3).map(|_| vm.vmalloc(&fh, Layout::pages(21)).unwrap()).collect();
    let refused = Err(VmallocError::Unmap(LIMIT));
    let shown = |area| {
        let mut runs = Vec::new();
        vm.for_each_run(area, |at, run| runs.push((at, run))).unwrap();
        runs.iter().map(|(_, run)| run.len()).sum::<u64>()
    };
    machine.refuse(true, None);
    assert_eq!(vm.vfree(&fh, made[0]), refused);
    assert_eq!(vm.vfree_many(&fh, &made), refused);
    made.iter().for_each(|&area| assert_eq!(shown(area), 21));
    assert_eq!((machine.mapped(), free()), (63, all - 63), "nothing has changed");

    // An area that cannot be made, nor taken apart again, waits for a purge with its frames.
    machine.refuse(true, Some(1));
    assert_eq!(vm.vmalloc(&fh, Layout::pages(21)), Err(VmallocError::Map(LIMIT)));
    assert!(vm.waiting_pages() >= 21 && free() < all - 63);
    assert_eq!(vm.purge(&fh), Err(VmallocError::Unmap(LIMIT)));
    assert!(vm.waiting_pages() >= 21);
    machine.refuse(false, None);
    assert!(vm.purge(&fh).unwrap() >= 21);
    assert_eq!((vm.waiting_pages(), machine.mapped(), free()), (0, 63, all - 63));
    // Whoever lacks addresses purges by itself.
    machine.refuse(true, Some(1));
    assert_eq!(vm.vmalloc(&fh, Layout::pages(21)), Err(VmallocError::Map(LIMIT)));
    machine.refuse(false, None);
    let large = vm.vmalloc(&fh, Layout::pages(4096 - 4 * 22)).unwrap();
    assert_eq!(vm.waiting_pages(), 0);
    vm.vfree(&fh, large).unwrap();

    vm.vfree_many(&fh, &made).unwrap();
    assert_eq!(machine.mapped(), 0);
    assert_all_free(&fh);
}
