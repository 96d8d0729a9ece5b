//! Every adapter but the global allocator's, which has a program of its own. One program, since
//! each takes seconds to compile and link.

mod large;
mod ostd;
mod x86;
