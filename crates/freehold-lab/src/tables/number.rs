//! Numbers the way the tables print them.

pub use crate::draw::digits::thousands;

/// A count and what it counts, `1 CPU`, `2,000 CPUs`: more than one has an s.
pub fn counted(n: u64, one: &str) -> String {
    format!("{} {one}{}", thousands(n), if n == 1 { "" } else { "s" })
}

/// How much more `value` is than `base`: `+12.3%`; `None` where there is nothing to compare with (a
/// base of 0).
pub fn percent(base: f64, value: f64) -> Option<String> {
    if base == value {
        return Some("0.0%".to_owned());
    }
    if base == 0.0 || !base.is_finite() || !value.is_finite() {
        return None;
    }
    let change = (value - base) / base.abs() * 100.0;
    // Beyond a thousand per cent a factor says more.
    Some(if change >= 1000.0 { format!("x{:.0}", value / base) } else { format!("{change:+.1}%") })
}

/// A number with as many decimals as help: three below 10, one below 1000, none above, and none of
/// 0, which is exact.
pub fn decimal(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v < 10.0 => format!("{value:.3}"),
        v if v < 1000.0 => format!("{value:.1}"),
        v if v < u64::MAX as f64 => thousands(value.round() as u64),
        _ => format!("{value:e}"),
    }
}

/// A number of which nothing is known: a count has no decimals.
pub fn read(value: f64) -> String {
    let is_count = value.fract() == 0.0 && (0.0..1e15).contains(&value);
    if is_count { thousands(value as u64) } else { decimal(value) }
}

/// How many a second: whole from 10 up, because what comes after says nothing.
pub fn per_second(rate: f64) -> String {
    let rate = if rate.is_finite() { rate.max(0.0) } else { 0.0 };
    if rate < 10.0 {
        format!("{rate:.1}/s")
    } else {
        format!("{}/s", thousands(rate.round() as u64))
    }
}

pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// Pages of that many bytes as an amount of memory.
pub fn memory_of(pages: u64, page_size: u64) -> String {
    let kib = pages.saturating_mul(page_size >> 10);
    match kib {
        0..1024 => format!("{kib} KiB"),
        1024..1_048_576 => format!("{:.1} MiB", kib as f64 / 1024.0),
        _ => format!("{:.2} GiB", kib as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_get_separators() {
        for (n, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567"), (12_345, "12,345")]
        {
            assert_eq!(thousands(n), text);
        }
    }

    #[test]
    fn one_is_singular_and_nothing_has_no_decimals() {
        assert_eq!(counted(1, "CPU"), "1 CPU");
        assert_eq!(
            (counted(0, "CPU"), counted(2000, "CPU")),
            ("0 CPUs".into(), "2,000 CPUs".into())
        );
        assert_eq!(
            (decimal(0.0), decimal(-0.0), decimal(0.0004)),
            ("0".into(), "0".into(), "0.000".into())
        );
    }

    #[test]
    fn rates_have_no_decimals_that_say_nothing() {
        for (rate, text) in [
            (1_365_802.7, "1,365,803/s"),
            (12.3, "12/s"),
            (0.04, "0.0/s"),
            (f64::INFINITY, "0.0/s"),
        ] {
            assert_eq!(per_second(rate), text);
        }
    }

    #[test]
    fn changes_are_relative_to_the_baseline() {
        assert_eq!(percent(200.0, 150.0).as_deref(), Some("-25.0%"));
        assert_eq!(percent(200.0, 300.0).as_deref(), Some("+50.0%"));
        assert_eq!(percent(1.0, 25.0).as_deref(), Some("x25"));
        assert_eq!(percent(0.0, 0.0).as_deref(), Some("0.0%"));
        assert_eq!(percent(0.0, 3.0), None);
    }
}
