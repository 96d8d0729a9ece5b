//! What stands inside a page: JSON in a `<script type="application/json">`, text in an element, and
//! a list of names and texts.
//!
//! Inside a script element a browser looks for `</script` and `<!--` whatever the script means, so
//! a trace of such a name could end the data and begin markup. JSON may write any character as
//! `\uXXXX`; with `<`, `>` and `&` written so, nothing in the data means anything to HTML. The two
//! line separators that old scripts choke on go the same way.

use crate::draw::svg::escaped;
use serde::Serialize;

/// `value` as JSON that can stand in a script element.
pub(super) fn json(value: &impl Serialize) -> String {
    // A tree of JSON values with text as keys can always be written.
    let text = serde_json::to_string(value).unwrap_or_default();
    let unsafe_ones = ['<', '>', '&', '\u{2028}', '\u{2029}'];
    let written = |text: String, c: char| text.replace(c, &format!("\\u{:04x}", u32::from(c)));
    unsafe_ones.into_iter().fold(text, written)
}

/// `text` as the content of an element or of an attribute in double quotes.
pub(super) fn text(text: &str) -> String {
    escaped(text).replace('"', "&quot;")
}

/// A list of names and what each of them is.
pub(super) fn list(rows: &[(&str, String)]) -> String {
    let row = |(name, said): &(&str, String)| format!("<dt>{name}</dt><dd>{}</dd>", text(said));
    format!("<dl>{}</dl>\n", rows.iter().map(row).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_data_means_anything_to_html() {
        let name = "</script><script>alert(1)</script><!-- & ]]> \u{2028}\u{2029}";
        let safe = json(&name);
        assert!(!safe.contains(['<', '>', '&', '\u{2028}', '\u{2029}']), "{safe}");
        assert_eq!(
            serde_json::from_str::<String>(&safe).unwrap(),
            name,
            "and it is still the same"
        );
    }

    #[test]
    fn text_is_text() {
        assert_eq!(text("a <b> & \"c\""), "a &lt;b&gt; &amp; &quot;c&quot;");
    }
}
