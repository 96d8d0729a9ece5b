//! Every adapter but the global allocator's, which has a program of its own. One program, since
//! each takes seconds to compile and link.

mod buddy_system;
mod hermit;
mod large;
mod ostd;
mod x86;
