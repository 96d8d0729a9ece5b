//! The calls of the interface: on whichever CPU, and through whichever door.
//!
//! | file | what |
//! |---|---|
//! | [`frames`] | `Frames`, the calls as a trait |
//! | [`handle`] | `Handle`, the calls of one CPU; `On` and `Owned` by name; their doors |

pub(crate) mod frames;
pub(crate) mod handle;
