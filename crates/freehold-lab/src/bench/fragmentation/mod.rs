//! What a design does to contiguity, over machines of many shapes: `freehold bench fragmentation`.
//!
//! ```text
//!  cell      one workload, machine, seed and engine; what came of it       books   every chunk in use, and its type
//!  grid      which cells, on how many threads, in what order               output  tables and JSON
//!  random    cells that nobody chose                                       beside  engines beside the first, worst first
//!  kernel_build, aging, idle, fill, two_cpu_mix   the workloads
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
mod cell;
mod figure;
mod fill;
mod grid;
mod idle;
mod kernel_build;
pub mod output;
mod random;
mod two_cpu_mix;

pub use beside::{Comparison, Row, TOLERANCE, Tally};
pub use cell::{Scenario, Workload};
pub use figure::{ByOrder, Cell, Figures};
pub use grid::{Grid, MEMORY_MOST, Outcome, run};
pub use random::{DRAWN, Draw, QUICK_ALLOCATIONS};
