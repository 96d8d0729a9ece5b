//! Random steps against a model, a million in CI: not one byte may be lost.

use crate::common::actor::{Actor, Checked, Contents};
use crate::common::*;
use freehold_vm::SoftMmu;

const MIB_OF_MEMORY: u64 = 2;

#[test]
fn random_steps_lose_nothing() {
    lose_nothing(200_000);
}

#[test]
#[ignore = "long: cargo test -p freehold-vm --test suite -- --ignored"]
fn a_million_random_steps_lose_nothing() {
    lose_nothing(1_000_000);
}

/// So many steps, in which everything happens more than once in ten thousand.
fn lose_nothing(steps: u64) {
    let often = steps / 10_000;
    // Fewer frames than pages, so that memory is short now and then.
    let fh = frames(MIB_OF_MEMORY, 1);
    let vm = vm(SoftMmu::new(), MIB_OF_MEMORY, 2, 1200, 4096);
    let contents = Contents::new(MIB_OF_MEMORY);
    let mut actor = Actor::new(&vm, Checked(&fh, &vm), &contents, 0, 7, 1150);
    for step in 0..steps {
        actor.step();
        if step % 50_000 == 0 {
            actor.check_all();
            fh.validate().unwrap();
        }
    }
    actor.leave();
    assert_all_free(&fh);
    // Everything has happened, many times.
    let kinds = "lazyfree, dropped, reclaimed, paged out, made writable, written through a pin, \
                 split, no memory";
    for what in kinds.split(", ") {
        assert!(actor.seen.get(what).is_some_and(|n| *n > often), "{what}: {:?}", actor.seen);
    }
    let stats = vm.stats();
    let fewest = stats.redirtied.min(stats.kept_busy).min(stats.batches_restored);
    assert!(fewest > often, "{stats:?}");
    assert_eq!(stats.folios, stats.folios_freed);
}
