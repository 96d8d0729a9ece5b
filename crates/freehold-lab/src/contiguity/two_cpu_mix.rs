//! `two-cpu-mix`: single frames and large chunks side by side on few CPUs, at many levels of use:
//! what is left whole.

use freehold::{Migratetype, Order};

use super::books::{Books, Held};
use super::figure::{About, FREE, Figures, LOCKS, MIXED, ORDER9, SHARED_WRITES};

pub(super) const ABOUT: About = About {
    name: "two-cpu-mix",
    what: "Half of the memory in use is single frames, half chunks of orders 3 to 9, at 10 to 80 % \
           of memory; one free in ten is by another CPU. Wholly free blocks at the end.",
    levels: &[Some(10), Some(20), Some(30), Some(40), Some(50), Some(60), Some(70), Some(80)],
    figures: &[FREE, ORDER9, LOCKS, SHARED_WRITES, MIXED],
};

pub(super) fn run(books: &mut Books<'_>, used_percent: u8, steps: u64) -> Figures {
    let most = books.managed() * u64::from(used_percent) / 200;
    let mut classes = [Held::default(), Held::default()];
    books.begin();
    // Enough to fill both halves, and those that age them.
    for step in 0..steps + 2 * most {
        if step % (steps / 16).max(1) == 0 {
            books.tick_all();
        }
        let cpu = books.any_cpu();
        // As many frames in large chunks as in single ones; once that is so, one chunk in 50 is
        // large.
        let large = classes[1].frames + Order::PAGEBLOCK.frames() < classes[0].frames
            || books.random.scaled(50) == 0;
        let (order, migratetype) = match (large, books.random.scaled(10)) {
            (true, _) => (3 + books.random.scaled(7) as u8, Migratetype::Movable),
            (false, 0..7) => (0, Migratetype::Movable),
            (false, 7..9) => (0, Migratetype::Unmovable),
            (false, _) => (0, Migratetype::Reclaimable),
        };
        let Some(order) = Order::new(order) else { continue };
        let class = &mut classes[usize::from(large)];
        while class.frames + order.frames() > most && class.free_one(books) {}
        if class.frames + order.frames() > most {
            continue;
        }
        if let Some(chunk) = books.alloc(cpu, order, migratetype) {
            class.push(cpu, chunk);
        }
    }
    books.figures()
}
