//! `cargo xtask dist`: what a package of the commands is made from, in `target/dist`.
//!
//! ```text
//!  share/bash-completion/completions/NAME     completions: pages.rs, from the commands' own definitions
//!  share/zsh/site-functions/_NAME
//!  share/fish/vendor_completions.d/NAME.fish
//!  share/man/man1/NAME[-SUBCOMMAND].1         manual pages
//!  TARGET/NAME                                static programs, for each target that can be had: programs.rs
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
mod programs;
mod release;
mod sbom;

use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Args;

use crate::build::{root, target};

/// The packages whose programs are distributed.
pub(crate) const PROGRAMS: [&str; 1] = ["freehold-lab"];

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
    let targets = if arguments.no_programs { Vec::new() } else { targets(version.is_some())? };
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
    for (target, compiler) in &targets {
        programs::build(target, compiler, &folder.join(target))?;
    }
    sbom::write(&folder.join("sbom.cdx.json"), &PROGRAMS)?;
    if let Some(version) = version {
        for (target, _) in &targets {
            release::pack(&root(), &folder, target, version)?;
        }
    }
    sums(&folder, version.is_some())?;
    if let Some(notes) = notes {
        let path = folder.join("NOTES.md");
        std::fs::write(&path, notes).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    println!("{}", folder.display());
    Ok(ExitCode::SUCCESS)
}

/// Writes `SHA256SUMS` of all files; of a release of those beside it alone, since who downloads one has
/// no folders to check.
fn sums(folder: &Path, is_release: bool) -> Result<(), String> {
    let depth = if is_release { "-maxdepth 0" } else { "" };
    let files = format!("find * {depth} -type f -print0 | LC_ALL=C sort -z");
    let mut shell = Command::new("sh");
    shell.current_dir(folder).args([
        "-ec",
        &format!("sums=$({files} | xargs -0 sha256sum); echo \"$sums\" > SHA256SUMS"),
    ]);
    release::done(&mut shell, "sha256sum")
}

/// What programs can be built for here, and the C compiler for each. What cannot is a loud skip.
///
/// # Errors
///
/// A release is made, and needs all of them: told before the first is built.
fn targets(is_release: bool) -> Result<Vec<(&'static str, String)>, String> {
    let mut targets = Vec::new();
    for target in TARGETS {
        match programs::compiler_for(target) {
            Ok(compiler) => targets.push((target, compiler)),
            Err(why) if is_release => {
                return Err(format!("a release needs the programs for {target}: {why}"));
            }
            Err(why) => eprintln!("SKIPPED: programs for {target}: {why}"),
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_those_of_the_files() {
        let folder = std::env::temp_dir().join(format!("freehold-sums-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("below")).unwrap();
        std::fs::write(folder.join("below/abc"), "abc").unwrap();
        std::fs::write(folder.join("empty"), "").unwrap();
        let told = |is_release| {
            sums(&folder, is_release).unwrap();
            let told = std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
            std::fs::remove_file(folder.join("SHA256SUMS")).unwrap();
            told
        };
        let (files, all) = (told(true), told(false));
        std::fs::remove_dir_all(&folder).unwrap();
        // Of nothing, and FIPS 180-2's example.
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty\n";
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  below/abc\n";
        assert_eq!((files, all), (empty.to_owned(), format!("{abc}{empty}")));
    }
}
