//! The Parquet library panics on some damaged files. The reader turns that into an error without a
//! message on stderr, and must leave every other panic's message alone. Alone in its file: the
//! panic hook belongs to the process.

use std::panic::catch_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use freehold_trace::{OpenOptions, Source, TraceReader};

static REPORTED: AtomicU32 = AtomicU32::new(0);

fn reported() -> u32 {
    // Relaxed: one thread only.
    REPORTED.load(Ordering::Relaxed)
}

#[test]
fn panics_over_damaged_files_are_silent_and_all_others_are_not() {
    std::panic::set_hook(Box::new(|_| {
        REPORTED.fetch_add(1, Ordering::Relaxed);
    }));
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/page-cache-churn.parquet");
    let intact = std::fs::read(sample).unwrap();
    let mut errors = 0;
    // The index is at the end: damage there is what the library checks least.
    for at in (intact.len() - 2500..intact.len()).step_by(31) {
        let mut damaged = intact.clone();
        damaged[at] ^= 0x41;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), damaged).unwrap();
        let source = Source::from_arg(file.path());
        let mut batch = Vec::new();
        let read = || -> Result<(), freehold_trace::TraceError> {
            let mut reader = TraceReader::open(&source, OpenOptions::default())?;
            while reader.next_batch(&mut batch)? {}
            Ok(())
        };
        errors += u32::from({ read }().is_err());
    }
    assert!(errors > 5, "the damage did no harm: {errors}");
    assert_eq!(reported(), 0);
    assert!(catch_unwind(|| panic!("on purpose")).is_err());
    assert_eq!(reported(), 1);
}
