//! Reading and writing traces. One program, since each takes seconds to link.

mod bpftrace;
mod columns;
mod damage;
mod read;
mod recorded;
