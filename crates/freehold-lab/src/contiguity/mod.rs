//! What a design does to contiguity, over machines of many shapes: `freehold contiguity`.
//!
//! ```text
//!  cell      one workload, machine, seed and engine  books   every frame in use, and its type
//!  grid      which cells, on how many threads        output  tables and JSON
//!  random    cells that nobody chose                 beside  engines beside the first, worst first
//!  kernel_build, aging, idle, two_cpu_mix            the workloads; full: those that fill memory
//!  engine    what can be named; bound: best fit      moment  memory as such a load goes on; runs:
//!                                                            of a block
//!  moving    blocks emptied afterwards                scanners  the kernel's compaction
//!  cli       the command                             picture   memory before and after
//! ```
//!
//! Only counts, no times: the same arguments give the same figures, byte for byte, on any machine.
//! One thread plays all CPUs in turn. Freehold's CPUs are owned, each by its own handle: that is
//! what a kernel does, whose CPU is nobody else's; calls that name a CPU are for hosts that have no
//! CPUs of their own.
//!
//! What is in use is kept in books of the lab's own, so "no frame lost" and "types mixed in a
//! block" are found the same way for every engine.

mod aging;
mod beside;
mod books;
mod bound;
mod cell;
pub mod cli;
mod contiguitas;
mod engine;
mod figure;
mod full;
mod grid;
mod idle;
mod kernel_build;
mod moment;
mod moving;
pub mod output;
mod picture;
mod random;
mod regions;
mod runs;
mod scanners;
mod two_cpu_mix;

pub use beside::{Comparison, Row, TOLERANCE, Tally};
pub use bound::Bound;
pub use cell::{Scenario, Workload};
pub use engine::GridEngine;
pub use figure::{ByOrder, Cell, Figures, Layout, Moment, Moved, Movement, Regions};
pub use grid::{Grid, MEMORY_MOST};
pub use random::{DRAWN, DRAWN_IF_NAMED, Draw, QUICK_ALLOCATIONS};
