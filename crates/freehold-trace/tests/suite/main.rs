//! Reading and writing traces. One program, since each takes seconds to link.

mod bpftrace;
mod columns;
mod read;
mod recorded;
