//! `cargo xtask dist`: what a package of the commands is made from, in `target/dist`.
//!
//! ```text
//!  share/bash-completion/completions/NAME     completions: pages.rs, from the commands' own definitions
//!  share/zsh/site-functions/_NAME
//!  share/fish/vendor_completions.d/NAME.fish
//!  share/man/man1/NAME[-SUBCOMMAND].1         manual pages
//!  TARGET/NAME                                static programs, for each target that can be had
//!  sbom.cdx.json                              what is in them: sbom.rs
//!  SHA256SUMS                                 of all of it: sha256sum --check SHA256SUMS
//!
//!  freehold-X.Y.Z-TARGET.tar.gz, NOTES.md     of a release: release.rs. SHA256SUMS is of what is published then,
//!                                             the archives and the list, and nothing else
//! ```
//!
//! Completions and pages need the laboratory as a library, which nothing else here does: feature
//! `dist`, with which this program builds itself anew.

#[cfg(feature = "dist")]
mod pages;
mod release;
mod sbom;
#[cfg(feature = "dist")]
mod sums;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;

use crate::build::{root, target};

/// The packages whose programs are distributed.
const PROGRAMS: [&str; 4] =
    ["freehold-lab", "freehold-bench", "freehold-simulate", "freehold-report"];

/// Where static programs are built for.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"];

/// Arguments of `cargo xtask dist`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Without programs: completions, manual pages and the list of what is in them, in a minute.
    #[arg(long)]
    no_programs: bool,

    /// For a release of this tag: an archive for each target, none of which may be missing, and the
    /// changelog's section. The tag is v and the workspace's version.
    #[arg(long, value_name = "TAG", conflicts_with = "no_programs")]
    release: Option<String>,
}

/// Makes all of it.
///
/// # Errors
///
/// What could not be built or written. A target that cannot be had is a loud skip, unless a release
/// is made.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let folder = target().join("dist");
    let tag = arguments.release.as_deref();
    let version = tag.map(release::version_of).transpose()?;
    let changelog = root().join("CHANGELOG.md");
    let changelog = std::fs::read_to_string(&changelog)
        .map_err(|error| format!("{}: {error}", changelog.display()))?;
    let notes = version.map(|version| release::notes(&changelog, version)).transpose()?;
    if cfg!(not(feature = "dist")) {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(root()).args(["run", "--quiet", "-p", "xtask", "--features", "dist"]);
        cargo.args(["--", "dist"]).args(arguments.no_programs.then_some("--no-programs"));
        cargo.args(tag.map(|tag| ["--release", tag]).into_iter().flatten());
        let status = cargo.status().map_err(|error| format!("cargo cannot be run: {error}"))?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", folder.display()));
        }
        _ => {}
    }
    #[cfg(feature = "dist")]
    pages::write(&folder.join("share"))?;
    for target in TARGETS {
        if !arguments.no_programs {
            programs(target, &folder.join(target))?;
        }
        if version.is_some() && !folder.join(target).exists() {
            return Err(format!("a release needs the programs for {target}"));
        }
    }
    sbom::write(&folder.join("sbom.cdx.json"), &PROGRAMS)?;
    if let Some(version) = version {
        for target in TARGETS {
            release::pack(&root(), &folder, target, version)?;
        }
    }
    // Whoever downloads a release has no folders to check.
    #[cfg(feature = "dist")]
    sums::write(&folder, if version.is_some() { sums::Of::Files } else { sums::Of::Folders })?;
    if let Some(notes) = notes {
        let path = folder.join("NOTES.md");
        std::fs::write(&path, notes).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    println!("{}", folder.display());
    Ok(ExitCode::SUCCESS)
}

/// Whether a program is in PATH.
fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The C compiler for a target, which zstd needs, if there is one: musl's own before others, whose
/// headers are another C library's.
fn c_compiler(target: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    let machine = target.split('-').next().unwrap_or(target);
    let own = |names: &[&str]| {
        let is_own = machine == std::env::consts::ARCH;
        names.iter().filter(|_| is_own).map(|name| (*name).to_owned()).collect::<Vec<_>>()
    };
    let musl = [vec![format!("{machine}-linux-musl-gcc")], own(&["musl-gcc"])];
    let others = [vec![format!("{machine}-linux-gnu-gcc")], own(&["cc"])];
    musl.into_iter().chain(others).flatten().find(|name| has(name))
}

/// Builds the programs for a target, linked with everything they need.
fn programs(target: &str, to: &Path) -> Result<(), String> {
    let mut rustup = Command::new("timeout");
    rustup.args(["120", "rustup", "--quiet", "target", "add", target]);
    if !rustup.output().is_ok_and(|done| done.status.success()) {
        eprintln!("SKIPPED: programs for {target}: its standard library cannot be had");
        return Ok(());
    }
    let Some(compiler) = c_compiler(target, has) else {
        eprintln!("SKIPPED: programs for {target}: zstd needs a C compiler for it, as musl-gcc");
        return Ok(());
    };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).args(["build", "--quiet", "--locked", "--profile", PROFILE]);
    cargo.args(["--target", target]).args(PROGRAMS.iter().flat_map(|name| ["-p", name]));
    let flags = "-Ctarget-feature=+crt-static -Clinker=rust-lld -Clink-self-contained=yes";
    cargo.env("RUSTFLAGS", flags).env(format!("CC_{}", target.replace('-', "_")), compiler);
    // glibc's headers, where there are no others, would have musl look for checked functions.
    let defined = "-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=0";
    cargo.env(format!("CFLAGS_{}", target.replace('-', "_")), defined);
    let status = cargo.status().map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !status.success() {
        return Err(format!("the programs for {target} were not built"));
    }
    let built = crate::build::target().join(target).join(PROFILE);
    std::fs::create_dir_all(to).map_err(|error| format!("{}: {error}", to.display()))?;
    for name in executables(&built)? {
        let (from, to) = (built.join(&name), to.join(&name));
        std::fs::copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
    }
    Ok(())
}

/// What they are built as: `release` is for a first build that is over soon.
const PROFILE: &str = "measure";

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
}
