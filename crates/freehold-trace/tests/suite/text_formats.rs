//! Text traces in every dialect and compression, and every way in which a file can be wrong.

use freehold::{CpuId, Order, Pfn};
use freehold_trace::{
    Compression, Event, EventKind, Format, OpenOptions, Source, TraceError, TraceReader,
};

use super::reading::{Read, SKIP_BAD, STRICT, gzip, read_all, read_bytes};

const TRACEFS: &[u8] = include_bytes!("../data/kernel.tracefs.txt");
const TRACE_CMD: &[u8] = include_bytes!("../data/make.trace-cmd.txt");
const PERF: &[u8] = include_bytes!("../data/make.perf-script.txt");

fn read(bytes: impl AsRef<[u8]>, options: OpenOptions) -> Read {
    read_bytes(bytes.as_ref().to_vec(), options)
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 3).unwrap()
}

fn error(bytes: &[u8]) -> TraceError {
    let error = read(bytes, STRICT).unwrap_err();
    let shown = error.to_string();
    assert!(shown.starts_with("t.txt: ") && shown.lines().count() <= 2, "{shown}");
    error
}

#[test]
fn real_tracefs_text() {
    let (events, reader) = read(TRACEFS, STRICT).unwrap();
    let info = reader.info();
    assert_eq!((info.format, info.compression), (Format::Tracefs, Compression::None));
    assert_eq!((info.cpus, info.lost_events, info.rows), (Some(2), Some(0), None));
    let lines = TRACEFS.split(|&b| b == b'\n').filter(|line| line.starts_with(b" "));
    let ours = lines.clone().filter(|line| line.windows(10).any(|w| w == b": mm_page_")).count();
    assert_eq!(events.len(), ours);
    assert_eq!(reader.ignored(), (lines.count() - ours) as u64);
    assert!(reader.ignored() > 0, "the sample has events of other tracepoints");
    assert_eq!((reader.skipped(), reader.lost()), (0, 0));
    let kind = EventKind::FreeBatched { pfn: Pfn::new(0x1ec5c5) };
    let first = Event { ts_ns: 6_524_486_558_000, cpu: CpuId::new(1), pid: 20311, kind };
    assert_eq!(events[0], first);
    assert_eq!(reader.progress(), (TRACEFS.len() as u64, TRACEFS.len() as u64));
}

#[test]
fn trace_cmd_and_perf_tell_the_same_story() {
    let (cmd, cmd_reader) = read(TRACE_CMD, STRICT).unwrap();
    let (perf, perf_reader) = read(PERF, OpenOptions::default()).unwrap();
    assert_eq!(cmd, perf);
    let formats = [&cmd_reader, &perf_reader].map(|reader| reader.info().format);
    assert_eq!(formats, [Format::TraceCmd, Format::PerfScript]);
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
    let pids: Vec<_> = cmd.iter().map(|event| event.pid).collect();
    assert_eq!(pids, [16810, 16810, 16810, 16810, 16811, 16811, 16812, 0]);
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
fn compression_is_found_by_content() {
    for text in [TRACEFS, TRACE_CMD, PERF] {
        let (plain, reader) = read(text, STRICT).unwrap();
        let format = reader.info().format;
        let two_members = [gzip(&text[..100]), gzip(&text[100..])].concat();
        let two_frames = [zstd(&text[..100]), zstd(&text[100..])].concat();
        for (packed, compression) in [
            (gzip(text), Compression::Gzip),
            (two_members, Compression::Gzip),
            (zstd(text), Compression::Zstd),
            (two_frames, Compression::Zstd),
        ] {
            let (events, reader) = read(&packed, STRICT).unwrap();
            assert_eq!(events, plain);
            assert_eq!((reader.info().format, reader.info().compression), (format, compression));
            assert_eq!(reader.progress(), (packed.len() as u64, packed.len() as u64));
        }
    }
}

#[test]
fn a_bad_line_is_named_or_skipped_and_counted() {
    let mut lines: Vec<&[u8]> = TRACE_CMD.split_inclusive(|&b| b == b'\n').collect();
    let free = b"            make-16810 [000] ..... 1.0: mm_page_free: page=0 pfn=0x10 order=77\n";
    lines.insert(5, free);
    lines.insert(6, b"what is this\n");
    lines.insert(
        7,
        b"            make-16810 [000] ..... 1.0: mm_page_alloc: pfn=0x10 order=0 migratetype=0 gfp_flags=__GFP_HUH\n",
    );
    let text = lines.concat();
    let said = error(&text).to_string();
    assert!(said.contains(": line 6: order `77` is not an order (0 to 18): `make-16810"), "{said}");
    assert!(said.contains("--skip-bad"));
    lines.drain(5..7);
    let said = error(&lines.concat()).to_string();
    assert!(said.contains(": line 6: unknown GFP flag `__GFP_HUH`\nhint: the flags of"), "{said}");
    let (events, reader) = read(&text, SKIP_BAD).unwrap();
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
        let (_, reader) = read(cut, SKIP_BAD).unwrap();
        assert_eq!(reader.skipped(), 1);
        assert!(reader.first_skipped().unwrap().contains("line 72"));
    }
}

#[test]
fn truncated_and_damaged_compression() {
    let text = TRACEFS.repeat(50);
    for packed in [gzip(&text), zstd(&text)] {
        let half = &packed[..packed.len() / 2];
        assert!(matches!(error(half), TraceError::Truncated { .. }));
        let (events, reader) = match read(half, SKIP_BAD) {
            Ok(read) => read,
            // zstd gives nothing of a block that is not whole.
            Err(TraceError::Truncated { .. }) => continue,
            Err(other) => {
                assert!(other.to_string().contains(": no event of the page allocator"), "{other}");
                continue;
            }
        };
        assert!(!events.is_empty());
        assert!(reader.skipped() >= 1);
    }
    let mut packed = gzip(&text);
    let at = packed.len() - 6;
    packed[at] ^= 0xff; // the checksum
    let said = error(&packed).to_string();
    assert!(said.contains(": damaged gzip data: "), "{said}");
}

#[test]
fn what_is_no_trace_says_what_it_is() {
    let looks = |bytes: &[u8]| {
        let said = error(bytes).to_string();
        let (_, looks_like) = said.split_once(": not a page-allocator trace: ").expect(&said);
        looks_like.lines().next().unwrap().to_owned()
    };
    for (bytes, what) in [
        (&b"\x7fELF\x02\x01\x01"[..], "ELF"),
        (b"PERFILE2\0\0\0\0", "perf recording"),
        (b"\x17\x08\x44tracing6\0", "trace-cmd recording"),
        (b"\xfd7zXZ\0\0", "xz"),
        (b"{\"a\": 1}", "JSON"),
        (&[0u8; 5000], "binary"),
        (b"Dear diary,\nnothing happened\n", "Dear diary"),
        (&gzip(b"PAR1...."), "gzip data with a Parquet file inside"),
        (&zstd(b"Dear diary\n"), "zstd data with text"),
    ] {
        assert!(looks(bytes).contains(what), "{what}");
    }
    for (bytes, what) in [
        (&b"# tracer: function_graph\n#\n 0) | f() {\n"[..], "function_graph"),
        (b"# event histogram\n#\n{ order: 0 } hitcount: 7\n", "hist"),
        (b"TRACE:\nx\x9c\x01\x02", "atrace"),
        (b"{\"traceEvents\":[{\"ph\":\"X\"}]}\n", "Chrome"),
        (b"[{\"name\":\"a\",\"ph\":\"B\"}]\n", "Chrome"),
        (b"\x0a\x0d\x08\x02P\x01X\x01, no zero", "Perfetto"),
        (b"1.000 t/5 kmem:mm_page_alloc(pfn: 17, gfp_flags: 1)\n", "perf trace"),
        (b"# tracer: nop\n#\n# latency: 0 us\n", "latency"),
        (b"a.dat:  cpus=8\n", "several files"),
    ] {
        let said = error(bytes).to_string();
        assert!(said.contains(what) && said.contains("hint: "), "{said}");
    }
    let said = error(b"PERFILE2\0\0\0\0").to_string();
    assert!(said.contains("hint: turn it into text: perf script -i FILE"), "{said}");
    assert!(error(b"Dear diary\n").to_string().contains("`perf script`"));
    let said = error(b"ts_ns,cpu,event,pfn,order\n1,0,0,16,0\n").to_string();
    assert!(said.contains("a table as text") && said.contains("make Parquet of it"), "{said}");
}

#[test]
fn nothing_to_replay_is_an_error() {
    let empty = |bytes: &[u8]| {
        let said = error(bytes).to_string();
        let what = said.strip_suffix("\nhint: record with the kmem:mm_page_* events enabled");
        what.expect(&said).split_once(": ").unwrap().1.to_owned()
    };
    assert_eq!(empty(b""), "the file is empty");
    assert_eq!(empty(b"# tracer: nop\n#\n"), "no event of the page allocator in 2 lines");
    assert_eq!(
        empty(b"# tracer: nop\n t-1 [000] ..... 1.0: sched_switch: x\n"),
        "no event of the page allocator in 2 lines, 1 of other tracepoints"
    );
    assert!(empty(&gzip(b"")).contains("gzip stream holds nothing"));

    let error = read(b"# tracer: nop\nrubbish\n", SKIP_BAD).err().unwrap().to_string();
    assert!(error.contains("1 skipped as bad, first line 2: no event"), "{error}");
}

#[test]
fn files_that_cannot_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    match read_all(&missing, STRICT) {
        Err(TraceError::Io { path: named, .. }) => assert_eq!(named, missing),
        other => panic!("{other:?}"),
    }
    let said = || read_all(folder.path(), STRICT).err().unwrap().to_string();
    assert!(said().contains("it is a directory\nhint: name a file in it"), "{}", said());
    std::fs::write(folder.path().join("metadata"), b"/* CTF 1.8 */\n").unwrap();
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
    let read = |flags: &str| {
        let (events, _) = read(line(flags), OpenOptions::default()).ok()?;
        let EventKind::Alloc { gfp_flags, .. } = events[0].kind else { panic!("{events:?}") };
        Some(gfp_flags)
    };
    assert_eq!(read("GFP_KERNEL|0x80000000"), Some(0xcc0 | 1 << 31));
    assert_eq!(read("GFP_KERNEL|0x8"), Some(0xcc0), "not what another kernel calls movable");
    assert_eq!(read("0x80000cc0"), None, "nothing says whose number it is");
}

#[test]
fn endless_lines_do_not_fill_the_memory() {
    let mut text = TRACE_CMD.to_vec();
    let lines = TRACE_CMD.iter().filter(|&&b| b == b'\n').count() as u64;
    text.extend(std::iter::repeat_n(b'x', 3_000_000));
    text.extend(b"\n");
    text.extend(&TRACE_CMD[TRACE_CMD.len() - 150..]);
    let said = error(&text).to_string();
    let wanted = format!(": line {}: longer than 65536 bytes: `xxx", lines + 1);
    assert!(said.contains(&wanted) && said.len() < 400, "{said}");
    let (events, reader) = read(&text, SKIP_BAD).unwrap();
    assert_eq!(events.len(), 8);
    assert!(reader.skipped() >= 1);
}

#[test]
fn a_pipe_becomes_reopenable() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
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
