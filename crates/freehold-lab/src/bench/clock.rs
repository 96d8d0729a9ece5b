//! Clocks, and threads that stay on their CPU.
//!
//! A loop that one thread runs alone is timed by that thread's CPU clock, so that a neighbour who
//! takes the core for a while is not counted as the engine's cost. Loops in which threads wait for
//! one another are timed by the wall clock: a thread that sleeps for a lock waits too.

use std::time::Duration;

use core_affinity::CoreId;
use rustix::time::{ClockId, clock_gettime};

/// CPU time that this thread has used.
pub fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// CPU time that `work` takes on this thread.
pub fn timed<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let start = thread_time();
    work()?;
    Ok(thread_time().saturating_sub(start))
}

/// The CPUs that threads of a benchmark stay on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cpus {
    cores: Vec<CoreId>,
}

impl Cpus {
    /// The CPUs that this process may use, in rising order; none where the system does not say.
    pub fn allowed() -> Self {
        let mut cores = core_affinity::get_core_ids().unwrap_or_default();
        cores.sort();
        Self { cores }
    }

    pub fn count(&self) -> usize {
        self.cores.len()
    }

    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.cores.iter().map(|core| core.id)
    }

    /// Keeps this thread on the `index`-th of them; `false` where the system does not let it.
    pub fn pin(&self, index: usize) -> bool {
        self.cores.get(index).is_some_and(|&core| core_affinity::set_for_current(core))
    }
}
