//! The grammar of one line of kernel trace text: tracefs, `trace-cmd report` and `perf script`
//! share it.
//!
//! ```text
//!  tracefs     kworker/1:2-1234    [001] d..2.  7992.399333: mm_page_free: page=00000000f81a pfn=0x1c2ab3 order=0
//!  trace-cmd          make-16810 [004] .....  2319.000857: mm_page_free:         page=0xffffea00 pfn=0x1347a7 order=0
//!  perf script        make 16810 [004]  2319.000857:       kmem:mm_page_free: page=0x1347a7 pfn=0x1347a7 order=0
//!              \__________/\___/ \___/ \___/ \______/            \__________/ \____________________________________/
//!                 task     thread CPU  flags  seconds               event      fields, `name=value`
//! ```
//!
//! Below an event perf prints its call chain, indented, where it recorded one: addresses of any
//! length, names of inlined functions, and lines of source.
//!
//! A task's name may hold anything: spaces, dashes, brackets, colons. It is at most 15 bytes and
//! the kernel pads it to 16, so on a padded line the search for `[CPU]` starts behind it. On lines
//! that lost their padding the first `[digits]` wins that has a thread id before it and a time and
//! an event after it.

mod fields;
mod prefix;
mod token;

use freehold::{Migratetype, Order};

use super::error::Bad;
use super::meaning::{Flags, Meaning};
use super::{Event, EventKind, gfp};
use fields::{Fields, named_type, required, truth};
use token::{decimal, number};

pub(super) use fields::PFN_MAX;
pub(super) use prefix::{CPU_MAX, prefix};

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
    /// As many that a summary before the events says were lost.
    Overrun(u64),
}

/// Parses lines; keeps the last few GFP strings, because a real trace has a dozen of them in
/// millions of lines.
#[derive(Debug, Default)]
pub(super) struct LineParser {
    gfp_seen: Vec<(Vec<u8>, u32)>,
    meaning: Meaning,
    /// The line before belongs to an event that perf printed, or to its call chain.
    in_chain: bool,
}

impl LineParser {
    pub(super) fn new(meaning: Meaning) -> Self {
        Self { meaning, ..Self::default() }
    }

    /// Parses one line, without its line end.
    pub(super) fn parse(&mut self, line: &[u8]) -> Result<Line, Bad> {
        // No kernel prints one: a block of the file was never written, and what it held may have
        // been an event of ours.
        if line.contains(&0) {
            return Err(Bad::because("it holds NUL bytes: a part of the file is missing"));
        }
        let line = line.trim_ascii_end();
        let trimmed = line.trim_ascii_start();
        if let Some(note) = no_event(trimmed).filter(|_| !is_of_a_task(line)) {
            self.in_chain &= !trimmed.is_empty();
            return Ok(note);
        }
        let indented = trimmed.len() < line.len();
        let prefix = match prefix(line) {
            Ok(prefix) => prefix,
            Err(_) if indented && is_call_chain(trimmed, self.in_chain) => {
                return Ok(Line::Other);
            }
            Err(why) => return Err(why),
        };
        self.in_chain = prefix.system.is_some();
        if prefix.event == b"PERF_RECORD_LOST" {
            let count = prefix.fields.rsplit(|&b| b == b' ').next().and_then(decimal);
            return Ok(Line::Lost(count.unwrap_or(1)));
        }
        if prefix.system.is_some_and(|system| system != b"kmem") {
            return Ok(Line::Other);
        }
        let Some(kind) = self.kind(prefix.event, prefix.fields)? else { return Ok(Line::Other) };
        if prefix.is_ticks {
            return Err(Bad::Ticks(prefix.ts_ns.to_string()));
        }
        Ok(Line::Event(Event { ts_ns: prefix.ts_ns, cpu: prefix.cpu, pid: prefix.pid, kind }))
    }

    /// What happened, by the event's name and its fields; `None` for another tracepoint.
    fn kind(&mut self, event: &[u8], text: &[u8]) -> Result<Option<EventKind>, Bad> {
        Ok(Some(match event {
            b"mm_page_alloc" => self.alloc(text)?,
            b"mm_page_free" => {
                let fields = Fields::read(text)?;
                EventKind::Free { pfn: fields.pfn()?, order: fields.order()? }
            }
            b"mm_page_free_direct" | b"mm_pagevec_free" => {
                return Err(Bad::because("an event of a kernel before 3.3, which is not read"));
            }
            b"mm_page_free_batched" => EventKind::FreeBatched { pfn: Fields::read(text)?.pfn()? },
            b"mm_page_pcpu_drain" => {
                let fields = Fields::read(text)?;
                EventKind::PcpuDrain {
                    pfn: fields.pfn()?,
                    order: fields.order()?,
                    migratetype: fields.list_type(&self.meaning.numbers)?,
                }
            }
            b"mm_page_alloc_zone_locked" => {
                let fields = Fields::read(text)?;
                let order = fields.order()?;
                EventKind::ZoneLocked {
                    pfn: fields.pfn()?,
                    order,
                    migratetype: fields.list_type(&self.meaning.numbers)?,
                    percpu_refill: match fields.percpu_refill {
                        None => order <= Order::COSTLY || order == Order::PAGEBLOCK,
                        given => truth("percpu_refill", given)?,
                    },
                }
            }
            b"mm_page_alloc_extfrag" => Fields::read(text)?.extfrag(&self.meaning.numbers)?,
            _ => return Ok(None),
        }))
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
        let order = fields.order()?;
        let gfp_flags = self.gfp(required("gfp_flags", fields.gfp_flags)?)?;
        let given = required("migratetype", fields.migratetype)?;
        let migratetype = match number(given) {
            Some(number) => self.meaning.request(number, gfp_flags).map_err(Bad::because)?,
            None => match named_type(given) {
                // Android's.
                Some(Migratetype::Cma) => Migratetype::Movable as u8,
                Some(named) if Migratetype::PCP.contains(&named) => named as u8,
                _ => {
                    let given = token::lossy(given);
                    return Err(Bad::because(format!(
                        "migratetype `{given}` is not a type (0 to 2)"
                    )));
                }
            },
        };
        Ok(EventKind::Alloc { pfn, order, migratetype, gfp_flags })
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
        let flags = &self.meaning.flags;
        // Beside names a number is bits that the kernel has no name for: no request's kind.
        let named = words.split('|').any(|part| !gfp::is_number(part));
        let number = |n| flags.apply(n).or(named.then(|| gfp::without_name(n)));
        let bits = gfp::parse(words, &number).map_err(|part| {
            if part.is_empty() {
                Bad::because(format!("gfp_flags `{words}` has an empty part"))
            } else if matches!(flags, Flags::Unknown) && gfp::is_number(part) {
                Bad::Number(part.chars().take(80).collect())
            } else {
                Bad::Flag(part.chars().take(80).collect())
            }
        })?;
        self.gfp_seen.truncate(SEEN - 1);
        self.gfp_seen.push((text.to_vec(), bits));
        Ok(bits)
    }
}

/// The time of an event, in nanoseconds, whatever stands behind it.
pub(super) fn time(line: &[u8]) -> Option<u64> {
    prefix::prefix(line).ok().map(|prefix| prefix.ts_ns)
}

/// The type's number and the flags of a request, where the line is one and has both as they stand
/// in a trace; flags as 6.18 has them.
pub(super) fn request_numbers(line: &[u8], flags: &Flags) -> Option<(u64, u32)> {
    let prefix = prefix(line.trim_ascii_end()).ok()?;
    if prefix.event != b"mm_page_alloc" || prefix.system.is_some_and(|system| system != b"kmem") {
        return None;
    }
    let fields = Fields::read(prefix.fields).ok()?;
    let words = std::str::from_utf8(fields.gfp_flags?).ok()?;
    let bits = gfp::parse(words, &|number| flags.apply(number)).ok()?;
    Some((number(fields.migratetype?)?, bits))
}

/// Whether a line that begins as a note does is an event all the same: a task may be called
/// anything. `# ` at the very beginning makes a comment of whatever follows.
fn is_of_a_task(line: &[u8]) -> bool {
    !line.is_empty() && !line.starts_with(b"# ") && prefix(line).is_ok()
}

/// A line that is plainly no event, unless a task is called so: a comment, a header, a recorder's
/// note; told by how it begins.
fn no_event(trimmed: &[u8]) -> Option<Line> {
    match trimmed.first() {
        None | Some(b'#') => Some(Line::Note),
        Some(b'C') if trimmed.starts_with(b"CPU") => {
            let empty = trimmed.starts_with(b"CPU ") && trimmed.ends_with(b"is empty");
            lost(trimmed).map(Line::Lost).or(empty.then_some(Line::Note)).or_else(|| stat(trimmed))
        }
        Some(b'e' | b'o' | b'b' | b'n' | b'd' | b'r') => stat(trimmed),
        Some(b'A') => is_bpftrace_start(trimmed).then_some(Line::Note),
        // bpftrace's maps, and what it warns of.
        Some(b'@') => Some(Line::Note),
        Some(b'[') => trimmed.ends_with(b"|").then_some(Line::Note),
        Some(b'W') => trimmed.starts_with(b"WARNING: ").then_some(Line::Note),
        // bpftrace, of events that its buffers had no room for: `Lost 12 events`.
        Some(b'L') => {
            decimal(trimmed.strip_prefix(b"Lost ")?.strip_suffix(b" events")?).map(Line::Lost)
        }
        Some(b'=') => trimmed.starts_with(b"=> ").then_some(Line::Other),
        Some(b'c') => header_cpus(trimmed).map(|_| Line::Note).or_else(|| stat(trimmed)),
        Some(b'v') => trimmed.starts_with(b"version = ").then_some(Line::Note),
        Some(_) => None,
    }
}

/// `cpus=4`, as `trace-cmd report` begins.
pub(super) fn header_cpus(line: &[u8]) -> Option<u16> {
    u16::try_from(decimal(line.strip_prefix(b"cpus=")?)?).ok()
}

/// A line of each CPU's buffer that `trace-cmd report --stat` prints before the events.
fn stat(line: &[u8]) -> Option<Line> {
    let colon = line.iter().position(|&b| b == b':')?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    match name {
        b"overrun" | b"commit overrun" | b"dropped events" => match decimal(value)? {
            0 => Some(Line::Note),
            lost => Some(Line::Overrun(lost)),
        },
        b"CPU" | b"entries" | b"bytes" | b"oldest event ts" | b"now ts" | b"read events" => {
            value.iter().all(|b| b.is_ascii_digit() || *b == b'.').then_some(Line::Note)
        }
        _ => None,
    }
}

/// `CPU:1 [LOST 12 EVENTS]`, `CPU:1 [12 EVENTS DROPPED]`, or the same without a number, which is at
/// least one.
pub(super) fn lost(line: &[u8]) -> Option<u64> {
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

/// A line of the call chain that `perf script` prints below an event: an address, a symbol and an
/// object; right behind one of its events or such a line also with a short address, or a file and
/// line of source alone.
fn is_call_chain(trimmed: &[u8], in_chain: bool) -> bool {
    let digits = trimmed.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let least = if in_chain { 1 } else { 4 };
    let frame = digits >= least
        && trimmed.get(digits).is_some_and(u8::is_ascii_whitespace)
        && trimmed.ends_with(b")");
    let source = || {
        let line = trimmed.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let name = trimmed[..trimmed.len() - line].strip_suffix(b":");
        line > 0 && name.is_some_and(|name| name.contains(&b'.') && !name.contains(&b' '))
    };
    frame || in_chain && source()
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold::{CpuId, Pfn};

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
        let expected = Event {
            ts_ns: 2_319_000_857_000,
            cpu: CpuId::new(4),
            pid: 16810,
            kind: free(0x1347a7),
        };
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
        for name in [
            "a b",
            "kworker/u8:2-ev",
            "[x] 1",
            "a-1 [000] 1: b:",
            "x: [003]",
            "-",
            "Web Content",
            "7 [0]-3 (4)",
        ] {
            let line = format!(
                "{name:>16}-4242    [001] d..2.  1.000002: mm_page_free: page=0 pfn=0x10 order=0"
            );
            let got = event(&line);
            assert_eq!(
                (got.pid, got.cpu, got.ts_ns),
                (4242, CpuId::new(1), 1_000_002_000),
                "{line}"
            );
            let line = format!(
                "{name:>16}  4242 [001]     1.000002: kmem:mm_page_free: page=0 pfn=0x10 order=0"
            );
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
            kind(
                "mm_page_alloc: page=00ab pfn=0x22 order=3 migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE|__GFP_COMP"
            ),
            EventKind::Alloc {
                pfn: Some(pfn),
                order: Order::COSTLY,
                migratetype: 1,
                gfp_flags: 1_051_850 | gfp::GFP_COMP
            }
        );
        assert_eq!(
            kind("mm_page_free_batched: page=00ab pfn=34 order=0 cold=0"),
            EventKind::FreeBatched { pfn }
        );
        assert_eq!(
            kind("mm_page_pcpu_drain: page=00ab pfn=0x22 order=9 migratetype=Movable"),
            EventKind::PcpuDrain { pfn, order: Order::PAGEBLOCK, migratetype: 1 }
        );
        assert_eq!(
            kind(
                "mm_page_alloc_zone_locked: page=00ab pfn=0x22 order=4 migratetype=2 percpu_refill=0"
            ),
            EventKind::ZoneLocked {
                pfn,
                order: Order::new(4).unwrap(),
                migratetype: 2,
                percpu_refill: false
            }
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
            let line = format!(
                "t-1 [000] 1.0: mm_page_alloc: {fields} order=9 migratetype=1 gfp_flags=0x100cca"
            );
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
        assert_eq!(with("mm_page_free: pfn=0x1 order=19"), "order `19` is not an order (0 to 18)");
        assert_eq!(with("mm_page_free: pfn=0x1"), "no `order=`");
        assert_eq!(with("mm_page_free: pfn=0xzz order=0"), "pfn `0xzz` is not a frame number");
        assert_eq!(
            with("mm_page_free: pfn=1c2ab3 order=0"),
            "pfn `1c2ab3` is not a decimal number; hexadecimal ones begin with 0x"
        );
        assert_eq!(
            with("mm_page_free: pfn=0xffffffffffffffff order=0"),
            "pfn `0xffffffffffffffff` is not a frame number"
        );
        assert_eq!(
            with("mm_page_alloc: pfn=0x1 order=0 migratetype=7 gfp_flags=0"),
            "migratetype `7` is not a type (0 to 2)"
        );
        assert_eq!(
            with("mm_page_alloc: pfn=0x1 order=0 migratetype=1 gfp_flags=__GFP_NEW"),
            "unknown GFP flag `__GFP_NEW`"
        );
        assert_eq!(
            with("mm_page_free: pfn=0x1 order=0 pfn=0x2"),
            "`pfn` is given twice: two lines run together?"
        );
        assert_eq!(bad("t-1 [5000] 1.0: mm_page_free: pfn=1 order=0"), "CPU 5000 is above 4095");
        assert_eq!(
            bad("t-1 [000] .... soon: mm_page_free: pfn=1 order=0"),
            "no time after [CPU]: `soon:`"
        );
        assert_eq!(bad("t-1 [000] ...."), "no time after [CPU]: `....`");
        assert_eq!(bad("t [000] 1.0: mm_page_free: pfn=1 order=0"), "no thread id before [CPU]");
        assert_eq!(
            bad("t-1 [000] 99999999999999.0: mm_page_free: pfn=1 order=0"),
            "time `99999999999999.0:` is out of range"
        );
        assert!(bad("hello world").starts_with("no event"));
    }
}
