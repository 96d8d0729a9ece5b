//! The static programs of one target: what they need, how they are built, and whether they are what they
//! should be.
//!
//! ```text
//!  standard library of TARGET (rustc's, or rustup's) ── C compiler, which zstd needs
//!      └─> cargo build, linked with musl and everything else by rust-lld ── has no loader; runs, where it can
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use super::PROGRAMS;
use crate::build::{in_path, root, standard_library};

/// What they are built as: `release` is for a first build that is over soon.
const PROFILE: &str = "measure";

/// The C compiler to build with for a target.
///
/// # Errors
///
/// What is missing, and the command that brings it.
pub(super) fn compiler_for(target: &str) -> Result<String, String> {
    if !standard_library(target) {
        return Err(format!(
            "its standard library is not here, and rustup does not bring it: rustup target add {target}"
        ));
    }
    c_compiler(target, |program| in_path(program).is_some()).ok_or_else(|| {
        let machine = machine(target);
        let package = if machine == std::env::consts::ARCH {
            "musl-tools".to_owned()
        } else {
            format!("gcc-{machine}-linux-gnu")
        };
        format!("zstd needs a C compiler for it (Debian, Ubuntu: apt-get install {package})")
    })
}

fn machine(target: &str) -> &str {
    target.split('-').next().unwrap_or(target)
}

/// The C compiler for a target, if there is one: musl's own before others, whose headers are another
/// C library's.
fn c_compiler(target: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    let machine = machine(target);
    let own = |names: &[&str]| {
        let is_own = machine == std::env::consts::ARCH;
        names.iter().filter(|_| is_own).map(|name| (*name).to_owned()).collect::<Vec<_>>()
    };
    let musl = [vec![format!("{machine}-linux-musl-gcc")], own(&["musl-gcc"])];
    let others = [vec![format!("{machine}-linux-gnu-gcc")], own(&["cc"])];
    musl.into_iter().chain(others).flatten().find(|name| has(name))
}

/// Builds the programs for a target, linked with everything they need.
///
/// # Errors
///
/// What could not be built or copied; a program that is not static, or does not say its version on
/// the machine that it is for.
pub(super) fn build(target: &str, compiler: &str, to: &Path) -> Result<(), String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).args(["build", "--quiet", "--locked", "--profile", PROFILE]);
    cargo.args(["--target", target]).args(PROGRAMS.iter().flat_map(|name| ["-p", name]));
    let flags = "-Ctarget-feature=+crt-static -Clinker=rust-lld -Clink-self-contained=yes";
    cargo.env("RUSTFLAGS", flags).env(format!("CC_{}", target.replace('-', "_")), compiler);
    // What is published does not depend on how somebody likes to build: this would cut it into small units.
    cargo.env("CARGO_INCREMENTAL", "0");
    // glibc's headers, where there are no others, would have musl look for checked functions.
    let defined = "-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=0";
    cargo.env(format!("CFLAGS_{}", target.replace('-', "_")), defined);
    eprintln!("{target}: built with {compiler}, which takes minutes");
    let status = cargo.status().map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !status.success() {
        return Err(format!("the programs for {target} were not built"));
    }
    let built = crate::build::target().join(target).join(PROFILE);
    std::fs::create_dir_all(to).map_err(|error| format!("{}: {error}", to.display()))?;
    for name in executables(&built)? {
        let (from, to) = (built.join(&name), to.join(&name));
        std::fs::copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
        let bytes = std::fs::read(&to).map_err(|error| format!("{}: {error}", to.display()))?;
        if asks_for_a_loader(&bytes) != Some(false) {
            return Err(format!("{} is not a static program", to.display()));
        }
        if machine(target) == std::env::consts::ARCH {
            says_its_version(&to)?;
        }
    }
    Ok(())
}

/// Whether a program of 64 bits is started by a loader of shared libraries, which its `PT_INTERP`
/// names; nothing if it is no such program. Format: elf(5).
fn asks_for_a_loader(bytes: &[u8]) -> Option<bool> {
    let number = |at: usize, bytes_of_it: usize| {
        let bytes = bytes.get(at..at.checked_add(bytes_of_it)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    };
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (headers, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let kinds: Option<Vec<usize>> =
        (0..count).map(|n| number(headers.checked_add(n * size)?, 4)).collect();
    const PT_INTERP: usize = 3;
    Some(kinds?.contains(&PT_INTERP))
}

fn says_its_version(program: &Path) -> Result<(), String> {
    let told = Command::new(program)
        .arg("--version")
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&told.stdout);
    if told.status.success() && text.contains(env!("CARGO_PKG_VERSION")) {
        Ok(())
    } else {
        Err(format!("{} --version: {}, {:?}", program.display(), told.status, text.trim()))
    }
}

/// The names of the programs in a folder.
fn executables(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries =
        std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| PathBuf::from(entry.file_name()))
        .filter(|name| name.extension().is_none() && !name.to_string_lossy().starts_with('.'))
        .collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_of_musl_is_taken_before_others() {
        let found = |target: &str, there: &[&str]| c_compiler(target, |name| there.contains(&name));
        let own = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        let gnu = format!("{}-linux-gnu-gcc", std::env::consts::ARCH);
        assert_eq!(found(&own, &["cc", "musl-gcc", &gnu]).as_deref(), Some("musl-gcc"));
        assert_eq!(found(&own, &["cc", &gnu]), Some(gnu));
        assert_eq!(found(&own, &["cc"]).as_deref(), Some("cc"));
        // This machine's compiler makes nothing for another one.
        let other = found("sparc64-unknown-linux-musl", &["cc", "musl-gcc"]);
        assert_eq!(other, None);
    }

    #[test]
    fn what_is_missing_is_told_with_the_command_that_brings_it() {
        let why = compiler_for("nowhere-unknown-linux-musl").unwrap_err();
        assert!(why.ends_with("rustup target add nowhere-unknown-linux-musl"), "{why}");
    }

    #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
    #[test]
    fn a_program_with_a_loader_is_told_from_a_static_one() {
        let mut program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(asks_for_a_loader(&program), Some(true), "tests are linked with glibc");
        // Without program headers, whose count is at 56.
        program[56..58].fill(0);
        assert_eq!(asks_for_a_loader(&program), Some(false));
        assert_eq!(asks_for_a_loader(&program[..57]), None);
        assert_eq!(asks_for_a_loader(b"#!/bin/sh"), None);
    }
}
