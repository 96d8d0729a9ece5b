//! Whole numbers with a comma before each three digits. This file depends on nothing: the
//! repository's own tools include it.

/// A count with separators: `1,234,567`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let (first, rest) = digits.split_at(digits.len() % 3);
    let rest = rest.as_bytes().chunks(3).map(String::from_utf8_lossy);
    let first = (!first.is_empty()).then(|| first.into());
    first.into_iter().chain(rest).collect::<Vec<_>>().join(",")
}
