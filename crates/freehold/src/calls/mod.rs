//! The calls: allocating and freeing, on whichever CPU and through whichever door.
//!
//! | file | what |
//! |---|---|
//! | [`frames`] | `Frames`, the calls as a trait |
//! | [`handle`] | `Handle`, the calls of one CPU; `On` and `Owned` by name |
//! | [`door`] | how a handle gets into its CPU's state |
//! | [`chunk`] | the calls of a single chunk, from their first instruction |
//! | [`short`] | the short ways of both, where the CPU has what it takes |
//! | [`alloc`] | one chunk of up to a block: step by step further away |
//! | [`bulk`] | many single frames |
//! | [`free`] | frames of one word |
//! | [`range`] | chunks and ranges: blocks and words, checked before anything changes |
//! | [`large`] | orders above 9 |
//! | [`limited`] | requests within address limits |
//! | [`fit`] | runs of any number of frames |

pub(crate) mod alloc;
pub(crate) mod bulk;
pub(crate) mod chunk;
pub(crate) mod door;
pub(crate) mod fit;
pub(crate) mod frames;
pub(crate) mod free;
pub(crate) mod handle;
pub(crate) mod large;
pub(crate) mod limited;
pub(crate) mod range;
pub(crate) mod short;
