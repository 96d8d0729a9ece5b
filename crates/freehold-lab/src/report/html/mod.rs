//! `freehold report`: one HTML file of what the other commands found, that needs nothing beside it.
//!
//! ```text
//!  JSON of replay, bench, simulate ──> document  what kind each is, or why it is none
//!                                      limit     memory maps thinned until the file stays within bounds
//!                                      embed     the data, so written that no text in it can end the script
//!  assets/page.html + style.css + *.js ──> page  put together into one file
//! ```
//!
//! The page draws itself from the data: tables, charts and the picture of memory are made by plain
//! JavaScript without libraries, in files of `assets/` that are compiled in. Nothing is fetched; a
//! content security policy in the page forbids it. Text from the data becomes text nodes only,
//! never markup.
//!
//! A file is a function of its documents: equal ones give equal bytes.

mod document;
mod embed;
mod limit;
mod page;
pub mod planes;

use serde_json::Value;

pub use document::{Kind, UnknownDocument};
pub use limit::DATA_MAX;

/// A JSON document and where it came from.
#[derive(Clone, PartialEq, Debug)]
pub struct Source {
    /// What to call it: a file's name.
    pub name: String,
    pub value: Value,
}

/// What is in a source: each document and its kind; a replay of several traces is several.
pub fn documents(source: &Source) -> Result<Vec<(Kind, Value)>, UnknownDocument> {
    Ok(document::split(source)?
        .into_iter()
        .map(|document| (document.kind, document.data))
        .collect())
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HtmlError {
    /// A document that no command writes.
    #[error("{name}: {problem}")]
    Unknown { name: String, problem: UnknownDocument },
    /// More than a browser opens in good time.
    #[error(
        "the report would hold {} MiB of data; {} MiB is the most, after thinning the pictures of \
         memory",
        size >> 20,
        DATA_MAX >> 20
    )]
    TooLarge { size: usize },
}

/// The title unless told otherwise.
pub const TITLE: &str = "Freehold report";

/// The report as text.
///
/// Takes time and memory proportional to the documents; what comes out is at most [`DATA_MAX`] and
/// the page itself, which is about 100 KiB.
pub fn render(sources: &[Source], title: &str) -> Result<String, HtmlError> {
    let mut documents = Vec::new();
    for source in sources {
        let found = document::split(source);
        documents.extend(
            found.map_err(|problem| HtmlError::Unknown { name: source.name.clone(), problem })?,
        );
    }
    let data = limit::within(documents, title, DATA_MAX)?;
    Ok(page::assemble(title, &data))
}
