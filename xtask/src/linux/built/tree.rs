//! One source tree for all kernels: what a kernel changes is written over it, what another one had
//! changed goes back to what it was. So a further kernel costs the files that differ, and a link.
//!
//! The RFC changes headers that every file of the kernel includes, in places that only `mm/` looks
//! at: the lists of `struct per_cpu_pages`, which all others have a pointer to; what a section
//! knows of its pageblocks, behind the bitmap that `pfn_valid()` reads; a page type, which is a
//! number. So a header keeps the time that it came with, and `mm/` is compiled anew where one has
//! changed: 60 files instead of 700.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use super::super::Trouble;
use super::super::tools::run;
use super::rules::{Part, Rules, Texts};
use super::{Design, Kind, thread};
use crate::build;

/// Our own files in the tree: a folder that the original does not have.
pub(super) const OURS: &str = "mm/freehold";

/// A kernel's text: what it changes of the source, by path, and what it adds.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) changed: BTreeMap<String, String>,
    pub(super) added: BTreeMap<String, Vec<u8>>,
}

pub(super) fn rules(name: &str) -> Result<Rules, Trouble> {
    Rules::read(&build::root().join("os/linux/built").join(name))
}

/// The names of the rules that make a kernel Freehold's.
pub(super) fn rule_names() -> Result<BTreeSet<String>, Trouble> {
    let mut names = BTreeSet::new();
    for file in ["freehold.json", "walkers.json"] {
        names.extend(rules(file)?.names());
    }
    Ok(names)
}

/// What that kernel is, in words of the source in `folder`.
///
/// # Errors
///
/// [`Trouble::Missing`] where the RFC's text is not there; a rule or a patch that does not fit.
pub(super) fn change(kind: &Kind, folder: &Path, source: &Path) -> Result<Change, Trouble> {
    let design = kind.design;
    let original = Original::of(folder, source);
    let mut texts = Texts::of(&original.folder);
    if design == Design::Rfc {
        texts.changed = rfc(folder, &original)?;
    }
    let own: &[&str] = match design {
        Design::Rfc => &["rfc.json"],
        Design::Vanilla => &["vanilla.json"],
        Design::Freehold => &["vanilla.json", "freehold.json", "walkers.json"],
        Design::Edited(_) => &["vanilla.json", "threads.json"],
    };
    for name in ["counts.json"].iter().chain(own) {
        let rules = rules(name)?;
        for file in rules.files() {
            original.keep(file)?;
        }
        rules.without(|rule| kind.leaves_out(rule)).apply(&mut texts)?;
    }
    let mut added = added(design)?;
    add_trials(design, &mut added)?;
    if let Some(part) = kind.plant.as_ref().and_then(|plant| plant.part.as_ref()) {
        leave_out(part, &mut added)?;
    }
    Ok(Change { changed: texts.changed, added })
}

/// Takes a part out of one of our files.
pub(super) fn leave_out(part: &Part, added: &mut BTreeMap<String, Vec<u8>>) -> Result<(), Trouble> {
    let bytes = added
        .get_mut(&part.file)
        .ok_or_else(|| Trouble::Wrong(format!("{} is none of our files", part.file)))?;
    *bytes = part.left_out(&String::from_utf8_lossy(bytes))?.into_bytes();
    Ok(())
}

/// Our files beside the kernel's, but for the allocator itself.
pub(super) fn added(design: Design) -> Result<BTreeMap<String, Vec<u8>>, Trouble> {
    let root = build::root();
    let mut names = "built/Kconfig built/Makefile built/counts.c built/counts.h ".to_owned();
    if design == Design::Freehold {
        names += "built/freehold.c built/hooks.h built/lists.h built/own.h built/serve.c \
            built/reserve.c built/tell.c built/walkers.c built/walkers.h built/gone.c \
            built/report.c built/taken.h built/compact.h platform.c fh.h ";
    }
    let mut added = BTreeMap::new();
    for name in names.split_whitespace() {
        let to = name.strip_prefix("built/").unwrap_or(name);
        added.insert(to.to_owned(), fs::read(root.join("os/linux").join(name))?);
    }
    if design == Design::Freehold {
        let header = root.join("crates/freehold-ffi/include/freehold.h");
        added.insert("include/freehold.h".to_owned(), fs::read(header)?);
        // freehold.h asks for the C library's; the kernel has the same names elsewhere.
        for name in ["bool", "def", "int"] {
            let text = "/* SPDX-License-Identifier: GPL-2.0 */\n#include <linux/limits.h>\n\
                        #include <linux/stddef.h>\n#include <linux/types.h>\n";
            added.insert(format!("include/std{name}.h"), text.into());
        }
    }
    Ok(added)
}

/// Adds what only kernels of this laboratory have: trials, and what threads of discussion brought.
fn add_trials(design: Design, added: &mut BTreeMap<String, Vec<u8>>) -> Result<(), Trouble> {
    let mut trials = "trials highatomic exercise cost ranges traffic".to_owned();
    if design == Design::Rfc {
        trials += " disown";
    }
    let ours = build::root().join("os/linux/built");
    for name in trials.split(' ') {
        let file = format!("{name}.c");
        added.insert(file.clone(), fs::read(ours.join(file))?);
        let line = format!("obj-y += {name}.o\n");
        added.entry("Makefile".to_owned()).or_default().extend(line.bytes());
    }
    added.insert("contig.h".to_owned(), fs::read(ours.join("contig.h"))?);
    Ok(())
}

/// The source's files as they came, kept since the first change of each.
pub(super) struct Original {
    folder: PathBuf,
    source: PathBuf,
}

impl Original {
    pub(super) fn of(folder: &Path, source: &Path) -> Self {
        Self { folder: folder.join("pristine"), source: source.to_path_buf() }
    }

    pub(super) fn keep(&self, file: &str) -> Result<PathBuf, Trouble> {
        let kept = self.folder.join(file);
        if !kept.exists() {
            fs::create_dir_all(kept.parent().unwrap_or(&kept))?;
            let from = self.source.join(file);
            fs::copy(&from, &kept)?;
            File::options().write(true).open(&kept)?.set_modified(modified(&from)?)?;
        }
        Ok(kept)
    }
}

fn modified(path: &Path) -> Result<SystemTime, Trouble> {
    Ok(fs::metadata(path)?.modified()?)
}

/// The files that the RFC's two patches change, patched in a scratch folder.
fn rfc(folder: &Path, original: &Original) -> Result<BTreeMap<String, String>, Trouble> {
    let path = build::root().join("../shared/threads/pcp-buddy-allocator.txt");
    let text = fs::read_to_string(&path).map_err(|error| {
        Trouble::Missing(format!("the RFC is not there: {}: {error}", path.display()))
    })?;
    let patches = thread::patches(&text);
    let [first, second] = &patches[..] else {
        let (path, found) = (path.display(), patches.len());
        return Err(Trouble::Wrong(format!("{path} has {found} patches instead of two")));
    };
    let mut mended = Texts::default();
    mended.changed.insert("2.patch".to_owned(), second.clone());
    rules("rfc-mends.json")?.apply(&mut mended)?;
    let second = &mended.changed["2.patch"];
    let scratch = folder.join("scratch");
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?;
    }
    let files: Vec<String> = [first, second]
        .iter()
        .flat_map(|patch| patch.lines())
        .filter_map(|line| line.strip_prefix("+++ b/").map(str::to_owned))
        .collect();
    for file in &files {
        let to = scratch.join(file);
        fs::create_dir_all(to.parent().unwrap_or(&to))?;
        fs::copy(original.keep(file)?, &to)?;
    }
    for (name, patch) in [("1.patch", first), ("2.patch", second)] {
        fs::write(scratch.join(name), patch)?;
        // A mended hunk has another length than it says. A repository around the folder is no
        // matter here.
        let mut git = Command::new("git");
        git.current_dir(&scratch).env("GIT_CEILING_DIRECTORIES", folder);
        run(git.args(["apply", "--recount", "-C1", name]))?;
    }
    let mut changed = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(scratch.join(&file))?;
        changed.insert(file, text);
    }
    Ok(changed)
}

/// Makes the tree that kernel's. What has not changed keeps its time, so that it is not compiled
/// again.
pub(super) fn lay(change: &Change, folder: &Path, source: &Path) -> Result<(), Trouble> {
    let pristine = folder.join("pristine");
    let mut headers = false;
    for file in files_below(&pristine, Path::new(""))? {
        let original = pristine.join(&file);
        let text = match change.changed.get(&file) {
            Some(text) => text.clone().into_bytes(),
            None => fs::read(&original)?,
        };
        let to = source.join(&file);
        if fs::read(&to).ok().as_deref() != Some(&text) {
            fs::write(&to, text)?;
            if file.starts_with("include/") {
                File::options().write(true).open(&to)?.set_modified(modified(&original)?)?;
                headers = true;
            }
        }
    }
    let ours = source.join(OURS);
    fs::create_dir_all(&ours)?;
    for file in files_below(&ours, Path::new(""))? {
        if !change.added.contains_key(&file) {
            fs::remove_file(ours.join(file))?;
        }
    }
    for (name, bytes) in &change.added {
        let to = ours.join(name);
        if fs::read(&to).ok().as_ref() != Some(bytes) {
            fs::create_dir_all(to.parent().unwrap_or(&ours))?;
            fs::write(to, bytes)?;
        }
    }
    if headers {
        // Those with checks have folders of their own, and the same headers.
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("objects") {
                remove_objects(&entry.path().join("mm"))?;
            }
        }
    }
    Ok(())
}

pub(super) fn files_below(folder: &Path, below: &Path) -> Result<Vec<String>, Trouble> {
    let mut files = Vec::new();
    let here = folder.join(below);
    if !here.is_dir() {
        return Ok(files);
    }
    for entry in fs::read_dir(here)? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            files.extend(files_below(folder, &path)?);
        } else {
            files.push(path.to_string_lossy().into_owned());
        }
    }
    files.sort();
    Ok(files)
}

fn remove_objects(folder: &Path) -> Result<(), Trouble> {
    for file in files_below(folder, Path::new(""))? {
        if Path::new(&file).extension().is_some_and(|extension| extension == "o") {
            fs::remove_file(folder.join(file))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_one_kernels_and_then_anothers() {
        let folder = std::env::temp_dir().join(format!("freehold-tree-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let source = folder.join("source");
        for file in ["include/a.h", "mm/b.c"] {
            let path = source.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "as it came\n").unwrap();
        }
        let [object, checked] = ["objects/mm", "objects-kasan/mm"].map(|objects| {
            fs::create_dir_all(folder.join(objects)).unwrap();
            let object = folder.join(objects).join("b.o");
            fs::write(&object, "").unwrap();
            object
        });
        let original = Original::of(&folder, &source);
        original.keep("include/a.h").unwrap();
        original.keep("mm/b.c").unwrap();
        let came = modified(&source.join("include/a.h")).unwrap();
        let change = |file: &str| Change {
            changed: [(file.to_owned(), "changed\n".to_owned())].into(),
            added: [(file.replace('/', "-"), b"ours".to_vec())].into(),
        };
        let read = |file: &str| fs::read_to_string(source.join(file)).unwrap_or_default();

        lay(&change("mm/b.c"), &folder, &source).unwrap();
        assert_eq!([read("mm/b.c"), read("include/a.h")], ["changed\n", "as it came\n"]);
        assert!(object.exists() && source.join("mm/freehold/mm-b.c").exists());

        lay(&change("include/a.h"), &folder, &source).unwrap();
        assert_eq!([read("mm/b.c"), read("include/a.h")], ["as it came\n", "changed\n"]);
        // A header keeps its time, so what includes it in mm/ is taken away by hand.
        assert_eq!(modified(&source.join("include/a.h")).unwrap(), came);
        let ours = source.join("mm/freehold/mm-b.c");
        assert!([object, checked, ours].iter().all(|file| !file.exists()));
        fs::remove_dir_all(&folder).unwrap();
    }
}
