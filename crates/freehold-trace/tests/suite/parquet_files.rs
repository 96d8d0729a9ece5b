//! Parquet traces: what is written is read again, columns of other shapes are accepted, nonsense is
//! named.

use std::sync::Arc;

use freehold::{CpuId, Order, Pfn};
use freehold_trace::kernel::Kernel;
use freehold_trace::{
    Checksums, Event, EventKind, Format, OpenOptions, Packed, Source, TraceError, TraceMeta,
    TraceReader, TraceWriter, packed_files,
};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{DoubleType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;

use super::reading::{SKIP_BAD, STRICT, read_all, read_bytes};

fn events() -> impl Strategy<Value = Event> {
    let pfn = (0..1u64 << 52).prop_map(Pfn::new);
    let order = (0..=18u8).prop_map(|order| Order::new(order).unwrap());
    let kind = prop_oneof![
        (prop::option::of(pfn.clone()), order.clone(), 0..3u8, any::<u32>()).prop_map(
            |(pfn, order, migratetype, gfp_flags)| EventKind::Alloc {
                pfn,
                order,
                migratetype,
                gfp_flags
            }
        ),
        (pfn.clone(), order.clone()).prop_map(|(pfn, order)| EventKind::Free { pfn, order }),
        pfn.clone().prop_map(|pfn| EventKind::FreeBatched { pfn }),
        (pfn.clone(), order.clone(), 0..6u8)
            .prop_map(|(pfn, order, migratetype)| EventKind::PcpuDrain { pfn, order, migratetype }),
        (pfn.clone(), order.clone(), 0..6u8, order.clone(), 0..6u8, any::<bool>()).prop_map(
            |(pfn, order, migratetype, fallback_order, fallback_migratetype, change_ownership)| {
                EventKind::Extfrag {
                    pfn,
                    order,
                    migratetype,
                    fallback_order,
                    fallback_migratetype,
                    change_ownership,
                }
            }
        ),
        (pfn, order, 0..6u8, any::<bool>()).prop_map(|(pfn, order, migratetype, percpu_refill)| {
            EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill }
        }),
    ];
    (0..u64::MAX - 1, 0..=4095u16, any::<u32>(), kind).prop_map(|(ts_ns, cpu, pid, kind)| Event {
        ts_ns,
        cpu: CpuId::new(cpu),
        pid,
        kind,
    })
}

/// The last levels of zstd are slow: fewer where there is no time for more, as CI has.
fn cases() -> u32 {
    if std::env::var_os("FREEHOLD_SECONDS").is_some_and(|seconds| seconds != "0") { 64 } else { 16 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_again(mut events in prop::collection::vec(events(), 1..5000), level in 1..6i32) {
        // No recording goes back in time.
        events.sort_by_key(|event| event.ts_ns);
        let file = tempfile::NamedTempFile::new().unwrap();
        let meta = TraceMeta {
            name: "random".into(),
            kernel: Some("Linux 6.18".into()),
            cpus: Some(7),
            lost_events: Some(3),
            ..TraceMeta::default()
        };
        let mut writer = TraceWriter::create(file.path(), meta, level).unwrap();
        let (a, b) = events.split_at(events.len() / 3);
        writer.write(a).unwrap();
        writer.write(b).unwrap();
        let written = writer.finish().unwrap();
        prop_assert_eq!(written.rows, events.len() as u64);
        prop_assert_eq!(written.event_counts.iter().sum::<u64>(), written.rows);
        let (again, reader) = read_all(file.path(), STRICT).unwrap();
        prop_assert_eq!(&again, &events);
        let info = reader.info();
        prop_assert_eq!(info.format, Format::Parquet);
        prop_assert_eq!(info.rows, Some(written.rows));
        prop_assert_eq!(info.recorded_as.as_deref(), Some("random"));
        prop_assert_eq!(info.kernel.as_deref(), Some("Linux 6.18"));
        prop_assert_eq!((info.cpus, info.lost_events, reader.lost()), (Some(7), Some(3), 3));
        prop_assert_eq!(reader.progress(), (written.rows, written.rows));
    }
}

#[test]
#[ignore = "long, a million rows: cargo test -p freehold-trace --test suite -- --ignored"]
fn several_row_groups() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = TraceWriter::create(file.path(), TraceMeta::default(), 1).unwrap();
    let rows = (1 << 20) + 12_345;
    let chunk: Vec<Event> = (0..rows).map(|i| free(i, i)).collect();
    writer.write(&chunk).unwrap();
    assert_eq!(writer.finish().unwrap().rows, rows);
    let (again, _) = read_all(file.path(), STRICT).unwrap();
    assert!(again == chunk);
}

#[test]
fn a_trace_of_no_events_cannot_be_written() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let writer = TraceWriter::create(file.path(), TraceMeta::default(), 1).unwrap();
    assert!(matches!(writer.finish(), Err(TraceError::Write { .. })));
    let level = TraceWriter::create(file.path(), TraceMeta::default(), 99);
    assert!(matches!(level, Err(TraceError::Write { .. })));
}

/// A column of a hand-made file.
enum Made<'a> {
    I32(&'a [i32]),
    I64(&'a [i64]),
    /// With nulls.
    Maybe(&'a [Option<i32>]),
    F64(&'a [f64]),
}

/// A Parquet file with any schema.
fn make(schema: &str, columns: &[Made<'_>]) -> Vec<u8> {
    make_described(schema, columns, None)
}

/// A free of that frame by one of two CPUs.
fn free(ts_ns: u64, pfn: u64) -> Event {
    let kind = EventKind::Free { pfn: Pfn::new(pfn), order: Order::ZERO };
    Event { ts_ns, cpu: CpuId::new((ts_ns % 2) as u16), pid: 1, kind }
}

/// A Parquet file that also describes itself, as JSON.
fn make_described(
    schema: &str,
    columns: &[Made<'_>],
    description: Option<serde_json::Value>,
) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(&format!("message schema {{ {schema} }}")).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for column in columns {
        let mut out = group.next_column().unwrap().unwrap();
        match column {
            Made::I32(values) => out.typed::<Int32Type>().write_batch(values, None, None),
            Made::I64(values) => out.typed::<Int64Type>().write_batch(values, None, None),
            Made::F64(values) => out.typed::<DoubleType>().write_batch(values, None, None),
            Made::Maybe(values) => {
                let levels: Vec<i16> = values.iter().map(|v| v.is_some().into()).collect();
                let there: Vec<i32> = values.iter().flatten().copied().collect();
                out.typed::<Int32Type>().write_batch(&there, Some(&levels), None)
            }
        }
        .unwrap();
        out.close().unwrap();
    }
    group.close().unwrap();
    if let Some(description) = description {
        let value = description.to_string();
        writer.append_key_value_metadata(KeyValue::new("pagetrace".to_owned(), value));
    }
    writer.into_inner().unwrap()
}

/// Why a file is not read.
fn refused(file: &[u8]) -> String {
    read_bytes(file.to_vec(), STRICT).unwrap_err().to_string()
}

/// What is read of a file without what is bad in it.
fn skipping(file: Vec<u8>) -> (Vec<Event>, TraceReader) {
    read_bytes(file, SKIP_BAD).unwrap()
}

/// The required columns, signed and in odd widths and order.
const PLAIN: &str = "required int32 pfn; required int64 order; required int64 event; required \
                     int32 ts_ns; required int64 cpu;";

fn plain<'a>(
    pfn: &'a [i32],
    order: &'a [i64],
    event: &'a [i64],
    ts: &'a [i32],
    cpu: &'a [i64],
) -> [Made<'a>; 5] {
    [Made::I32(pfn), Made::I64(order), Made::I64(event), Made::I32(ts), Made::I64(cpu)]
}

/// Another program's writer keeps the metadata, and has pages, types and a name of the schema of
/// its own.
#[test]
fn a_file_written_anew_is_vouched_for_by_the_sums_of_its_columns() {
    let folder = tempfile::tempdir().unwrap();
    let events: Vec<Event> = (0..10).map(|i| free(i, i * 3)).collect();
    let mut files = Packed::default();
    files.insert("zoneinfo.before.txt", "Node 0");
    let ours = folder.path().join("ours");
    let meta = TraceMeta { files: files.clone(), ..TraceMeta::default() };
    let mut writer = TraceWriter::create(&ours, meta, 1).unwrap();
    writer.write(&events).unwrap();
    writer.finish().unwrap();

    let anew = |change: Option<i64>| {
        let from = SerializedFileReader::new(std::fs::File::open(&ours).unwrap()).unwrap();
        let names = ["ts_ns", "pfn"];
        let wide = |name| if names.contains(&name) { "int64" } else { "int32" };
        let columns = from.metadata().file_metadata().schema_descr().columns().to_vec();
        let schema: String =
            columns.iter().map(|c| format!("required {} {};", wide(c.name()), c.name())).collect();
        let schema = parse_message_type(&format!("message schema {{ {schema} }}")).unwrap();
        let mut writer =
            SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let read = from.get_row_group(0).unwrap();
        for at in 0..columns.len() {
            let mut out = group.next_column().unwrap().unwrap();
            let mut levels = Vec::new();
            match read.get_column_reader(at).unwrap() {
                ColumnReader::Int64ColumnReader(mut column) => {
                    let mut values = Vec::new();
                    column.read_records(10, Some(&mut levels), None, &mut values).unwrap();
                    values[4] = change.unwrap_or(values[4]);
                    out.typed::<Int64Type>().write_batch(&values, None, None).unwrap()
                }
                ColumnReader::Int32ColumnReader(mut column) => {
                    let mut values = Vec::new();
                    column.read_records(10, Some(&mut levels), None, &mut values).unwrap();
                    out.typed::<Int32Type>().write_batch(&values, None, None).unwrap()
                }
                _ => panic!("a column of another kind"),
            };
            out.close().unwrap();
        }
        group.close().unwrap();
        let kept = from.metadata().file_metadata().key_value_metadata().unwrap().clone();
        kept.into_iter().for_each(|pair| writer.append_key_value_metadata(pair));
        writer.into_inner().unwrap()
    };
    let path = folder.path().join("anew");
    std::fs::write(&path, anew(None)).unwrap();
    let (again, reader) = read_all(&path, STRICT).unwrap();
    assert_eq!(again, events);
    assert_eq!(reader.info().checksums, Some(Checksums::All));
    assert_eq!(packed_files(&Source::Path(path)).unwrap(), files);
    let said = refused(&anew(Some(5)));
    assert!(said.contains("does not have the sum that it was written with"), "{said}");
}

#[test]
fn other_widths_and_missing_optional_columns() {
    let (pfns, orders) = ([-1, 16, 16, 32, 64, 128], [0, 3, 3, 0, 1, 4]);
    let columns = plain(&pfns, &orders, &[0, 0, 1, 3, 4, 5], &[1, 2, 3, 4, 5, 6], &[0; 6]);
    let (events, _) = read_bytes(make(PLAIN, &columns), STRICT).unwrap();
    let order = |order| Order::new(order).unwrap();
    let (sixteen, gfp_flags) = (Pfn::new(16), 0xcc0);
    let expected = [
        // Without type and flags: an ordinary kernel request; a failed one where the frame is -1.
        EventKind::Alloc { pfn: None, order: order(0), migratetype: 0, gfp_flags },
        EventKind::Alloc { pfn: Some(sixteen), order: order(3), migratetype: 0, gfp_flags },
        EventKind::Free { pfn: sixteen, order: order(3) },
        EventKind::PcpuDrain { pfn: Pfn::new(32), order: order(0), migratetype: 1 },
        EventKind::Extfrag {
            pfn: Pfn::new(64),
            order: order(1),
            migratetype: 1,
            fallback_order: order(1),
            fallback_migratetype: 2,
            change_ownership: false,
        },
        EventKind::ZoneLocked {
            pfn: Pfn::new(128),
            order: order(4),
            migratetype: 1,
            percpu_refill: false,
        },
    ];
    assert_eq!(events.len(), 6);
    for (event, kind) in events.iter().zip(&expected) {
        assert_eq!((&event.kind, event.pid), (kind, 0));
    }
}

#[test]
fn flags_and_types_complete_each_other() {
    // Flags from the type and a type from the flags. Bit 31 of an unsigned 32-bit column is no
    // sign, and null is not given.
    for (extra, more, expected) in [
        ("required int32 migratetype;", Made::I32(&[1, 2]), [(1, 0xcc8), (2, 0xcd0)]),
        ("required int32 gfp_flags;", Made::I32(&[8, 0x820]), [(1, 8), (0, 0x820)]),
        ("required int32 gfp_flags (UINT_32);", Made::I32(&[i32::MIN, 0]), [(0, 1 << 31), (0, 0)]),
        ("optional int32 migratetype;", Made::Maybe(&[None, Some(1)]), [(0, 0xcc0), (1, 0xcc8)]),
    ] {
        let mut columns = Vec::from(plain(&[1, 2], &[0, 0], &[0, 0], &[1, 2], &[0, 0]));
        columns.push(more);
        let file = make(&format!("{PLAIN} {extra}"), &columns);
        let parts = |event: &Event| match event.kind {
            EventKind::Alloc { migratetype, gfp_flags, .. } => (migratetype, gfp_flags),
            _ => panic!("{event:?}"),
        };
        let (events, _) = read_bytes(file, STRICT).unwrap();
        assert_eq!(events.iter().map(parts).collect::<Vec<_>>(), expected, "{extra}");
    }
}

#[test]
fn every_nonsense_value_is_named_with_row_and_column() {
    let good: [&[i32]; 5] = [&[1; 3], &[0; 3], &[1; 3], &[1; 3], &[0; 3]];
    let names = ["pfn", "order", "event", "ts_ns", "cpu"];
    let schema = "required int32 pfn; required int32 order; required int32 event; required int32 \
                  ts_ns; required int32 cpu;";
    for (column, value, says) in [
        (0, -1, "18446744073709551615 is not a frame number"),
        (0, -77, "is not a frame number"),
        (1, 19, "19 is not an order (0 to 18)"),
        (1, -1, "is not an order"),
        (2, 6, "6 is not an event number (0 to 5)"),
        (4, 4096, "4096 is above 4095"),
    ] {
        let mut columns = good.map(<[i32]>::to_vec);
        columns[column][1] = value;
        let made: Vec<Made<'_>> = columns.iter().map(|values| Made::I32(values)).collect();
        let file = make(schema, &made);
        let text = refused(&file);
        assert!(text.contains(&format!(": row 1: column `{}`: ", names[column])), "{text}");
        assert!(text.contains(says) && text.contains("--skip-bad"), "{text}");
        let (events, reader) = skipping(file);
        assert_eq!((events.len(), reader.skipped()), (2, 1));
        assert!(reader.first_skipped().unwrap().starts_with("row 1: column"));
    }
}

#[test]
fn a_row_back_in_time_is_named_or_left_out_as_a_line_is() {
    let schema = "required int32 pfn; required int32 order; required int32 event; required int64 \
                  ts_ns; required int32 cpu;";
    // Half a millisecond back is how recorders merge CPUs' buffers; a second is not.
    let times = [5_000_000_000, 4_999_500_000, 4_000_000_000, 5_000_000_001];
    let ones = Made::I32(&[1; 4]);
    let columns =
        [ones, Made::I32(&[0; 4]), Made::I32(&[1; 4]), Made::I64(&times), Made::I32(&[0; 4])];
    let file = make(schema, &columns);
    let text = refused(&file);
    let wanted = ": row 2: 1.000 s earlier than the latest event before it: time goes back\n";
    assert!(text.contains(wanted), "{text}");
    let (events, reader) = skipping(file);
    assert_eq!((events.len(), reader.skipped()), (3, 1));
}

#[test]
fn compression_that_is_not_built_in_is_named() {
    let mut bytes = make(PLAIN, &plain(&[1], &[0], &[1], &[1], &[0]));
    // In the index: a list of one name, the column's, and behind it the codec, from none to brotli.
    let codec =
        bytes.windows(8).rposition(|window| window == b"\x19\x18\x03pfn\x15\x00").unwrap() + 7;
    bytes[codec] = 4 << 1;
    let text = refused(&bytes);
    let said = ["column `pfn` is compressed with brotli, ", "hint: write it with"];
    assert!(said.iter().all(|part| text.contains(part)), "{text}");
    assert!(!text.contains("damaged"), "{text}");
}

#[test]
fn nulls_where_a_value_must_be() {
    let schema = "optional int32 pfn; optional int32 order; optional int32 event; optional int32 \
                  ts_ns; optional int32 cpu;";
    let all = [Some(1), Some(0), Some(1)];
    for at in 0..5 {
        let holed = [Some(1), None, Some(1)];
        let columns: Vec<Made<'_>> =
            (0..5).map(|c| Made::Maybe(if c == at { &holed } else { &all })).collect();
        let file = make(schema, &columns);
        let text = refused(&file);
        assert!(text.contains(": row 1: column `") && text.contains("`: null "), "{text}");
        let (events, reader) = skipping(file);
        assert_eq!((events.len(), reader.skipped()), (2, 1));
        assert_eq!(events[1].ts_ns, 1, "the values after a null keep their rows");
    }
}

#[test]
fn a_column_too_few_or_of_another_kind() {
    for missing in ["ts_ns", "cpu", "event", "pfn", "order"] {
        let all = ["ts_ns", "cpu", "event", "pfn", "order"].into_iter();
        let names: Vec<&str> = all.filter(|name| *name != missing).collect();
        let schema: String = names.iter().map(|name| format!("required int32 {name};")).collect();
        let columns: Vec<Made<'_>> = names.iter().map(|_| Made::I32(&[1])).collect();
        let text = refused(&make(&schema, &columns));
        let wanted = format!(": no column `{missing}`; the columns are {}\n", names.join(", "));
        assert!(text.contains(&wanted), "{text}");
    }
    let schema = PLAIN.replace("required int32 pfn", "required double pfn");
    let mut columns = plain(&[], &[0], &[1], &[1], &[0]);
    columns[0] = Made::F64(&[1.0]);
    let text = refused(&make(&schema, &columns));
    assert!(text.contains(": column `pfn` is DOUBLE\n"), "{text}");
    let text = refused(&make(PLAIN, &plain(&[], &[], &[], &[], &[])));
    assert!(text.contains(": a Parquet file of 0 rows\n"), "{text}");
}

#[test]
fn a_trace_of_bad_rows_only_is_an_error_even_when_they_are_skipped() {
    let file = make(PLAIN, &plain(&[1, 1], &[77, 78], &[1, 1], &[1, 1], &[0, 0]));
    let error = read_bytes(file, SKIP_BAD).unwrap_err().to_string();
    assert!(error.contains("all 2 rows are bad, first row 0: column `order`: 77"), "{error}");
}

/// What a number counts may be said by a type of old alone (`ConvertedType`), as Spark, Hive and
/// Arrow before 6 do.
#[test]
fn times_dates_and_decimals_are_no_plain_numbers_however_they_are_marked() {
    for of in ["TIMESTAMP_MILLIS", "TIMESTAMP_MICROS", "TIME_MICROS", "TIMESTAMP(MILLIS, true)"] {
        let schema = PLAIN.replace("required int32 ts_ns", &format!("required int64 ts_ns ({of})"));
        let mut columns = plain(&[1], &[0], &[1], &[], &[0]);
        columns[3] = Made::I64(&[1]);
        let text = refused(&make(&schema, &columns));
        assert!(text.contains(": column `ts_ns` is "), "{of}: {text}");
    }
    for of in ["TIME_MILLIS", "DATE", "DECIMAL(9, 2)"] {
        let schema = PLAIN.replace("ts_ns", &format!("ts_ns ({of})"));
        let text = refused(&make(&schema, &plain(&[1], &[0], &[1], &[1], &[0])));
        assert!(text.contains(": column `ts_ns` is "), "{of}: {text}");
    }
    // Integers stay numbers, marked or not.
    let schema = PLAIN.replace("ts_ns", "ts_ns (INT_32)").replace("cpu", "cpu (UINT_64)");
    let file = make(&schema, &plain(&[1], &[0], &[1], &[1], &[0]));
    assert_eq!(read_bytes(file, STRICT).unwrap().0.len(), 1);
}

/// What stands in other places than here is read as the kernel has it.
#[test]
fn flags_that_a_file_names_otherwise_are_those_of_its_kernel() {
    let mut columns = Vec::from(plain(&[1], &[0], &[0], &[1], &[0]));
    columns.push(Made::I32(&[0x6200ca]));
    let schema = format!("{PLAIN} required int32 gfp_flags;");
    let read = |bits: serde_json::Value, kernel| {
        let described = serde_json::json!({ "gfp_bits": bits });
        let file = make_described(&schema, &columns, Some(described));
        let (events, reader) = read_bytes(file, OpenOptions { kernel, ..STRICT })?;
        let EventKind::Alloc { gfp_flags, .. } = events[0].kind else { panic!("{events:?}") };
        Ok::<_, TraceError>((gfp_flags, reader.info().notes.len()))
    };
    let other = serde_json::json!({ "__GFP_ZERO": 1 << 15 });
    let own = serde_json::json!({ "__GFP_ZERO": 1 << 8 });
    let kernel = Kernel::parse("4.18");
    assert_eq!(read(other.clone(), kernel).unwrap(), (0x10_0cca, 1));
    assert_eq!(read(own, kernel).unwrap(), (0x6200ca, 0));
    assert!(read(other, None).unwrap_err().to_string().contains("--kernel VERSION"));
}
