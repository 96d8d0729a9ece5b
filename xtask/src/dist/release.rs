//! What a release of a tag is made from: whether the tag is this version, what the changelog says of
//! it, and an archive for each target.
//!
//! ```text
//!  vX.Y.Z ── is the workspace's version, and a section of CHANGELOG.md ──> NOTES.md
//!  TARGET/ + share/ + sbom.cdx.json + licences ──> freehold-X.Y.Z-TARGET.tar.gz
//! ```

use std::fs;
use std::path::Path;
use std::process::Command;

/// Files of the root that go into each archive.
const BESIDE: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// The version that a tag names.
///
/// # Errors
///
/// The tag is of another version than the workspace.
pub(super) fn version_of(tag: &str) -> Result<&str, String> {
    let own = env!("CARGO_PKG_VERSION");
    match tag.strip_prefix('v') {
        Some(version) if version == own => Ok(version),
        _ => {
            Err(format!("the tag is {tag}, and the workspace's version {own}: it would be v{own}"))
        }
    }
}

/// The section of a version in a changelog, without its heading.
///
/// # Errors
///
/// There is none, or nothing is in it.
pub(super) fn notes<'c>(changelog: &'c str, version: &str) -> Result<&'c str, String> {
    let heading = format!("\n## [{version}]");
    let missing = || format!("CHANGELOG.md has no section ## [{version}]");
    let (_, section) = changelog.split_once(&heading).ok_or_else(missing)?;
    let (_, section) = section.split_once('\n').ok_or_else(missing)?;
    let section = section.split("\n## ").next().unwrap_or(section).trim();
    if section.is_empty() { Err(missing()) } else { Ok(section) }
}

/// Packs what was built for a target, with everything beside it.
///
/// # Errors
///
/// What could not be copied or packed.
pub(super) fn pack(root: &Path, dist: &Path, target: &str, version: &str) -> Result<(), String> {
    let name = format!("freehold-{version}-{target}");
    let folder = dist.join(&name);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for file in BESIDE {
        let from = root.join(file);
        fs::copy(&from, folder.join(file))
            .map_err(|error| format!("{}: {error}", from.display()))?;
    }
    let mut copy = Command::new("cp");
    copy.current_dir(dist).arg("-r").args([&format!("{target}/."), "share", "sbom.cdx.json"]);
    done(copy.arg(&folder), "cp")?;
    let mut tar = Command::new("tar");
    // Sorted, of nobody and of no time: the same files give the same archive.
    tar.current_dir(dist).args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.args(["--mtime=@0", "--create", "--gzip", "--file", &format!("{name}.tar.gz"), &name]);
    done(&mut tar, "tar")?;
    fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))
}

pub(super) fn done(command: &mut Command, name: &str) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{name} cannot be run: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name} ended with {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_of_another_version_is_refused() {
        let own = env!("CARGO_PKG_VERSION");
        assert_eq!(version_of(&format!("v{own}")), Ok(own));
        for tag in ["v9.9.9", own, "", "release"] {
            assert!(version_of(tag).is_err_and(|why| why.contains(own)), "{tag}");
        }
    }

    #[test]
    fn notes_are_the_section_of_the_version() {
        let text = "# Changelog\n\n## Unreleased\n\n## [0.2.0] - 2027-01-01\n\n- b\n\n## [0.1.0] - 2026-11-26\n### Added\n- a\n";
        assert_eq!(notes(text, "0.2.0"), Ok("- b"));
        assert_eq!(notes(text, "0.1.0"), Ok("### Added\n- a"));
        assert!(notes(text, "0.3.0").is_err());
        assert!(notes("\n## [0.1.0]\n\n## [0.0.1]\n- a", "0.1.0").is_err(), "nothing is in it");
    }

    #[test]
    fn the_changelog_has_a_section_of_this_version() {
        let root = crate::build::root();
        let text = fs::read_to_string(root.join("CHANGELOG.md")).unwrap();
        assert!(notes(&text, env!("CARGO_PKG_VERSION")).unwrap().contains("### Added"));
    }

    #[test]
    fn an_archive_has_the_programs_and_what_belongs_to_them() {
        let dist = std::env::temp_dir().join(format!("freehold-pack-{}", std::process::id()));
        fs::create_dir_all(dist.join("x86/sub")).unwrap();
        fs::create_dir_all(dist.join("share/man")).unwrap();
        for file in ["x86/freehold", "share/man/freehold.1", "sbom.cdx.json"] {
            fs::write(dist.join(file), file).unwrap();
        }
        pack(&crate::build::root(), &dist, "x86", "1.2.3").unwrap();
        let mut tar = Command::new("tar");
        tar.current_dir(&dist).args(["-tzf", "freehold-1.2.3-x86.tar.gz"]);
        let mut list = list_of(&mut tar);
        list.retain(|line| !line.ends_with('/'));
        fs::remove_dir_all(&dist).unwrap();
        for file in
            ["freehold", "share/man/freehold.1", "sbom.cdx.json", "LICENSE-MIT", "README.md"]
        {
            assert!(list.contains(&format!("freehold-1.2.3-x86/{file}")), "{file}: {list:?}");
        }
    }

    fn list_of(command: &mut Command) -> Vec<String> {
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}
