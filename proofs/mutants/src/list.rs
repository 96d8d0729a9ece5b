//! The lists of mutants, one a crate, and whether they still fit the sources.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The crates that are changed, and their lists.
pub(crate) const LISTS: [(&str, &str); 3] = [
    ("freehold", "mutants.json"),
    ("freehold-classic", "classic.json"),
    ("freehold-vm", "vm.json"),
];

/// The sources of a crate.
pub(crate) fn folder(root: &Path, package: &str) -> PathBuf {
    root.join("crates").join(package)
}

/// One change to one place of a crate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    /// Below the crate's `src`.
    pub(crate) file: String,
    /// A text that the file has once, and that has `old` once: needed where the file has `old` more
    /// often. Of both the layout may differ from that of the file.
    #[serde(default)]
    within: Option<String>,
    /// What is replaced: an expression, or statements that end in a semicolon.
    old: String,
    new: String,
    /// What the original is for.
    pub(crate) why: String,
    /// What probably notices it soonest: `lib::TEST` and `loom::TEST` of its sources,
    /// or `suite::FILE::TEST` of `tests/suite`, which may be a table `FILE/TEST.txt`.
    #[serde(default)]
    first: Option<String>,
    /// Why no test notices it, where that is so.
    #[serde(default)]
    pub(crate) survives: Option<String>,
}

impl Mutant {
    /// The program to begin with, and its tests.
    pub(crate) fn first(&self) -> Option<(&str, &str)> {
        let first = self.first.as_deref()?;
        Some(first.split_once("::").unwrap_or((first, "")))
    }

    /// The text of its file with the mistake in it.
    pub(crate) fn applied(&self, text: &str) -> Result<String, String> {
        let place = once(text, self.within.as_deref().unwrap_or(&self.old)).and_then(|outer| {
            let inner = once(&text[outer.clone()], &self.old)?;
            Ok(outer.start + inner.start..outer.start + inner.end)
        });
        let place = place.map_err(|error| format!("{}: {}: {error}", self.name, self.file))?;
        // As one expression, whatever is around it.
        let new = match self.old.ends_with(';') {
            true => self.new.clone(),
            false => format!("({})", self.new),
        };
        Ok(format!("{}{new}{}", &text[..place.start], &text[place.end..]))
    }
}

/// The text without what rustfmt decides: blanks, new lines, and the comma behind the last of
/// several lines. And where in the text each byte of the rest is.
fn without_layout(text: &str) -> (String, Vec<usize>) {
    let mut kept = text.char_indices().filter(|(_, c)| !c.is_whitespace()).peekable();
    let (mut rest, mut places) = (String::new(), Vec::new());
    while let Some((at, c)) = kept.next() {
        if c == ',' && kept.peek().is_some_and(|(_, next)| ")]}".contains(*next)) {
            continue;
        }
        rest.push(c);
        places.extend(at..at + c.len_utf8());
    }
    (rest, places)
}

/// Where `part` is in `text`, if it is there exactly once, however its lines are broken.
fn once(text: &str, part: &str) -> Result<Range<usize>, String> {
    let ((text, places), (bare, _)) = (without_layout(text), without_layout(part));
    let mut found = text.match_indices(&bare).map(|(at, _)| at);
    match (found.next(), found.count()) {
        (Some(at), 0) => Ok(places[at]..places[at + bare.len() - 1] + 1),
        (None, _) => Err(format!("there is no such text (any more): {part}")),
        (_, more) => {
            Err(format!("{} places have this text, so that none is meant: {part}", more + 1))
        }
    }
}

/// What a file says.
pub(crate) fn text_of(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads the list of a crate.
pub(crate) fn read(root: &Path, package: &str) -> Result<Vec<Mutant>, String> {
    let list = LISTS.iter().find(|(name, _)| *name == package).map_or("", |(_, list)| list);
    let text = text_of(&root.join("proofs/mutants").join(list))?;
    let mutants: Vec<Mutant> =
        serde_json::from_str(&text).map_err(|error| format!("{list}: {error}"))?;
    let mut names = BTreeSet::new();
    match mutants.iter().find(|mutant| !names.insert(&mutant.name)) {
        Some(twice) => Err(format!("{list}: two are called {}", twice.name)),
        None => Ok(mutants),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    #[test]
    fn every_mutant_has_its_place_in_the_sources_and_its_test() {
        let wrong: Vec<String> = LISTS.iter().flat_map(|(package, _)| misfits(package)).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn misfits(package: &str) -> Vec<String> {
        let mutants = read(&root(), package).unwrap();
        let sources = folder(&root(), package).join("src");
        let suite = folder(&root(), package).join("tests/suite");
        let own = text_of_all(&sources);
        let mut wrong = Vec::new();
        for mutant in &mutants {
            let text = text_of(&sources.join(&mutant.file));
            wrong.extend(text.and_then(|text| mutant.applied(&text)).err());
            let Some((program, test)) = mutant.first() else { continue };
            let found = match (program, test.split_once("::")) {
                ("lib" | "loom", _) => own.contains(&format!("fn {test}")),
                // A test, or a table with a test of its own.
                ("suite", Some((module, test))) => {
                    let file = suite.join(module).with_extension("rs");
                    let table = suite.join(module).join(test).with_extension("txt");
                    table.exists()
                        || text_of(&file).is_ok_and(|text| text.contains(&format!("fn {test}")))
                }
                _ => false,
            };
            if !found {
                wrong.push(format!("{}: {program} has no test called {test}", mutant.name));
            }
        }
        wrong
    }

    /// All files of a folder and of those below it.
    fn text_of_all(folder: &Path) -> String {
        let entries = std::fs::read_dir(folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let text = |path: PathBuf| {
            if path.is_dir() { text_of_all(&path) } else { text_of(&path).unwrap() }
        };
        entries.map(|entry| text(entry.unwrap().path())).collect()
    }

    #[test]
    fn the_page_on_the_model_has_each_mutant_that_nothing_notices() {
        let page = text_of(&root().join("docs/model.md")).unwrap();
        for mutant in LISTS.iter().flat_map(|(package, _)| read(&root(), package).unwrap()) {
            let named = page.contains(&format!("`{}`", mutant.name));
            assert!(named || mutant.survives.is_none(), "{} in docs/model.md", mutant.name);
        }
    }

    fn applied(old: &str, within: Option<&str>, text: &str) -> Result<String, String> {
        let own = str::to_owned;
        let (name, file, new, why) = (own("m"), own("f"), own("no"), own(""));
        let (old, within) = (own(old), within.map(own));
        Mutant { name, file, within, old, new, why, first: None, survives: None }.applied(text)
    }

    #[test]
    fn a_place_is_found_however_its_lines_are_broken() {
        let broken = "  a.exchange(\n    1,\n    2,\n  )\n  .is_ok();\n";
        let within = Some("a.exchange(1, 2)\n.is_ok();");
        let new = applied("a.exchange(1, 2).is_ok()", within, broken);
        assert_eq!(new, Ok("  (no);\n".to_owned()));
        assert!(applied("a.exchange(1,)", None, broken).is_err());
    }

    #[test]
    fn a_place_that_is_not_one_is_an_error() {
        let text = "a + b;\nc(a);\n";
        assert!(applied("d", None, text).unwrap_err().contains("no such text"));
        assert!(applied("a", None, text).unwrap_err().contains("2 places"));
        assert_eq!(applied("a", Some("c(a)"), text).unwrap(), "a + b;\nc((no));\n");
        assert_eq!(applied("c(a);", None, text).unwrap(), "a + b;\nno\n");
    }
}
