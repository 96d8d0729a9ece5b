//! The tree with Freehold as patches for `git am` (`--series FOLDER`), made by the rules that the
//! laboratory's own kernels are made by. Each step builds by itself: what is asked of Freehold is
//! compiled out until the last one brings its option.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::super::Trouble;
use super::super::tools::{output, run};
use super::rules::{Texts, list};
use super::tree::{self, OURS, Original};
use super::{Design, source};
use crate::build;

/// One of `os/linux/built/series.json`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Patch {
    subject: String,
    why: Vec<String>,
    #[serde(default)]
    rules: Vec<String>,
    /// In all files where it names none.
    #[serde(default)]
    within: Vec<String>,
    #[serde(default)]
    brings: Vec<String>,
}

fn patches() -> Result<Vec<Patch>, Trouble> {
    list(&build::root().join("os/linux/built/series.json"))
}

/// Our files, by their names in mm/freehold.
fn ours() -> Result<BTreeMap<String, Vec<u8>>, Trouble> {
    let mut files = tree::added(Design::Freehold)?;
    files.extend(crates()?);
    Ok(files)
}

/// The allocator's crates and their Makefile.
pub(super) fn crates() -> Result<BTreeMap<String, Vec<u8>>, Trouble> {
    let root = build::root();
    let makefile = fs::read_to_string(root.join("os/linux/built/crates.mk"))?;
    let makefile = makefile.replace("=VERSION", concat!("=", env!("CARGO_PKG_VERSION")));
    let mut files = BTreeMap::from([("rust/Makefile".to_owned(), makefile.into_bytes())]);
    let sources = [
        ("bitflags", bitflags()?),
        ("freehold", root.join("crates/freehold/src")),
        ("freehold_ffi", root.join("crates/freehold-ffi/src")),
    ];
    // Tests, and what needs std.
    let left_out = |file: &str| {
        let parts = ["tests", "threads.rs", "host", "freestanding.rs", "example_generated.rs"];
        file.split('/').any(|part| part.starts_with("tests") || parts.contains(&part))
    };
    for (name, folder) in sources {
        for file in tree::files_below(&folder, Path::new(""))? {
            if file.ends_with(".rs") && !left_out(&file) {
                let mut text = b"// SPDX-License-Identifier: MIT OR Apache-2.0\n".to_vec();
                text.extend(fs::read(folder.join(&file))?);
                files.insert(format!("rust/{name}/{file}"), text);
            }
        }
    }
    Ok(files)
}

/// Where cargo has the sources of bitflags.
fn bitflags() -> Result<PathBuf, Trouble> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(build::root()).args(["metadata", "--format-version=1", "--locked"]);
    let told: serde_json::Value = serde_json::from_str(&output(&mut cargo)?)
        .map_err(|error| Trouble::Wrong(format!("cargo metadata: {error}")))?;
    let packages = told["packages"].as_array().into_iter().flatten();
    let is_it = |package: &&serde_json::Value| {
        let version = package["version"].as_str().unwrap_or_default();
        package["name"] == "bitflags" && version.starts_with("2.")
    };
    let manifest = packages.filter(is_it).find_map(|package| package["manifest_path"].as_str());
    let manifest = manifest.ok_or_else(|| Trouble::Wrong("there is no bitflags 2".to_owned()))?;
    Ok(Path::new(manifest).with_file_name("src"))
}

/// A repository of the files that are changed, as they came.
struct Repository(PathBuf);

impl Repository {
    fn new(folder: PathBuf, original: &Original, files: &[String]) -> Result<Self, Trouble> {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        for file in files {
            let to = folder.join(file);
            fs::create_dir_all(to.parent().unwrap_or(&to))?;
            fs::copy(original.keep(file)?, &to)?;
        }
        let repository = Self(folder);
        repository.git(&["init", "--quiet"])?;
        repository.commit("The kernel as it came")?;
        Ok(repository)
    }

    fn git(&self, words: &[&str]) -> Result<(), Trouble> {
        let mut git = Command::new("git");
        git.current_dir(&self.0);
        // Who has told git no name signs nothing.
        if output(Command::new("git").args(["config", "user.email"])).is_err() {
            git.args(["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]);
        }
        run(git.args(words))
    }

    fn commit(&self, says: &str) -> Result<(), Trouble> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--signoff", "--message", says])
    }
}

/// Writes the series to a folder.
///
/// # Errors
///
/// [`Trouble::Missing`] where the kernel's source cannot be had; a rule that does not fit.
pub(super) fn write(folder: &Path, to: &Path) -> Result<(), Trouble> {
    let original = Original::of(folder, &source::source(folder)?);
    fs::create_dir_all(to)?;
    let repository = Repository::new(folder.join("series"), &original, &touched()?)?;
    let mut texts = Texts::of(&repository.0);
    let mut left = ours()?;
    let patches = patches()?;
    let grows = |file: &str| ["Kconfig", "Makefile"].contains(&file);
    for (at, patch) in patches.iter().enumerate() {
        let within =
            |file: &str| patch.within.is_empty() || patch.within.iter().any(|it| it == file);
        for name in &patch.rules {
            tree::rules(name)?.within(within).apply(&mut texts)?;
        }
        for (file, text) in &texts.changed {
            fs::write(repository.0.join(file), text)?;
        }
        let last = at + 1 == patches.len();
        let brings = |file: &str| patch.brings.iter().any(|start| file.starts_with(start));
        for (file, bytes) in left.iter().filter(|(file, _)| brings(file)) {
            let path = repository.0.join(OURS).join(file);
            fs::create_dir_all(path.parent().unwrap_or(&path))?;
            fs::write(path, if last || !grows(file) { bytes } else { without_freehold(bytes) })?;
        }
        left.retain(|file, _| grows(file) || !brings(file));
        repository.commit(&format!("{}\n\n{}", patch.subject, patch.why.join("\n")))?;
    }
    let to = to.canonicalize()?;
    let count = format!("-{}", patches.len());
    repository.git(&["format-patch", "--quiet", &count, "-o", &to.to_string_lossy()])
}

/// Kconfig and the Makefile as they are before there is an allocator: to the line that names it.
fn without_freehold(text: &[u8]) -> &[u8] {
    let name = b"PAGE_ALLOC_FREEHOLD";
    let named = text.windows(name.len()).position(|part| part == name).unwrap_or(text.len());
    &text[..text[..named].iter().rposition(|&byte| byte == b'\n').unwrap_or(0)]
}

/// The kernel's files that the series changes.
fn touched() -> Result<Vec<String>, Trouble> {
    let mut files = Vec::new();
    for name in patches()?.iter().flat_map(|patch| &patch.rules) {
        files.extend(tree::rules(name)?.files().map(str::to_owned));
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// The series on the files as they came, beside what `--built freehold` lays but for its trials.
#[test]
fn the_series_makes_the_tree_that_the_rules_make() {
    let folder = build::target().join("linux/built");
    if !folder.join("source/MAINTAINERS").is_file() {
        eprintln!("SKIPPED: there is no kernel source under {}", folder.display());
        return;
    }
    let original = Original::of(&folder, &folder.join("source"));
    let written = folder.join("patches");
    let _ = fs::remove_dir_all(&written);
    write(&folder, &written).unwrap();
    let names = tree::files_below(&written, Path::new("")).unwrap();
    assert_eq!(names.len(), patches().unwrap().len());
    let repository = Repository::new(folder.join("am"), &original, &touched().unwrap()).unwrap();
    let checkpatch = folder.join("source/scripts/checkpatch.pl");
    for name in &names {
        let patch = written.join(name);
        repository.git(&["am", "--quiet", &patch.to_string_lossy()]).unwrap();
        // What it only warns of is left: lines of Rust that it takes for C.
        let mut perl = Command::new("perl");
        perl.arg(&checkpatch).args(["--no-tree", "--terse", "--root"]).arg(folder.join("source"));
        let told = perl.arg(patch).output().unwrap();
        let told = String::from_utf8_lossy(&told.stdout);
        assert!(told.contains("total: 0 errors,"), "{name}:\n{told}");
    }
    let kind = super::Kind::of(Design::Freehold, &[]).unwrap();
    let change = tree::change(&kind, &folder, &folder.join("source")).unwrap();
    let mut wanted = ours().unwrap();
    wanted = wanted.into_iter().map(|(file, text)| (format!("{OURS}/{file}"), text)).collect();
    wanted.extend(change.changed.into_iter().map(|(file, text)| (file, text.into_bytes())));
    let mut got = tree::files_below(&repository.0, Path::new("")).unwrap();
    got.retain(|file| !file.starts_with(".git/"));
    assert_eq!(got, wanted.keys().cloned().collect::<Vec<String>>());
    for (file, text) in wanted {
        assert!(fs::read(repository.0.join(&file)).unwrap() == text, "{file}");
    }
}
