//! The bpftrace script and the reader of traces agree: what the script's own formats print is read,
//! event by event.

use freehold::{CpuId, Order, Pfn};
use freehold_trace::{Event, EventKind, OpenOptions};

use super::reading::read_bytes;

const SCRIPT: &str = include_str!("../../scripts/page-events.bt");
const GUIDE: &str = include_str!("../../../../docs/recording.md");

/// What `BEGIN` prints, of a kernel.
const HEADER: &str = "# Linux version 6.18.0 (builder@host) #1 SMP\n";

/// The format of the `printf` in the probe `name`.
fn format_of(name: &str) -> String {
    let probe = SCRIPT
        .split("tracepoint:kmem:")
        .find(|part| part.starts_with(&format!("{name}\n")))
        .expect("the probe");
    let (_, rest) = probe.split_once("printf(\"").expect("its printf");
    let (format, _) = rest.split_once("\\n\",").expect("a line end at the end of the format");
    format!("{format}\n")
}

/// As printf does, for the few conversions that the script has.
fn print(format: &str, arguments: &[u64]) -> String {
    let mut arguments = arguments.iter();
    let mut text = String::new();
    let mut parts = format.split('%');
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic() && c != 'l').expect("a conversion");
        let (flags, rest) = part.split_at(end);
        let number = *arguments.next().expect("as many arguments as conversions");
        let digits = if rest.starts_with('x') { format!("{number:x}") } else { number.to_string() };
        let width =
            flags.trim_matches('l').strip_prefix('0').map_or(0, |width| width.parse().unwrap());
        text.push_str(&format!("{digits:0>width$}{}", &rest[1..]));
    }
    assert_eq!(arguments.next(), None, "every argument is printed");
    text
}

fn read(text: &str) -> Vec<Event> {
    read_bytes(text.as_bytes().to_vec(), OpenOptions::default()).unwrap().0
}

#[test]
fn what_the_script_prints_is_read() {
    let (alloc, free) = (format_of("mm_page_alloc"), format_of("mm_page_free"));
    let text = [
        // Without -q it says so on standard output.
        "Attaching 3 probes...\n".to_owned(),
        HEADER.to_owned(),
        print(&alloc, &[4242, 1, 7992, 7, 1_846_963, 0, 1, 0x0014_0dca]),
        // An allocation that failed: frame -1.
        print(&alloc, &[4242, 1, 7992, 8, u64::MAX, 9, 1, 0x0014_0dca]),
        print(&free, &[7, 0, 7992, 91, 1_846_963, 0]),
    ]
    .concat();
    let first = "task-4242 [001] 7992.000000007: mm_page_alloc: pfn=1846963 order=0";
    assert!(text.contains(first), "{text}");
    let events = read(&text);
    assert_eq!(events.len(), 3);
    let row = (events[0].ts_ns, events[0].cpu, events[0].pid);
    assert_eq!(row, (7_992_000_000_007, CpuId::new(1), 4242));
    let first = EventKind::Alloc {
        pfn: Some(Pfn::new(1_846_963)),
        order: Order::ZERO,
        migratetype: 1,
        gfp_flags: 0x0014_0dca,
    };
    assert_eq!(events[0].kind, first);
    assert!(matches!(events[1].kind, EventKind::Alloc { pfn: None, order: Order::PAGEBLOCK, .. }));
    assert_eq!(events[2].kind, EventKind::Free { pfn: Pfn::new(1_846_963), order: Order::ZERO });
    assert_eq!((events[2].ts_ns, events[2].cpu), (7_992_000_000_091, CpuId::new(0)));
}

#[test]
fn the_script_says_which_kernel_it_is() {
    let (_, begin) = SCRIPT.split_once("BEGIN\n{\n").expect("a first probe");
    let (begin, _) = begin.split_once("\n}").expect("its end");
    assert_eq!(begin, "\tprintf(\"# \");\n\tcat(\"/proc/version\");");
    let flags = |gfp: u64, header: &str| {
        let alloc = print(&format_of("mm_page_alloc"), &[1, 0, 5, 7, 9, 0, 1, gfp]);
        match read(&format!("{header}{alloc}"))[0].kind {
            EventKind::Alloc { gfp_flags, .. } => gfp_flags,
            other => panic!("{other:?}"),
        }
    };
    let version = "# Linux version 4.18.0-80.el8 (x)\n";
    assert_eq!(flags(0x6200ca, version), 0x10_0cca);
}

#[test]
fn the_guide_shows_lines_as_the_script_prints_them() {
    let (_, rest) = GUIDE.split_once("Its lines:\n\n```text\n").expect("the lines");
    let (lines, _) = rest.split_once("```").unwrap();
    let alloc =
        print(&format_of("mm_page_alloc"), &[4242, 1, 7992, 7, 1_846_963, 0, 1, 0x0014_0dca]);
    let free = print(&format_of("mm_page_free"), &[4242, 0, 7992, 91, 1_846_963, 0]);
    assert_eq!(lines, format!("{HEADER}{alloc}{free}"));
    assert_eq!(read(lines).len(), 2);
}
