//! Building the kernel: an ordinary `cargo build` of its program, for the host's own target, with
//! two more flags.
//!
//! The flags go with `--target`, so that build scripts are compiled as always. Why this target:
//! `os/bare-metal/src/bare/boot.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

/// The only target there is `core` for everywhere that the kernel is developed.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The kernel runs where it was linked, in the upper 2 GiB.
const FLAGS: &str = "-Crelocation-model=static -Ccode-model=kernel";

/// With which settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Profile {
    /// Optimised, with debug assertions and overflow checks: for the self-test.
    Checked,
    /// Optimised, without them: for benchmarks.
    Bench,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Checked => "kernel",
            Self::Bench => "kernel-bench",
        }
    }
}

#[derive(Args)]
pub(crate) struct Arguments {
    /// Without debug assertions, as for benchmarks.
    #[arg(long)]
    bench: bool,
}

impl Arguments {
    pub(crate) fn profile(&self) -> Profile {
        if self.bench { Profile::Bench } else { Profile::Checked }
    }
}

/// A setting of cargo's (`--config`), for release builds in which something else than the workspace's
/// own crates is hot, as loom, or `core` where that is compiled, too: `Cargo.toml` has dependencies
/// compiled for nothing.
pub(crate) const OPTIMISED: &str = "profile.release.package.\"*\".opt-level=3";

/// The workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Where a program of PATH is.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A folder of rustc's, below `lib/rustlib`.
pub(crate) fn of_rustc(folder: &str) -> PathBuf {
    let told = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = told.map(|done| String::from_utf8_lossy(&done.stdout).into_owned());
    Path::new(sysroot.unwrap_or_default().trim()).join("lib/rustlib").join(folder)
}

/// Where everything is built: named to cargo, too, so that no configuration of the user's can put
/// it elsewhere.
pub(crate) fn target() -> PathBuf {
    root().join(
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from),
    )
}

fn cargo(subcommand: &str, profile: Profile) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root().join("os/bare-metal")).arg(subcommand);
    cargo.args(["--bin", "kernel", "--features", "bare"]);
    cargo.args(["--target", TARGET, "--profile", profile.name()]);
    cargo.arg("--target-dir").arg(target());
    // Flags of the caller's would make another program of it.
    cargo
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_RUSTFLAGS")
        .env("RUSTFLAGS", FLAGS);
    cargo
}

/// Builds the kernel; returns where it is.
///
/// # Errors
///
/// What to tell the user.
pub(crate) fn build(profile: Profile) -> Result<PathBuf, String> {
    let status = cargo("build", profile).arg("--quiet").status();
    let status = status.map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !status.success() {
        return Err(format!(
            "the kernel was not built; if `core` is missing, `rustup target add {TARGET}` brings it"
        ));
    }
    Ok(target().join(TARGET).join(profile.name()).join("kernel"))
}

/// Lints the kernel's program.
///
/// # Errors
///
/// What to tell the user.
pub(crate) fn clippy() -> Result<(), String> {
    let status = cargo("clippy", Profile::Checked).args(["--", "-D", "warnings"]).status();
    let status = status.map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !status.success() {
        return Err("clippy has something to say".to_owned());
    }
    Ok(())
}
