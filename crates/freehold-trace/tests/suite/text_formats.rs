//! Text traces in every dialect and compression, and every way in which a file can be wrong.

use std::path::PathBuf;

use freehold::{CpuId, Order, Pfn};
use freehold_trace::kernel::Kernel;
use freehold_trace::{
    Compression, Event, EventKind, Format, OpenOptions, Source, TraceError, TraceReader,
};

use super::reading::{gzip, read_all};

const TRACEFS: &[u8] = include_bytes!("../data/kernel.tracefs.txt");
const TRACE_CMD: &[u8] = include_bytes!("../data/make.trace-cmd.txt");
const PERF: &[u8] = include_bytes!("../data/make.perf-script.txt");

const STRICT: OpenOptions = OpenOptions { skip_bad: false, kernel: Some(Kernel::OWN), types: None };
const SKIP_BAD: OpenOptions =
    OpenOptions { skip_bad: true, kernel: Some(Kernel::OWN), types: None };

/// A file in a directory of its own, so that names can be chosen freely.
struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 3).unwrap()
}

fn error(bytes: &[u8]) -> TraceError {
    let scratch = Scratch::new();
    let path = scratch.file("t", bytes);
    match read_all(&path, STRICT) {
        Ok((events, _)) => panic!("{} events instead of an error", events.len()),
        Err(error) => {
            let shown = error.to_string();
            assert!(shown.starts_with(&path.display().to_string()), "{shown}");
            assert!(shown.lines().count() <= 2, "{shown}");
            error
        }
    }
}

#[test]
fn real_tracefs_text() {
    let scratch = Scratch::new();
    let (events, reader) = read_all(&scratch.file("kernel.tracefs.txt", TRACEFS), STRICT).unwrap();
    let info = reader.info();
    assert_eq!(
        (info.name.as_str(), info.format, info.compression),
        ("kernel", Format::Tracefs, Compression::None)
    );
    assert_eq!((info.cpus, info.lost_events, info.rows), (Some(2), Some(0), None));
    let lines = TRACEFS.split(|&b| b == b'\n').filter(|line| line.starts_with(b" "));
    let ours = lines.clone().filter(|line| line.windows(10).any(|w| w == b": mm_page_")).count();
    assert_eq!(events.len(), ours);
    assert_eq!(reader.ignored(), (lines.count() - ours) as u64);
    assert!(reader.ignored() > 0, "the sample has events of other tracepoints");
    assert_eq!((reader.skipped(), reader.lost()), (0, 0));
    let first = EventKind::FreeBatched { pfn: Pfn::new(0x1ec5c5) };
    assert_eq!(
        events[0],
        Event { ts_ns: 6_524_486_558_000, cpu: CpuId::new(1), pid: 20311, kind: first }
    );
    let (done, total) = reader.progress();
    assert_eq!((done, total), (TRACEFS.len() as u64, TRACEFS.len() as u64));
}

#[test]
fn trace_cmd_and_perf_tell_the_same_story() {
    let scratch = Scratch::new();
    let (cmd, cmd_reader) = read_all(&scratch.file("a", TRACE_CMD), STRICT).unwrap();
    let (perf, perf_reader) = read_all(&scratch.file("b", PERF), OpenOptions::default()).unwrap();
    assert_eq!(cmd, perf);
    assert_eq!(
        (cmd_reader.info().format, perf_reader.info().format),
        (Format::TraceCmd, Format::PerfScript)
    );
    assert_eq!((cmd_reader.info().cpus, perf_reader.info().cpus), (Some(2), Some(2)));
    assert_eq!(perf_reader.info().kernel.as_deref(), Some("Linux 6.1.0-13-amd64"));
    assert_eq!((cmd_reader.lost(), perf_reader.lost()), (204, 204));
    // Other tracepoints, and stack traces of three and two lines.
    assert_eq!((cmd_reader.ignored(), perf_reader.ignored()), (5, 5));

    assert_eq!(cmd.len(), 8);
    assert_eq!(cmd[0].kind, cmd_alloc(Some(0x1347a7), 0, 1, 0x14_0dca));
    assert_eq!(cmd[1].kind, cmd_alloc(Some(0x111ed0), 0, 1, 0x14_0dca));
    assert_eq!(cmd[7].kind, cmd_alloc(None, 3, 0, 0x2820));
    assert_eq!(cmd[7].ts_ns, 2_319_000_880_123);
    assert_eq!(
        cmd.iter().map(|e| e.pid).collect::<Vec<_>>(),
        [16810, 16810, 16810, 16810, 16811, 16811, 16812, 0]
    );
}

fn cmd_alloc(pfn: Option<u64>, order: u8, migratetype: u8, gfp_flags: u32) -> EventKind {
    EventKind::Alloc {
        pfn: pfn.map(Pfn::new),
        order: Order::new(order).unwrap(),
        migratetype,
        gfp_flags,
    }
}

#[test]
fn compression_is_found_by_content_whatever_the_name() {
    let scratch = Scratch::new();
    for text in [TRACEFS, TRACE_CMD, PERF] {
        let (plain, reader) = read_all(&scratch.file("trace.parquet", text), STRICT).unwrap();
        let format = reader.info().format;
        let two_members = [gzip(&text[..100]), gzip(&text[100..])].concat();
        let two_frames = [zstd(&text[..100]), zstd(&text[100..])].concat();
        for (packed, compression) in [
            (gzip(text), Compression::Gzip),
            (two_members, Compression::Gzip),
            (zstd(text), Compression::Zstd),
            (two_frames, Compression::Zstd),
        ] {
            let (events, reader) = read_all(&scratch.file("x.txt", &packed), STRICT).unwrap();
            assert_eq!(events, plain);
            assert_eq!((reader.info().format, reader.info().compression), (format, compression));
            assert_eq!(reader.progress(), (packed.len() as u64, packed.len() as u64));
        }
    }
}

#[test]
fn a_bad_line_is_named_or_skipped_and_counted() {
    let mut lines: Vec<&[u8]> = TRACE_CMD.split_inclusive(|&b| b == b'\n').collect();
    lines.insert(
        5,
        b"            make-16810 [000] ..... 1.0: mm_page_free: page=0 pfn=0x10 order=77\n",
    );
    lines.insert(6, b"what is this\n");
    lines.insert(
        7,
        b"            make-16810 [000] ..... 1.0: mm_page_alloc: pfn=0x10 order=0 migratetype=0 gfp_flags=__GFP_HUH\n",
    );
    let text = lines.concat();
    match error(&text) {
        TraceError::BadLine { line, why, text, .. } => {
            assert_eq!((line, why.as_str()), (6, "order `77` is not an order (0 to 18)"));
            assert!(text.starts_with("make-16810"));
        }
        other => panic!("{other}"),
    }
    assert!(error(&text).to_string().contains("--skip-bad"));
    lines.drain(5..7);
    match error(&lines.concat()) {
        TraceError::UnknownFlag { line, flag, .. } => {
            assert_eq!((line, flag.as_str()), (6, "__GFP_HUH"))
        }
        other => panic!("{other}"),
    }
    let scratch = Scratch::new();
    let (events, reader) = read_all(&scratch.file("t", &text), SKIP_BAD).unwrap();
    assert_eq!((events.len(), reader.skipped()), (8, 3));
    assert!(reader.first_skipped().unwrap().starts_with("line 6: order `77`"));
}

/// What a machine that stops while it records leaves in a file: a block of zeros. In an event's
/// name they would make it one of another tracepoint, which is passed over.
#[test]
fn a_block_that_was_never_written_is_noticed_wherever_it_lies() {
    for at in (0..TRACEFS.len() - 8).step_by(3) {
        let mut text = TRACEFS.to_vec();
        text[at..at + 8].fill(0);
        error(&text);
    }
}

#[test]
fn a_file_that_ends_in_the_middle_of_a_line() {
    // Cut at every place of the last two lines but the line ends.
    let tail = TRACEFS.iter().rev().skip(1).position(|&b| b == b'\n').unwrap() + 1;
    let start = TRACEFS.len() - tail;
    let scratch = Scratch::new();
    for end in start + 1..TRACEFS.len() {
        let cut = &TRACEFS[..end];
        if cut[start..].trim_ascii().is_empty() {
            continue;
        }
        match error(cut) {
            TraceError::Truncated { at, .. } => {
                assert!(at.starts_with("line 72 ends without a line end"), "{at}")
            }
            other => panic!("cut at {end}: {other}"),
        }
        let (_, reader) = read_all(&scratch.file("t", cut), SKIP_BAD).unwrap();
        assert_eq!(reader.skipped(), 1);
        assert!(reader.first_skipped().unwrap().contains("line 72"));
    }
}

#[test]
fn truncated_and_damaged_compression() {
    let text = TRACEFS.repeat(50);
    let scratch = Scratch::new();
    for packed in [gzip(&text), zstd(&text)] {
        let half = &packed[..packed.len() / 2];
        assert!(matches!(error(half), TraceError::Truncated { .. }));
        let (events, reader) = match read_all(&scratch.file("t", half), SKIP_BAD) {
            Ok(read) => read,
            // zstd gives nothing of a block that is not whole.
            Err(TraceError::Truncated { .. } | TraceError::Empty { .. }) => continue,
            Err(other) => panic!("{other}"),
        };
        assert!(!events.is_empty());
        assert!(reader.skipped() >= 1);
    }
    let mut packed = gzip(&text);
    let at = packed.len() - 6;
    packed[at] ^= 0xff; // the checksum
    assert!(matches!(error(&packed), TraceError::Compression { .. }));
}

#[test]
fn what_is_no_trace_says_what_it_is() {
    let looks = |bytes: &[u8]| match error(bytes) {
        TraceError::NotATrace { looks_like, .. } => looks_like,
        other => panic!("{other}"),
    };
    assert!(looks(b"\x7fELF\x02\x01\x01").contains("ELF"));
    assert!(looks(b"PERFILE2\0\0\0\0").contains("perf recording"));
    assert!(looks(b"\x17\x08\x44tracing6\0").contains("trace-cmd recording"));
    assert!(looks(b"\xfd7zXZ\0\0").contains("xz"));
    assert!(looks(b"{\"a\": 1}").contains("JSON"));
    assert!(looks(&[0u8; 5000]).contains("binary"));
    assert!(looks(b"Dear diary,\nnothing happened\n").contains("Dear diary"));
    for (bytes, what) in [
        (&b"# tracer: function_graph\n#\n 0) | f() {\n"[..], "function_graph"),
        (b"# event histogram\n#\n{ order: 0 } hitcount: 7\n", "hist"),
        (b"TRACE:\nx\x9c\x01\x02", "atrace"),
        (b"{\"traceEvents\":[{\"ph\":\"X\"}]}\n", "Chrome"),
        (b"[{\"name\":\"a\",\"ph\":\"B\"}]\n", "Chrome"),
        (b"\x0a\x03\x08\x01\x10\x0a\x02\x08\x01", "Perfetto"),
        (b"1.000 t/5 kmem:mm_page_alloc(pfn: 17, gfp_flags: 1)\n", "perf trace"),
        (b"# tracer: nop\n#\n# latency: 0 us\n", "latency"),
        (b"a.dat:  cpus=8\n", "several files"),
    ] {
        let said = error(bytes).to_string();
        assert!(said.contains(what) && said.contains("hint: "), "{said}");
    }
    assert!(looks(&gzip(b"PAR1....")).contains("gzip data with a Parquet file inside"));
    assert!(looks(&zstd(b"Dear diary\n")).contains("zstd data with text"));
    assert!(
        error(b"PERFILE2\0\0\0\0")
            .to_string()
            .contains("hint: turn it into text: perf script -i FILE")
    );
    assert!(error(b"Dear diary\n").to_string().contains("`perf script`"));
}

#[test]
fn nothing_to_replay_is_an_error() {
    let empty = |bytes: &[u8]| match error(bytes) {
        TraceError::Empty { what, .. } => what,
        other => panic!("{other}"),
    };
    assert_eq!(empty(b""), "the file is empty");
    assert_eq!(empty(b"# tracer: nop\n#\n"), "no event of the page allocator in 2 lines");
    assert_eq!(
        empty(b"# tracer: nop\n t-1 [000] ..... 1.0: sched_switch: x\n"),
        "no event of the page allocator in 2 lines, 1 of other tracepoints"
    );
    assert!(empty(&gzip(b"")).contains("gzip stream holds nothing"));

    let scratch = Scratch::new();
    let path = scratch.file("t", b"# tracer: nop\nrubbish\n");
    let error = read_all(&path, SKIP_BAD).err().unwrap().to_string();
    assert!(error.contains("1 skipped as bad, first line 2: no event"), "{error}");
}

#[test]
fn files_that_cannot_be_opened() {
    let scratch = Scratch::new();
    let missing = scratch.dir.path().join("missing");
    match read_all(&missing, STRICT) {
        Err(TraceError::Io { path: named, .. }) => assert_eq!(named, missing),
        other => panic!("{other:?}"),
    }
    let said = || read_all(scratch.dir.path(), STRICT).err().unwrap().to_string();
    assert!(said().contains("it is a directory\nhint: name a file in it"), "{}", said());
    scratch.file("metadata", b"/* CTF 1.8 */\n");
    assert!(said().contains("CTF trace") && said().contains("babeltrace2"), "{}", said());
}

/// A bit that a kernel has no name for, beside names: no kernel is needed to read the line.
#[test]
fn a_bit_without_a_name_beside_names_is_kept() {
    let line = |flags: &str| {
        format!(
            "# tracer: nop\n t-1 [000] .... 1.0: mm_page_alloc: pfn=0x10 order=0 migratetype=0 \
                 gfp_flags={flags}\n"
        )
    };
    let scratch = Scratch::new();
    let options = OpenOptions { kernel: None, ..STRICT };
    let read = |flags: &str| read_all(&scratch.file("t", line(flags).as_bytes()), options);
    let (events, _) = read("GFP_KERNEL|0x80000000").unwrap();
    let EventKind::Alloc { gfp_flags, .. } = events[0].kind else { panic!("{events:?}") };
    assert_eq!(gfp_flags, 0xcc0 | 1 << 31);
    let (events, _) = read("GFP_KERNEL|0x8").unwrap();
    let EventKind::Alloc { gfp_flags, .. } = events[0].kind else { panic!("{events:?}") };
    assert_eq!(gfp_flags, 0xcc0, "not what another kernel calls movable");
    assert!(read("0x80000cc0").is_err(), "nothing says whose number it is");
}

#[test]
fn endless_lines_do_not_fill_the_memory() {
    let mut text = TRACE_CMD.to_vec();
    let lines = TRACE_CMD.iter().filter(|&&b| b == b'\n').count() as u64;
    text.extend(std::iter::repeat_n(b'x', 3_000_000));
    text.extend(b"\n");
    text.extend(&TRACE_CMD[TRACE_CMD.len() - 150..]);
    match error(&text) {
        TraceError::BadLine { line, why, text, .. } => {
            assert_eq!((line, why.as_str()), (lines + 1, "longer than 65536 bytes"));
            assert!(text.len() < 200);
        }
        other => panic!("{other}"),
    }
    let scratch = Scratch::new();
    let (events, reader) = read_all(&scratch.file("t", &text), SKIP_BAD).unwrap();
    assert_eq!(events.len(), 8);
    assert!(reader.skipped() >= 1);
}

#[test]
fn a_pipe_becomes_reopenable() {
    let scratch = Scratch::new();
    let pipe = scratch.dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer = {
        let pipe = pipe.clone();
        std::thread::spawn(move || std::fs::write(pipe, TRACE_CMD).unwrap())
    };
    let source = Source::from_arg(&pipe).reopenable().unwrap();
    writer.join().unwrap();
    let copy = match &source {
        Source::Spooled(spooled) => spooled.path().to_owned(),
        other => panic!("{other:?}"),
    };
    for _ in 0..2 {
        let mut reader = TraceReader::open(&source, STRICT).unwrap();
        assert_eq!(reader.info().name, "pipe");
        let mut batch = Vec::new();
        assert!(reader.next_batch(&mut batch).unwrap());
        assert_eq!(batch.len(), 8);
    }
    assert!(copy.exists());
    drop(source);
    assert!(!copy.exists(), "the copy is removed with its last owner");
}

/// A line of tracefs at so many seconds.
fn at(seconds: u64) -> String {
    format!(
        "            make-7      [000] d..2. {seconds}.000001: mm_page_free: page=000000001234 pfn=0x1c2ab3 order=0\n"
    )
}

#[test]
fn long_gaps_are_counted_and_the_first_is_named() {
    let scratch = Scratch::new();
    let read = |seconds: &[u64]| {
        let text: String = seconds.iter().map(|&seconds| at(seconds)).collect();
        let (events, reader) = read_all(&scratch.file("t", text.as_bytes()), STRICT).unwrap();
        assert_eq!(events.len(), seconds.len(), "they are no error");
        (reader.long_gaps(), reader.first_long_gap())
    };
    assert_eq!(read(&[1, 2, 2, 3000]), (0, None));
    assert_eq!(
        read(&[4, 5, 9000]),
        (1, Some("line 3: 8995.000 s later than the event before it".to_owned()))
    );
}

#[test]
fn a_table_as_text_is_told_how_to_become_parquet() {
    let text = error(b"ts_ns,cpu,event,pfn,order\n1,0,0,16,0\n").to_string();
    assert!(text.contains("a table as text") && text.contains("make Parquet of it"), "{text}");
}
