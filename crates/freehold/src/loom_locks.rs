//! The ordinary locks and the frame map under loom: what the lock-free protocols of `loom_tests` stand on.
//!
//! In a file of its own because these models need a whole allocator, or a whole section of blocks, which makes each
//! execution slow; they need few of them.

extern crate std;

use std::boxed::Box;
use std::mem::MaybeUninit;
use std::vec::Vec;

use loom::sync::Arc;
use loom::thread;

use crate::block::{Block, NONE};
use crate::map::{FrameMap, SECTION_BLOCKS};
use crate::primitive::AtomicU32;
use crate::{Config, FrameRange, Freehold, Order, Pfn, Platform, Request, Watermarks, ZoneConfig};

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 100_000;
    builder.check(f);
}

struct Host;

impl Platform for Host {
    fn relax(&self) {
        thread::yield_now();
    }
}

/// One block and one CPU. Leaked, and with it the metadata: loom has no use for them after an execution.
fn small() -> &'static Freehold<'static, Host> {
    let memory = [FrameRange::new(Pfn::new(512), 512).unwrap()];
    let zones = [ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) }];
    let config = Config::new(1, &zones);
    let size = Freehold::<Host>::metadata_size(&config).unwrap();
    let metadata: &'static mut [MaybeUninit<u8>] = std::vec![MaybeUninit::uninit(); size].leak();
    Box::leak(Box::new(Freehold::new(&config, metadata, Host).unwrap()))
}

/// Two threads run `inside` at the same time; loom reports a race where one's use of the value is not ordered before
/// the other's.
fn exclude(inside: fn(&Freehold<'static, Host>, &mut dyn FnMut())) {
    model(move || {
        let fh = small();
        let value = Arc::new(loom::cell::UnsafeCell::new(()));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let value = value.clone();
                thread::spawn(move || inside(fh, &mut || value.with_mut(|_| ())))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}

#[test]
fn the_zone_lock_excludes() {
    exclude(|fh, touch| {
        let guard = fh.lock_zone(&fh.zones[0]);
        touch();
        drop(guard);
    });
}

#[test]
fn the_hotplug_lock_excludes() {
    exclude(|fh, touch| fh.with_hotplug_lock(touch));
}

/// Whoever finds a section's slot finds its blocks set up.
#[test]
fn a_section_is_found_set_up() {
    struct World {
        sections: [AtomicU32; 1],
        blocks: Vec<Block>,
    }
    fn map(world: &World) -> FrameMap<'_> {
        FrameMap {
            sections: &world.sections,
            first_section: 0,
            blocks: &world.blocks,
            ranges: &[],
            slots: AtomicU32::new(0),
        }
    }
    model(|| {
        let world = Arc::new(World {
            sections: [AtomicU32::new(NONE)],
            blocks: (0..SECTION_BLOCKS).map(|_| Block::new()).collect(),
        });
        // Two threads of their own: what the model's thread does is ordered more than the code orders it.
        let roles: [fn(&World); 2] = [
            |world| {
                world.blocks[1].watch_link();
                assert_eq!(map(world).slot_for(0), Some(0));
            },
            |world| {
                if let Some(index) = map(world).locate(512) {
                    // A use that loom watches, as the numbers themselves are atomics.
                    world.blocks[index as usize].watch_link();
                    assert_eq!(world.blocks[index as usize].base(), 512);
                }
            },
        ];
        let threads = roles.map(|role| {
            let world = world.clone();
            thread::spawn(move || role(&world))
        });
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// A thread allocates on a CPU while another frees what was allocated there before: the allocator as a whole.
#[test]
fn an_allocation_against_a_free() {
    model(|| {
        let fh = small();
        let on = || fh.on(crate::CpuId::new(0));
        let request = Request::new(Order::ZERO, crate::Migratetype::Movable);
        let first = on().alloc(request).unwrap();
        let other = thread::spawn(move || on().free(first, Order::ZERO).unwrap());
        let second = on().alloc(request).unwrap();
        other.join().unwrap();
        on().free(second, Order::ZERO).unwrap();
        fh.drain_all();
        assert_eq!(fh.zone_stats(0).unwrap().free, 512);
        fh.validate().unwrap();
    });
}
