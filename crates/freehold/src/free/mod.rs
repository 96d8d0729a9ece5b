//! Freeing. No step waits.
//!
//! | file | what |
//! |---|---|
//! | [`fast`] | the fast way: into the hand, or straight into the word |
//! | [`word`] | frames of one word, and what is wrong with a free |
//! | [`range`] | chunks and ranges: blocks and words, all looked at before anything changes |

pub(crate) mod fast;
pub(crate) mod range;
pub(crate) mod word;
