//! Amounts of memory on the command line, `512M`, `8G`, shares, `25%`, `0.05`, and whole numbers.

use std::num::{IntErrorKind, ParseIntError};
use std::ops::RangeInclusive;

use freehold::{FRAME_SIZE, Order};

use crate::tables::thousands;

/// The least that any engine can be built with: one of the largest chunks.
const LEAST: u64 = Order::LINUX_MAX.frames() * FRAME_SIZE;
/// More than any engine's metadata would fit in: 16 TiB.
const MOST: u64 = 16 << 40;

/// Parses a whole number within bounds; what is wrong with another is said in words (clap's own
/// parser says `0 is not in 1..=100`).
pub fn whole<T>(
    bounds: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: Copy + Into<u64> + TryFrom<u64> + 'static,
{
    let bounds = (*bounds.start()).into()..=(*bounds.end()).into();
    move |text| {
        let allowed = match (*bounds.start(), *bounds.end()) {
            (least, u64::MAX) => format!("{} or more", thousands(least)),
            (least, most) => format!("{} to {}", thousands(least), thousands(most)),
        };
        let number: u64 = text.parse().map_err(|error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => format!("{text} is more than 64 bits hold"),
            _ => format!("'{text}' is not a whole number: write {allowed}"),
        })?;
        let allowed_number = Some(number).filter(|number| bounds.contains(number));
        allowed_number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("{} is out of range: {allowed}", thousands(number)))
    }
}

/// Parses an amount of memory, in frames: a number with a suffix K, M, G or T (powers of 1024),
/// upper or lower case, `iB` or `B` allowed after it.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes < LEAST {
        return Err(format!(
            "{text} is too little: 4M is the least, one chunk of the largest order"
        ));
    }
    Ok(bytes.div_ceil(LEAST) * Order::LINUX_MAX.frames())
}

pub fn parse_bytes(text: &str) -> Result<u64, String> {
    const FORM: &str = "write a number with K, M, G or T, for example 512M or 8G";
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let number: u64 =
        number.parse().map_err(|_| format!("'{text}' is not an amount of memory; {FORM}"))?;
    let lower = suffix.to_ascii_lowercase();
    if suffix.starts_with('.') {
        return Err(format!("'{text}' is not a whole number of a unit; {FORM}"));
    }
    let unit = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let shift = match unit {
        "" if suffix.is_empty() => return Err(format!("'{text}' has no unit; {FORM}")),
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("'{suffix}' is not a unit of memory; {FORM}")),
    };
    number
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes <= MOST)
        .ok_or_else(|| format!("{text} is too much: 16T is the most"))
}

/// Parses a share of memory, `25%`, above 0 and up to 90: something has to be left for what cannot
/// be moved.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 90.0);
    percent
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("'{text}' is not a share: above 0% up to 90%, for example 25%"))
}

/// Parses a page size: 4K, 16K or 64K, or in bytes; a power of two of 4 KiB to 1 MiB.
pub fn parse_page_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => (text, 1),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    bytes
        .filter(|bytes| bytes.is_power_of_two() && (4096..=1 << 20).contains(bytes))
        .ok_or_else(|| format!("`{text}` is not a page size (4K, 16K, 64K)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        for (text, frames) in
            [("4M", 1024), ("8G", 2 << 20), ("8g", 2 << 20), ("8GiB", 2 << 20), ("1TB", 256 << 20)]
        {
            assert_eq!(parse_memory(text), Ok(frames), "{text}");
        }
        assert_eq!(parse_memory("5M"), Ok(2048), "rounded up to whole chunks");
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        let wrong =
            "G 8 8X -1G 1.5G 0G 1M 17T 99999999999999999999G 18446744073709551615T b 8B".split(' ');
        for text in wrong.chain(["", "8 G"]) {
            assert!(parse_memory(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_is_written_in_per_cent() {
        assert_eq!(
            (parse_percent("25%"), parse_percent("0.5 %"), parse_percent("90%")),
            (Ok(0.25), Ok(0.005), Ok(0.9))
        );
        for wrong in ["25", "0%", "-1%", "91%", "%", "a%", "NaN%"] {
            assert!(parse_percent(wrong).is_err_and(|error| error.contains(wrong)), "{wrong}");
        }
    }

    #[test]
    fn whole_numbers_say_their_bounds_in_words() {
        assert_eq!((whole(1..=100u16)("1"), whole(1..=100u16)("100")), (Ok(1), Ok(100)));
        assert_eq!(whole(1..=1024u16)("2000").unwrap_err(), "2,000 is out of range: 1 to 1,024");
        let none = "'0.1' is not a whole number: write 1 to 100";
        assert_eq!(whole(1..=100u8)("0.1").unwrap_err(), none);
        assert_eq!(whole(100..=u64::MAX)("3").unwrap_err(), "3 is out of range: 100 or more");
        let more = whole(0..=u64::MAX)("18446744073709551616").unwrap_err();
        assert_eq!(more, "18446744073709551616 is more than 64 bits hold");
        // Above what the type holds.
        assert!(whole(1..=u16::MAX)("65536").is_err());
    }

    #[test]
    fn page_sizes() {
        assert_eq!((parse_page_size("64K"), parse_page_size("4096")), (Ok(65536), Ok(4096)));
        for text in ["", "3K", "2M", "K", "0", "5000"] {
            assert!(parse_page_size(text).is_err(), "{text}");
        }
    }
}
