//! `fill`: chunks of one order until the first failure, by CPUs in random order.
//!
//! A failure is a false one where the same request succeeds after all CPUs have given back what
//! they hold: the memory was there.

use freehold::{Migratetype, Order};

use super::books::Books;
use super::figure::{About, FALSE, FULL, Figures, LOCKS, SHARED_WRITES};

pub(super) const ABOUT: About = About {
    name: "fill",
    what: "Chunks of one order (0, 3, 4, 9) until an allocation fails: how much of memory is in \
           use \
           then, and whether the failure was a false one.",
    levels: &[None],
    orders: &[Some(0), Some(3), Some(4), Some(9)],
    figures: &[FULL, FALSE, LOCKS, SHARED_WRITES],
    best: "Fullest at the first failure",
};

pub(super) fn run(books: &mut Books<'_>, order: Order) -> Figures {
    books.begin();
    loop {
        let cpu = books.any_cpu();
        if books.alloc(cpu, order, Migratetype::Movable).is_none() {
            break;
        }
    }
    let figures = books.figures();
    // Looked at last: it changes what it looks at.
    books.drain_all();
    let again = books.alloc(0, order, Migratetype::Movable);
    if let Some(chunk) = again {
        books.free(0, chunk);
    }
    // A full machine has no free memory to speak of.
    Figures {
        unusable: None,
        unusable_lists: None,
        false_failures: Some(u64::from(again.is_some())),
        ..figures
    }
}
