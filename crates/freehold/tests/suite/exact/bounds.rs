//! The most that each call may cost: docs/bounds.md as code.
//!
//! A wait is as long as another CPU's hold of a lock, and some calls try again as often as another
//! CPU succeeds: these have no bound. While one thread runs alone nobody else does.

/// On whom a call may wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    Nobody,
    /// On whoever is inside a CPU: alone on nobody.
    Door,
    /// On CPUs that have blocks of a range. It asks for each as often as others take it: without a
    /// bound, but alone.
    Blocks,
}

/// What calls of a kind may cost at most.
#[derive(Clone, Copy)]
pub(crate) struct Most {
    name: &'static str,
    waits: Waits,
    /// Heavy barriers: of the CPU's owner, and of anybody else, who takes one to get in where there
    /// is an owner, and again after each time that the call was outside.
    barriers: [u64; 2],
}

/// A call that waits for nobody, and keeps nobody out of a CPU.
pub(crate) const fn free(name: &'static str) -> Most {
    Most { name, waits: Waits::Nobody, barriers: [0, 0] }
}

/// A call that may wait for a door, with so many barriers of the owner and of anybody.
pub(crate) const fn door(name: &'static str, owner: u64, anybody: u64) -> Most {
    Most { name, waits: Waits::Door, barriers: [owner, anybody] }
}

/// A call that collects blocks; alone it takes so many barriers.
pub(crate) const fn blocks(name: &'static str, barriers: u64) -> Most {
    Most { name, waits: Waits::Blocks, barriers: [barriers; 2] }
}

/// Who makes a call.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) owns: bool,
    pub(crate) is_alone: bool,
    /// Every bound is taken for half of what it is, to see that it is reached and noticed.
    pub(crate) halved: bool,
}

impl Most {
    /// Whether that many turns of waits and heavy barriers are within it.
    pub(crate) fn check(self, by: Caller, (waits, barriers): (u64, u64)) -> Result<(), String> {
        let most = match self.waits {
            Waits::Blocks if !by.is_alone => u64::MAX,
            _ => self.barriers[usize::from(!by.owns)] >> u32::from(by.halved),
        };
        let waits_never = self.waits == Waits::Nobody || self.waits == Waits::Door && by.is_alone;
        let told = |cost: u64, of: &str, most: u64| {
            let who = if by.owns { " (owner)" } else { "" };
            Err(format!("{}{who}: {cost} {of}, and {most} are the most there may be", self.name))
        };
        if waits > 0 && waits_never {
            told(waits, "turns of waits", 0)
        } else if barriers > most {
            told(barriers, "heavy barriers", most)
        } else {
            Ok(())
        }
    }
}
