//! What the commands share that try engines on work of their own, and what a replay has no use for:
//! a first build of the `freehold` command does without it.
//!
//! | room | what |
//! |---|---|
//! | [`simulated`] | engines as the simulator needs them |
//! | [`threads`] | threads as CPUs |
//! | [`kinds`] | workloads and peers by name, listed and described |
//! | [`random`] | the numbers that workloads draw |
//! | [`pool`] | many pieces of work on several threads |
//! | [`defaults`] | what a comparison must know of another command's options |

pub mod defaults;
#[cfg(feature = "simulate")]
pub mod kinds;
pub mod pool;
pub mod random;
pub mod simulated;
pub mod threads;
