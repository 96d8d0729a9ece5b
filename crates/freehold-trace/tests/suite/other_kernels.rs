//! Text of other kernels and other tools: read with the meaning that it has, or refused with what
//! makes it readable. Every input is made here; its right answer stands beside it.

use freehold_trace::kernel::{Kernel, TypeNumbers};
use freehold_trace::{Event, EventKind, Format, OpenOptions, TraceReader, gfp};

use super::reading::read_bytes;

const MOVABLE: u32 = 0x10_0cca;

fn of(kernel: &str) -> OpenOptions {
    OpenOptions { kernel: Kernel::parse(kernel), ..OpenOptions::default() }
}

fn read(text: impl AsRef<[u8]>, options: OpenOptions) -> (Vec<Event>, TraceReader) {
    read_bytes(text.as_ref().to_vec(), options).unwrap()
}

fn refused(text: impl AsRef<[u8]>, options: OpenOptions) -> String {
    read_bytes(text.as_ref().to_vec(), options).unwrap_err().to_string()
}

/// Type and flags of every allocation.
fn requests(events: &[Event]) -> Vec<(u8, u32)> {
    let of = |event: &Event| match event.kind {
        EventKind::Alloc { migratetype, gfp_flags, .. } => Some((migratetype, gfp_flags)),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

fn alloc(us: u64, fields: &str) -> String {
    let of = format!("mm_page_alloc: page=x pfn={} {fields}", 4096 + us);
    format!("          sh-77    [002] ....     5.{us:06}: {of}\n")
}

/// Six of movable memory, by the number of its type.
fn movable(migratetype: u8, flags: &str) -> String {
    let fields = format!("order=0 migratetype={migratetype} gfp_flags={flags}");
    (0..6).map(|us| alloc(us, &fields)).collect()
}

#[test]
fn numbers_of_flags_are_read_as_their_kernel_has_them_or_refused() {
    let text = |flags: &str| alloc(1, &format!("order=0 migratetype=1 gfp_flags={flags}"));
    for (kernel, flags) in [
        ("4.5", "0x24200ca"),
        ("4.13", "0x14200ca"),
        ("4.18.0-513.el8.x86_64", "0x6200ca"),
        ("5.4", "0x100cca"),
        ("6.18", "1051850"),
    ] {
        let (events, reader) = read(text(flags), of(kernel));
        assert_eq!(requests(&events), [(1, MOVABLE)], "{kernel}");
        let said = reader.info().kernel.clone().unwrap();
        assert!(said.starts_with("Linux ") && kernel.starts_with(&said[6..]), "{said}");
    }
    // A zeroed page of a RHEL 8: bits 15, not 8.
    let (events, _) = read(text("0x6280ca"), of("4.18"));
    assert_eq!(requests(&events), [(1, MOVABLE | gfp::GFP_ZERO)]);
    // Without a kernel, whatever is skipped.
    let skip = OpenOptions { skip_bad: true, ..OpenOptions::default() };
    for options in [OpenOptions::default(), skip] {
        let error = refused(text("0x6200ca"), options);
        assert!(error.contains("line 1: gfp_flags are a number, 0x6200ca"), "{error}");
        assert!(error.contains("hint: ") && error.contains("--kernel VERSION"), "{error}");
    }
    // Headers say it: perf's own, and a copy of /proc/version.
    let version =
        format!("# Linux version 4.18.0-80.el8 (builder@host) (gcc)\n{}", text("0x6200ca"));
    let (events, reader) = read(&version, OpenOptions::default());
    assert_eq!(requests(&events), [(1, MOVABLE)]);
    assert!(reader.info().kernel.as_deref().unwrap().starts_with("Linux 4.18.0-80.el8"));
    let perf = "# ========\n# os release : 4.13.0-16-generic\n# ========\n\
                sh 77 [002]     5.000001: kmem:mm_page_alloc: pfn=9 order=0 migratetype=1 gfp_flags=0x14200ca\n";
    assert_eq!(requests(&read(perf, OpenOptions::default()).0), [(1, MOVABLE)]);
}

#[test]
fn types_of_kernels_before_4_4_are_told_by_version_pagetypeinfo_or_the_requests() {
    let old = movable(2, "GFP_HIGHUSER_MOVABLE|GFP_ZERO");
    let expected = vec![(1, MOVABLE | gfp::GFP_ZERO); 6];
    let (events, reader) = read(&old, of("3.10"));
    assert_eq!((requests(&events), reader.info().notes.len()), (expected.clone(), 0));
    let (events, reader) = read(&old, OpenOptions::default());
    assert_eq!(requests(&events), expected);
    assert!(reader.info().notes[0].contains("before 4.4"), "{:?}", reader.info().notes);
    // A drain names no flags: only the kernel's version or its pagetypeinfo says what it is of.
    let drain = "          sh-77    [002] ....     5.000001: mm_page_pcpu_drain: page=x pfn=4096 order=0 migratetype=2\n";
    let of_drain = |options| match read(drain, options).0[0].kind {
        EventKind::PcpuDrain { migratetype, .. } => migratetype,
        other => panic!("{other:?}"),
    };
    assert_eq!((of_drain(of("3.10")), of_drain(of("6.18"))), (1, 2));
    let beside = OpenOptions { types: Some(TypeNumbers::BEFORE_4_4), ..OpenOptions::default() };
    assert_eq!(of_drain(beside), 1);
    // What all requests show is believed more than a version.
    let (events, reader) = read(movable(1, "GFP_HIGHUSER_MOVABLE"), of("3.10"));
    assert_eq!(requests(&events), vec![(1, MOVABLE); 6]);
    assert!(reader.info().notes[0].contains("its kernel numbers them otherwise"));
}

#[test]
fn clocks_of_no_nanoseconds_are_refused_with_the_command() {
    let tick = |ticks: u64| {
        format!(
            "              sh-77    [002] ..... {ticks:>12}: mm_page_free: page=x pfn=0x10 order=0\n"
        )
    };
    // Events counted, jiffies, cycles.
    for ticks in
        [[1, 2, 3], [253_357, 253_357, 253_358], [88_123_456_789, 88_123_470_001, 88_123_489_222]]
    {
        let text: String = ticks.into_iter().map(tick).collect();
        for skip_bad in [false, true] {
            let error = refused(&text, OpenOptions { skip_bad, ..OpenOptions::default() });
            assert!(error.contains("line 1: its times are no seconds"), "{error}");
            assert!(error.contains("echo local > /sys/kernel/tracing/trace_clock"), "{error}");
        }
    }
    let delta = "sh 77 [002]     0.000000: kmem:mm_page_free: pfn=16 order=0\n\
                 sh 77 [002]     0.000031: kmem:mm_page_free: pfn=17 order=0\n";
    assert!(refused(delta, OpenOptions::default()).contains("without --deltatime"));
}

#[test]
fn call_chains_of_perf_are_passed_over_and_damaged_events_in_them_are_not() {
    let event = |us: u64, pfn: u64| {
        format!(
            "sh    77 [002]     5.{us:06}: kmem:mm_page_free: page={pfn:#x} pfn={pfn:#x} order=0\n"
        )
    };
    let chain = "\tffffffff81a2b3c4 free_unref_page+0x12 ([kernel.kallsyms])\n\t          3f [unknown] (/usr/bin/sh)\n\
                 \t               0 [unknown] ([unknown])\n\t          4a0 operator delete(void*) (inlined)\n  alloc.cc:112\n\n";
    let text = format!("{}{chain}{}{chain}", event(1, 7), event(2, 8));
    let (events, reader) = read(&text, OpenOptions::default());
    assert_eq!((events.len(), reader.ignored(), reader.info().format), (2, 10, Format::PerfScript));
    let damaged = format!(
        "{}{chain}  sh    77 [002]     5.00000x: kmem:mm_page_free: pfn=9 order=0\n",
        event(1, 7)
    );
    assert!(refused(&damaged, OpenOptions::default()).contains("line 8"));
    // No event before it: nothing says that it is a chain.
    refused(" 3f [unknown] (/usr/bin/sh)\n", OpenOptions::default());
}

#[test]
fn fields_as_tracefs_prints_them_raw() {
    let text = "              sh-77    [002] .....     5.000001: mm_page_alloc: pfn=0x43ff (17407) \
                order=0x2 (2) gfp_flags=0x100cca (1051850) migratetype=0x1 (1)\n";
    let (events, _) = read(text, of("6.18"));
    assert_eq!(requests(&events), [(1, MOVABLE)]);
    assert!(
        matches!(events[0].kind, EventKind::Alloc { pfn: Some(pfn), order, .. } if pfn.get() == 0x43ff && order.get() == 2)
    );
    assert!(refused(text, OpenOptions::default()).contains("--kernel VERSION"));
}

#[test]
fn what_recorders_print_around_events() {
    let free = "sh-77 [002] 5.000001: mm_page_free: pfn=16 order=0\n";
    // `trace-cmd report --stat`: what was overrun is lost, which lines beside the events say again.
    let stat = format!(
        "cpus=1\nCPU: 0\nentries: 5\noverrun: 30\ncommit overrun: 0\nbytes: 400\noldest event ts: 4.9\nnow ts: 6.1\ndropped events: 2\nread events: 9\n\nCPU:0 [30 EVENTS DROPPED]\n{free}"
    );
    let (events, reader) = read(stat, OpenOptions::default());
    assert_eq!((events.len(), reader.lost()), (1, 32));
    // bpftrace's banner, maps, histograms and warnings.
    let noisy = format!(
        "Attaching 2 probes...\n{free}\nWARNING: Addrspace is not set\n\n@count: 40\n@sizes:\n[2, 4)          3 |@@@@      |\n@by[sh]: 2\n"
    );
    assert_eq!(read(noisy, OpenOptions::default()).0.len(), 1);
    // A byte-order mark, as Windows writes it.
    let marked = format!("\u{feff}# tracer: nop\n{free}");
    assert_eq!(read(marked, OpenOptions::default()).0.len(), 1);
}

#[test]
fn what_is_not_read_names_the_command_that_helps() {
    let free = " sh-77 [002] 5.000001: mm_page_free: pfn=16 order=0\n";
    let utf16: Vec<u8> = free.repeat(20).encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut marked = b"\xff\xfe".to_vec();
    marked.extend(&utf16);
    let latency = format!(
        "# tracer: nop\n#\n# nop latency trace v1.1.5 on 6.18.0\n# latency: 0 us, #3/3\n{free}"
    );
    let two =
        format!("host.dat:  cpus=8\nguest.dat: cpus=2\n  host.dat:    {free} guest.dat:    {free}");
    for (text, what, command) in [
        (utf16, "UTF-16", "iconv -f UTF-16"),
        (marked, "UTF-16", "iconv -f UTF-16"),
        (format!("PK\u{3}\u{4}t.txt\n{free}").into(), "zip", "unzip -p FILE | freehold replay -"),
        (latency.into_bytes(), "latency format", "options/latency-format"),
        (two.into_bytes(), "several files", "trace-cmd report -i host.dat"),
        (free.replace("page_free", "page_free_direct").into(), "a kernel before 3.3", "--skip-bad"),
    ] {
        let error = refused(&text, OpenOptions::default());
        assert!(error.contains(what) && error.contains(command), "{error}");
    }
}

/// A task may be called anything: an event of one that begins as a comment or one of bpftrace's
/// maps does is an event.
#[test]
fn events_of_tasks_called_like_notes_are_events() {
    let line = |task: &str, seconds: u32| {
        format!(
            "{task:>16}-77    [002] ..... {seconds:>5}.100000: mm_page_free: page=x pfn=0x10 order=0\n"
        )
    };
    let names =
        ["sh", "#sh", "@sh", "# sh", "@a[1]", "WARNING: sh", "=> sh", "CPU 1 sh", "Lost 1 sh"];
    let text: String = (1..).zip(names).map(|(at, name)| line(name, at)).collect();
    let (events, reader) = read(&text, OpenOptions::default());
    assert_eq!((events.len(), reader.skipped()), (names.len(), 0));
    // As perf prints it where call chains follow, without blanks before the name.
    let chained = "#sh 77 [002] 1.100000: kmem:mm_page_free: page=x pfn=0x10 order=0\n";
    assert_eq!(read(chained, OpenOptions::default()).0.len(), 1);
    // A line that somebody has made a comment of stays one, as do maps.
    let noted =
        format!("{}# {}@by[sh]: 2\n@count: 40\n", line("sh", 1), line("sh", 2).trim_start());
    assert_eq!(read(&noted, OpenOptions::default()).0.len(), 1);
}
