//! What is compiled beside a kernel: the allocator as one object file without std, and the guest's
//! programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Trouble;
use super::tools::{output, run};
use crate::build;

/// No SSE, no red zone.
const TARGET: &str = "x86_64-unknown-none";
/// A kernel lies in the upper 2 GiB and knows no global offset table. `core` has to be built in the
/// same way: the one that comes with rustc goes through such a table. The kernel's unwinder reads
/// frame pointers.
const FLAGS: &str = "-Crelocation-model=static -Ccode-model=kernel -Zplt=yes \
    -Zdirect-access-external-data=yes -Cjump-tables=no -Cforce-frame-pointers=yes";

const WHAT: &str = "rustc --quiet --release --package freehold-ffi --lib \
    --crate-type staticlib --no-default-features --features panic-handler";

/// The whole allocator in one object file.
pub(super) fn core_object(folder: &Path) -> Result<PathBuf, Trouble> {
    let built = build::target().join("linux/rust-built-in");
    if !build::of_rustc("src/rust/library/core").is_dir() {
        let why = "the sources of `core` are not there: rustup component add rust-src";
        return Err(Trouble::Missing(why.to_owned()));
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(build::root()).args(WHAT.split(' ')).args(["--config", build::OPTIMISED]);
    cargo.args(["-Zbuild-std=core", "--target", TARGET, "--target-dir"]).arg(&built);
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CARGO_BUILD_RUSTFLAGS");
    // The options with -Z are there in every rustc, for those who ask in this way.
    cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS);
    cargo.env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    // Everything in one object: what is not used is left out, `core` included.
    cargo.env("CARGO_PROFILE_RELEASE_LTO", "fat").env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    run(&mut cargo)?;
    let library = built.join(TARGET).join("release/libfreehold_ffi.a");
    let members = output(Command::new("ar").arg("t").arg(&library))?;
    let member = members.lines().find(|name| name.starts_with("freehold_ffi-"));
    let member = member.ok_or_else(|| Trouble::Wrong(format!("{} is empty", library.display())))?;
    run(Command::new("ar").current_dir(folder).arg("x").arg(&library).arg(member))?;
    Ok(folder.join(member))
}

/// Compiles a program of the guest, whose name is its first file's; its name and where it is.
pub(super) fn program(folder: &Path, sources: &[PathBuf]) -> Result<(String, PathBuf), Trouble> {
    let there = folder.join("user");
    fs::create_dir_all(&there)?;
    let name = sources.first().and_then(|source| source.file_stem()).unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let program = there.join(&name);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread", "-o"]).arg(&program);
    run(cc.args(sources))?;
    Ok((name, program))
}
