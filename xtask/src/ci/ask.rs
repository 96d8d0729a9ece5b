//! What this machine has. Where something is missing and can be had from rustup it is asked for
//! once; otherwise the step says loudly that it skips.

use std::process::Command;

use super::step::Run;

/// Whether a program is in PATH.
pub(super) fn has(program: &str) -> bool {
    crate::build::in_path(program).is_some()
}

/// Whether there is a nightly toolchain.
pub(super) fn nightly(run: &Run) -> bool {
    run.cargo("+nightly --version").works()
}

/// The target that programs for this machine are built for.
pub(super) fn host() -> String {
    let told = Command::new("rustc").arg("-vV").output();
    let told = told.map(|done| String::from_utf8_lossy(&done.stdout).into_owned());
    told.unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap_or("unknown")
        .to_owned()
}

/// Whether the sanitizers are set up for this machine here.
pub(super) fn sanitized_host() -> bool {
    ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"].contains(&host().as_str())
}

/// Whether the standard library's source is there, or was there after asking for it.
pub(super) fn standard_source(run: &Run) -> bool {
    let library = crate::build::of_rustc("src/rust/library/std/Cargo.toml");
    library.is_file()
        || run.program("timeout", "120 rustup component add rust-src").works() && library.is_file()
}

/// Whether the standard library for a target is there, or was there after asking for it; says that
/// it skips otherwise.
pub(super) fn target(run: &Run, name: &str) -> bool {
    let is_there = crate::build::standard_library(name);
    if !is_there {
        run.skip(&format!("what is built for {name}: its standard library cannot be had"));
    }
    is_there
}

/// Whether programs of 32 bits can be linked.
pub(super) fn links_32(run: &Run) -> bool {
    let script = "echo 'int main(void) { return 0; }' | cc -m32 -x c -o /dev/null -";
    run.program("sh", "-c").arg(script).works()
}
