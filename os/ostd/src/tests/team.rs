//! All CPUs at one test: they wait for each other between its steps, and give up together when one
//! of them fails.
//!
//! A failure is a value, not a panic: OSTD's runner catches panics of the first CPU only.

use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

use ostd::early_println;
use spin::Once;

use crate::machine::{cpu, zone};

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    /// In words.
    pub(super) what: &'static str,
    /// The value found.
    pub(super) found: u64,
    /// The value expected, or the bound.
    pub(super) expected: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (found {:#x}, expected {:#x})", self.what, self.found, self.expected)
    }
}

/// Prints a line. OSTD's macro takes no names in its text.
pub(super) fn say(line: fmt::Arguments<'_>) {
    early_println!("{}", line);
}

/// `found` must be `expected`.
pub(super) fn same(what: &'static str, found: u64, expected: u64) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(Failure { what, found, expected }) }
}

/// `found` must be at least `least`.
pub(super) fn at_least(what: &'static str, found: u64, least: u64) -> Result<(), Failure> {
    if found >= least { Ok(()) } else { Err(Failure { what, found, expected: least }) }
}

/// It must be so.
pub(super) fn holds(what: &'static str, so: bool) -> Result<(), Failure> {
    same(what, u64::from(so), 1)
}

/// A call that must succeed; its error is printed.
pub(super) fn succeeds<T, E: fmt::Display>(
    what: &'static str,
    result: Result<T, E>,
) -> Result<T, Failure> {
    result.map_err(|error| {
        say(format_args!("    {what}: {error}"));
        Failure { what, found: 0, expected: 1 }
    })
}

/// What is free in the zone when nothing runs: frames, whole blocks; and double frees that showed
/// late.
fn home() -> [u64; 3] {
    zone::freehold().drain_all();
    let stats = zone::freehold().zone_stats(0).expect("the zone");
    [stats.free, stats.free_blocks, zone::freehold().totals().late_double_frees]
}

/// Runs a test on the zone. Afterwards as many frames must be free and as many blocks whole as
/// before, and every invariant of the allocator must hold, while CPUs hold frames and after.
///
/// # Panics
///
/// Where the test fails, or not all came home.
pub(super) fn test(run: impl FnOnce() -> Result<(), Failure>) {
    cpu::start();
    early_println!();
    let before = home();
    run().unwrap_or_else(|failure| panic!("{failure}"));
    zone::freehold().validate().unwrap_or_else(|violation| panic!("{violation}"));
    let after = home();
    zone::freehold().validate().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(after, before, "free frames, whole blocks, late double frees");
}

/// See the module's documentation.
pub(super) struct Team {
    failure: Once<Failure>,
    /// How many have come to all meetings so far, together.
    arrived: AtomicUsize,
}

/// One CPU of a team.
pub(super) struct Member<'a> {
    /// Its number.
    pub(super) cpu: usize,
    team: &'a Team,
}

impl Team {
    /// Runs `f` on all CPUs.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub(super) fn run(
        f: impl Fn(&Member<'_>) -> Result<(), Failure> + Sync,
    ) -> Result<(), Failure> {
        let team = Self { failure: Once::new(), arrived: AtomicUsize::new(0) };
        cpu::run_on_all(&|cpu| {
            let member = Member { cpu, team: &team };
            if let Err(failure) = f(&member) {
                // The first that comes is kept.
                team.failure.call_once(|| failure);
            }
        });
        team.failure.get().map_or(Ok(()), |&failure| Err(failure))
    }
}

impl Member<'_> {
    /// Waits until all have come here as often as this one.
    ///
    /// # Errors
    ///
    /// Where another one has failed. Its failure is the one that is told.
    pub(super) fn meet(&self) -> Result<(), Failure> {
        let cpus = cpu::count();
        // AcqRel: what each did before a meeting comes before what any does after it.
        let mine = self.team.arrived.fetch_add(1, Ordering::AcqRel);
        let all = (mine / cpus + 1) * cpus;
        if mine + 1 == all {
            cpu::wake_others();
        }
        // Acquire: as above.
        let done =
            || self.team.arrived.load(Ordering::Acquire) >= all || self.team.failure.is_completed();
        cpu::wait_until(done);
        if self.team.failure.is_completed() {
            return Err(Failure { what: "another CPU failed", found: 0, expected: 0 });
        }
        Ok(())
    }
}
