//! Reading and writing traces. One program, since each takes seconds to link.

mod bpftrace;
mod byte_text;
mod columns;
mod damage;
mod kinds;
mod read;
mod recorded;
mod texts;
