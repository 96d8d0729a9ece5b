//! The words of the interface: which frames, how many, of what kind, on which CPU, in which
//! machine, and what went wrong.

pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod ids;
pub(crate) mod migratetype;
pub(crate) mod order;
pub(crate) mod pfn;
pub(crate) mod request;
