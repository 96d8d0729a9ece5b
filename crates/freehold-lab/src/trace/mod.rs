//! Page-allocator traces: what an event is, and readers for every format they come in.

mod event;

pub use event::{Event, EventKind};
