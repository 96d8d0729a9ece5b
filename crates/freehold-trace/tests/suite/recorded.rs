//! The sample in `data/`, and the recordings of the shared folder where it is there.

use std::io::Write;
use std::path::{Path, PathBuf};

use freehold::Order;
use freehold_trace::buddyinfo::{parse_buddyinfo, parse_pagetypeinfo};
use freehold_trace::{
    EventKind, Format, OpenOptions, Source, StateError, TraceReader, gfp, zoneinfo,
};

fn repo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The shared recordings, or `None` with a loud line.
fn shared(test: &str) -> Option<PathBuf> {
    let folder = repo().join("../shared/traces");
    if folder.is_dir() {
        return Some(folder);
    }
    // Not `eprintln!`, which the test harness swallows when the test passes: a skip has to be seen.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: no recordings in {}", folder.display());
    None
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = all.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    found.sort();
    assert!(!found.is_empty(), "no *{ending} in {}", folder.display());
    found
}

fn open(path: &Path) -> TraceReader {
    TraceReader::open(&Source::from_arg(path), OpenOptions::default()).unwrap()
}

/// Events by kind, in the order of the file's numbers.
fn count(reader: &mut TraceReader) -> [u64; 6] {
    let (mut batch, mut counts) = (Vec::new(), [0; 6]);
    while reader.next_batch(&mut batch).unwrap() {
        for event in &batch {
            let kind = match event.kind {
                EventKind::Alloc { migratetype, gfp_flags, .. } => {
                    assert_eq!(migratetype, gfp::migratetype(gfp_flags) as u8, "{event:?}");
                    0
                }
                EventKind::Free { .. } => 1,
                EventKind::FreeBatched { .. } => 2,
                EventKind::PcpuDrain { .. } => 3,
                EventKind::Extfrag { .. } => 4,
                EventKind::ZoneLocked { .. } => 5,
            };
            counts[kind] += 1;
        }
    }
    counts
}

/// What the file's own description says, read with another library than the reader's.
fn description(path: &Path) -> serde_json::Value {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let file = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let pairs = file.metadata().file_metadata().key_value_metadata().unwrap();
    let text = pairs.iter().find(|pair| pair.key == "pagetrace").unwrap().value.as_deref().unwrap();
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_sample_is_what_its_readme_says() {
    let path = repo().join("data/page-cache-churn.parquet");
    let mut reader = open(&path);
    let info = reader.info().clone();
    assert_eq!(
        (info.name.as_str(), info.format, info.rows),
        ("page-cache-churn", Format::Parquet, Some(230_000))
    );
    assert_eq!((info.cpus, info.lost_events), (Some(2), Some(0)));
    assert!(info.kernel.unwrap().starts_with("Linux 6.18"));
    assert_eq!(count(&mut reader), [70_302, 68_989, 65_653, 14_341, 0, 10_715]);
    assert_eq!(reader.progress(), (230_000, 230_000));

    let beside = |kind| zoneinfo::beside(&path, kind).unwrap();
    let zones = StateError::in_file(&beside("zoneinfo"), zoneinfo::parse).unwrap();
    let normal = zones.iter().find(|zone| zone.name == "Normal").unwrap();
    assert_eq!(normal.pagesets.len(), 2);
    assert!(normal.pagesets.iter().all(|set| set.batch == 63 && set.high_min.is_some()));
    let types = StateError::in_file(&beside("pagetypeinfo"), parse_pagetypeinfo).unwrap();
    assert_eq!(types.pageblock_order, Order::PAGEBLOCK);
    StateError::in_file(&beside("buddyinfo"), parse_buddyinfo).unwrap();
    assert_eq!(zoneinfo::beside(&path, "meminfo"), None);
}

#[test]
fn every_recording_has_the_events_it_says() {
    let Some(folder) = shared("every_recording_has_the_events_it_says") else { return };
    for path in files(&folder, ".parquet") {
        let mut reader = open(&path);
        let name = reader.info().name.clone();
        let rows = reader.info().rows.unwrap();
        let description = description(&path);
        assert_eq!(reader.info().recorded_as.as_deref(), description["name"].as_str());
        assert_eq!(reader.info().cpus.map(u64::from), description["cpus"].as_u64());
        let counts = count(&mut reader);
        let kinds = ["alloc", "free", "free_batched", "pcpu_drain", "extfrag", "zone_locked"];
        let described = kinds.map(|kind| description["event_counts"][kind].as_u64().unwrap());
        assert_eq!(counts, described, "{name}");
        assert_eq!(counts.iter().sum::<u64>(), rows, "{name}");
    }
}
