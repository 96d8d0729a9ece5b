//! Every interleaving of the lock-free protocols, run by loom: `RUSTFLAGS="--cfg loom" cargo test -p freehold --lib
//! --release loom_tests`.
//!
//! The models are the real functions on one or two real blocks. Loom explores every schedule with at most
//! [`PREEMPTIONS`] preemptions and every value that the orderings permit each load to see.

extern crate std;

use loom::sync::Arc;
use loom::thread;
use std::vec::Vec;

use crate::CpuId;
use crate::biased::{Barrier, BiasedLock};
use crate::block::{Block, CLASS_DETACHED};
use crate::holder::Holder;
use crate::inbox::Inbox;
use crate::owner::{OwnerState, may_hold};
use crate::percpu::Pcp;
use crate::primitive::{AtomicU64, Ordering, Plain};
use crate::remote::{self, Inboxes};
use crate::stats::CpuCounters;

const PREEMPTIONS: usize = 3;

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 100_000;
    builder.check(f);
}

struct Host;

impl Barrier for Host {
    fn heavy_barrier(&self) {
        // See `light_barrier`.
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
    fn relax(&self) {
        thread::yield_now();
    }
}

/// Two CPUs and a zone, each with an inbox and a lock, and a few blocks.
struct World {
    blocks: Vec<Block>,
    cpus: [Inbox; 2],
    zone: Inbox,
    locks: [BiasedLock; 2],
    pcps: [Pcp; 2],
    /// What the frames of block 0 hold: two for each of two words. Loom watches every use.
    contents: [loom::cell::UnsafeCell<u8>; 4],
    /// Frames collected so far; under the lock of CPU 0.
    collected: AtomicU64,
    step: AtomicU64,
}

const CPU0: Holder = Holder::cpu(CpuId::new(0));
const CPU1: Holder = Holder::cpu(CpuId::new(1));

impl World {
    fn new(blocks: usize) -> Self {
        Self {
            blocks: (0..blocks).map(|_| Block::new()).collect(),
            cpus: [Inbox::new(true), Inbox::new(true)],
            zone: Inbox::new(true),
            locks: [BiasedLock::new(), BiasedLock::new()],
            pcps: [Pcp::new(), Pcp::new()],
            contents: core::array::from_fn(|_| loom::cell::UnsafeCell::new(0)),
            collected: AtomicU64::new(0),
            step: AtomicU64::new(0),
        }
    }

    /// Collects an inbox as its holder does.
    fn collect(&self, me: Holder) -> u32 {
        let inbox = self.inbox(&self.blocks[0], me).unwrap();
        let mut frames = 0;
        while let Some(index) = inbox.pop(&self.blocks) {
            if remote::accept(&self.blocks, self, me, index) {
                frames += remote::absorb(&self.blocks[index as usize]).frames;
            }
        }
        frames
    }
}

impl Inboxes for World {
    fn inbox(&self, _: &Block, holder: Holder) -> Option<&Inbox> {
        if holder == Holder::ZONE { Some(&self.zone) } else { Some(&self.cpus[holder.as_cpu()?.index()]) }
    }
    fn relax(&self) {
        thread::yield_now();
    }
}

/// Runs these at the same time and waits for all. The model's own thread does nothing meanwhile: loom's first schedule
/// then runs them one after the other, with nothing but the protocol itself to order them.
fn together(world: &Arc<World>, roles: Vec<fn(&World)>) {
    let threads: Vec<_> = roles
        .into_iter()
        .map(|role| {
            let world = world.clone();
            thread::spawn(move || role(&world))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

impl World {
    /// Writes into a frame of word 0 or 1 of block 0, as its user does last, and frees it.
    fn use_and_free(&self, word: usize, bit: u32) {
        self.contents[word * 2 + bit as usize].with_mut(|_| ());
        assert_eq!(remote::publish(&self.blocks, self, 0, word, 1 << bit), 0);
    }

    /// Collects as a CPU does, and uses the frames that came home, as their next user does first. Loom reports a race
    /// where their last user is not ordered before.
    fn collect_and_use(&self, me: Holder) {
        self.locks[0].enter_intruder(&Host);
        let frames = self.collect(me);
        for word in 0..2 {
            for bit in crate::bits::each(self.blocks[0].free_word(word)) {
                self.contents[word * 2 + bit as usize].with_mut(|_| ());
            }
        }
        self.collected.set(self.collected.get() + u64::from(frames));
        self.locks[0].leave_intruder();
    }
}

/// Two freers of the same word while the holder collects: no frame is lost, none comes twice, and nobody gets a frame
/// before its last user let go of it.
#[test]
fn two_freers_and_a_collector() {
    model(|| {
        let world = Arc::new(World::new(1));
        world.blocks[0].set_holder(CPU0);
        together(&world, std::vec![|w| w.use_and_free(0, 0), |w| w.use_and_free(0, 1), |w| w.collect_and_use(CPU0)]);
        world.collect_and_use(CPU0);
        assert_eq!(world.collected.get(), 2, "a free is stranded");
        assert_eq!(world.blocks[0].free_word(0), 3);
        assert!(!world.blocks[0].is_queued());
    });
}

/// A freer that finds frames in its word leaves the queueing to who put them there.
#[test]
fn a_rider_is_carried_home() {
    model(|| {
        let world = Arc::new(World::new(1));
        world.blocks[0].set_holder(CPU0);
        together(
            &world,
            std::vec![
                |w| {
                    assert_eq!(w.blocks[0].or_remote(0, 1), 0);
                    w.step.store(1, Ordering::Relaxed);
                    // The rider comes in between, or not.
                    if w.blocks[0].claim_queue() {
                        remote::post(&w.blocks, w, 0);
                    }
                },
                |w| {
                    if w.step.load(Ordering::Relaxed) == 1 {
                        w.use_and_free(0, 1);
                    }
                },
                |w| w.collect_and_use(CPU0),
            ],
        );
        world.collect_and_use(CPU0);
        let expected = u64::from(world.blocks[0].free_word(0).count_ones());
        assert_eq!(world.collected.get(), expected);
        assert_eq!(world.blocks[0].remote_word(0), 0, "a free is stranded");
    });
}

/// Freers of different words of one block: who finds it queued relies on the other's push.
#[test]
fn freers_of_two_words_share_one_queueing() {
    model(|| {
        let world = Arc::new(World::new(1));
        world.blocks[0].set_holder(CPU0);
        together(&world, std::vec![|w| w.use_and_free(0, 0), |w| w.use_and_free(1, 1), |w| w.collect_and_use(CPU0)]);
        world.collect_and_use(CPU0);
        assert_eq!(world.collected.get(), 2, "a free is stranded");
    });
}

/// The same block is queued, collected and queued again: its inbox link is never written while it is in use.
#[test]
fn a_link_is_out_of_use_before_it_is_used_again() {
    model(|| {
        let world = Arc::new(World::new(1));
        world.blocks[0].set_holder(CPU0);
        together(&world, std::vec![|w| w.use_and_free(0, 0), |w| w.collect_and_use(CPU0), |w| w.use_and_free(1, 0)]);
        world.collect_and_use(CPU0);
        assert_eq!(world.collected.get(), 2);
    });
}

/// Pushes of two blocks onto one inbox while it is emptied: the links are seen whole.
#[test]
fn two_blocks_in_one_inbox() {
    model(|| {
        let world = Arc::new(World::new(2));
        world.blocks.iter().for_each(|b| b.set_holder(CPU0));
        together(
            &world,
            std::vec![
                |w| {
                    remote::publish(&w.blocks, w, 0, 0, 1);
                },
                |w| {
                    remote::publish(&w.blocks, w, 1, 0, 1);
                },
                |w| {
                    w.collected.set(u64::from(w.collect(CPU0)));
                },
            ],
        );
        assert_eq!(world.collected.get() + u64::from(world.collect(CPU0)), 2);
    });
}

/// The same frame freed by two at the same moment: exactly one is told that it was free already, or the collection
/// finds it out; it is free once.
#[test]
fn a_frame_freed_twice_is_free_once() {
    model(|| {
        let world = Arc::new(World::new(1));
        world.blocks[0].set_holder(CPU0);
        let other = {
            let world = world.clone();
            thread::spawn(move || remote::publish(&world.blocks, &*world, 0, 0, 1))
        };
        let mine = remote::publish(&world.blocks, &*world, 0, 0, 1);
        let theirs = other.join().unwrap();
        assert_eq!((mine | theirs, mine & theirs), (1, 0));
        assert_eq!(world.collect(CPU0), 1);
    });
}

/// A block changes hands while somebody frees into it: the free follows it to its new holder.
#[test]
fn a_free_follows_the_block_to_its_new_holder() {
    model(|| {
        let world = Arc::new(World::new(1));
        world.blocks[0].set_holder(CPU0);
        let freer = {
            let world = world.clone();
            thread::spawn(move || {
                remote::publish(&world.blocks, &*world, 0, 0, 1);
            })
        };
        // CPU 0 gives the block to CPU 1, which looks at it at once.
        world.blocks[0].set_holder(CPU1);
        let mut frames = 0;
        if remote::has_remote(&world.blocks[0]) {
            frames += remote::absorb(&world.blocks[0]).frames;
        }
        freer.join().unwrap();
        // CPU 0 sends on what came to it; then CPU 1 collects.
        frames += world.collect(CPU0);
        frames += world.collect(CPU1);
        assert_eq!(frames, 1);
        assert!(!world.blocks[0].is_queued());
    });
}

/// A CPU goes offline while somebody frees into its blocks: nothing stays behind in its inbox.
#[test]
fn an_offline_cpu_strands_nothing() {
    model(|| {
        let world = Arc::new(World::new(2));
        world.blocks.iter().for_each(|b| b.set_holder(CPU0));
        together(
            &world,
            std::vec![
                |w| {
                    remote::publish(&w.blocks, w, 0, 0, 1);
                },
                |w| {
                    let mut frames = w.collect(CPU0);
                    w.blocks.iter().for_each(|block| block.set_holder(Holder::ZONE));
                    w.cpus[0].close();
                    // What came in between goes to whoever has the blocks now.
                    frames += w.collect(CPU0);
                    w.collected.set(u64::from(frames));
                },
                |w| {
                    remote::publish(&w.blocks, w, 1, 0, 1);
                },
            ],
        );
        assert!(world.cpus[0].is_empty(), "something is left in an offline CPU's inbox");
        assert_eq!(world.collected.get() + u64::from(world.collect(Holder::ZONE)), 2);
    });
}

/// Who meets a closed inbox finds the block's new holder at the second look, not after waiting for luck.
#[test]
fn a_closed_inbox_names_the_new_holder() {
    model(|| {
        let world = Arc::new(World::new(1));
        world.blocks[0].set_holder(CPU0);
        together(
            &world,
            std::vec![
                |w| {
                    w.blocks[0].set_holder(Holder::ZONE);
                    w.cpus[0].close();
                },
                |w| {
                    if !w.cpus[0].push(&w.blocks, 0) {
                        assert_eq!(w.blocks[0].holder(), Holder::ZONE);
                    }
                },
            ],
        );
    });
}

/// The owner and an intruder are never inside together, and see each other's work.
#[test]
fn owner_against_intruder() {
    model(|| {
        let lock = Arc::new(BiasedLock::new());
        lock.enter_intruder(&Host);
        lock.set_biased(true);
        lock.leave_intruder();
        let value = Arc::new(loom::cell::UnsafeCell::new(0u32));
        let intruder = {
            let (lock, value) = (lock.clone(), value.clone());
            thread::spawn(move || {
                lock.enter_intruder(&Host);
                // Loom itself reports a race if anyone else is inside, or was and is not ordered before.
                value.with_mut(|_| ());
                lock.leave_intruder();
            })
        };
        for _ in 0..2 {
            if lock.try_enter_owner() {
                value.with_mut(|_| ());
                lock.leave_owner();
            }
        }
        intruder.join().unwrap();
        lock.enter_owner(&Host);
        value.with_mut(|_| ());
        lock.leave_owner();
    });
}

/// Two intruders and the owner.
#[test]
fn two_intruders_and_the_owner() {
    model(|| {
        let lock = Arc::new(BiasedLock::new());
        lock.enter_intruder(&Host);
        lock.set_biased(true);
        lock.leave_intruder();
        let value = Arc::new(loom::cell::UnsafeCell::new(0u32));
        let intruders: Vec<_> = (0..2)
            .map(|_| {
                let (lock, value) = (lock.clone(), value.clone());
                thread::spawn(move || {
                    if lock.try_enter_intruder(&Host, false) {
                        value.with_mut(|_| ());
                        lock.leave_intruder();
                    }
                })
            })
            .collect();
        if lock.try_enter_owner() {
            value.with_mut(|_| ());
            lock.leave_owner();
        }
        intruders.into_iter().for_each(|i| i.join().unwrap());
    });
}

/// Two CPUs rob each other at the same moment, as `steal.rs` does it: leave, enter the victim, take a block, leave,
/// come back. Nobody waits for ever, and every block has one holder that knows it.
#[test]
fn two_robbers() {
    model(|| {
        let world = Arc::new(World::new(2));
        for (i, holder) in [CPU0, CPU1].into_iter().enumerate() {
            let block = &world.blocks[i];
            block.set_holder(holder);
            block.set_free_word(0, 1);
            block.set_class(CLASS_DETACHED);
            world.pcps[i].insert(&world.blocks, i as u32);
        }
        let robbers: Vec<_> = (0..2usize)
            .map(|me| {
                let world = world.clone();
                thread::spawn(move || {
                    let victim = 1 - me;
                    world.locks[victim].enter_intruder(&Host);
                    let found = world.pcps[victim].find(&world.blocks, 0, 0).map(|(index, _)| index);
                    if let Some(index) = found {
                        world.pcps[victim].remove(&world.blocks, index);
                        world.blocks[index as usize].set_holder([CPU0, CPU1][me]);
                    }
                    world.locks[victim].leave_intruder();
                    world.locks[me].enter_intruder(&Host);
                    if let Some(index) = found {
                        world.pcps[me].insert(&world.blocks, index);
                    }
                    world.locks[me].leave_intruder();
                })
            })
            .collect();
        robbers.into_iter().for_each(|r| r.join().unwrap());
        let mut held = 0;
        for (cpu, holder) in [CPU0, CPU1].into_iter().enumerate() {
            let mine = world.blocks.iter().filter(|b| b.holder() == holder).count() as u32;
            assert_eq!(world.pcps[cpu].blocks.get(), mine);
            assert_eq!(world.pcps[cpu].count(), mine);
            held += mine;
        }
        assert_eq!(held, 2);
    });
}

/// A block handed over directly is as it was given: its new holder looks at nothing but the holder's name. The frame
/// stands for all that the giver did; loom watches it, as it cannot watch the bitmaps, which are atomics.
#[test]
fn a_block_is_handed_over_with_its_frames() {
    model(|| {
        let world = Arc::new(World::new(1));
        world.blocks[0].set_holder(CPU0);
        together(
            &world,
            std::vec![
                |w| {
                    w.contents[0].with_mut(|_| ());
                    w.blocks[0].set_free_word(0, 6);
                    w.blocks[0].set_holder(CPU1);
                },
                |w| {
                    if w.blocks[0].holder() == CPU1 {
                        w.contents[0].with_mut(|_| ());
                        assert_eq!(w.blocks[0].free_word(0), 6);
                    }
                },
            ],
        );
    });
}

/// A CPU whose owner had frame 0 kept aside and has handed it out.
struct Keeper {
    world: World,
    owner: OwnerState,
    counters: CpuCounters,
    /// The other CPU's free is over, and the owner may know.
    freed: AtomicU64,
    /// The owner's free was refused.
    told: AtomicU64,
    /// Double frees that only a collection saw; under the lock of CPU 0.
    late: AtomicU64,
}

impl Keeper {
    fn new() -> Self {
        let keeper = Self {
            world: World::new(1),
            owner: OwnerState::new(),
            counters: CpuCounters::new(),
            freed: AtomicU64::new(0),
            told: AtomicU64::new(0),
            late: AtomicU64::new(0),
        };
        let (world, owner) = (&keeper.world, &keeper.owner);
        let block = &world.blocks[0];
        block.set_holder(CPU0);
        block.set_class(CLASS_DETACHED);
        world.pcps[0].insert(&world.blocks, 0);
        owner.set_budget(10);
        owner.count_free();
        owner.keep_frame(0, 0, 0);
        block.hint.set(1);
        assert_eq!(owner.take_frame(0), Some(0));
        world.locks[0].enter_intruder(&Host);
        world.locks[0].set_biased(true);
        world.locks[0].leave_intruder();
        keeper
    }

    /// As `Freehold::publish`: the other CPU's free, which is right.
    fn free_elsewhere(&self) {
        let block = &self.world.blocks[0];
        if may_hold(block.hint.get(), 0) {
            self.owner.revoke(0, 1);
        }
        assert_eq!(remote::publish(&self.world.blocks, &self.world, 0, 0, 1), 0);
        self.freed.store(1, Ordering::Release);
    }

    /// As the owner's fast path: a second free of the same frame, which is wrong.
    fn free_by_owner(&self) {
        let knows = self.freed.load(Ordering::Acquire) == 1;
        self.world.locks[0].enter_owner(&Host);
        let block = &self.world.blocks[0];
        let refused = if self.owner.frame.get() == 0 {
            !self.owner.give_frame()
        } else {
            let word = block.free_word(0);
            let free = word & 1 != 0 || (block.is_queued() && block.remote_word(0) & 1 != 0);
            if !free {
                block.set_free_word(0, word | 1);
                self.owner.count_free();
            }
            free
        };
        self.world.locks[0].leave_owner();
        assert!(refused || !knows, "freed twice, one after the other, and nobody was told");
        self.told.store(u64::from(refused), Ordering::Relaxed);
    }

    fn collect(&self) {
        let world = &self.world;
        world.locks[0].enter_intruder(&Host);
        self.owner.settle(&world.pcps[0], &self.counters, &world.blocks);
        while let Some(index) = world.cpus[0].pop(&world.blocks) {
            if remote::accept(&world.blocks, world, CPU0, index) {
                let absorbed = remote::absorb(&world.blocks[0]);
                self.late.set(self.late.get() + u64::from(absorbed.doubles[0].count_ones()));
                world.pcps[0].note_frames(&world.blocks[0], absorbed.frames);
            }
        }
        world.locks[0].leave_intruder();
    }
}

/// The frame that the owner kept aside and handed out is freed by another CPU, and wrongly by the owner as well: either the owner is told, and always where the other free is known to be over, or the collection
/// finds out; the frame is free once and counted once.
#[test]
fn a_kept_frame_freed_by_two_is_free_once() {
    model(|| {
        let keeper = Arc::new(Keeper::new());
        let roles: [fn(&Keeper); 2] = [Keeper::free_elsewhere, Keeper::free_by_owner];
        let threads: Vec<_> = roles
            .into_iter()
            .map(|role| {
                let keeper = keeper.clone();
                thread::spawn(move || role(&keeper))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        keeper.collect();
        let block = &keeper.world.blocks[0];
        assert_eq!(keeper.told.load(Ordering::Relaxed) + keeper.late.get(), 1, "told or reported late, once");
        assert_eq!((block.free_word(0), block.remote_word(0), block.hint.get()), (1, 0, 0));
        assert_eq!(keeper.world.pcps[0].count(), 1);
        assert!(!keeper.owner.holds_any());
    });
}
