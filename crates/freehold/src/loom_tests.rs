//! Every interleaving of real calls on a real allocator, run by loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p freehold --lib --release loom_tests`.
//!
//! Two CPUs, two blocks; nothing here is a copy of what it checks. Loom explores every
//! schedule with at most
//! [`PREEMPTIONS`] preemptions (`LOOM_MAX_PREEMPTIONS` sets another number) and every value that the orderings permit
//! each load to see. After each execution nothing is lost, nothing is free twice, and the walk over
//! all invariants is clean. Frees of what is not in use are in
//! [`loom_wrong_frees`](super::loom_wrong_frees).

extern crate std;

use std::boxed::Box;
use std::mem::MaybeUninit;
use std::vec::Vec;

use loom::thread;

use crate::cpu::by::OUTSIDE;
use crate::cpu::inside::Inside;
use crate::primitive::Ordering;
use crate::primitive::under_loom::{Strict, fence, set_alone, set_strict};
use crate::transfer::refill::Want;
use crate::{
    AllocError, Config, CpuId, FrameRange, FreeError, Freehold, Migratetype, Order, Pfn, Platform,
    Request, Watermarks, ZoneConfig,
};

const PREEMPTIONS: usize = 3;
const MOVABLE: usize = Migratetype::Movable as usize;

pub(crate) fn model(f: impl Fn() + Sync + Send + 'static) {
    model_within(usize::MAX, f);
}

/// The same with at most so many preemptions, whatever was asked for: for calls so long that more
/// would take hours.
pub(super) fn model_within(most: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(PREEMPTIONS).min(most));
    builder.max_branches = 200_000;
    // Not loom's: it counts executions, which are what an exhaustive search consists of.
    let executions = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = executions.clone();
    builder.check(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        set_alone(true);
        set_strict(Strict::BeforeReads);
        f();
    });
    std::eprintln!("{executions:?} executions");
}

/// The same where sequentially consistent accesses are as strong as `strict` says.
pub(super) fn strictly(strict: Strict, most: usize, f: impl Fn() + Sync + Send + 'static) {
    model_within(most, move || {
        set_strict(strict);
        f();
    });
}

/// With fences before reads and with fences between: which one shows that an ordering is too weak
/// depends on whether it is that of the write or of the read behind it.
pub(super) fn both(most: usize, f: impl Fn() + Sync + Send + Copy + 'static) {
    strictly(Strict::BeforeReads, most, f);
    strictly(Strict::Between, most, f);
}

/// A host with heavy barriers, or without.
pub(super) struct Host {
    barrier: bool,
}

impl Platform for Host {
    fn has_heavy_barrier(&self) -> bool {
        self.barrier
    }
    fn heavy_barrier(&self) {
        // See `light_barrier`.
        fence(Ordering::SeqCst);
    }
    fn relax(&self) {
        thread::yield_now();
    }
}

pub(super) type Small = &'static Freehold<'static, Host>;

pub(super) const FRAMES: u64 = 1024;

/// Two blocks and two CPUs. Leaked, and with it the metadata: loom has no use for them after an
/// execution.
pub(super) fn small(barrier: bool) -> Small {
    machine(barrier, FRAMES)
}

pub(super) fn machine(barrier: bool, frames: u64) -> Small {
    let memory = [FrameRange::new(Pfn::new(1024), frames).unwrap()];
    let zones = [ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) }];
    let config = Config { extra_ranges: 1, ..Config::new(2, &zones) };
    let size = Freehold::<Host>::metadata_size(&config).unwrap();
    let metadata: &'static mut [MaybeUninit<u8>] = std::vec![MaybeUninit::uninit(); size].leak();
    let host = Host { barrier };
    Box::leak(Box::new(Freehold::new(&config, metadata, host).unwrap()))
}

pub(super) fn cpu(number: u16) -> CpuId {
    CpuId::new(number)
}

pub(super) fn request(order: u8) -> Request {
    Request::new(Order::new(order).unwrap(), Migratetype::Movable)
}

pub(super) fn take(fh: Small, c: u16, order: u8) -> Pfn {
    fh.on(cpu(c)).alloc(request(order)).unwrap()
}

/// Starts a thread of a model.
pub(crate) fn spawn<T: 'static>(role: impl FnOnce() -> T + 'static) -> thread::JoinHandle<T> {
    set_alone(false);
    thread::spawn(role)
}

/// Runs these at the same time and waits for all.
pub(super) fn together<T: 'static>(roles: Vec<Box<dyn FnOnce() -> T>>) -> Vec<T> {
    let threads: Vec<_> = roles.into_iter().map(spawn).collect();
    let got = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    set_alone(true);
    got
}

/// Everything but `used` frames is free, and all is where it belongs.
pub(super) fn settled(fh: Small, used: u64) {
    settled_of(fh, FRAMES, used);
}

/// The same where there are so many frames.
pub(super) fn settled_of(fh: Small, frames: u64, used: u64) {
    fh.validate().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(fh.zone_stats(0).unwrap().free, frames - used);
    assert_eq!(fh.totals().late_double_frees, 0);
}

macro_rules! roles {
    ($($role:expr),*) => { std::vec![$(Box::new($role)),*] };
}
pub(super) use roles;

#[test]
fn two_cpus_allocate_from_one_block() {
    model(|| {
        let fh = small(false);
        // A block that is split and of which nobody leases anything.
        let first = take(fh, 0, 0);
        fh.on(cpu(0)).flush().unwrap();
        let got = together::<Pfn>(roles![move || take(fh, 0, 0), move || take(fh, 1, 0)]);
        assert!(got[0] != got[1] && !got.contains(&first));
        settled(fh, 3);
    });
}

#[test]
fn a_free_into_a_word_that_its_leaseholder_allocates_from() {
    model(|| {
        let fh = small(false);
        let first = take(fh, 0, 0);
        let got = together::<Option<Pfn>>(roles![move || Some(take(fh, 0, 0)), move || {
            fh.on(cpu(1)).free(first, Order::ZERO).unwrap();
            None
        }]);
        settled(fh, 1);
        fh.on(cpu(1)).free(got[0].unwrap(), Order::ZERO).unwrap();
        settled(fh, 0);
    });
}

/// The leaseholder gives its lease back while another CPU frees into the word.
#[test]
fn a_free_into_a_word_whose_lease_ends() {
    model(|| {
        let fh = small(false);
        let first = take(fh, 0, 0);
        together::<()>(roles![move || fh.on(cpu(0)).flush().unwrap(), move || {
            fh.on(cpu(1)).free(first, Order::ZERO).unwrap();
        }]);
        settled(fh, 0);
        fh.drain_all();
        assert_eq!(fh.zone_stats(0).unwrap().free_blocks, 2, "the block was not known to be whole");
    });
}

/// Right frees of a block that was taken whole: both CPUs make a split one of it.
#[test]
fn two_free_parts_of_a_block_taken_whole() {
    model(|| {
        let fh = small(false);
        let block = take(fh, 0, 9).get();
        together::<()>(roles![
            move || fh.on(cpu(0)).free(Pfn::new(block), Order::ZERO).unwrap(),
            move || {
                fh.on(cpu(1)).free(Pfn::new(block + 1), Order::ZERO).unwrap();
            }
        ]);
        settled(fh, 510);
    });
}

#[test]
fn a_block_freed_as_a_whole_while_all_is_drained() {
    model(|| {
        let fh = small(false);
        let block = take(fh, 0, 9);
        together::<()>(roles![move || fh.drain_all(), move || {
            fh.on(cpu(1)).free(block, Order::PAGEBLOCK).unwrap();
        }]);
        settled(fh, 0);
    });
}

#[test]
fn the_last_frame_comes_back_while_all_is_drained() {
    model(|| {
        let fh = small(false);
        let frame = take(fh, 0, 0);
        fh.drain_all();
        together::<()>(roles![move || fh.drain_all(), move || {
            fh.on(cpu(1)).free(frame, Order::ZERO).unwrap();
        }]);
        settled(fh, 0);
        fh.drain_all();
        assert_eq!(fh.zone_stats(0).unwrap().free_blocks, 2, "the block was not known to be whole");
    });
}

#[test]
fn a_cpu_goes_offline_while_a_block_is_freed_through_it() {
    model(|| {
        let fh = small(false);
        let block = take(fh, 0, 9);
        together::<()>(roles![move || fh.cpu_offline(cpu(1)).unwrap(), move || {
            let refused = Err(FreeError::CpuOffline { cpu: cpu(1) });
            match fh.on(cpu(1)).free(block, Order::PAGEBLOCK) {
                Ok(()) => {}
                result if result == refused => fh.on(cpu(0)).free(block, Order::PAGEBLOCK).unwrap(),
                result => panic!("{result:?}"),
            }
        }]);
        assert_eq!(fh.cpu_holdings(cpu(1)).unwrap().0, 0, "an offline CPU has something in hand");
        settled(fh, 0);
    });
}

#[test]
fn a_cpu_goes_offline_while_it_allocates() {
    model(|| {
        let fh = small(false);
        let got = together::<Option<Pfn>>(roles![
            move || {
                fh.cpu_offline(cpu(1)).unwrap();
                None
            },
            move || match fh.on(cpu(1)).alloc(request(0)) {
                Ok(pfn) => Some(pfn),
                result => {
                    assert_eq!(result, Err(AllocError::CpuOffline { cpu: cpu(1) }));
                    None
                }
            }
        ]);
        assert_eq!(fh.cpu_holdings(cpu(1)).unwrap().0, 0, "an offline CPU has something in hand");
        settled(fh, u64::from(got[1].is_some()));
    });
}

#[test]
fn a_range_is_taken_while_a_cpu_allocates_from_its_block() {
    model(|| {
        let fh = small(false);
        let first = take(fh, 0, 0);
        fh.on(cpu(0)).free(first, Order::ZERO).unwrap();
        let range = FrameRange::new(first, 2).unwrap();
        let got = together::<(Option<Pfn>, u64)>(roles![
            move || {
                let taken = fh.alloc_contig_range(range, |_| false).is_ok();
                (taken.then_some(range.start), 2 * u64::from(taken))
            },
            move || {
                let pfn = take(fh, 0, 0);
                (Some(pfn), 1)
            }
        ]);
        let (frame, taken) = (got[1].0.unwrap(), got[0].0.is_some());
        assert!(!taken || !range.contains(frame), "{frame} was handed out twice");
        settled(fh, got[0].1 + 1);
    });
}

/// A right free of a range looks into a hand that gives one word up and takes another in the same
/// slot.
#[test]
fn a_right_free_of_a_range_is_not_refused_while_hands_change() {
    model(|| {
        let fh = machine(false, 2 * FRAMES);
        let frame = take(fh, 0, 0).get();
        // Of two blocks further the word has the same slot.
        let blocks: Vec<u64> = (0..3).map(|_| take(fh, 1, 9).get()).collect();
        let same = blocks.into_iter().find(|block| block.abs_diff(frame & !511) == 1024).unwrap()
            + frame % 512;
        together::<()>(roles![
            move || {
                fh.on(cpu(0)).flush().unwrap();
                // The second free in a row leases the word.
                [same ^ 1, same]
                    .into_iter()
                    .for_each(|f| fh.on(cpu(0)).free(Pfn::new(f), Order::ZERO).unwrap());
            },
            move || fh.on(cpu(1)).free_range(FrameRange::new(Pfn::new(frame), 1).unwrap()).unwrap()
        ]);
        assert_eq!(
            fh.cpus[0].leases.slot(((same / 64) % 16) as usize).key(),
            same / 64,
            "the word was not leased"
        );
        fh.validate().unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(fh.totals().late_double_frees, 0);
    });
}

/// The owner frees into its hand while somebody ends its leases.
#[test]
fn an_owner_and_a_recall() {
    model(|| {
        let fh = small(true);
        let owner = fh.own(cpu(0)).unwrap();
        let pfn = owner.alloc(request(0)).unwrap();
        together::<()>(roles![
            move || {
                let inside = owner.enter_to_free().unwrap();
                fh.free_word(inside.as_ref(), pfn.get() / 64, 1 << (pfn.get() % 64), 1).unwrap();
                drop(inside);
                // To be dropped, it would wait for the other one.
                core::mem::forget(owner);
            },
            move || assert!(fh.recall(None, None) < 2)
        ]);
        settled(fh, 0);
    });
}

/// Two threads use a value at the same time under one lock; loom reports a race where one's use is
/// not ordered before the other's.
pub(super) fn exclude(under: fn(Small, &mut dyn FnMut())) {
    model(move || {
        let fh = small(false);
        let value = loom::sync::Arc::new(loom::cell::UnsafeCell::new(()));
        let threads = [value.clone(), value]
            .map(|value| spawn(move || under(fh, &mut || value.with_mut(|_| ()))));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn the_hotplug_lock_excludes() {
    exclude(|fh, touch| fh.with_hotplug_lock(touch));
}

#[test]
fn the_door_of_a_cpu_excludes() {
    exclude(|fh, touch| {
        let inside = Inside::enter(fh, &fh.cpus[0], cpu(0), false);
        touch();
        drop(inside);
    });
}

/// The owner comes in by its own way, an intruder by a heavy barrier.
#[test]
fn the_door_of_an_owned_cpu_excludes() {
    model(|| {
        let fh = small(true);
        let owner = fh.own(cpu(0)).unwrap();
        let value = loom::sync::Arc::new(loom::cell::UnsafeCell::new(()));
        let again = value.clone();
        let intruder = spawn(move || {
            let inside = Inside::enter(fh, &fh.cpus[0], cpu(0), false);
            again.with_mut(|_| ());
            drop(inside);
        });
        for _ in 0..2 {
            if let Some(inside) = owner.enter_to_free().unwrap() {
                value.with_mut(|_| ());
                drop(inside);
            }
        }
        intruder.join().unwrap();
        set_alone(true);
    });
}

/// Whoever finds a section's slot finds its blocks set up.
#[test]
fn a_section_is_found_set_up() {
    model(|| {
        let fh = small(false);
        together::<()>(roles![
            move || assert!(fh.map.set_up(1024, || {
                thread::yield_now();
                true
            })),
            move || {
                if let Some(index) = fh.map.locate(1024 + 512) {
                    assert_eq!((fh.map.base(index), fh.map.head(index).number), (1024 + 512, 3));
                }
            }
        ]);
        settled(fh, 0);
    });
}

/// A frame that is taken past the leases, by a hint, while its memory goes: it is handed out, or it
/// is gone.
#[test]
fn memory_goes_while_a_frame_of_it_is_taken_by_a_hint() {
    model_within(2, || {
        let fh = small(false);
        let frame = take(fh, 0, 0);
        fh.on(cpu(0)).flush().unwrap();
        fh.on(cpu(1)).free(frame, Order::ZERO).unwrap();
        let block = FrameRange::new(frame.pageblock(), 512).unwrap();
        let got = together::<Option<Pfn>>(roles![move || Some(take(fh, 1, 0)), move || fh
            .remove_memory(block)
            .is_ok()
            .then_some(frame)]);
        let (taken, gone) = (got[0].unwrap(), got[1].is_some());
        assert!(!gone || !block.contains(taken), "a frame was handed out of memory that is gone");
        settled_of(fh, if gone { FRAMES - 512 } else { FRAMES }, 1);
    });
}

/// A frame is taken past the leases, by a hint that was looked at before something else happened to
/// its word; then it is freed at once. That is a right free, whatever else goes on.
fn hinted_and_freed_while(kept: bool, order: u8, after: fn(Small)) {
    model_within(2, move || {
        let fh = small(false);
        let frame = take(fh, 0, 0);
        if kept {
            take(fh, 0, 0);
        }
        fh.on(cpu(0)).flush().unwrap();
        fh.on(cpu(1)).free(frame, Order::ZERO).unwrap();
        together::<()>(roles![
            move || {
                let taken = take(fh, 1, 0);
                fh.on(cpu(1)).free(taken, Order::ZERO).unwrap();
            },
            move || {
                take(fh, 0, order);
                after(fh);
            }
        ]);
        settled(fh, (1 << order) + u64::from(kept));
    });
}

#[test]
fn a_hinted_frame_is_freed_while_a_lease_of_its_word_ends() {
    // A pair, so that the frame itself stays in the hand.
    hinted_and_freed_while(true, 1, |fh| fh.on(cpu(0)).flush().unwrap());
}

#[test]
fn a_hinted_frame_is_freed_while_its_block_becomes_whole_and_is_split_again() {
    hinted_and_freed_while(false, 1, |_| {});
}

/// A word is leased of a block that was chosen before it became whole and is being split again:
/// what is handed out of it can be freed by anybody at once.
#[test]
fn a_leased_frame_is_freed_while_its_block_becomes_whole_and_is_split_again() {
    model_within(2, || {
        let fh = machine(false, 512);
        let frame = take(fh, 0, 0);
        fh.on(cpu(0)).flush().unwrap();
        together::<()>(roles![
            move || {
                let taken = take(fh, 1, 0);
                // The other CPU is in the middle of something, so this goes straight to the word.
                fh.on(cpu(0)).free(taken, Order::ZERO).unwrap();
            },
            move || {
                fh.on(cpu(0)).free(frame, Order::ZERO).unwrap();
                take(fh, 0, 1);
            }
        ]);
        settled_of(fh, 512, 2);
    });
}

/// A free completes its block and is about to tell of it; meanwhile that is taken whole, and a part
/// of it is freed again.
#[test]
fn a_block_is_taken_and_freed_while_a_free_tells_of_it() {
    model(|| {
        let fh = machine(false, 512);
        let (frame, word) = (take(fh, 0, 0), take(fh, 0, 6));
        fh.on(cpu(0)).flush().unwrap();
        let block = frame.pageblock();
        // Its holder has something to look at already.
        fh.on(cpu(1)).free(frame, Order::ZERO).unwrap();
        let got = together::<Option<Pfn>>(roles![
            move || {
                fh.on(cpu(1)).free(word, Order::new(6).unwrap()).unwrap();
                None
            },
            move || {
                let taken = fh.on(cpu(0)).alloc(request(9)).ok()?;
                fh.on(cpu(0)).free(Pfn::new(block.get() + 200), Order::ZERO).unwrap();
                Some(taken)
            }
        ]);
        settled_of(fh, 512, if got[1].is_some() { 511 } else { 0 });
    });
}

/// Two words in a row are taken, one after the other, and somebody else takes the second one: the
/// first one goes back.
#[test]
fn two_words_in_a_row_are_taken_both_or_none() {
    model_within(2, || {
        let fh = machine(false, 512);
        let first = take(fh, 0, 0).pageblock();
        fh.on(cpu(0)).flush().unwrap();
        let at = move |offset: u64| Pfn::new(first.get() + offset);
        let got = together::<bool>(roles![
            move || fh.on(cpu(0)).alloc(request(7).from(at(128)).below(at(256))).is_ok(),
            move || fh.on(cpu(1)).alloc(request(6).from(at(192)).below(at(256))).is_ok()
        ]);
        assert!(got[0] != got[1], "one of the two has them");
        settled_of(fh, 512, if got[0] { 129 } else { 65 });
    });
}

/// Two blocks are taken as one, past everybody's locks, while one of them is isolated: one of the
/// two has it.
#[test]
fn a_run_of_blocks_is_taken_while_one_is_isolated() {
    model_within(2, || {
        let fh = small(false);
        let block = FrameRange::new(Pfn::new(1536), 512).unwrap();
        let got =
            together::<bool>(roles![move || fh.on(cpu(0)).alloc(request(10)).is_ok(), move || fh
                .alloc_contig_range(block, |_| false)
                .is_ok()]);
        assert!(!(got[0] && got[1]), "a block was handed out twice");
        settled(fh, if got[0] { 1024 } else { 512 * u64::from(got[1]) });
    });
}

/// Who becomes a CPU's owner has one that is online.
#[test]
fn a_cpu_goes_offline_while_somebody_becomes_its_owner() {
    model(|| {
        let fh = small(false);
        let got = together::<bool>(roles![move || fh.cpu_offline(cpu(1)).is_ok(), move || {
            fh.own(cpu(1)).map(std::mem::forget).is_ok()
        }]);
        assert!(got[0] != got[1], "an offline CPU has an owner, or there is neither");
    });
}

/// A hand becomes empty while another CPU frees into its word and looks at the block: the frame is
/// found, by whoever looks next.
#[test]
fn a_free_into_a_word_whose_hand_becomes_empty() {
    model_within(2, || {
        let fh = small(false);
        let block = take(fh, 0, 9).get();
        let frame = |n: u64| Pfn::new(block + n);
        // The second free in a row has the word leased.
        (0..2).for_each(|n| fh.on(cpu(0)).free(frame(n), Order::ZERO).unwrap());
        take(fh, 0, 0);
        let got = together::<u64>(roles![
            move || {
                let asked = [0, 0].map(|_| fh.on(cpu(0)).alloc(request(0)).is_ok());
                asked.map(u64::from).iter().sum()
            },
            move || {
                fh.on(cpu(1)).free(Pfn::new(block + 9), Order::ZERO).unwrap();
                let _ = fh.pick(OUTSIDE, &fh.zones[0], Want::plain(0, MOVABLE), false, u32::MAX);
                0
            }
        ]);
        settled(fh, 510 + got[0]);
    });
}

/// A hand is empty, and its CPU frees into it, while another frees into the word and asks for what
/// it can get.
#[test]
fn a_free_into_the_empty_hand_of_a_word_that_another_cpu_wants() {
    model_within(2, || {
        let fh = small(false);
        let block = take(fh, 0, 9).get();
        let frame = |n: u64| Pfn::new(block + n);
        // The second free in a row has the word leased, and both frames are taken from it.
        (0..2).for_each(|n| fh.on(cpu(0)).free(frame(n), Order::ZERO).unwrap());
        (0..2).for_each(|_| assert!(take(fh, 0, 0).get() < block + 2));
        let got = together::<u64>(roles![
            move || {
                fh.on(cpu(0)).free(Pfn::new(block + 1), Order::ZERO).unwrap();
                0
            },
            move || {
                fh.on(cpu(1)).free(Pfn::new(block + 9), Order::ZERO).unwrap();
                u64::from(fh.on(cpu(1)).alloc(request(0)).is_ok())
            }
        ]);
        settled(fh, 510 + got.iter().sum::<u64>());
    });
}

/// Two isolate a block at the same time: one of them has to give way.
#[test]
fn a_range_of_a_block_is_taken_while_that_goes() {
    model_within(2, || {
        let fh = machine(false, 512);
        let block = FrameRange::new(Pfn::new(1024), 512).unwrap();
        let got = together::<bool>(roles![
            move || fh
                .alloc_contig_range(FrameRange::new(block.start, 8).unwrap(), |_| false)
                .is_ok(),
            move || {
                let gone = fh.remove_memory(block).is_ok();
                if gone {
                    fh.add_memory(block).unwrap();
                }
                gone
            }
        ]);
        settled_of(fh, 512, if got[0] { 8 } else { 0 });
    });
}

/// The last word of a block comes back while the block is isolated: it becomes whole, or it is in
/// its words when the isolation ends.
#[test]
fn a_block_becomes_whole_while_it_is_isolated() {
    model_within(2, || {
        let fh = machine(false, 512);
        let block = take(fh, 0, 9).get();
        let word = Order::new(6).unwrap();
        (1..8).for_each(|w| fh.on(cpu(0)).free(Pfn::new(block + w * 64), word).unwrap());
        let range = FrameRange::new(Pfn::new(block + 64), 8).unwrap();
        let got = together::<u64>(roles![
            move || {
                fh.on(cpu(1)).free(Pfn::new(block), word).unwrap();
                0
            },
            move || 8 * u64::from(fh.alloc_contig_range(range, |_| false).is_ok())
        ]);
        settled_of(fh, 512, got[1]);
    });
}

/// A run of blocks is taken while a request within limits finds a block of it.
#[test]
fn a_run_of_blocks_is_taken_while_one_is_asked_for_within_limits() {
    model_within(2, || {
        let fh = small(false);
        let blocks: [Pfn; 2] = [0, 0].map(|_| take(fh, 0, 9));
        blocks.into_iter().for_each(|pfn| fh.on(cpu(0)).free(pfn, Order::PAGEBLOCK).unwrap());
        fh.recall(None, None);
        let got = together::<u64>(roles![
            move || 1024 * u64::from(fh.on(cpu(0)).alloc(request(10)).is_ok()),
            move || {
                let limited = request(3).from(Pfn::new(1024)).below(Pfn::new(1536));
                8 * u64::from(fh.on(cpu(1)).alloc(limited).is_ok())
            }
        ]);
        settled(fh, got.iter().sum());
    });
}

/// A frame comes back while another CPU finds nothing in its block and lowers the class.
#[test]
fn a_free_beside_a_search_in_vain() {
    model_within(2, || {
        let fh = machine(false, 512);
        let chunks = [8, 7, 6, 5, 5].map(|order| take(fh, 0, order));
        fh.on(cpu(0)).flush().unwrap();
        let got = together::<u64>(roles![
            move || {
                fh.on(cpu(0)).free(chunks[4], Order::ZERO).unwrap();
                0
            },
            move || u64::from(
                fh.take_listed(OUTSIDE, &fh.zones[0], Want::plain(0, MOVABLE)).is_some()
            )
        ]);
        settled_of(fh, 512, 511 + got[1]);
    });
}

/// Both halves of a block come back at the same time: it becomes whole once, and is there to be had.
#[test]
fn a_block_becomes_whole_once() {
    model_within(2, || {
        let fh = machine(false, 512);
        let block = take(fh, 0, 9).get();
        (2..8).for_each(|w| {
            fh.on(cpu(0)).free(Pfn::new(block + w * 64), Order::new(6).unwrap()).unwrap()
        });
        together::<()>(roles![
            move || fh.on(cpu(0)).free(Pfn::new(block), Order::new(6).unwrap()).unwrap(),
            move || fh.on(cpu(1)).free(Pfn::new(block + 64), Order::new(6).unwrap()).unwrap()
        ]);
        settled_of(fh, 512, 0);
        assert_eq!(fh.zones[0].wholes(), 1);
    });
}

/// The last words of a block come back while another CPU takes a word of it.
#[test]
fn a_block_becomes_whole_while_a_word_of_it_is_taken() {
    model_within(2, || {
        let fh = machine(false, 512);
        let block = take(fh, 0, 9).get();
        (1..8).for_each(|w| {
            fh.on(cpu(0)).free(Pfn::new(block + w * 64), Order::new(6).unwrap()).unwrap()
        });
        let got = together::<u64>(roles![
            move || {
                fh.on(cpu(0)).free(Pfn::new(block), Order::new(6).unwrap()).unwrap();
                0
            },
            // Where all of it is on its way to be whole it asks the other CPU, and looks again.
            move || 64 * u64::from(fh.on(cpu(1)).alloc(request(6)).is_ok())
        ]);
        assert_eq!(got[1], 64, "a request failed beside seven free words");
        settled_of(fh, 512, 64);
    });
}

/// Two want whole blocks, of which there is one.
#[test]
fn a_whole_block_goes_to_one_of_two() {
    model_within(2, || {
        let fh = machine(false, 512);
        let got =
            together::<bool>(roles![move || fh.on(cpu(0)).alloc(request(9)).is_ok(), move || fh
                .on(cpu(1))
                .alloc(request(9))
                .is_ok()]);
        assert!(got[0] != got[1], "{got:?}");
        settled_of(fh, 512, 512);
    });
}

/// One wants both blocks as a run, the other one of them.
#[test]
fn a_run_and_a_block_of_it() {
    model_within(2, || {
        let fh = small(false);
        let got = together::<u64>(roles![
            move || 1024 * u64::from(fh.on(cpu(0)).alloc(request(10)).is_ok()),
            move || 512 * u64::from(fh.on(cpu(1)).alloc(request(9)).is_ok())
        ]);
        assert_ne!(got.iter().sum::<u64>(), 0);
        settled(fh, got.iter().sum());
    });
}
