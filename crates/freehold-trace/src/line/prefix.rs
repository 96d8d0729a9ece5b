//! What stands before the fields of an event: the task and its thread id, the CPU, the time, the
//! event's name.

use freehold::CpuId;

use super::super::error::Bad;
use super::token::{decimal, lossy, next_token};

/// The largest number of a CPU that is read. A kernel can be built for twice as many.
pub(crate) const CPU_MAX: u64 = 4095;

/// What stands before the fields of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Prefix<'a> {
    pub(crate) cpu: CpuId,
    pub(crate) pid: u32,
    pub(crate) ts_ns: u64,
    /// `ts_ns` is not a time but a bare number, which no clock of nanoseconds prints.
    pub(crate) is_ticks: bool,
    /// The subsystem, printed by perf only.
    pub(crate) system: Option<&'a [u8]>,
    pub(crate) event: &'a [u8],
    /// More than one blank stands between the event and its fields.
    pub(crate) wide: bool,
    pub(crate) fields: &'a [u8],
}

/// Everything up to the fields.
pub(crate) fn prefix(line: &[u8]) -> Result<Prefix<'_>, Bad> {
    let mut from = if is_padded(line) { 16 } else { 0 };
    let mut why = None;
    while let Some(at) = line[from..].iter().position(|&b| b == b'[').map(|at| from + at) {
        match candidate(line, at) {
            Ok(prefix) => return Ok(prefix),
            // The error of the first place that looked like a CPU at all is the one worth telling.
            Err(Some(bad)) if why.is_none() => why = Some(bad),
            Err(_) => {}
        }
        from = at + 1;
    }
    Err(why.unwrap_or_else(|| {
        Bad::because("no event: a task, its thread id and a [CPU] are expected")
    }))
}

/// Whether the task's name was padded to 16 bytes: a separator, the thread id and a bracket follow,
/// so that nothing in those 16 bytes can be the CPU.
fn is_padded(line: &[u8]) -> bool {
    let Some((b'-' | b' ', rest)) = line.get(16..).and_then(<[u8]>::split_first) else {
        return false;
    };
    let rest = rest.trim_ascii_start();
    let id = rest.iter().take_while(|b| b.is_ascii_digit() || **b == b'/').count();
    id > 0 && matches!(rest[id..].trim_ascii_start().first(), Some(b'[' | b'('))
}

/// The prefix, if the CPU's bracket opens at `at`; `Err(None)` where this is no CPU at all.
fn candidate(line: &[u8], at: usize) -> Result<Prefix<'_>, Option<Bad>> {
    let (before, after) = (&line[..at], &line[at + 1..]);
    let close = after.iter().take(24).position(|&b| b == b']').ok_or(None)?;
    let (cpu_text, mut rest) = (after[..close].trim_ascii(), &after[close + 1..]);
    if cpu_text.is_empty() || !cpu_text.iter().all(u8::is_ascii_digit) {
        return Err(None);
    }
    if !before.last().is_some_and(u8::is_ascii_whitespace)
        || !rest.first().is_some_and(u8::is_ascii_whitespace)
    {
        return Err(None);
    }
    let pid = thread_id(before).ok_or_else(|| Some(Bad::because("no thread id before [CPU]")))?;
    let cpu = decimal(cpu_text)
        .filter(|&cpu| cpu <= CPU_MAX)
        .ok_or_else(|| Some(Bad::because(format!("CPU {} is above {CPU_MAX}", lossy(cpu_text)))))?;

    let mut token = next_token(&mut rest);
    let mut time = timestamp(token);
    if time.is_none() {
        // The column of flags (irqs off, need-resched and so on) is optional.
        let flags = token;
        token = next_token(&mut rest);
        time = timestamp(token);
        if time.is_none() {
            let found = if token.is_empty() { flags } else { token };
            return Err(Some(Bad::because(if found.is_empty() {
                "the line ends after [CPU]".to_owned()
            } else {
                format!("no time after [CPU]: `{}`", lossy(found))
            })));
        }
    }
    let ts_ns = time
        .flatten()
        .ok_or_else(|| Some(Bad::because(format!("time `{}` is out of range", lossy(token)))))?;

    let mut name = next_token(&mut rest);
    if !name.is_empty() && name.iter().all(u8::is_ascii_digit) {
        // `perf script` can print the sample's period here.
        name = next_token(&mut rest);
    }
    if name.is_empty() {
        return Err(Some(Bad::because("the line ends before the event's name")));
    }
    let name = name.strip_suffix(b":").unwrap_or(name);
    let (system, event) = match name.iter().rposition(|&b| b == b':') {
        Some(colon) => (Some(&name[..colon]), &name[colon + 1..]),
        None => (None, name),
    };
    Ok(Prefix {
        cpu: CpuId::new(u16::try_from(cpu).expect("checked above")),
        pid,
        ts_ns,
        is_ticks: !token.contains(&b'.'),
        system,
        event,
        wide: rest.len() > rest.trim_ascii_start().len() + 1,
        fields: rest.trim_ascii(),
    })
}

/// The thread id that ends what stands before `[CPU]`: `name-12`, `name 12`, `name 10/12`, each
/// perhaps with the thread group, `(   10)` or `(-----)`, behind it.
fn thread_id(before: &[u8]) -> Option<u32> {
    let mut text = before.trim_ascii_end();
    if let Some(inside) = text.strip_suffix(b")") {
        let open = memchr::memrchr(b'(', inside)?;
        text = inside[..open].trim_ascii_end();
    }
    let digits = text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (name, id) = text.split_at(text.len() - digits);
    match name.last() {
        // perf's, of a thread that is gone: nobody's number.
        Some(b'-') if id == b"1" && name.ends_with(b" -") => Some(u32::MAX),
        Some(b'-' | b' ' | b'\t' | b'/') => u32::try_from(decimal(id)?).ok(),
        _ => None,
    }
}

/// `Some` if it has the form of a time, `Some(None)` if it does not fit: `seconds.fraction:` in
/// nanoseconds, or a bare number in units that the trace does not name.
fn timestamp(token: &[u8]) -> Option<Option<u64>> {
    let text = token.strip_suffix(b":")?;
    if let Some(b'0'..=b'9') = text.strip_prefix(b"-").and_then(|text| text.first()) {
        return Some(None);
    }
    let dot = text.iter().position(|&b| b == b'.');
    let (seconds, fraction) = match dot {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b""[..]),
    };
    let all_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if !all_digits(seconds) || (dot.is_some() && !all_digits(fraction)) {
        return None;
    }
    if dot.is_none() {
        return Some(decimal(seconds));
    }
    let mut ns = 0u64;
    for place in 0..9 {
        ns = ns * 10 + u64::from(fraction.get(place).map_or(0, |digit| digit - b'0'));
    }
    Some(decimal(seconds).and_then(|s| s.checked_mul(1_000_000_000)?.checked_add(ns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_every_resolution() {
        assert_eq!(timestamp(b"12.5:"), Some(Some(12_500_000_000)));
        assert_eq!(timestamp(b"12.000000001:"), Some(Some(12_000_000_001)));
        assert_eq!(timestamp(b"12.0000000019:"), Some(Some(12_000_000_001)));
        assert_eq!(timestamp(b"1234:"), Some(Some(1234)));
        assert_eq!(timestamp(b"12.:"), None);
        assert_eq!(timestamp(b"12.5"), None);
        assert_eq!(timestamp(b"18446744073.709551616:"), Some(None));
    }
}
