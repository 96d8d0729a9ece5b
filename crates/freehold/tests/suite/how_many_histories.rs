//! How many random histories a test tries.

use proptest::prelude::ProptestConfig;

use crate::length::length;

/// So many; all that proptest would make where there is time for it ([`length`]), or as many as
/// `PROPTEST_CASES` asks for.
pub(crate) fn histories(short: u32, whole: u32) -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return default;
    }
    ProptestConfig { cases: length(short, whole), ..default }
}
