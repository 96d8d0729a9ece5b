//! `two-cpu-mix`: single frames and large chunks side by side on few CPUs, at many levels of use: what is left whole.

use freehold::{Migratetype, Order};

use super::aging::random;
use super::books::{Books, Held};
use super::cell::{About, Scenario};
use super::figure::{FREE, Figures, GROUP_LOCKS, LOCKS, MIXED, ORDER9};

pub(super) const ABOUT: About = About {
    name: "two-cpu-mix",
    what: "Half of the memory in use is single frames, half chunks of orders 3 to 9, at 10 to 80 % of \
           memory; one free in five is by another CPU. Wholly free blocks at the end.",
    levels: &[Some(10), Some(20), Some(30), Some(40), Some(50), Some(60), Some(70), Some(80)],
    orders: &[None],
    figures: &[FREE, ORDER9, LOCKS, GROUP_LOCKS, MIXED],
    best: "Most wholly free blocks",
};

pub(super) fn run(scenario: &Scenario, books: &mut Books<'_>) -> Figures {
    let cpus = u64::from(scenario.cpus);
    let mut random = random(scenario.seed);
    let most = books.managed() * u64::from(scenario.used_percent.unwrap_or(50)) / 200;
    let mut classes = [Held::default(), Held::default()];
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
        while class.frames + order.frames() > most && class.free_one(books, &mut random, scenario.cpus) {}
        if class.frames + order.frames() > most {
            continue;
        }
        if let Some(chunk) = books.alloc(cpu, order, migratetype) {
            class.push(cpu, chunk);
        }
        if step % (steps / 16).max(1) == 0 {
            (0..scenario.cpus).for_each(|cpu| books.tick(cpu));
        }
    }
    books.figures()
}
