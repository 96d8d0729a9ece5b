//! How long long tests are.

/// `short`, or `whole` where `FREEHOLD_SECONDS` gives a test the time, as in CI.
pub fn length<T>(short: T, whole: T) -> T {
    let asked = std::env::var_os("FREEHOLD_SECONDS").is_some_and(|seconds| seconds != "0");
    if asked { whole } else { short }
}
