//! What commands do unless told otherwise, where another command has to know it: a comparison names
//! what differs from it.

/// CPUs of a simulated machine at most.
pub const SIMULATED_CPUS_MAX: u16 = 1024;

/// Simulated milliseconds between two ticks of a CPU.
pub const TICK_MS: f64 = 1000.0;

/// Chunks that the workload `aging` of `freehold contiguity` allocates once memory is filled.
pub const ALLOCATIONS: u64 = 3_000_000;
