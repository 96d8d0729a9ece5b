//! Loops that several threads run, each on a CPU of its own.

use std::sync::OnceLock;
use std::thread;

use super::calls::Refused;
use super::clock::Cpus;

/// Does `work` on so many CPUs at once, each by a thread that stays there, the first by this one:
/// what each has found.
pub(super) fn on_cpus<T: Send + Sync>(
    cpus: &Cpus,
    threads: u16,
    work: impl Fn(u16) -> Result<T, Refused> + Sync,
) -> Result<Vec<T>, Refused> {
    let found: Vec<OnceLock<Result<T, Refused>>> = (0..threads).map(|_| OnceLock::new()).collect();
    beside(threads, &|index| {
        cpus.pin(usize::from(index));
        let result = work(index);
        assert!(found[usize::from(index)].set(result).is_ok(), "CPU {index} has worked twice");
    });
    found.into_iter().filter_map(OnceLock::into_inner).collect()
}

/// Does `work` on so many threads at once, the first of them this one. Not generic: threads are
/// much to compile for each of an engine's workloads.
fn beside(threads: u16, work: &(dyn Fn(u16) + Sync)) {
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|index| scope.spawn(move || work(index))).collect();
        work(0);
        others.into_iter().for_each(joined);
    });
}

/// A panic of the thread goes on in this one.
pub(super) fn joined<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
