//! What one CPU has: words it leases, what it freed last, a whole block or two, the door to it all.
//!
//! | file | what |
//! |---|---|
//! | [`door`] | getting in: nearly free for the owner, one compare-exchange for anybody else |
//! | [`lease`] | the leased words and what of them is in hand |
//! | [`recent`] | what it has freed last, to be looked for in its words |
//! | [`state`] | all of it together, and what it counts |
//! | [`recall`] | what CPUs have goes back: ticks, drains, and others' leases, with one heavy barrier for all |
//! | [`by`] | who does something: a CPU, entered, or somebody outside of all |

pub(crate) mod by;
pub(crate) mod door;
pub(crate) mod lease;
pub(crate) mod recall;
pub(crate) mod recent;
pub(crate) mod state;
