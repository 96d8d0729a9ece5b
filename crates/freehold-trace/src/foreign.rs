//! Text of other tools that holds the page allocator's events, as lines that `perf script` would
//! print: one line for one line, so that what is wrong has its line's number.
//!
//! ```text
//!  LTTng     [10:11:12.100000000] (+0.000000011) host kmem_mm_page_free: { cpu_id = 0 }, { pfn = 17, order = 0 }
//!  systrace  <script class="trace-data" type="application/text"> and tracefs text; before that "...\n\
//!  perf      { "timestamp": 100000, "tid": 5, "cpu": 0, "callchain": [...], "pfn": "0x11", "order": "0" }
//!  dump      kernel: [  12.3] kworker/-1234    0d..2. 1234567us : mm_page_free: pfn=0x11 order=0
//! ```

use std::io::{self, BufRead, BufReader, Read};

use super::info::Format;
use super::line::lost;

/// Which of them a text is, by its first lines.
pub(super) fn format_of(head: &[u8]) -> Option<Format> {
    let has = |text: &str| memchr::memmem::find(head, text.as_bytes()).is_some();
    let begins = head.trim_ascii_start();
    let is_html = begins.starts_with(b"<!DOCTYPE html") || begins.starts_with(b"<html");
    if is_html && (has("trace-data") || has("linuxPerfData")) {
        return Some(Format::Systrace);
    }
    if begins.starts_with(b"{") && has("linux-perf-json-version") {
        return Some(Format::PerfJson);
    }
    let lines = || head.split(|&b| b == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    if lines().any(|line| lttng(line, &mut Day::default()).is_some()) {
        return Some(Format::Lttng);
    }
    // Events that were lost are told in other texts, too.
    let is_dumped = |line| dump(line).is_some_and(|found| lost(found.as_bytes()).is_none());
    let dumped = has("Dumping ftrace buffer") || lines().take(64).any(is_dumped);
    dumped.then_some(Format::FtraceDump)
}

/// The text of such a format as lines of events; lines of others are empty.
pub(super) struct Translated<R> {
    lines: BufReader<R>,
    format: Format,
    state: State,
    out: Vec<u8>,
    at: usize,
}

#[derive(Default)]
struct State {
    day: Day,
    /// Within the part of a page that is trace text.
    inside: bool,
    samples: Samples,
}

/// Where in perf's JSON the reading is.
#[derive(Default)]
struct Samples {
    /// Among the samples, behind the headers.
    begun: bool,
    /// Open braces, inside which a sample is.
    depth: u32,
    /// Within a text, and behind a backslash in it.
    quoted: bool,
    escaped: bool,
    /// What there is of a sample so far.
    sample: String,
}

/// The time of day of the last event, and the days before it.
#[derive(Default)]
struct Day {
    last_s: u64,
    days: u64,
}

impl<R: Read> Translated<R> {
    pub(super) fn new(rest: R, format: Format) -> Self {
        let (lines, state) = (BufReader::new(rest), State::default());
        Self { lines, format, state, out: Vec::new(), at: 0 }
    }
}

impl<R: Read> Read for Translated<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.out.len() {
            let mut line = Vec::new();
            if self.lines.read_until(b'\n', &mut line)? == 0 {
                return Ok(0);
            }
            // A last line without an end was cut, and stays so.
            let whole = line.ends_with(b"\n");
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']);
            self.out = translate(self.format, text, &mut self.state).unwrap_or_default().into();
            self.out.extend(whole.then_some(b'\n'));
            if self.out.is_empty() {
                self.out.push(b' ');
            }
            self.at = 0;
        }
        let n = buf.len().min(self.out.len() - self.at);
        buf[..n].copy_from_slice(&self.out[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

fn translate(format: Format, line: &str, state: &mut State) -> Option<String> {
    match format {
        Format::Lttng => match line.split_once("iscarded ") {
            // Of babeltrace's standard error; how many is not always known, and at least one.
            Some((_, rest)) if rest.contains("event") => {
                let count = rest.split(' ').next().filter(|word| word.parse::<u64>().is_ok());
                Some(format!("CPU:0 [LOST {} EVENTS]", count.unwrap_or("1")))
            }
            _ => or_damaged(line, " kmem_mm_page_", lttng(line, &mut state.day)),
        },
        Format::Systrace => systrace(line, &mut state.inside),
        Format::PerfJson => state.samples.line(line),
        Format::FtraceDump => or_damaged(line, ": mm_page_", dump(line)),
        _ => None,
    }
}

/// Of a line that is to hold an event what it says, or the line as it is: what is damaged is told.
fn or_damaged(line: &str, event: &str, found: Option<String>) -> Option<String> {
    found.or_else(|| line.contains(event).then(|| line.to_owned()))
}

/// A line of babeltrace: a time of day or seconds, an event, and its fields in braces.
fn lttng(line: &str, day: &mut Day) -> Option<String> {
    let (time, rest) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    let event = rest.split_whitespace().find_map(|word| word.strip_prefix("kmem_mm_page_"))?;
    let event = event.strip_suffix(':')?;
    let (whole, fraction) = time.split_once('.')?;
    let numbers: Vec<u64> = whole.split(':').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let seconds = match numbers[..] {
        [seconds] => seconds,
        [h, m, s] => {
            (h < 24 && m < 60 && s < 61).then_some(())?;
            let seconds = h * 3600 + m * 60 + s;
            // Past midnight.
            day.days += u64::from(seconds + 43_200 < day.last_s);
            day.last_s = seconds;
            day.days * 86_400 + seconds
        }
        _ => return None,
    };
    let fields: Vec<(&str, &str)> = rest
        .split(['{', '}', ','])
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect();
    let of = |wanted: &str| fields.iter().find(|(name, _)| *name == wanted).map(|of| of.1);
    let task = of("tid").or(of("vtid")).unwrap_or("0");
    let mut text =
        format!("? {task} [{}] {seconds}.{fraction}: kmem:mm_page_{event}:", of("cpu_id")?);
    for (name, value) in fields.iter().filter(|(name, _)| !name.ends_with("id")) {
        text += &format!(" {name}={}", value.to_ascii_lowercase());
    }
    Some(text)
}

/// A line of the trace inside a page, as it is; in older pages escaped.
fn systrace(line: &str, inside: &mut bool) -> Option<String> {
    let begins = line.contains("linuxPerfData") || line.contains("class=\"trace-data\"");
    if begins || line.contains("</script>") {
        *inside = begins;
        return None;
    }
    let text = line.strip_suffix("\\n\\").unwrap_or(line);
    // A page may have scripts of other kinds inside. What is lost, and how many CPUs there are, is
    // said beside the events.
    let says = text.contains(" mm_page_")
        || text.starts_with("# ") && text.contains("entries-in-buffer")
        || lost(text.as_bytes()).is_some();
    (*inside && says).then(|| text.to_owned())
}

impl Samples {
    /// The events whose samples end on a line; of the headers the kernel's release.
    fn line(&mut self, line: &str) -> Option<String> {
        if !self.begun {
            let Some((_, rest)) = line.split_once("\"samples\"") else {
                let (_, release) = line.split_once("\"os-release\": \"")?;
                return Some(format!("# os release : {}", release.split('"').next()?));
            };
            self.begun = true;
            return self.line(rest);
        }
        let mut found: Option<String> = None;
        for c in line.chars() {
            if self.ends_with(c) {
                let event = event_of(&std::mem::take(&mut self.sample));
                found = found.into_iter().chain(event).reduce(|all, event| all + "\n" + &event);
            }
        }
        found
    }

    /// Whether a sample ends there. One that is larger than any event is cut, and is none.
    fn ends_with(&mut self, c: char) -> bool {
        let is_text = self.quoted;
        match c {
            _ if self.escaped => self.escaped = false,
            '\\' => self.escaped = self.quoted,
            '"' => self.quoted = !self.quoted,
            '{' if !is_text => self.depth += 1,
            _ => {}
        }
        if self.depth > 0 && self.sample.len() < 1 << 16 {
            self.sample.push(c);
        }
        let closes = c == '}' && !is_text && self.depth > 0;
        self.depth -= u32::from(closes);
        closes && self.depth == 0
    }
}

/// Names of an event's own fields. perf names no event, so that these have to tell which it is.
const EVENTS: [(&str, &[&str]); 5] = [
    ("kmem:mm_page_alloc", &["gfp_flags", "migratetype", "order", "pfn"]),
    ("kmem:mm_page_free", &["order", "pfn"]),
    ("kmem:mm_page_free_batched", &["pfn"]),
    ("kmem:mm_page_alloc_zone_locked", &["migratetype", "order", "percpu_refill", "pfn"]),
    (
        "kmem:mm_page_alloc_extfrag",
        &[
            "alloc_migratetype",
            "alloc_order",
            "change_ownership",
            "fallback_migratetype",
            "fallback_order",
            "pfn",
        ],
    ),
];

/// A sample as an event. Fields that are drains' and older refills' alike are an event of neither.
fn event_of(sample: &str) -> Option<String> {
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(sample).ok()?;
    let own: Vec<(&str, &str)> = fields
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
        .filter(|(name, _)| !matches!(*name, "comm" | "event") && !name.starts_with("common_"))
        .collect();
    let mut names: Vec<&str> = own.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let told = EVENTS.iter().find(|(_, fields)| names == *fields).map(|(event, _)| *event);
    let told =
        told.or((names == ["migratetype", "order", "pfn"]).then_some("kmem:drain_or_refill"));
    let event = fields.get("event").and_then(serde_json::Value::as_str).or(told)?;
    let of = |name: &str| fields.get(name).and_then(serde_json::Value::as_u64);
    let ns = of("timestamp")?;
    let (seconds, ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
    let (task, cpu) = (of("tid").unwrap_or(0), of("cpu")?);
    let mut text = format!("? {task} [{cpu}] {seconds}.{ns:09}: {event}:");
    for (name, value) in own {
        text += &format!(" {name}={value}");
    }
    Some(text)
}

/// A line that a kernel printed as it died: `task-pid CPUflags microseconds: event`.
fn dump(line: &str) -> Option<String> {
    let told = line.find("CPU:").map(|at| &line[at..]);
    if let Some(told) = told.filter(|told| lost(told.as_bytes()).is_some()) {
        return Some(told.to_owned());
    }
    let at = line.find(": mm_page_")?;
    let (before, event) = (&line[..at], &line[at + 2..]);
    // The last one: a task's name may have such letters in it.
    let before = before.trim_end().trim_end_matches(['+', '!', '#', '*', '@', '$']);
    let before = before.strip_suffix("us")?;
    let mut words = before.split_whitespace().rev();
    let (us, flags, task) = (words.next()?, words.next()?, words.next()?);
    let us: u64 = us.parse().ok()?;
    let pid: u32 = task.rsplit_once('-')?.1.parse().ok()?;
    let digits = flags.bytes().take_while(u8::is_ascii_digit).count();
    let cpu: u16 = flags[..digits].parse().ok()?;
    let (seconds, us) = (us / 1_000_000, us % 1_000_000);
    Some(format!("?-{pid} [{cpu:03}] {seconds}.{us:06}: {event}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(format: Format, text: &str) -> String {
        let mut out = String::new();
        Translated::new(text.as_bytes(), format).read_to_string(&mut out).unwrap();
        out
    }

    #[test]
    fn one_line_for_one_line() {
        let text = "[23:59:59.100000000] (+?.?) host kmem_mm_page_free: { cpu_id = 3 }, { tid = 7 \
                    }, { page = 0xFFEA, pfn = 17, order = 0 }\nother\n[00:00:01.5] (+1.4) h \
                    kmem_mm_page_free: { cpu_id = 0 }, { pfn = 0x1A, order = 1 }\n";
        assert_eq!(format_of(text.as_bytes()), Some(Format::Lttng));
        assert_eq!(
            translated(Format::Lttng, text),
            "? 7 [3] 86399.100000000: kmem:mm_page_free: page=0xffea pfn=17 order=0\n\n? 0 [0] \
             86401.5: kmem:mm_page_free: pfn=0x1a order=1\n"
        );
        let event = "a-1 [000] .... 1.000001: mm_page_free: pfn=0x10 order=0";
        let (header, lost) =
            ("# entries-in-buffer/entries-written: 90/100   #P:8", "CPU:1 [LOST 12 EVENTS]");
        let new = format!(
            "<!DOCTYPE html>\n<script class=\"trace-data\" type=\"application/text\">\n# tracer: \
             nop\n{header}\n{lost}\n {event}\n</script>\n {event}\n"
        );
        assert_eq!(format_of(new.as_bytes()), Some(Format::Systrace));
        let expected = format!("\n\n\n{header}\n{lost}\n {event}\n\n\n");
        assert_eq!(translated(Format::Systrace, &new), expected);
        let old = format!("<html>\nvar linuxPerfData = \"\\\n {event}\\n\\\n\";</script>\n");
        assert_eq!(format_of(old.as_bytes()), Some(Format::Systrace));
        assert_eq!(translated(Format::Systrace, &old), format!("\n\n {event}\n\n"));
    }

    /// Sample by sample as perf writes it: no event's name, the stack before the event's fields.
    #[test]
    fn samples_of_perf_are_told_by_their_fields() {
        let head = "{\n\t\"linux-perf-json-version\": 1,\n\t\"headers\": {\n\t\t\"os-release\": \
                    \"6.1.7\",\n\t\t\"cmdline\": [\n\t\t\t\"perf\"\n\t\t]\n\t},\n\t\"samples\": [\n";
        let sample = |fields: &str| {
            let fields: String = fields
                .split(' ')
                .filter_map(|field| field.split_once('='))
                .fold(String::new(), |all, (name, value)| {
                    all + &format!(",\n\t\t\t\"{name}\": \"{value}\"")
                });
            format!(
                "\t\t{{\n\t\t\t\"timestamp\": 1000000002,\n\t\t\t\"pid\": 4,\n\t\t\t\"tid\": 5,\n\t\t\t\
                 \"cpu\": 1,\n\t\t\t\"comm\": \"a }}\\\"{{ b\",\n\t\t\t\"callchain\": [\n\t\t\t\t{{\n\
                 \t\t\t\t\t\"ip\": \"0xff\",\n\t\t\t\t\t\"symbol\": \"f\"\n\t\t\t\t}},\n\t\t\t\t{{\n\
                 \t\t\t\t\t\"ip\": \"0x1\"\n\t\t\t\t}}\n\t\t\t]{fields}\n\t\t}},\n"
            )
        };
        let read = |fields: &str| {
            let text = translated(Format::PerfJson, &format!("{head}{}", sample(fields)));
            assert!(text.contains("# os release : 6.1.7\n"), "{text}");
            assert_eq!(text.lines().count(), format!("{head}{}", sample(fields)).lines().count());
            text.lines().last().unwrap().to_owned()
        };
        assert_eq!(format_of(head.as_bytes()), Some(Format::PerfJson));
        let common = "common_type=12 common_flags=0 common_preempt_count=0 common_pid=5 ";
        let of = |event: &str, fields: &str| format!("? 5 [1] 1.000000002: {event}: {fields}");
        for (event, fields) in [
            ("kmem:mm_page_free", "order=0 pfn=0x11"),
            ("kmem:mm_page_free_batched", "pfn=0x11"),
            ("kmem:mm_page_alloc", "gfp_flags=0xcc0 migratetype=1 order=0 pfn=0x11"),
            ("kmem:mm_page_alloc_zone_locked", "migratetype=1 order=0 percpu_refill=1 pfn=0x11"),
        ] {
            assert_eq!(read(&format!("{common}{fields}")), of(event, fields));
        }
        // Drains, and refills before there was `percpu_refill`, are counted as left out.
        let either = "migratetype=1 order=0 pfn=0x11";
        assert_eq!(read(either), of("kmem:drain_or_refill", either));
        // Another event; the end of the file.
        for other in ["pfn=0x11 lru=1", ""] {
            assert_eq!(read(other), "", "{other}");
        }
        // On one line, and with the event's name, as other programs write it.
        let line = "{\"linux-perf-json-version\":1,\"samples\":[{\"timestamp\":2,\"cpu\":0,\"event\":\
                    \"kmem:mm_page_free\",\"pfn\":\"17\",\"order\":\"0\"},{\"timestamp\":3,\"cpu\":0,\
                    \"pfn\":\"17\",\"order\":\"0\"}]}\n";
        assert_eq!(
            translated(Format::PerfJson, line),
            "? 0 [0] 0.000000002: kmem:mm_page_free: order=0 pfn=17\n? 0 [0] 0.000000003: \
             kmem:mm_page_free: order=0 pfn=17\n"
        );
    }

    #[test]
    fn what_a_dying_kernel_printed() {
        let text = "Jan  2 03:04:05 h kernel: [  9.1] Dumping ftrace buffer:\n<4>[  9.2] \
                    kworker/-1234    0d..2. 1234567us+: mm_page_free: page=0 pfn=0x11 order=0\n";
        assert_eq!(format_of(text.as_bytes()), Some(Format::FtraceDump));
        assert_eq!(
            translated(Format::FtraceDump, text),
            "\n?-1234 [000] 1.234567: mm_page_free: page=0 pfn=0x11 order=0\n"
        );
        // Tasks and hosts have any name; what is lost and what is damaged stays to be told.
        for (line, expected) in [
            ("<4>[ 9] dbus-dae-77  0d..2. 12us : mm_page_free: pfn=1 order=0\n", true),
            (
                "Jan 1 us-east-1 kernel: [ 9] a-77  0d..2. 12us!: mm_page_free: pfn=1 order=0\n",
                true,
            ),
            ("<4>[ 9] a-77  0d..2. 1?2us : mm_page_free: pfn=1 order=0\n", false),
        ] {
            let found = translated(Format::FtraceDump, line);
            let whole = "?-77 [000] 0.000012: mm_page_free: pfn=1 order=0\n";
            assert_eq!(found, if expected { whole } else { line });
        }
        let lost = "<4>[  9.2] CPU:0 [LOST 7 EVENTS]\n";
        assert_eq!(translated(Format::FtraceDump, lost), "CPU:0 [LOST 7 EVENTS]\n");
        // Without a line end it was cut.
        assert!(!translated(Format::FtraceDump, text.trim_end()).ends_with('\n'));
        let event = " a-1 [000] .... 1.0: mm_page_free: pfn=1 order=0\n";
        for before in ["", "# tracer: nop\nCPU:1 [LOST 12 EVENTS]\n"] {
            assert_eq!(format_of(format!("{before}{event}").as_bytes()), None, "{before}");
        }
        for (said, lost) in
            [("discarded 7 events (unknown time range)", 7), ("may have discarded events", 1)]
        {
            let found = translated(Format::Lttng, &format!("Tracer {said}\n"));
            assert_eq!(found, format!("CPU:0 [LOST {lost} EVENTS]\n"));
        }
    }
}
