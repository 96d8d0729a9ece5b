//! Damaged files: cut anywhere, or of our own with any byte wrong, a reader gives an error or what
//! was there, never a panic. Damaged bytes of texts: `damaged_texts`.
//!
//! Each kind of damage is a function of how far apart the places are that it tries. The ordinary
//! tests try some of them; one test that is left out for its length, and that CI runs, tries all.

use std::panic::catch_unwind;

use freehold::{CpuId, Order, Pfn};
use freehold_trace::kernel::Kernel;
use freehold_trace::{
    Event, EventKind, OpenOptions, Packed, Source, TraceError, TraceMeta, TraceWriter, packed_files,
};

use super::reading::{gzip, read_bytes};

/// Events of it, whatever it is.
fn read(bytes: Vec<u8>, skip_bad: bool) -> Result<usize, TraceError> {
    contents(bytes, skip_bad).map(|(.., events)| events.len())
}

/// Both ways, and the message is looked at too.
fn survives(bytes: &[u8], what: &str) {
    for skip_bad in [false, true] {
        let bytes = bytes.to_vec();
        let result = catch_unwind(|| read(bytes, skip_bad).map_err(|error| error.to_string()));
        match result {
            Ok(Ok(_)) => {}
            Ok(Err(message)) => assert!(message.lines().count() <= 2, "{what}: {message}"),
            Err(_) => panic!("{what}: a panic"),
        }
    }
}

fn parquet(rows: u64) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut files = Packed::default();
    files.insert("zoneinfo.before.txt", "Node 0, zone   Normal\n  pages free     7\n");
    files.insert("ticks.txt", "");
    let meta = TraceMeta { name: "t".into(), cpus: Some(2), files, ..TraceMeta::default() };
    let mut writer = TraceWriter::create(file.path(), meta, 3).unwrap();
    let order = Order::ZERO;
    let events: Vec<Event> = (0..rows)
        .map(|i| {
            let pfn = Pfn::new(0x1000 + i * 7 % 512);
            let kind = match i % 5 {
                0 => {
                    EventKind::Alloc { pfn: Some(pfn), order, migratetype: 1, gfp_flags: 0x14_0cca }
                }
                1 => EventKind::Free { pfn, order },
                2 => EventKind::FreeBatched { pfn },
                3 => EventKind::PcpuDrain { pfn, order, migratetype: 1 },
                _ => EventKind::ZoneLocked { pfn, order, migratetype: 1, percpu_refill: true },
            };
            Event { ts_ns: i * 100, cpu: CpuId::new((i % 2) as u16), pid: 77, kind }
        })
        .collect();
    writer.write(&events).unwrap();
    writer.finish().unwrap();
    std::fs::read(file.path()).unwrap()
}

/// Everything that a replay's figures are made of.
fn contents(bytes: Vec<u8>, skip_bad: bool) -> Result<Contents, TraceError> {
    let options = OpenOptions { skip_bad, kernel: Some(Kernel::OWN), types: None };
    let files = packed_files(&Source::Bytes { name: "t".into(), bytes: bytes.clone().leak() })?;
    let (events, reader) = read_bytes(bytes, options)?;
    Ok((reader.info().cpus, files, events))
}

type Contents = (Option<u16>, Packed, Vec<Event>);

/// Every format, small.
fn intact() -> Vec<(&'static str, Vec<u8>)> {
    let tracefs = include_bytes!("../data/kernel.tracefs.txt").to_vec();
    let trace_cmd = include_bytes!("../data/make.trace-cmd.txt").to_vec();
    let perf = include_bytes!("../data/make.perf-script.txt").to_vec();
    vec![
        ("gzip", gzip(&tracefs)),
        ("zstd", zstd::stream::encode_all(&perf[..], 3).unwrap()),
        ("parquet", parquet(300)),
        ("tracefs", tracefs),
        ("trace-cmd", trace_cmd),
        ("perf script", perf),
    ]
}

#[test]
fn intact_files_are_read() {
    for (what, bytes) in intact() {
        assert!(read(bytes, false).unwrap() > 7, "{what}");
    }
}

#[test]
fn cut_anywhere() {
    for (what, bytes) in intact() {
        for end in (0..bytes.len()).step_by(3).chain(bytes.len().saturating_sub(20)..bytes.len()) {
            survives(&bytes[..end], &format!("{what} cut at {end}"));
        }
    }
}

#[test]
fn a_cut_parquet_file_is_never_read_as_a_whole_one() {
    let bytes = parquet(300);
    for end in 4..bytes.len() {
        assert!(read(bytes[..end].to_vec(), true).is_err(), "cut at {end}");
    }
}

/// A file of our own with a byte wrong either is refused or says what it said before: the damage
/// was in something that no figure comes from. With `--skip-bad` too. Every `step`th byte.
fn never_says_something_else(step: usize) {
    let bytes = parquet(300);
    let intact = contents(bytes.clone(), false).unwrap();
    let mut refused = 0;
    for at in (0..bytes.len()).step_by(step) {
        for flip in [1 << (at % 8), 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            for skip_bad in [false, true] {
                match contents(damaged.clone(), skip_bad) {
                    Ok(read) => {
                        assert!(read == intact, "byte {at} ^ {flip:#x}: other events, and no error")
                    }
                    Err(_) => refused += 1,
                }
            }
        }
    }
    let places = bytes.len() / step;
    assert!(refused > places, "only {refused} of {} damaged files were refused", 6 * places);
}

// Steps that are no powers of two, so that each byte of a number and each bit has its turn.

#[test]
fn a_damaged_file_of_ours_never_says_something_else() {
    never_says_something_else(11);
}

#[test]
#[ignore = "long: cargo test -p freehold-trace --test suite -- --ignored"]
fn damage_at_every_place() {
    never_says_something_else(1);
}
