//! The one drawer of SVG: of contiguity, of reports and of the repository's documents.
//!
//! ```text
//!  digits   numbers with commas
//!  series   the colour and the mark of each engine; the terminal goes by it, too
//!  svg      text, lines, bars, marks, in the reader's light or dark colours
//!  panels   a table as panels of bars or marks, a row under each other
//!  curves   values over an axis, a line for each engine
//! ```
//!
//! `xtask` includes all but `curves` as files, so these depend on nothing else here.

#[cfg(feature = "report")]
pub(crate) mod curves;
pub(crate) mod digits;
#[cfg(feature = "report")]
pub(crate) mod panels;
pub(crate) mod series;
#[cfg(any(feature = "contiguity", feature = "report"))]
// Each draws with a part of it.
#[cfg_attr(not(all(feature = "contiguity", feature = "report")), allow(dead_code))]
pub(crate) mod svg;
