//! The self-test and the benchmarks of the page allocator, written once and run in two places: on
//! the kernel's CPUs, and on a process's threads (`tests/user_space.rs`,
//! `examples/user_space.rs`).
//!
//! What differs is behind [`Machine`]: how work gets to the CPUs, what a frame's memory is, what
//! time it is. There is no heap: chunks under test are chained through their own memory
//! ([`Chain`]).
//!
//! After each test everything must be home: as many frames free as before and as many whole blocks,
//! and all of the allocator's invariants hold.

use core::fmt;
use core::sync::atomic::AtomicU64;

use freehold::{Freehold, Owned, Platform};

pub mod bench;
mod chain;
mod churn;
mod exhaustion;
mod home;
mod hotplug;
mod orders;
mod remote;
mod team;
mod wrong;

pub use chain::{Chain, stamp, stamped};
pub use churn::Numbers;
pub use home::Home;
pub use team::{Member, Team};

/// A CPU's own handle into the allocator.
pub type Frames<P> = Owned<'static, 'static, P>;

/// Where the tests run.
pub trait Machine: Sync {
    /// The allocator's host.
    type Platform: Platform + 'static;

    /// The allocator.
    fn freehold(&self) -> &'static Freehold<'static, Self::Platform>;

    /// How many CPUs there are, all of them online.
    fn cpus(&self) -> usize;

    /// Runs `f` on all CPUs at once, with their numbers and handles; returns when all are through.
    fn on_all(&self, f: &(dyn Fn(usize, &Frames<Self::Platform>) + Sync));

    /// A frame's memory. Words that anybody may use: two users of one frame must show as a wrong
    /// value.
    fn words(&self, pfn: freehold::Pfn) -> &[AtomicU64; 512];

    /// Waits until `done`.
    fn wait(&self, done: &dyn Fn() -> bool);

    /// Ends the waits of all CPUs for something that has just come true. Where waiting is looking
    /// all the time, nothing.
    fn wake(&self) {}

    /// Takes a CPU from the allocator ([`Freehold::cpu_offline`]), its handle first; or brings it
    /// back.
    fn set_online(&self, cpu: usize, online: bool);

    /// Gives back what the machine has allocated for itself and does not need any more. Nothing
    /// runs meanwhile.
    fn tidy(&self) {}

    /// Nanoseconds since some moment.
    fn nanoseconds(&self) -> u64;

    /// How often a CPU has made all others pass a memory barrier.
    fn heavy_barriers(&self) -> u64;

    /// Prints a line.
    fn print(&self, line: fmt::Arguments<'_>);
}

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// In words.
    pub what: &'static str,
    /// The value found.
    pub found: u64,
    /// The value expected, or the bound.
    pub expected: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (found {:#x}, expected {:#x})", self.what, self.found, self.expected)
    }
}

/// `found` must be `expected`.
///
/// # Errors
///
/// The failure, where it is not.
pub fn same(what: &'static str, found: u64, expected: u64) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(Failure { what, found, expected }) }
}

/// `found` must be at least `least`.
///
/// # Errors
///
/// The failure, where it is not.
pub fn at_least(what: &'static str, found: u64, least: u64) -> Result<(), Failure> {
    if found >= least { Ok(()) } else { Err(Failure { what, found, expected: least }) }
}

/// It must be so.
///
/// # Errors
///
/// The failure, where it is not.
pub fn holds(what: &'static str, so: bool) -> Result<(), Failure> {
    same(what, u64::from(so), 1)
}

/// A call of the allocator's that must succeed.
///
/// # Errors
///
/// The failure; the error itself is printed.
pub fn succeeds<T, E: fmt::Display>(
    machine: &impl Machine,
    what: &'static str,
    result: Result<T, E>,
) -> Result<T, Failure> {
    result.map_err(|error| {
        machine.print(format_args!("    {what}: {error}"));
        Failure { what, found: 0, expected: 1 }
    })
}

/// A self-test.
pub struct Test<M> {
    /// In a few words.
    pub name: &'static str,
    /// Does it.
    pub run: fn(&M) -> Result<(), Failure>,
}

/// The tests of the page allocator.
#[must_use]
pub fn tests<M: Machine>() -> [Test<M>; 9] {
    [
        Test { name: "every order on every CPU", run: orders::every_order },
        Test { name: "orders above a pageblock", run: orders::large },
        Test { name: "memory below 16 MiB", run: orders::low },
        Test { name: "churn of stamped chunks", run: churn::churn },
        Test { name: "remote frees go home", run: remote::ring },
        Test { name: "a chunk freed in parts by all CPUs", run: remote::parts },
        Test { name: "wrong frees are refused", run: wrong::refused },
        Test { name: "out of memory and back", run: exhaustion::exhaustion },
        Test { name: "CPUs go offline and come back", run: hotplug::hotplug },
    ]
}

/// How the tests went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Tests that passed.
    pub passed: u32,
    /// Tests that failed.
    pub failed: u32,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// Runs those tests whose names contain `only`, each followed by a look whether everything came
/// home, and prints how each went.
pub fn run<M: Machine>(machine: &M, tests: &[Test<M>], only: &str, summary: &mut Summary) {
    for test in tests.iter().filter(|test| test.name.contains(only)) {
        let home = Home::now(machine);
        let start = machine.nanoseconds();
        let result = (test.run)(machine).and_then(|()| home.check(machine));
        let milliseconds = (machine.nanoseconds() - start) / 1_000_000;
        match result {
            Ok(()) => {
                summary.passed += 1;
                machine.print(format_args!("ok    {} ({milliseconds} ms)", test.name));
            }
            Err(failure) => {
                summary.failed += 1;
                machine.print(format_args!("FAIL  {}: {failure}", test.name));
            }
        }
    }
}
