//! Address spaces on real memory, in a process of their own: most tests here fork
//! children, of which some must end by a signal.

#[path = "../common/mod.rs"]
mod common;
mod defects;
mod model;
