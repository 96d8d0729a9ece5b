//! Amounts of memory on the command line, `512M`, `8G`, shares, `25%`, `0.05`, and numbers of CPUs.

use freehold::{FRAME_SIZE, Order};

/// CPUs of a simulated machine at most.
pub const SIMULATED_CPUS_MAX: u16 = 1024;
/// The least that any engine can be built with: one of the largest chunks.
const LEAST: u64 = Order::LINUX_MAX.frames() * FRAME_SIZE;
/// More than any engine's metadata would fit in: 16 TiB.
const MOST: u64 = 16 << 40;

/// An amount of memory in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    pub frames: u64,
}

/// Parses a number with a suffix K, M, G or T (powers of 1024), upper or lower case, `iB` or `B`
/// allowed after it.
pub fn parse_memory(text: &str) -> Result<Memory, String> {
    let bytes = parse_bytes(text)?;
    if bytes < LEAST {
        return Err(format!(
            "{text} is too little: 4M is the least, one chunk of the largest order"
        ));
    }
    Ok(Memory { frames: bytes.div_ceil(LEAST) * Order::LINUX_MAX.frames() })
}

pub fn parse_bytes(text: &str) -> Result<u64, String> {
    const FORM: &str = "write a number with K, M, G or T, for example 512M or 8G";
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let number: u64 =
        number.parse().map_err(|_| format!("'{text}' is not an amount of memory; {FORM}"))?;
    let lower = suffix.to_ascii_lowercase();
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

/// Parses an amount of memory that is a part of a machine: in frames, of which there may be fewer
/// than one of the largest chunks.
pub fn parse_frames(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes < FRAME_SIZE {
        return Err(format!("{text} is too little: 4K is the least, one frame"));
    }
    Ok(bytes / FRAME_SIZE)
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

/// `0.05`: a share.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("'{text}' is not a share: a number from 0 to 1, for example 0.05"))
}

/// The CPUs of a simulated machine.
pub fn parse_cpus(text: &str) -> Result<u16, String> {
    match text.parse::<u64>() {
        Ok(cpus) if (1..=u64::from(SIMULATED_CPUS_MAX)).contains(&cpus) => Ok(cpus as u16),
        Ok(cpus) => Err(format!("{cpus} CPUs cannot be simulated: 1 to {SIMULATED_CPUS_MAX} can")),
        Err(_) => Err(format!("'{text}' is not a number of CPUs: write 1 to {SIMULATED_CPUS_MAX}")),
    }
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
            assert_eq!(parse_memory(text), Ok(Memory { frames }), "{text}");
        }
        assert_eq!(parse_memory("5M"), Ok(Memory { frames: 2048 }), "rounded up to whole chunks");
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
    fn page_sizes() {
        assert_eq!((parse_page_size("64K"), parse_page_size("4096")), (Ok(65536), Ok(4096)));
        for text in ["", "3K", "2M", "K", "0", "5000"] {
            assert!(parse_page_size(text).is_err(), "{text}");
        }
    }
}
