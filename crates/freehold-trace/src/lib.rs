// What registries show, with its example compiled and run.
#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! ```text
//!  Source ──> TraceReader ──> Vec<Event>, about 65,000 at a time ──> replay
//!   file       Parquet                     Event { ts_ns, cpu, pid, kind: Alloc | Free | ... }
//!   bytes      tracefs, trace-cmd, perf
//!   stdin      (gzip, zstd)
//! ```
//!
//! In a trace ([`Packed`]) or beside it there may be descriptions of the machine's memory at its
//! beginning, copies of `/proc/zoneinfo`, `/proc/buddyinfo` and `/proc/pagetypeinfo` ([`zoneinfo`],
//! [`buddyinfo`] and, for all together and for reports in kernel logs, [`machine`]), and the times
//! at which the kernel's periodic work ran ([`ticks`]). [`record`] packs all of them.

#![forbid(unsafe_code)]

pub mod buddyinfo;
mod clock;
mod error;
mod event;
mod foreign;
pub mod gfp;
mod info;
mod input;
mod integrity;
pub mod kernel;
mod line;
pub mod machine;
mod meaning;
mod packed;
mod parquet;
mod reader;
pub mod record;
mod schema;
mod source;
mod tally;
mod text;
pub mod ticks;
mod write;
pub mod zoneinfo;

pub use error::{StateError, TraceError};
pub use event::{Event, EventKind};
pub use info::{Compression, Format, TraceInfo};
pub use integrity::Checksums;
pub use packed::Packed;
pub use reader::{OpenOptions, TraceReader, packed_files};
pub use source::{Source, Spooled};
pub use write::{TraceMeta, TraceWriter, Written};
