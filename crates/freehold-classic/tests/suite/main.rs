//! Tests of the kernel's design: its rules and the proposals' switches as tables of exact counts,
//! and random histories. One program, since each takes seconds to link.

mod histories;
mod rules;
