//! `two-cpu-mix`: single frames and large chunks side by side on few CPUs, at many levels of use: what is left whole.

use freehold::{Migratetype, Order};

use super::aging::random;
use super::books::{Books, Chunk};
use super::cell::{Figures, Scenario};

pub(super) const WHAT: &str = "Half of the memory in use is single frames, half chunks of orders 3 to 9, at 10 to 80 % of \
                               memory; one free in five is by another CPU. Wholly free blocks at the end.";

/// Chunks of one size class and the frames in them.
#[derive(Default)]
struct Class {
    held: Vec<(u16, Chunk)>,
    frames: u64,
}

pub(super) fn run(scenario: &Scenario, books: &mut Books<'_>) -> Figures {
    let cpus = u64::from(scenario.cpus);
    let mut random = random(scenario.seed);
    let most = books.managed() * u64::from(scenario.used_percent.unwrap_or(50)) / 200;
    let mut classes = [Class::default(), Class::default()];
    let steps = scenario.allocations / 10;
    books.begin();
    // Enough to fill both halves, and those that age them.
    for step in 0..steps + 2 * most {
        let cpu = random.scaled(cpus) as u16;
        // As many frames in large chunks as in single ones; once that is so, one chunk in 50 is large.
        let large = classes[1].frames + Order::PAGEBLOCK.frames() < classes[0].frames || random.scaled(50) == 0;
        let (order, migratetype) = match (large, random.scaled(10)) {
            (true, _) => (3 + random.scaled(7) as u8, Migratetype::Movable),
            (false, 0..7) => (0, Migratetype::Movable),
            (false, 7..9) => (0, Migratetype::Unmovable),
            (false, _) => (0, Migratetype::Reclaimable),
        };
        let Some(order) = Order::new(order) else { continue };
        let class = &mut classes[usize::from(large)];
        while class.frames + order.frames() > most && !class.held.is_empty() {
            let place = random.scaled(class.held.len() as u64) as usize;
            let (owner, chunk) = class.held.swap_remove(place);
            let freer = if random.scaled(5) == 0 { random.scaled(cpus) as u16 } else { owner };
            class.frames -= chunk.1.frames();
            books.free(freer, chunk);
        }
        if class.frames + order.frames() > most {
            continue;
        }
        if let Some(chunk) = books.alloc(cpu, order, migratetype) {
            class.frames += order.frames();
            class.held.push((cpu, chunk));
        }
        if step % (steps / 16).max(1) == 0 {
            (0..scenario.cpus).for_each(|cpu| books.tick(cpu));
        }
    }
    books.figures()
}
