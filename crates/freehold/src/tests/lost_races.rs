//! Frames that are on the way while somebody is about to fail: each call that looks for them is
//! interrupted at each of its steps by who has them.

extern crate std;

use std::boxed::Box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::block::tag::{HIGH_ATOMIC, IN_HAND};
use crate::cpu::inside::Inside;
use crate::primitive::SharedCount;
use crate::tests::steps::interrupted;
use crate::tests::testing::{Machine, machine, machine_on};
use crate::{AllocFlags, CpuId, FrameRange, Migratetype, Order, Pfn, Platform, Request};

fn leaked(fh: Machine) -> &'static Machine {
    fh.set_watermarks(0, 0, 0, 0).unwrap();
    Box::leak(Box::new(fh))
}

fn movable(order: u8) -> Request {
    Request::new(Order::new(order).unwrap(), Migratetype::Movable)
}

fn inside(fh: &'static Machine, cpu: u16) -> Inside<'static, 'static, crate::tests::testing::Host> {
    let id = CpuId::new(cpu);
    Inside::enter(fh, fh.cpu_state(id).unwrap(), id, false)
}

/// CPU 1 is inside with a whole block that is in no bitmap and not in its hand yet, and comes out
/// with it, at each step of the look that CPU 0 takes at it.
#[test]
fn who_comes_out_with_frames_during_a_look_is_seen() {
    for n in 1.. {
        let fh = leaked(machine(2, 512));
        let other = inside(fh, 1);
        let block = fh.zones[0].take_whole(other.by(), AllocFlags::empty(), false).unwrap();
        let come_out = move || {
            block.head.tag.set(block.head.tag.get().with_flag(IN_HAND, true));
            other.cpu.holds(fh);
            other.cpu.kept[0].set(block, 0);
            drop(other);
        };
        let asks = interrupted(n, come_out, || fh.would_ask(CpuId::new(0), None));
        assert!(asks.0, "step {n}: the block is CPU 1's throughout");
        if !asks.1 {
            break;
        }
    }
}

/// CPU 1 has a whole block in hand, and goes in to give it back, or to keep it on the way there.
#[test]
fn who_goes_in_with_frames_during_a_look_is_seen_or_tells() {
    for leaves in [false, true] {
        for n in 1.. {
            let fh = leaked(machine(2, 512));
            let pfn = fh.on(CpuId::new(1)).alloc(movable(9)).unwrap();
            fh.on(CpuId::new(1)).free(pfn, Order::PAGEBLOCK).unwrap();
            let asker = inside(fh, 0);
            let generation = asker.begin_watch(&movable(9), false);
            let go_in = move || {
                let other = inside(fh, 1);
                let block = other.cpu.kept.iter().find_map(|kept| {
                    let block = kept.block(&fh.map.blocks)?;
                    kept.clear();
                    Some(block)
                });
                if leaves {
                    block.unwrap().release_whole(other.by());
                } else {
                    // It is stopped there.
                    core::mem::forget(other);
                }
            };
            let (asks, reached) = interrupted(n, go_in, || fh.would_ask(CpuId::new(0), None));
            assert!(asks || !fh.watch.goes_on(generation), "step {n}, leaves {leaves}");
            if !reached {
                break;
            }
        }
    }
}

/// A host that does something in the turn of a wait that has that number.
#[derive(Default)]
struct Turns {
    turns: AtomicU32,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Platform for Turns {
    fn relax(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        if let Some(then) = self.then.lock().unwrap().take() {
            then();
        }
    }
}

/// Somebody outside every CPU's state has taken the words of a block, to see whether all of it is
/// free, and puts them back.
#[test]
fn a_range_is_had_beside_frames_on_the_way() {
    let host: &Turns = Box::leak(Box::default());
    let fh = leaked(machine_on(host, 1, 1024));
    let pfn = fh.on(CpuId::new(0)).alloc(movable(0)).unwrap();
    fh.drain_all();
    let block = fh.map.locate(pfn.get()).unwrap();
    let mark = fh.zones[0].moving(fh.outside(), 0);
    let words = [5, 6].map(|w| (w, block.line.take_word(w)));
    *host.then.lock().unwrap() = Some(Box::new(move || {
        words.into_iter().for_each(|(w, word)| block.put_back_uncounted(fh, w, word));
        drop(mark);
    }));
    let range = FrameRange::new(Pfn::new(block.base() + 256), 256).unwrap();
    fh.alloc_contig_range(range, |used| panic!("{used:?} is free, and was to be moved")).unwrap();
    fh.validate().unwrap();
}

/// All free frames are those of a block that stops being HIGHATOMIC. A request at each step finds
/// them, or waits for who is at it, or the block is HIGHATOMIC still.
#[test]
fn no_request_fails_beside_a_reserve_that_is_being_given_up() {
    let mut waited = 0;
    for n in 1.. {
        let host: &Turns = Box::leak(Box::default());
        let fh = leaked(machine_on(host, 2, 512));
        fh.leave_reserve_to_host(0).unwrap();
        let pfn = fh.on(CpuId::new(0)).alloc(movable(0)).unwrap();
        fh.drain_all();
        let block = fh.map.locate(pfn.get()).unwrap();
        assert!(block.retype(fh.outside(), block.head.tag.get(), HIGH_ATOMIC));
        fh.zones[0].high_atomic_blocks.add_shared(1);
        // The bits of the rows that it was in are cleared by who meets them.
        fh.on(CpuId::new(1)).alloc(movable(0)).unwrap_err();
        host.turns.store(0, Ordering::Relaxed);
        let request = move || {
            let ordinary = block.head.tag.get().migratetype() != HIGH_ATOMIC;
            let found = fh.on(CpuId::new(0)).alloc(movable(0));
            let turns = host.turns.load(Ordering::Relaxed);
            assert!(found.is_ok() || !ordinary || turns != 0, "step {n}: {found:?}");
            host.turns.store(u32::from(found.is_err() && ordinary), Ordering::Relaxed);
        };
        let (given_up, reached) =
            interrupted(n, request, || fh.give_up_reserve(0, Migratetype::Movable));
        assert!(given_up);
        fh.validate().unwrap();
        if !reached {
            break;
        }
        waited += host.turns.load(Ordering::Relaxed);
    }
    assert!(waited > 0, "at no step are the frames out of sight");
}
