//! What OSTD's tests do not ask. First, that its frames are Freehold's. Then, what only a
//! processor's own page tables and interrupts can judge.

mod dirty_bits;
mod frames;
mod race;
mod shootdown;
mod space;
mod tables;
mod team;
