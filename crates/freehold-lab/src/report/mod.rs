//! `freehold report`: what replays found, as one HTML file that needs nothing beside it.
//!
//! ```text
//!  JSON of freehold replay ──> crate::results  what each document is
//!                              replay          verdict, picture, tables
//!  rows of many machines   ──> fleet           recordings, changes, clusters
//!                              fleet_page      verdict, distributions, worst machines, all of them
//!                              page            one file: style, sections, data
//! ```
//!
//! What `bench`, `contiguity` and `simulate` found is a table, which these commands print
//! themselves.
//!
//! Tables and pictures are in the HTML as they are. There is no script, and nothing is fetched: a
//! content security policy in the page forbids both. The JSON that the page was made from stands at
//! its end, so that a stranger gets every figure from the page alone.
//!
//! A file is a function of its documents: equal ones give equal bytes.

mod command;
mod embed;
mod fleet;
mod fleet_page;
mod page;
mod replay;
mod table;

pub(crate) use command::{ReportArgs, run};
