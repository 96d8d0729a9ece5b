//! The page: a frame of HTML around the sections, with the data that they were made from.

use std::fmt::Write as _;

use super::embed;
use super::replay::section;
use crate::results::Document;

const STYLE: &str = include_str!("style.css");

/// What a browser may do with the page: show it.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The report as text.
pub(super) fn render(documents: &[Document], title: &str) -> String {
    let mut html = String::new();
    if documents.len() > 1 {
        html.push_str("<nav><ul>\n");
        for (at, document) in documents.iter().enumerate() {
            let name = document.data["trace"]["name"].as_str();
            let name = name.unwrap_or("a replay");
            let (name, source) = (embed::text(name), embed::text(&document.source));
            let _ = writeln!(html, "<li><a href=\"#s{at}\">{name}</a>, {source}</li>");
        }
        html.push_str("</ul></nav>\n");
    }
    html.push_str("<main>\n");
    for (at, document) in documents.iter().enumerate() {
        let _ = write!(html, "<section id=\"s{at}\">\n{}", section(&document.data));
        let _ = writeln!(html, "<p>From {}.</p>\n</section>", embed::text(&document.source));
    }
    let data = embed::json(&documents);
    let _ =
        write!(html, "</main>\n<script id=\"data\" type=\"application/json\">{data}</script>\n");
    framed(title, &html)
}

/// A page around what is in it.
pub(super) fn framed(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{0}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{0}</h1>\n{body}</body>\n</html>\n",
        embed::text(title)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::results::{Source, split};

    #[test]
    fn nothing_is_fetched_or_run_and_names_are_text() {
        let value = json!({"trace": {"name": "</script><b>"}, "error": "no <such> file"});
        let documents = split(&Source { name: "a&b.json".into(), value }).expect("a replay");
        let html = render(&documents, "a <title>");
        assert!(html.contains("<title>a &lt;title&gt;</title>"), "{html}");
        assert!(html.contains("no &lt;such&gt; file") && html.contains("From a&amp;b.json."));
        assert_eq!(html.matches("<script").count(), 1, "the data alone");
        for address in ["http://", "https://", "src=", "@import", "url("] {
            let found = html.replace("http://www.w3.org/2000/svg", "").contains(address);
            assert!(!found, "{address}");
        }
    }
}
