//! Whether each core still runs: a thread that goes round them all.
//!
//! A thread that is moved to a core goes on when that core has let it run. A core that has been
//! taken away, be it by the host of a virtual machine or by a program that does not give it back,
//! keeps it until then.

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this thread may use.
#[derive(Debug)]
pub(super) struct Cores {
    #[cfg(target_os = "linux")]
    all: CpuSet,
    #[cfg(target_os = "linux")]
    numbers: Vec<usize>,
}

#[cfg(target_os = "linux")]
impl Cores {
    /// All of them; none where the system does not say.
    pub(super) fn new() -> Self {
        let all = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        Self { numbers: (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect(), all }
    }

    /// Runs on each for a moment, and calls `there`; then on any of them again. A core that may not
    /// be used any more is passed over.
    pub(super) fn pass(&self, mut there: impl FnMut()) {
        for &cpu in &self.numbers {
            let mut one = CpuSet::new();
            one.set(cpu);
            if sched_setaffinity(None, &one).is_ok() {
                there();
            }
        }
        let _ = sched_setaffinity(None, &self.all);
    }
}

#[cfg(not(target_os = "linux"))]
impl Cores {
    /// They cannot be told apart here.
    pub(super) fn new() -> Self {
        Self {}
    }

    /// Nothing.
    pub(super) fn pass(&self, _: impl FnMut()) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::thread::sched_getcpu;

    use super::*;

    #[test]
    fn it_has_been_on_each_core_and_may_use_all_of_them_afterwards() {
        let cores = Cores::new();
        assert!(cores.numbers.contains(&sched_getcpu()), "{cores:?}");
        let mut seen = Vec::new();
        cores.pass(|| seen.push(sched_getcpu()));
        assert_eq!(seen, cores.numbers);
        assert_eq!(sched_getaffinity(None).unwrap(), cores.all);
    }
}
