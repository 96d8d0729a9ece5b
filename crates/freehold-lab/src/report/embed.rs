//! Data inside a page: JSON in a `<script type="application/json">`, and text in an element.
//!
//! Inside a script element a browser looks for `</script` and `<!--` whatever the script means, so
//! a trace of such a name could end the data and begin markup. JSON may write any character as
//! `\uXXXX`; with `<`, `>` and `&` written so, nothing in the data means anything to HTML. The two
//! line separators that old scripts choke on go the same way.

use serde::Serialize;

/// `value` as JSON that can stand in a script element.
pub(super) fn json(value: &impl Serialize) -> String {
    // A tree of JSON values with text as keys can always be written.
    let text = serde_json::to_string(value).unwrap_or_default();
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("\\u003c"),
            '>' => safe.push_str("\\u003e"),
            '&' => safe.push_str("\\u0026"),
            '\u{2028}' => safe.push_str("\\u2028"),
            '\u{2029}' => safe.push_str("\\u2029"),
            c => safe.push(c),
        }
    }
    safe
}

/// `text` as the content of an element or of an attribute in double quotes.
pub(super) fn text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            c => safe.push(c),
        }
    }
    safe
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
