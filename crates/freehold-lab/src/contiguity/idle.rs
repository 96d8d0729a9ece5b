//! `idle`: all CPUs are busy with half of memory, then it is freed but for a little, and nobody
//! does anything but tick.

use freehold::{Migratetype, Order};

use super::books::{Books, Held};
use super::figure::{About, Figures, IDLE, LOCKS, SHARED_WRITES, UNUSABLE9};

pub(super) const ABOUT: About = About {
    name: "idle",
    what: "All CPUs use half of memory, then all but 2.5 % is freed and every CPU ticks 16 times; \
           what the CPUs still hold is counted.",
    levels: &[Some(50)],
    figures: &[IDLE, UNUSABLE9, LOCKS, SHARED_WRITES],
};

/// Of memory, in use at the end: thousandths.
const LEFT: u64 = 25;
const TICKS: u32 = 16;

pub(super) fn run(books: &mut Books<'_>, used_percent: u8) -> Figures {
    let busy = books.managed() * u64::from(used_percent) / 100;
    let mut held = Held::default();
    books.begin();
    // Filled, and then replaced in part, so that what is free lies where a busy machine has it.
    for _ in 0..busy {
        let cpu = books.any_cpu();
        while books.live >= busy && held.free_one(books) {}
        let (order, migratetype) = match books.random.scaled(100) {
            0..75 => (0, Migratetype::Movable),
            75..85 => (0, Migratetype::Unmovable),
            85..92 => (0, Migratetype::Reclaimable),
            92..96 => (2, Migratetype::Movable),
            _ => (3, Migratetype::Unmovable),
        };
        let Some(chunk) = books.alloc(cpu, Order::new(order).unwrap_or(Order::ZERO), migratetype)
        else {
            continue;
        };
        held.push(cpu, chunk);
    }
    let left = books.managed() * LEFT / 1000;
    while books.live > left {
        let Some((owner, chunk)) = held.draw(&mut books.random) else { break };
        books.free(owner, chunk);
    }
    for _ in 0..TICKS {
        books.tick_all();
    }
    let memory = books.engine.memory();
    let idle_share = memory.pcp_frames as f64 / memory.managed_frames as f64;
    Figures { idle_share: Some(idle_share), ..books.figures() }
}
