//! A copy of a crate in which every mutant is there at once, each behind a switch that a variable
//! of the environment turns on: it is built twice, for the ordinary tests and for loom, and not once
//! a mutant.
//!
//! ```text
//!  target/mutants/Cargo.toml            a workspace of one crate, otherwise as the real one
//!                 crates/freehold       the core, each mutant of it behind a switch
//!                 proofs/fuzz/corpus    which its tests replay
//!
//!  target/mutants-freehold-classic      another crate's: with the core as it is beside it
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::list::{self, Mutant, Package, text_of};
use crate::{root, target};

/// The variable that turns a mutant on, by its number.
pub(crate) const CHOSEN: &str = "FREEHOLD_MUTANT";

/// What is added to the copy's `lib.rs`.
const SWITCH: &str = "
/// Which mutant this process is.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod mutants {
    extern crate std;
    use std::sync::OnceLock;
    pub fn on(number: u32) -> bool {
        static CHOSEN: OnceLock<u32> = OnceLock::new();
        let chosen = || std::env::var(\"FREEHOLD_MUTANT\").ok().and_then(|n| n.parse().ok()).unwrap_or(u32::MAX);
        *CHOSEN.get_or_init(chosen) == number
    }
}
";

/// What a crate is built for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// Its own tests.
    Ordinary,
    /// Those of every interleaving.
    Loom,
}

impl Build {
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::Ordinary, Self::Loom];

    /// Which one has the tests of that name.
    pub(crate) fn of(program: &str) -> Self {
        match program {
            "loom" => Self::Loom,
            _ => Self::Ordinary,
        }
    }
}

/// A program of tests.
pub(crate) struct Program {
    /// `lib`, `loom`, or the file in `tests`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// The copy.
pub(crate) struct Scratch {
    package: Package,
    folder: PathBuf,
}

impl Scratch {
    /// Brings it up to date.
    pub(crate) fn new(package: Package, mutants: &[Mutant]) -> Result<Self, String> {
        let folder = match package {
            Package::Freehold => "mutants".to_owned(),
            other => format!("mutants-{}", other.name()),
        };
        Self::at(target().join(folder), package, mutants)
    }

    fn at(folder: PathBuf, package: Package, mutants: &[Mutant]) -> Result<Self, String> {
        let root = root();
        let manifest = text_of(&root.join("Cargo.toml"))?;
        let rest =
            manifest.find("[workspace.package]").ok_or("Cargo.toml has no [workspace.package]")?;
        // The rest of the copy's manifest is this one's, so that both build what they depend on
        // alike, once.
        let members = match package {
            Package::Freehold => "\"crates/freehold\"".to_owned(),
            other => format!("\"crates/freehold\", \"crates/{}\"", other.name()),
        };
        let workspace = format!("[workspace]\nresolver = \"3\"\nmembers = [{members}]\n");
        put(&folder.join("Cargo.toml"), format!("{workspace}\n{}", &manifest[rest..]).as_bytes())?;
        put(&folder.join("Cargo.lock"), text_of(&root.join("Cargo.lock"))?.as_bytes())?;
        let sources = package.folder(&root).join("src");
        if let Some(lost) = mutants.iter().find(|mutant| !sources.join(&mutant.file).is_file()) {
            return Err(format!("{}: there is no file {}", lost.name, lost.file));
        }
        // Each file is written once, changed already: cargo goes by the time at which a file was
        // written.
        let change = |path: &Path, bytes: Vec<u8>| {
            let Ok(file) = path.strip_prefix(&sources) else { return Ok(bytes) };
            let text =
                String::from_utf8(bytes).map_err(|error| format!("{}: {error}", path.display()))?;
            let mut text = list::switched(mutants, &file.to_string_lossy(), &text)?;
            text.push_str(if file == Path::new("lib.rs") { SWITCH } else { "" });
            Ok(text.into_bytes())
        };
        let both = [Package::Freehold, package];
        for copied in if package == Package::Freehold { &both[1..] } else { &both[..] } {
            for part in ["Cargo.toml", "README.md", "src", "tests"] {
                let (from, to) = (copied.folder(&root), copied.folder(&folder));
                copy(&from.join(part), &to.join(part), &change)?;
            }
        }
        let corpus = "proofs/fuzz/corpus";
        copy(&root.join(corpus), &folder.join(corpus), &|_, bytes| Ok(bytes))?;
        Ok(Self { package, folder })
    }

    /// Where tests run, as under cargo.
    pub(crate) fn package(&self) -> PathBuf {
        self.package.folder(&self.folder)
    }

    /// Builds the tests; for loom those of the library.
    pub(crate) fn build(&self, build: Build) -> Result<Vec<Program>, String> {
        let loom = build == Build::Loom;
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.folder).args(["test", "--no-run", "--message-format", "json"]);
        // Where `.ci/run` builds them, with the same flags: what they depend on is there already.
        cargo.arg("--target-dir").arg(if loom { target().join("loom") } else { target() });
        cargo
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("CARGO_BUILD_RUSTFLAGS")
            .env_remove("RUSTFLAGS");
        match build {
            Build::Ordinary => cargo.args(["--package", self.package.name(), "--lib", "--tests"]),
            Build::Loom => cargo
                .args(["--package", self.package.name(), "--lib", "--release"])
                // Loom itself is what takes long.
                .args(["--config", "profile.release.package.\"*\".opt-level=3"])
                .env("RUSTFLAGS", "--cfg loom"),
        };
        let output = cargo
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cargo cannot be run: {error}"))?;
        let messages: Vec<serde_json::Value> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        if !output.status.success() {
            let errors = messages.iter().filter(|message| message["message"]["level"] == "error");
            let errors: Vec<&str> =
                errors.filter_map(|message| message["message"]["rendered"].as_str()).collect();
            return Err(format!(
                "{} with the switches does not compile\n{}",
                self.package.name(),
                errors.concat()
            ));
        }
        let program = |message: &serde_json::Value| {
            let path = PathBuf::from(message["executable"].as_str()?);
            let library = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "lib");
            let name = match library {
                true => if loom { "loom" } else { "lib" }.to_owned(),
                false => message["target"]["name"].as_str()?.to_owned(),
            };
            Some(Program { name, path })
        };
        Ok(messages.iter().filter_map(program).collect())
    }
}

/// Writes a file, but not where it says that already: cargo would build everything again.
fn put(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let said = |error: std::io::Error| format!("{}: {error}", path.display());
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(said)?;
    fs::write(path, bytes).map_err(said)
}

/// What becomes of a file's contents.
type Change<'a> = &'a dyn Fn(&Path, Vec<u8>) -> Result<Vec<u8>, String>;

/// Copies a file or a folder, each file as `change` makes it; what is there and no longer in the
/// original goes.
fn copy(from: &Path, to: &Path, change: Change<'_>) -> Result<(), String> {
    let said = |error: std::io::Error| format!("{}: {error}", from.display());
    if !from.is_dir() {
        return put(to, &change(from, fs::read(from).map_err(said)?)?);
    }
    for old in fs::read_dir(to).into_iter().flatten().flatten() {
        if !from.join(old.file_name()).exists() {
            let gone = if old.path().is_dir() {
                fs::remove_dir_all(old.path())
            } else {
                fs::remove_file(old.path())
            };
            gone.map_err(said)?;
        }
    }
    for entry in fs::read_dir(from).map_err(said)? {
        let name = entry.map_err(said)?.file_name();
        copy(&from.join(&name), &to.join(&name), change)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_has_all_that_its_manifests_name() {
        let folder = target().join("mutants-test");
        let scratch = Scratch::at(folder.clone(), Package::FreeholdClassic, &[]).expect("a copy");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
            .current_dir(&scratch.folder);
        let output = cargo.output().expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::remove_dir_all(folder).expect("it is there");
    }
}
