//! What the other commands printed, read back: for `freehold report` and `compare`.
//!
//! ```text
//!  files, standard input ──> read      documents, one or several a file
//!                            document  which command wrote each, or why none did
//!                            rows      tables of rows: JSON lines, Parquet
//!                            fields    which figures each has, and what more of one means
//! ```

mod document;
pub(crate) mod fields;
mod read;
pub(crate) mod rows;

pub use document::Kind;
pub(crate) use document::{Document, split};
pub use read::Source;
pub(crate) use read::{bytes, documents, read, shown_name};
