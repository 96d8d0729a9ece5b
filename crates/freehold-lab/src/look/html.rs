//! What is printed, as a page of HTML: no script, nothing from elsewhere.

const STYLE: &str = "body{margin:2em;color:#222;background:#fff}\
                     @media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}}";

/// A page of that title with the text of a terminal.
pub(crate) fn render(title: &str, text: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title><style>{STYLE}</style>\
         </head><body><pre>\n{}</pre></body></html>\n",
        escaped(title),
        escaped(text)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text() {
        let text = render("a \"machine\"", "zone <script> & more\n");
        assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</body></html>\n"));
        assert!(text.contains("<title>a &quot;machine&quot;<"), "{text}");
        assert!(text.contains("<pre>\nzone &lt;script&gt; &amp; more\n</pre>"), "{text}");
    }
}
