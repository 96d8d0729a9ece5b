//! Traces read as a whole, for every test that wants all events at once.

use std::io::Write;
use std::path::Path;

use freehold_trace::kernel::Kernel;
use freehold_trace::{Event, OpenOptions, Source, TraceError, TraceReader};

/// Of a recording of 6.18, where the first bad line or row ends it.
pub(crate) const STRICT: OpenOptions =
    OpenOptions { skip_bad: false, kernel: Some(Kernel::OWN), types: None };
pub(crate) const SKIP_BAD: OpenOptions = OpenOptions { skip_bad: true, ..STRICT };

/// What reading gives: all events, and the reader at its end.
pub(crate) type Read = Result<(Vec<Event>, TraceReader), TraceError>;

pub(crate) fn read_all(path: &Path, options: OpenOptions) -> Read {
    of_source(&Source::Path(path.to_owned()), options)
}

/// The bytes are leaked, which a test may do.
pub(crate) fn read_bytes(bytes: Vec<u8>, options: OpenOptions) -> Read {
    of_source(&Source::Bytes { name: "t.txt".to_owned(), bytes: bytes.leak() }, options)
}

fn of_source(source: &Source, options: OpenOptions) -> Read {
    let mut reader = TraceReader::open(source, options)?;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut batch)? {
        assert!((1..=64 * 1024).contains(&batch.len()));
        all.append(&mut batch);
    }
    assert!(batch.is_empty());
    assert!(!reader.next_batch(&mut batch)?, "the end stays the end");
    Ok((all, reader))
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
