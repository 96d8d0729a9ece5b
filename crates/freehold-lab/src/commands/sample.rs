//! The sample: a window of a real recording, built in so that an installed `freehold` has something
//! to show.

use crate::cli::input::TraceFile;

static TRACE: &[u8] = include_bytes!("../../data/page-cache-churn.parquet");
/// What lay beside it when it was recorded.
const BESIDE: &[(&str, &str)] = &[
    ("zoneinfo", include_str!("../../data/page-cache-churn.zoneinfo.before.txt")),
    ("buddyinfo", include_str!("../../data/page-cache-churn.buddyinfo.before.txt")),
    ("pagetypeinfo", include_str!("../../data/page-cache-churn.pagetypeinfo.before.txt")),
];

pub(crate) fn trace() -> TraceFile {
    TraceFile::built_in("page-cache-churn (built-in sample)", TRACE, BESIDE)
}
