//! Memory as it is after a long time: half of what threads may have is in use, scattered over blocks of
//! every type, and waits in the pool for somebody to free it.

use freehold::{CpuId, Migratetype, Order, Pfn, Request};

use super::books::Chunk;
use super::tally::Tally;
use super::world::World;
use freehold_lab::trials::random::Random;

/// Frames of one bulk call.
const BULK: usize = 256;
/// In whose name the frames wait: the first thread's.
const OWNER: u32 = 1;

/// Ages the memory, if the plan says so; the calls that it took.
pub(super) fn age(world: &World) -> Tally {
    let mut tally = Tally::default();
    if !world.plan.aged {
        return tally;
    }
    let mut random = Random::new(world.plan.seed ^ 0xa9ed);
    let on = world.freehold.on(CpuId::new(0));
    let mut frames: Vec<Pfn> = Vec::new();
    let most = world.plan.used.min(world.frames()) as usize;
    while frames.len() < most {
        let mut out = [Pfn::default(); BULK];
        let kind = Migratetype::PCP[random.below(3) as usize];
        let Ok(n) = on.alloc_bulk(Request::new(Order::ZERO, kind), &mut out) else { break };
        frames.extend(&out[..n]);
    }
    tally.allocs += frames.len() as u64;
    for n in (1..frames.len()).rev() {
        frames.swap(n, random.below(n as u64 + 1) as usize);
    }
    let stay = frames.split_off(frames.len() / 2);
    for pfn in frames {
        match on.free(pfn, Order::ZERO) {
            Ok(()) => tally.frees += 1,
            Err(error) => world.books.tell(format!("a right free was refused: {error}")),
        }
    }
    for pfn in stay {
        let chunk = Chunk::new(pfn, 1);
        world.books.take(chunk, OWNER);
        world.pool().push((chunk, OWNER));
    }
    tally
}
