//! Reading and writing traces. One program, since each takes seconds to link.

mod bpftrace;
mod byte_text;
mod columns;
mod damage;
mod kinds;
#[path = "../../../freehold-lab/tests/suite/common/length.rs"]
#[allow(unreachable_pub)]
mod length;
mod read;
mod recorded;
mod texts;
