//! What calls of Freehold wait: for the door of a CPU that somebody else asked.

use std::cell::Cell;
use std::time::Instant;

use freehold_labkit::engine::Engine;
use freehold_labkit::engines::{self, Counting, EngineError, EngineSpec, MachineConfig};
use freehold_trials::threads::{HostThreads, heavy_barrier};

/// Turns of a wait before the processor is left to others: whoever is waited for may need it.
const SPINS: u32 = 64;

std::thread_local! {
    /// Of the call that this thread is in: turns waited, when the first was and when the last.
    static WAIT: Cell<Option<(u32, Instant, Instant)>> = const { Cell::new(None) };
}

/// Builds an engine for threads, each of which owns its CPU.
pub fn build(spec: &EngineSpec, machine: &MachineConfig) -> Result<Box<dyn Engine>, EngineError> {
    let barrier = HostThreads::new().has_barrier().then_some(heavy_barrier as fn());
    engines::build_for(spec, machine, Some(Counting::new(barrier, relax)))
}

fn relax() {
    let (turns, begun) =
        WAIT.get().map_or_else(|| (0, Instant::now()), |(turns, begun, _)| (turns, begun));
    if turns < SPINS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
    WAIT.set(Some((turns.saturating_add(1), begun, Instant::now())));
}

/// A call of this thread has ended: the nanoseconds that it waited, if it did.
pub(super) fn ended() -> Option<u64> {
    let (_, begun, last) = WAIT.take()?;
    Some(u64::try_from(last.duration_since(begun).as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turns_of_one_call_are_one_wait() {
        assert_eq!(ended(), None);
        for _ in 0..2 {
            (0..100).for_each(|_| relax());
            assert!(ended().is_some());
            assert_eq!(ended(), None);
        }
    }
}
