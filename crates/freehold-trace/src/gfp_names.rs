//! The kernel's own names of its GFP flags: the table that stands in the format of the event.
//!
//! ```text
//!  /sys/kernel/tracing/events/kmem/mm_page_alloc/format
//!
//!  name: mm_page_alloc
//!  ID: 653
//!  format:
//!          field:unsigned long gfp_flags;  offset:24;  ...
//!
//!  print fmt: "page=%p ...", ..., __print_flags(REC->gfp_flags, "|",
//!      {( unsigned long)(( gfp_t)((((1UL))) << (8))), "__GFP_ZERO"}, ...) : "none"
//!       \_____________________ value ____________/   \__ name __/
//! ```
//!
//! Values are what is left of C after the preprocessor: numbers, shifts, `|`, `&`, `~`, casts. Only
//! single bits are read; a name of several bits says nothing more. A kernel whose vendor moved a bit
//! says so here and nowhere else, so this table is believed more than a version. `page-events.bt`
//! prints the file before its first event.

/// Whether a line is one of that file; `trimmed` of blanks. A task may be called anything, so all
/// of the line must be as the kernel prints it.
pub(super) fn is_format_line(trimmed: &[u8]) -> bool {
    let all = |rest: &[u8], of: fn(&u8) -> bool| !rest.is_empty() && rest.iter().all(of);
    if let Some(id) = trimmed.strip_prefix(b"ID: ") {
        return all(id, u8::is_ascii_digit);
    }
    if let Some(name) = trimmed.strip_prefix(b"name: ") {
        return all(name, |b| b.is_ascii_alphanumeric() || *b == b'_');
    }
    trimmed == b"format:"
        || trimmed.starts_with(b"field:") && trimmed.ends_with(b";")
        || trimmed.starts_with(b"print fmt: \"")
}

/// What was read of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct FlagNames {
    /// Names and their values, as the kernel lists them.
    pub(super) names: Vec<(String, u64)>,
    /// Entries whose value or name could not be read, or that were cut.
    pub(super) unread: usize,
}

/// The table in the beginning of a trace; `None` where there is none.
///
/// Complexity: linear in `head`.
pub(super) fn read(head: &[u8]) -> Option<FlagNames> {
    let mut lines = head.split(|&b| b == b'\n');
    let line = lines.find(|line| line.starts_with(b"print fmt: "))?;
    let line = String::from_utf8_lossy(line);
    let (_, table) = line.split_once("__print_flags(REC->gfp_flags,")?;
    let mut found = FlagNames::default();
    let mut ended = false;
    for entry in table.split('{').skip(1) {
        let Some((entry, _)) = entry.split_once('}') else { continue };
        // The list ends with an entry without a name.
        let Some((value, name)) = entry.rsplit_once(',') else { continue };
        let name = name.trim().strip_prefix('"').and_then(|name| name.strip_suffix('"'));
        match (value_of(value), name) {
            (Some(Bits::One(0)), None) => ended = true,
            (Some(Bits::One(value)), Some(name)) => found.names.push((name.to_owned(), value)),
            (Some(Bits::Several), Some(_)) => {}
            _ => found.unread += 1,
        }
    }
    found.unread += usize::from(!ended);
    Some(found)
}

/// What an entry's value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bits {
    /// A number, or one shifted by another.
    One(u64),
    /// Names of several bits joined, which say nothing that the single ones do not.
    Several,
}

/// The value of an expression of C as these tables have them; `None` where it has other words.
fn value_of(text: &str) -> Option<Bits> {
    let parts =
        text.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '<' | '|' | '&' | '~'));
    let is_cast = |word: &&str| matches!(*word, "gfp_t" | "unsigned" | "long" | "int" | "__force");
    let words = parts.filter(|word| !word.is_empty() && !is_cast(word));
    let numbers = words.map(number).collect::<Option<Vec<u64>>>()?;
    if text.contains(['|', '&', '~']) {
        return Some(Bits::Several);
    }
    match numbers[..] {
        [value] if !text.contains('<') => Some(Bits::One(value)),
        [value, by] if text.matches("<<").count() == 1 => {
            value.checked_shl(u32::try_from(by).ok()?).map(Bits::One)
        }
        _ => None,
    }
}

/// A number as C writes it.
fn number(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_c() {
        for (text, expected) in [
            ("7", Some(Bits::One(7))),
            ("( unsigned long)(( gfp_t)((((1UL))) << (8)))", Some(Bits::One(0x100))),
            ("(unsigned long)((gfp_t)0x400u|0x800u)", Some(Bits::Several)),
            ("( unsigned long)((( gfp_t)0x40u) & ~(( gfp_t)0x400u))", Some(Bits::Several)),
            ("(1UL << ___GFP_ZERO_BIT)", None),
            ("(1UL | ___GFP_ZERO)", None),
            ("1 << 64", None),
            ("1 << 2 << 3", None),
            ("1 2", None),
            ("", None),
            ("()", None),
        ] {
            assert_eq!(value_of(text), expected, "{text}");
        }
    }

    #[test]
    fn a_table_is_read_and_what_of_it_is_not_is_counted() {
        let text = |entries: &str| {
            format!(
                "name: mm_page_alloc\nID: 9\nformat:\n\tfield:int migratetype;\n\nprint fmt: \"x=%s\", REC->pfn, \
                 (REC->gfp_flags) ? __print_flags(REC->gfp_flags, \"|\", {entries}) : \"none\"\n"
            )
        };
        let end = "{ 0, ((void *)0) } ";
        let table = text(&format!(
            "{{(unsigned long)(( gfp_t)0x20u), \"__GFP_IO\"}}, {{( unsigned long)(( gfp_t)(1UL << 7)), \"__GFP_ZERO\"}}, {end}"
        ));
        let found = read(table.as_bytes()).unwrap();
        let expected = [("__GFP_IO".to_owned(), 0x20), ("__GFP_ZERO".to_owned(), 0x80)];
        assert_eq!((&found.names[..], found.unread), (&expected[..], 0));
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            assert!(is_format_line(line.as_bytes()), "{line}");
        }
        let odd = read(text(&format!("{{(x_t)1, \"__GFP_IO\"}}, {end}")).as_bytes()).unwrap();
        assert_eq!((odd.names.len(), odd.unread), (0, 1));
        let cut = read(&table.as_bytes()[..table.len() - 60]).unwrap();
        assert!(cut.unread > 0, "{cut:?}");
        assert_eq!(read(b"print fmt: \"page=%p\"\n"), None);
        assert_eq!(read(b""), None);
    }
}
