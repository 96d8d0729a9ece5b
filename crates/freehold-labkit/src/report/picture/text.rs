//! Text in a picture: how wide it is, where it is broken into lines, what of it XML can hold.

/// How wide a text is in a wide font: ideographs and the like a whole em.
pub(super) fn width(text: &str, size: f64, bold: bool) -> f64 {
    let em: f64 = text
        .chars()
        .map(|c| if c.is_ascii() || "±×\u{2212}".contains(c) { 0.63 } else { 1.0 })
        .sum();
    em * size * if bold { 1.1 } else { 1.0 }
}

/// How many ASCII characters surely fit.
pub(super) fn chars_in(pixels: f64, size: f64, bold: bool) -> usize {
    ((pixels + 0.01) / width("x", size, bold)).floor().max(1.0) as usize
}

/// Lines of at most `room` characters (wider ones count for two), broken behind a blank or a comma
/// where there is one.
pub(super) fn broken(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut wide = 0;
    for c in text.chars() {
        let more = if c.is_ascii() { 1 } else { 2 };
        if wide + more > room && !line.is_empty() && c != ' ' {
            let rest = match line.rfind([' ', ',']) {
                Some(at) if at + 1 < line.len() => line.split_off(at + 1),
                _ => String::new(),
            };
            lines.push(std::mem::replace(&mut line, rest));
            wide = line.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum();
        }
        line.push(c);
        wide += more;
    }
    lines.push(line);
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Without the characters that XML 1.0 does not have, and in one line.
pub(super) fn printable(text: &str) -> String {
    let replaced = |c: char| {
        if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') { '\u{fffd}' } else { c }
    };
    text.chars().map(replaced).collect()
}

/// As text in XML, over several lines.
pub(super) fn escaped(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(printable).collect();
    lines.join("\n").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_broken_where_it_reads_best_and_nothing_is_lost() {
        assert_eq!(broken("pcp-buddy-fixed,-merge", 22), ["pcp-buddy-fixed,-merge"]);
        assert_eq!(broken("pcp-buddy-fixed,-merge", 20), ["pcp-buddy-fixed,", "-merge"]);
        assert_eq!(broken("one two", 4), ["one", "two"]);
        assert_eq!(broken("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(broken("\u{65e5}\u{672c}\u{8a9e}", 4), ["\u{65e5}\u{672c}", "\u{8a9e}"]);
        assert_eq!(broken("", 3), [""]);
    }

    #[test]
    fn nothing_that_xml_cannot_hold() {
        assert_eq!(escaped("<a & b>\n\u{1}\u{ffff}"), "&lt;a &amp; b&gt;\n\u{fffd}\u{fffd}");
    }
}
