//! The grammar of one line of kernel trace text: tracefs, `trace-cmd report` and `perf script` share it.
//!
//! ```text
//!  tracefs     kworker/1:2-1234    [001] d..2.  7992.399333: mm_page_free: page=00000000f81a pfn=0x1c2ab3 order=0
//!  trace-cmd          make-16810 [004] .....  2319.000857: mm_page_free:         page=0xffffea00 pfn=0x1347a7 order=0
//!  perf script        make 16810 [004]  2319.000857:       kmem:mm_page_free: page=0x1347a7 pfn=0x1347a7 order=0
//!              \__________/\___/ \___/ \___/ \______/            \__________/ \____________________________________/
//!                 task     thread CPU  flags  seconds               event      fields, `name=value`
//! ```
//!
//! A task's name may hold anything: spaces, dashes, brackets, colons. It is at most 15 bytes and the kernel pads it
//! to 16, so on a padded line the search for `[CPU]` starts behind it. On lines that lost their padding the first
//! `[digits]` wins that has a thread id before it and a time and an event after it.

use freehold::{CpuId, Migratetype, Order, Pfn};

use super::error::Bad;
use super::{Event, EventKind, gfp};

/// CPUs above this number are nonsense: twice the most that Linux can be built for on x86-64 is still below.
pub(super) const CPU_MAX: u64 = 4095;
/// The largest frame number of a 64-bit address space with 4 KiB frames.
pub(super) const PFN_MAX: u64 = (1 << 52) - 1;

/// What one line says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Line {
    /// An event of the page allocator.
    Event(Event),
    /// A well-formed event of another tracepoint, or part of a stack trace.
    Other,
    /// A comment, a header, an empty line.
    Note,
    /// The recorder says that it lost so many events here.
    Lost(u64),
}

/// Parses lines; keeps the last few GFP strings, because a real trace has a dozen of them in millions of lines.
#[derive(Debug, Default)]
pub(super) struct LineParser {
    gfp_seen: Vec<(Vec<u8>, u32)>,
}

/// What stands before the fields of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prefix<'a> {
    pub(super) cpu: CpuId,
    pub(super) pid: u32,
    pub(super) ts_ns: u64,
    /// The subsystem, printed by perf only.
    pub(super) system: Option<&'a [u8]>,
    pub(super) event: &'a [u8],
    /// More than one blank stands between the event and its fields.
    pub(super) wide: bool,
    pub(super) fields: &'a [u8],
}

impl LineParser {
    /// Parses one line, without its line end.
    pub(super) fn parse(&mut self, line: &[u8]) -> Result<Line, Bad> {
        let line = line.trim_ascii_end();
        let trimmed = line.trim_ascii_start();
        match trimmed.first() {
            None | Some(b'#') => return Ok(Line::Note),
            Some(b'C') if trimmed.starts_with(b"CPU") => {
                if let Some(lost) = lost(trimmed) {
                    return Ok(Line::Lost(lost));
                }
                if trimmed.starts_with(b"CPU ") && trimmed.ends_with(b"is empty") {
                    return Ok(Line::Note);
                }
            }
            Some(b'A') if is_bpftrace_start(trimmed) => return Ok(Line::Note),
            Some(b'L') if trimmed.starts_with(b"Lost ") => {
                // bpftrace, of events that its buffers had no room for.
                if let Some(lost) = lost_by_bpftrace(trimmed) {
                    return Ok(Line::Lost(lost));
                }
            }
            Some(b'=') if trimmed.starts_with(b"=> ") => return Ok(Line::Other),
            Some(b'c') if header_cpus(trimmed).is_some() => return Ok(Line::Note),
            Some(b'v') if trimmed.starts_with(b"version = ") => return Ok(Line::Note),
            Some(_) => {}
        }
        let prefix = match prefix(line) {
            Ok(prefix) => prefix,
            Err(_) if trimmed.len() < line.len() && is_call_chain(trimmed) => return Ok(Line::Other),
            Err(why) => return Err(why),
        };
        if prefix.event == b"PERF_RECORD_LOST" {
            return Ok(Line::Lost(trailing_number(prefix.fields).unwrap_or(1)));
        }
        if prefix.system.is_some_and(|system| system != b"kmem") {
            return Ok(Line::Other);
        }
        let kind = match prefix.event {
            b"mm_page_alloc" => self.alloc(prefix.fields)?,
            b"mm_page_free" => {
                let fields = Fields::read(prefix.fields)?;
                EventKind::Free { pfn: fields.pfn()?, order: fields.order()? }
            }
            b"mm_page_free_batched" => EventKind::FreeBatched { pfn: Fields::read(prefix.fields)?.pfn()? },
            b"mm_page_pcpu_drain" => {
                let fields = Fields::read(prefix.fields)?;
                EventKind::PcpuDrain {
                    pfn: fields.pfn()?,
                    order: fields.order()?,
                    migratetype: fields.migratetype(Migratetype::ALL.len())?,
                }
            }
            b"mm_page_alloc_zone_locked" => {
                let fields = Fields::read(prefix.fields)?;
                let order = fields.order()?;
                EventKind::ZoneLocked {
                    pfn: fields.pfn()?,
                    order,
                    migratetype: fields.migratetype(Migratetype::ALL.len())?,
                    percpu_refill: match fields.percpu_refill {
                        Some(value) => truth("percpu_refill", value)?,
                        None => order <= Order::COSTLY || order == Order::PAGEBLOCK,
                    },
                }
            }
            b"mm_page_alloc_extfrag" => {
                let fields = Fields::read(prefix.fields)?;
                EventKind::Extfrag {
                    pfn: fields.pfn()?,
                    order: fields.order()?,
                    migratetype: fields.migratetype(Migratetype::ALL.len())?,
                    fallback_order: order_of("fallback_order", required("fallback_order", fields.fallback_order)?)?,
                    fallback_migratetype: migratetype_of(
                        "fallback_migratetype",
                        required("fallback_migratetype", fields.fallback_migratetype)?,
                        Migratetype::ALL.len(),
                    )?,
                    change_ownership: truth(
                        "change_ownership",
                        required("change_ownership", fields.change_ownership)?,
                    )?,
                }
            }
            _ => return Ok(Line::Other),
        };
        Ok(Line::Event(Event { ts_ns: prefix.ts_ns, cpu: prefix.cpu, pid: prefix.pid, kind }))
    }

    fn alloc(&mut self, text: &[u8]) -> Result<EventKind, Bad> {
        let fields = Fields::read(text)?;
        // A failed allocation is printed as frame 0, which the kernel never hands out.
        let pfn = match required("pfn", fields.pfn)? {
            b"-1" => None,
            value if value.starts_with(b"(n") => None,
            value => match number(value) {
                Some(0 | u64::MAX) => None,
                _ => Some(fields.pfn()?),
            },
        };
        Ok(EventKind::Alloc {
            pfn,
            order: fields.order()?,
            migratetype: fields.migratetype(Migratetype::PCP.len())?,
            gfp_flags: self.gfp(required("gfp_flags", fields.gfp_flags)?)?,
        })
    }

    fn gfp(&mut self, text: &[u8]) -> Result<u32, Bad> {
        /// Enough for every combination of a real trace.
        const SEEN: usize = 64;
        if let Some(at) = self.gfp_seen.iter().position(|(seen, _)| seen == text) {
            let bits = self.gfp_seen[at].1;
            // One step towards the front at each use: the common ones are found at once.
            self.gfp_seen.swap(at, at.saturating_sub(1));
            return Ok(bits);
        }
        let words = std::str::from_utf8(text).map_err(|_| Bad::because("gfp_flags is not text"))?;
        let bits = gfp::parse(words).map_err(|part| {
            if part.is_empty() {
                Bad::because(format!("gfp_flags `{words}` has an empty part"))
            } else {
                Bad::Flag(part.chars().take(80).collect())
            }
        })?;
        self.gfp_seen.truncate(SEEN - 1);
        self.gfp_seen.push((text.to_vec(), bits));
        Ok(bits)
    }
}

/// `cpus=4`, as `trace-cmd report` begins.
pub(super) fn header_cpus(line: &[u8]) -> Option<u16> {
    u16::try_from(decimal(line.strip_prefix(b"cpus=")?)?).ok()
}

/// `CPU:1 [LOST 12 EVENTS]`, `CPU:1 [12 EVENTS DROPPED]`, or the same without a number, which is at least one.
fn lost(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"CPU:")?;
    let rest = rest.trim_ascii_start();
    let rest = rest[rest.iter().take_while(|b| b.is_ascii_digit()).count()..].trim_ascii_start();
    let inside = rest.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let mut words = inside.split(|&b| b == b' ').filter(|word| !word.is_empty());
    let mut count = None;
    let mut says_so = false;
    for word in &mut words {
        match word {
            b"LOST" | b"DROPPED" => says_so = true,
            b"EVENTS" => {}
            word => count = Some(decimal(word)?),
        }
    }
    says_so.then_some(count.unwrap_or(1))
}

/// `Attaching 2 probes...` and `Attached 2 probes`, as bpftrace begins.
fn is_bpftrace_start(line: &[u8]) -> bool {
    let rest = line.strip_prefix(b"Attaching ").or_else(|| line.strip_prefix(b"Attached "));
    let Some(rest) = rest else { return false };
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    digits > 0 && rest[digits..].starts_with(b" probe")
}

/// `Lost 12 events`.
fn lost_by_bpftrace(line: &[u8]) -> Option<u64> {
    decimal(line.strip_prefix(b"Lost ")?.strip_suffix(b" events")?)
}

/// A line of the call chain that `perf script` prints below an event: an address, a symbol and an object.
fn is_call_chain(trimmed: &[u8]) -> bool {
    let digits = trimmed.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    digits >= 4 && trimmed.get(digits).is_some_and(u8::is_ascii_whitespace) && trimmed.ends_with(b")")
}

/// Everything up to the fields.
pub(super) fn prefix(line: &[u8]) -> Result<Prefix<'_>, Bad> {
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
    Err(why.unwrap_or_else(|| Bad::because("no event: a task, its thread id and a [CPU] are expected")))
}

/// Whether the task's name was padded to 16 bytes: a separator, the thread id and a bracket follow, so that nothing in
/// those 16 bytes can be the CPU.
fn is_padded(line: &[u8]) -> bool {
    let Some((b'-' | b' ', rest)) = line.get(16..).and_then(<[u8]>::split_first) else { return false };
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
    if !before.last().is_some_and(u8::is_ascii_whitespace) || !rest.first().is_some_and(u8::is_ascii_whitespace) {
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
    let ts_ns = time.flatten().ok_or_else(|| Some(Bad::because(format!("time `{}` is out of range", lossy(token)))))?;

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
        system,
        event,
        wide: rest.len() > rest.trim_ascii_start().len() + 1,
        fields: rest.trim_ascii(),
    })
}

/// The thread id that ends what stands before `[CPU]`: `name-12`, `name 12`, `name 10/12`, each perhaps with the
/// thread group, `(   10)` or `(-----)`, behind it.
fn thread_id(before: &[u8]) -> Option<u32> {
    let mut text = before.trim_ascii_end();
    if let Some(inside) = text.strip_suffix(b")") {
        let open = memchr::memrchr(b'(', inside)?;
        text = inside[..open].trim_ascii_end();
    }
    let digits = text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (name, id) = text.split_at(text.len() - digits);
    match name.last() {
        Some(b'-' | b' ' | b'\t' | b'/') => u32::try_from(decimal(id)?).ok(),
        _ => None,
    }
}

/// `Some` if it has the form of a time, `Some(None)` if it does not fit: `seconds.fraction:` in nanoseconds, or a
/// bare number in the units of the trace's clock.
fn timestamp(token: &[u8]) -> Option<Option<u64>> {
    let text = token.strip_suffix(b":")?;
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

fn next_token<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    // One comparison a byte, control characters count as blanks: this is where most of the time goes.
    let start = rest.iter().position(|&b| b > b' ').unwrap_or(rest.len());
    let text = &rest[start..];
    let end = text.iter().position(|&b| b <= b' ').unwrap_or(text.len());
    let (token, after) = text.split_at(end);
    *rest = after;
    token
}

/// The fields that an event's text may have; all others are of no interest here.
#[derive(Default)]
struct Fields<'a> {
    pfn: Option<&'a [u8]>,
    order: Option<&'a [u8]>,
    migratetype: Option<&'a [u8]>,
    gfp_flags: Option<&'a [u8]>,
    percpu_refill: Option<&'a [u8]>,
    fallback_order: Option<&'a [u8]>,
    fallback_migratetype: Option<&'a [u8]>,
    change_ownership: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn read(text: &'a [u8]) -> Result<Self, Bad> {
        let mut fields = Self::default();
        let mut rest = text;
        loop {
            let token = next_token(&mut rest);
            if token.is_empty() {
                return Ok(fields);
            }
            if token.starts_with(b"page=") {
                continue;
            }
            let Some(equals) = token.iter().position(|&b| b == b'=') else { continue };
            let (name, value) = (&token[..equals], &token[equals + 1..]);
            let field = match name {
                b"pfn" => &mut fields.pfn,
                b"order" | b"alloc_order" => &mut fields.order,
                b"migratetype" | b"alloc_migratetype" => &mut fields.migratetype,
                b"gfp_flags" => &mut fields.gfp_flags,
                b"percpu_refill" => &mut fields.percpu_refill,
                b"fallback_order" => &mut fields.fallback_order,
                b"fallback_migratetype" => &mut fields.fallback_migratetype,
                b"change_ownership" => &mut fields.change_ownership,
                _ => continue,
            };
            if field.replace(value).is_some() {
                return Err(Bad::because(format!("`{}` is given twice: two lines run together?", lossy(name))));
            }
        }
    }

    fn pfn(&self) -> Result<Pfn, Bad> {
        let value = required("pfn", self.pfn)?;
        match number(value) {
            Some(pfn) if pfn <= PFN_MAX => Ok(Pfn::new(pfn)),
            // 1c2ab3 could be guessed at, 123456 not: so neither is.
            _ if value.iter().all(u8::is_ascii_hexdigit) && decimal(value).is_none() => Err(Bad::because(format!(
                "pfn `{}` is no decimal number; hexadecimal ones begin with 0x",
                lossy(value)
            ))),
            _ => Err(Bad::because(format!("pfn `{}` is no frame number", lossy(value)))),
        }
    }

    fn order(&self) -> Result<Order, Bad> {
        order_of("order", required("order", self.order)?)
    }

    fn migratetype(&self, types: usize) -> Result<u8, Bad> {
        migratetype_of("migratetype", required("migratetype", self.migratetype)?, types)
    }
}

fn required<'a>(name: &str, value: Option<&'a [u8]>) -> Result<&'a [u8], Bad> {
    value.ok_or_else(|| Bad::because(format!("no `{name}=`")))
}

fn order_of(name: &str, value: &[u8]) -> Result<Order, Bad> {
    decimal(value)
        .and_then(|order| Order::new(u8::try_from(order).ok()?))
        .ok_or_else(|| Bad::because(format!("{name} `{}` is no order (0 to {})", lossy(value), Order::MAX.get())))
}

/// A type by number or by name, of the first `types` of them.
fn migratetype_of(name: &str, value: &[u8], types: usize) -> Result<u8, Bad> {
    let found = match decimal(value) {
        Some(number) => usize::try_from(number).ok(),
        None => Migratetype::ALL.iter().position(|mt| mt.name().as_bytes().eq_ignore_ascii_case(value)),
    };
    found
        .filter(|&mt| mt < types)
        .and_then(|mt| u8::try_from(mt).ok())
        .ok_or_else(|| Bad::because(format!("{name} `{}` is no type (0 to {})", lossy(value), types - 1)))
}

fn truth(name: &str, value: &[u8]) -> Result<bool, Bad> {
    match value {
        b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err(Bad::because(format!("{name} `{}` is neither 0 nor 1", lossy(value)))),
    }
}

fn lossy(text: &[u8]) -> String {
    super::error::snippet(text)
}

/// Digits only, and it fits.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |n, &b| match b {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

/// `0x...` or decimal: kernels up to 5.x printed frames in decimal.
fn number(text: &[u8]) -> Option<u64> {
    let Some(hex) = text.strip_prefix(b"0x") else { return decimal(text) };
    if hex.is_empty() || hex.len() > 16 {
        return None;
    }
    hex.iter().try_fold(0u64, |n, &b| Some(n << 4 | u64::from(char::from(b).to_digit(16)?)))
}

fn trailing_number(text: &[u8]) -> Option<u64> {
    decimal(text.rsplit(|&b| b == b' ').next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: &str) -> Event {
        match LineParser::default().parse(line.as_bytes()) {
            Ok(Line::Event(event)) => event,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn bad(line: &str) -> String {
        LineParser::default().parse(line.as_bytes()).expect_err(line).to_string()
    }

    fn free(pfn: u64) -> EventKind {
        EventKind::Free { pfn: Pfn::new(pfn), order: Order::ZERO }
    }

    #[test]
    fn the_three_dialects() {
        let expected = Event { ts_ns: 2_319_000_857_000, cpu: CpuId::new(4), pid: 16810, kind: free(0x1347a7) };
        for line in [
            "            make-16810   [004] .....  2319.000857: mm_page_free: page=00000000f81a pfn=0x1347a7 order=0",
            "            make-16810   [004] 2319.000857: mm_page_free: page=00000000f81a pfn=1263527 order=0",
            "            make-16810 [004] d..1.  2319.000857: mm_page_free:         page=0xffffea0 pfn=0x1347a7 order=0",
            "            make-16810 ( 16800) [004] .....  2319.000857: mm_page_free: pfn=0x1347a7 order=0",
            "           <...>-16810 (-------) [004] .....  2319.000857000: mm_page_free: pfn=0x1347a7 order=0",
            "            make 16810 [004]  2319.000857:       kmem:mm_page_free: page=0x1347a7 pfn=0x1347a7 order=0",
            "            make 16800/16810 [004]  2319.000857: kmem:mm_page_free: pfn=1263527 order=0",
            "make 16810 [004] 2319.000857:          1 kmem:mm_page_free: pfn=1263527 order=0\r",
        ] {
            assert_eq!(event(line), expected, "{line}");
        }
    }

    #[test]
    fn task_names_may_hold_anything() {
        for name in
            ["a b", "kworker/u8:2-ev", "[x] 1", "a-1 [000] 1: b:", "x: [003]", "-", "Web Content", "7 [0]-3 (4)"]
        {
            let line = format!("{name:>16}-4242    [001] d..2.  1.000002: mm_page_free: page=0 pfn=0x10 order=0");
            let got = event(&line);
            assert_eq!((got.pid, got.cpu, got.ts_ns), (4242, CpuId::new(1), 1_000_002_000), "{line}");
            let line = format!("{name:>16}  4242 [001]     1.000002: kmem:mm_page_free: page=0 pfn=0x10 order=0");
            assert_eq!(event(&line).pid, 4242, "{line}");
        }
        // Without the padding, a name with brackets still works unless it imitates a whole prefix.
        assert_eq!(event("tmux: [5] x-77 [001] .... 1.5: mm_page_free: pfn=0x10 order=0").pid, 77);
    }

    #[test]
    fn every_event_of_the_page_allocator() {
        let kind = |fields: &str| event(&format!("t-1 [000] ..... 1.0: {fields}")).kind;
        let pfn = Pfn::new(0x22);
        assert_eq!(
            kind("mm_page_alloc: page=00ab pfn=0x22 order=3 migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE|__GFP_COMP"),
            EventKind::Alloc {
                pfn: Some(pfn),
                order: Order::COSTLY,
                migratetype: 1,
                gfp_flags: 1_051_850 | gfp::GFP_COMP
            }
        );
        assert_eq!(kind("mm_page_free_batched: page=00ab pfn=34 order=0 cold=0"), EventKind::FreeBatched { pfn });
        assert_eq!(
            kind("mm_page_pcpu_drain: page=00ab pfn=0x22 order=9 migratetype=Movable"),
            EventKind::PcpuDrain { pfn, order: Order::PAGEBLOCK, migratetype: 1 }
        );
        assert_eq!(
            kind("mm_page_alloc_zone_locked: page=00ab pfn=0x22 order=4 migratetype=2 percpu_refill=0"),
            EventKind::ZoneLocked { pfn, order: Order::new(4).unwrap(), migratetype: 2, percpu_refill: false }
        );
        assert_eq!(
            kind(
                "mm_page_alloc_extfrag: page=00ab pfn=0x22 alloc_order=0 fallback_order=10 pageblock_order=9 \
                 alloc_migratetype=0 fallback_migratetype=1 fragmenting=0 change_ownership=1"
            ),
            EventKind::Extfrag {
                pfn,
                order: Order::ZERO,
                migratetype: 0,
                fallback_order: Order::LINUX_MAX,
                fallback_migratetype: 1,
                change_ownership: true
            }
        );
    }

    #[test]
    fn failed_allocations_in_every_spelling() {
        for fields in [
            "page=(null) pfn=0",
            "page=0000000000000000 pfn=0x0",
            "page=(nil) pfn=(null)/0",
            "pfn=0xffffffffffffffff",
            "pfn=18446744073709551615",
            "pfn=-1",
        ] {
            let line = format!("t-1 [000] 1.0: mm_page_alloc: {fields} order=9 migratetype=1 gfp_flags=0xcc0");
            assert!(matches!(event(&line).kind, EventKind::Alloc { pfn: None, .. }), "{line}");
        }
    }

    #[test]
    fn what_is_no_event_of_ours() {
        let parse = |line: &str| LineParser::default().parse(line.as_bytes());
        for line in [
            "t-1 [000] ..... 1.0: sched_process_exec: filename=/x-1 [000] 1.0: mm_page_free: pid=1",
            "t-1 [000] ..... 1.0: schedule <-do_idle",
            "t 1 [000] 1.0: kmem:kmalloc: call_site=1",
            "t 1 [000] 1.0: fake:mm_page_free: pfn=1 order=0",
            "    ffffffffbe23e32e __alloc_pages_nodemask+0x22e (/lib/modules/5.1.0-rc3+/build/vmlinux)",
            " => __alloc_pages",
        ] {
            assert_eq!(parse(line), Ok(Line::Other), "{line}");
        }
        for line in [
            "",
            "   ",
            "Attaching 2 probes...",
            "Attached 1 probe",
            "# tracer: nop",
            "cpus=2",
            "version = 7",
            "CPU 1 is empty",
        ] {
            assert_eq!(parse(line), Ok(Line::Note), "{line}");
        }
        assert_eq!(parse("CPU:1 [LOST 123 EVENTS]"), Ok(Line::Lost(123)));
        assert_eq!(parse("CPU:1 [LOST EVENTS]"), Ok(Line::Lost(1)));
        assert_eq!(parse("CPU:7 [204600 EVENTS DROPPED]"), Ok(Line::Lost(204_600)));
        assert_eq!(parse("Lost 9 events"), Ok(Line::Lost(9)));
        assert_eq!(parse("perf 12 [001] 5.5: PERF_RECORD_LOST lost 77"), Ok(Line::Lost(77)));
    }

    #[test]
    fn errors_name_the_offending_value() {
        let with = |fields: &str| bad(&format!("t-1 [000] ..... 1.0: {fields}"));
        assert_eq!(with("mm_page_free: pfn=0x1 order=19"), "order `19` is no order (0 to 18)");
        assert_eq!(with("mm_page_free: pfn=0x1"), "no `order=`");
        assert_eq!(with("mm_page_free: pfn=0xzz order=0"), "pfn `0xzz` is no frame number");
        assert_eq!(
            with("mm_page_free: pfn=1c2ab3 order=0"),
            "pfn `1c2ab3` is no decimal number; hexadecimal ones begin with 0x"
        );
        assert_eq!(with("mm_page_free: pfn=0xffffffffffffffff order=0"), "pfn `0xffffffffffffffff` is no frame number");
        assert_eq!(
            with("mm_page_alloc: pfn=0x1 order=0 migratetype=7 gfp_flags=0"),
            "migratetype `7` is no type (0 to 2)"
        );
        assert_eq!(
            with("mm_page_alloc: pfn=0x1 order=0 migratetype=1 gfp_flags=__GFP_NEW"),
            "unknown GFP flag `__GFP_NEW`"
        );
        assert_eq!(with("mm_page_free: pfn=0x1 order=0 pfn=0x2"), "`pfn` is given twice: two lines run together?");
        assert_eq!(bad("t-1 [5000] 1.0: mm_page_free: pfn=1 order=0"), "CPU 5000 is above 4095");
        assert_eq!(bad("t-1 [000] .... soon: mm_page_free: pfn=1 order=0"), "no time after [CPU]: `soon:`");
        assert_eq!(bad("t-1 [000] ...."), "no time after [CPU]: `....`");
        assert_eq!(bad("t [000] 1.0: mm_page_free: pfn=1 order=0"), "no thread id before [CPU]");
        assert_eq!(
            bad("t-1 [000] 99999999999999.0: mm_page_free: pfn=1 order=0"),
            "time `99999999999999.0:` is out of range"
        );
        assert!(bad("hello world").starts_with("no event"));
    }

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
