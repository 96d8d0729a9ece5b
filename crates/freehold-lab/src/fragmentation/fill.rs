//! `fill`: chunks of one order until the first failure, by CPUs in random order.
//!
//! A failure is a false one where the same request succeeds after all CPUs have given back what they hold: the memory
//! was there.

use freehold::{Migratetype, Order};

use super::aging::random;
use super::books::Books;
use super::cell::{About, Scenario};
use super::figure::{FALSE, FULL, Figures, GROUP_LOCKS, LOCKS};

pub(super) const ABOUT: About = About {
    name: "fill",
    what: "Chunks of one order (0, 3, 4, 9) until an allocation fails: how much of memory is in use \
           then, and whether the failure was a false one.",
    levels: &[None],
    orders: &[Some(0), Some(3), Some(4), Some(9)],
    figures: &[FULL, FALSE, LOCKS, GROUP_LOCKS],
    best: "Fullest at the first failure",
};

pub(super) fn run(scenario: &Scenario, books: &mut Books<'_>) -> Figures {
    let order = scenario.order.and_then(Order::new).unwrap_or(Order::ZERO);
    let mut random = random(scenario.seed);
    let mut any = || random.scaled(u64::from(scenario.cpus)) as u16;
    books.begin();
    while books.alloc(any(), order, Migratetype::Movable).is_some() {}
    let figures = books.figures();
    // Looked at last: it changes what it looks at.
    let full = books.live();
    books.drain_all();
    let again = books.alloc(0, order, Migratetype::Movable);
    if let Some(chunk) = again {
        books.free(0, chunk);
    }
    debug_assert_eq!(books.live(), full);
    Figures { false_failures: Some(u64::from(again.is_some())), ..figures }
}
