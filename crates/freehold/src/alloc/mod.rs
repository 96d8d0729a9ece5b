//! Allocating. Begin with [`ladder`].
//!
//! | file | what |
//! |---|---|
//! | [`fast`] | the fast way: what the CPU has in hand, or has freed last |
//! | [`ladder`] | the slow way: all else, step by step |
//! | [`pick`] | which block the next frames come from |
//! | [`lease`] | words go to a CPU and come back |
//! | [`reserve`] | blocks are kept for requests that may not wait |
//! | [`bulk`] | many single frames |
//! | [`chunk`] | a hand for one chunk of whole words |
//! | [`placed`] | within address limits, aligned to more than their size, above order 9 |
//! | [`runs`] | runs of any number of frames; by their place, for an owner that remembers it |
//! | [`watch`] | a request is about to fail: the last looks; it is not tried again without need |

pub(crate) mod bulk;
pub(crate) mod chunk;
pub(crate) mod fast;
pub(crate) mod ladder;
pub(crate) mod lease;
pub(crate) mod pick;
pub(crate) mod placed;
pub(crate) mod reserve;
pub(crate) mod runs;
pub(crate) mod watch;
