//! The scoreboard's protocol, small enough to be read, searched in every interleaving.
//!
//! ```text
//! machine   the cells that all threads share, and what must be true of them
//! calls     what each call does to the cells, one access after the other: the protocol, with
//!           board     classes, rows, whole blocks
//!           leases    words go to CPUs and come back
//! access    one access of a call at a time
//! search    every interleaving of a few threads' calls, breadth first
//! ```
//!
//! A call is an ordinary function over the cells. The search runs it again from its beginning for
//! each further access, with what it has read before (its log) and stops it there: so a world is
//! the cells and a log for each thread, and the code here can be read beside the code it describes.
//! `docs/model.md` says what is modelled and what is not.

mod access;
mod board;
mod calls;
mod leases;
mod machine;
mod search;

pub use calls::{Bug, Call};
pub use machine::{Machine, World};
pub use search::{Outcome, search};
