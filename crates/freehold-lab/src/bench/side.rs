//! One of those that take turns in a benchmark: a page allocator, a way of mapping, the system
//! itself.
//!
//! What it is made of differs from benchmark to benchmark; the runner knows only that it has turns,
//! and may be looked at when they are over. The one call through a table that a run makes is that
//! of a turn, outside the loops.

use super::gathered::Gathered;

type Turn<'a> = Box<dyn FnMut(usize, &mut Gathered) -> Result<(), String> + 'a>;

pub(super) struct Side<'a> {
    /// As progress and errors name it.
    pub(super) name: String,
    /// Measures once; told how many turns there have been.
    pub(super) turn: Turn<'a>,
    /// Says what is not whole when its turns are over.
    pub(super) check: Box<dyn Fn() -> Result<(), String> + 'a>,
}

impl<'a> Side<'a> {
    /// One that has nothing to be looked at afterwards.
    pub(super) fn new(
        name: impl Into<String>,
        turn: impl FnMut(usize, &mut Gathered) -> Result<(), String> + 'a,
    ) -> Self {
        Self { name: name.into(), turn: Box::new(turn), check: Box::new(|| Ok(())) }
    }

    pub(super) fn checked(self, check: impl Fn() -> Result<(), String> + 'a) -> Self {
        Self { check: Box::new(check), ..self }
    }
}
