//! All CPUs at one test: they wait for each other between its steps, and give up together when one
//! of them fails.

use core::sync::atomic::{AtomicUsize, Ordering};

use spin::Once;

use super::{Failure, Frames, Machine};

/// See the module's documentation.
pub struct Team<'a, M> {
    machine: &'a M,
    failure: Once<Failure>,
    /// How many have come to all meetings so far, together.
    arrived: AtomicUsize,
}

/// One CPU of a team.
pub struct Member<'a, M: Machine> {
    /// Its number.
    pub cpu: usize,
    /// Its handle.
    pub frames: &'a Frames<M::Platform>,
    /// The machine.
    pub machine: &'a M,
    team: &'a Team<'a, M>,
}

impl<'a, M: Machine> Team<'a, M> {
    /// Runs `f` on all CPUs.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn run(
        machine: &'a M,
        f: impl Fn(&Member<'_, M>) -> Result<(), Failure> + Sync,
    ) -> Result<(), Failure> {
        let team = Team { machine, failure: Once::new(), arrived: AtomicUsize::new(0) };
        machine.on_all(&|cpu, frames| {
            let member = Member { cpu, frames, machine, team: &team };
            if let Err(failure) = f(&member) {
                // The first that comes is kept.
                team.failure.call_once(|| failure);
            }
        });
        team.failure.get().map_or(Ok(()), |&failure| Err(failure))
    }
}

impl<M: Machine> Member<'_, M> {
    /// Waits until all have come here as often as this one.
    ///
    /// # Errors
    ///
    /// Where another one has failed. Its failure is the one that is told.
    pub fn meet(&self) -> Result<(), Failure> {
        let cpus = self.team.machine.cpus();
        // AcqRel: what each did before a meeting comes before what any does after it.
        let mine = self.team.arrived.fetch_add(1, Ordering::AcqRel);
        let all = (mine / cpus + 1) * cpus;
        if mine + 1 == all {
            self.machine.wake();
        }
        // Acquire: as above.
        let done =
            || self.team.arrived.load(Ordering::Acquire) >= all || self.team.failure.is_completed();
        self.machine.wait(&done);
        if self.team.failure.is_completed() {
            return Err(Failure { what: "another CPU failed", found: 0, expected: 0 });
        }
        Ok(())
    }
}
