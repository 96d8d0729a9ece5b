//! The calls: allocating and freeing, through whichever door.
//!
//! | file | what |
//! |---|---|
//! | [`handles`] | `On`, `Owned` and the calls without a CPU: three doors to the same code |
//! | [`short`] | the short ways of both, where the CPU has what it takes |
//! | [`alloc`] | one chunk of up to a block: step by step further away |
//! | [`bulk`] | many single frames |
//! | [`free`] | frames of one word |
//! | [`range`] | chunks and ranges: blocks and words, checked before anything changes |
//! | [`large`] | orders above 9 |
//! | [`limited`] | requests within address limits |

pub(crate) mod alloc;
pub(crate) mod bulk;
pub(crate) mod free;
pub(crate) mod handles;
pub(crate) mod large;
pub(crate) mod limited;
pub(crate) mod range;
pub(crate) mod short;
