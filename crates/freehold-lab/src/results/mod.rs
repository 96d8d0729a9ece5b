//! What the other commands printed, read back: for `freehold report` and `compare`.
//!
//! ```text
//!  files, standard input ──> read      documents, one or several a file
//!                            document  which command wrote each, or why none did
//!                            fields    which figures each has, and what more of one means
//! ```

mod document;
pub(crate) mod fields;
mod read;

pub use document::Kind;
pub(crate) use document::{Document, split};
pub use read::Source;
pub(crate) use read::{read, shown_name};
