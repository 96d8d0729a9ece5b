//! Feature `debug-poison`: frames are poisoned when freed, and checked when handed out.

use std::sync::Mutex;

use crate::common::*;

/// Memory as the host sees it: whether each frame holds the pattern.
struct Host(Mutex<Vec<bool>>);

impl Platform for Host {
    fn has_heavy_barrier(&self) -> bool {
        // One thread: the fast paths are what is to be tested.
        true
    }
    fn poison(&self, frames: FrameRange) {
        self.0.lock().unwrap()[frames.start.get() as usize..frames.end.get() as usize].fill(true);
    }
    fn check_poison(&self, frames: FrameRange) {
        let mut memory = self.0.lock().unwrap();
        for pfn in frames.start.get()..frames.end.get() {
            // A thread that gets it writes to it.
            assert!(
                std::mem::replace(&mut memory[pfn as usize], false),
                "{pfn:#x} was written to while free"
            );
        }
    }
}

#[test]
fn each_way_of_freeing_poisons_and_each_way_of_allocating_checks() {
    let frames = 64 * MIB;
    // All of it holds the pattern at first.
    let host = Host(Mutex::new(vec![true; frames as usize]));
    let fh = one_zone(2, &[range(0, frames)], &host);
    let poisoned = || host.0.lock().unwrap().iter().filter(|p| **p).count() as u64;
    let (owned, other) = (fh.own(cpu(0)).unwrap(), fh.on(cpu(1)));
    for o in [0, 1, 3, 6, 7, 9, 10, 12] {
        let pfn = owned.alloc(movable(o)).unwrap();
        assert_eq!(poisoned(), frames - (1 << o), "order {o}");
        owned.free(pfn, order(o)).unwrap();
        let pfn = owned.alloc(movable(o)).unwrap();
        other.free(pfn, order(o)).unwrap();
        assert_eq!(poisoned(), frames, "order {o}");
    }
    let mut bulk = vec![Pfn::default(); 3000];
    assert_eq!(owned.alloc_bulk(movable(0), &mut bulk), Ok(3000));
    assert_eq!(poisoned(), frames - 3000);
    owned.free_bulk(&bulk[..1000]).unwrap();
    other.free_bulk(&bulk[1000..2000]).unwrap();
    bulk[2000..].iter().for_each(|&p| owned.free(p, Order::ZERO).unwrap());
    fh.alloc_contig_range(range(5000, 700), |_| false).unwrap();
    assert_eq!(poisoned(), frames - 700);
    other.free_range(range(5000, 700)).unwrap();
    assert_eq!(poisoned(), frames);
    let aligned = owned.alloc(movable(0).align(order(5))).unwrap();
    assert_eq!(poisoned(), frames - 1);
    owned.free(aligned, Order::ZERO).unwrap();
    drop(owned);
    assert_all_free(&fh);
}

#[test]
#[should_panic(expected = "was written to while free")]
fn a_write_after_free_is_found() {
    let host = Host(Mutex::new(vec![true; 64 * MIB as usize]));
    let fh = one_zone(1, &[range(0, 64 * MIB)], &host);
    let pfn = fh.on(cpu(0)).alloc(movable(0)).unwrap();
    fh.on(cpu(0)).free(pfn, Order::ZERO).unwrap();
    host.0.lock().unwrap()[pfn.get() as usize] = false;
    let _ = fh.on(cpu(0)).alloc(movable(0));
}
