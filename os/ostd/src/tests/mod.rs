//! What OSTD's tests do not ask. First, that its frames are Freehold's. Then, what only a
//! processor's own page tables can judge.

mod dirty_bits;
mod frames;
mod space;
mod tables;
