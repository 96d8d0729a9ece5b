//! Freeing. No step waits.
//!
//! | file | what |
//! |---|---|
//! | [`fast`] | the fast way: into the hand, or straight into the word |
//! | [`slow`] | the slow way: frames of one word, chunks and ranges, and what is wrong with a free |

pub(crate) mod fast;
pub(crate) mod slow;
