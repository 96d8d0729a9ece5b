//! A million random steps against a model: not one byte may be lost.

use crate::common::actor::{Actor, Checked, Contents};
use crate::common::*;
use freehold_vm::SoftMmu;

const MIB_OF_MEMORY: u64 = 2;
const STEPS: u64 = 1_000_000;

#[test]
fn a_million_random_steps_lose_nothing() {
    // Fewer frames than pages, so that memory is short now and then.
    let fh = frames(MIB_OF_MEMORY, 1);
    let vm = vm(SoftMmu::new(), MIB_OF_MEMORY, 2, 1200, 4096);
    let contents = Contents::new(MIB_OF_MEMORY);
    let mut actor = Actor::new(&vm, Checked(&fh, &vm), &contents, 0, 7, 1150);
    for step in 0..STEPS {
        actor.step();
        if step % 50_000 == 0 {
            actor.check_all();
            fh.validate().unwrap();
        }
    }
    actor.leave();
    assert_all_free(&fh);
    // Everything has happened, many times.
    for what in [
        "lazyfree",
        "dropped",
        "reclaimed",
        "paged out",
        "remapped",
        "shared",
        "copied on write",
        "made writable",
        "written through a pin",
        "split",
        "no memory",
    ] {
        assert!(actor.seen.get(what).is_some_and(|n| *n > 100), "{what}: {:?}", actor.seen);
    }
    let stats = vm.stats();
    assert!(
        stats.redirtied > 100 && stats.kept_busy > 100 && stats.batches_restored > 100,
        "{stats:?}"
    );
    assert_eq!(stats.folios, stats.folios_freed);
}
