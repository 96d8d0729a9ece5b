//! Every adapter. One program, since each takes seconds to compile and link.

mod ostd;
