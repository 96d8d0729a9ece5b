//! The lists of mutants, one a crate, and whether they still fit the sources.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Deserialize;

/// A crate that is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Package {
    /// The core.
    Freehold,
    /// The kernel's designs.
    FreeholdClassic,
    /// Folios in address spaces, and vmalloc.
    FreeholdVm,
}

impl Package {
    /// All of them.
    #[cfg(test)]
    const ALL: [Self; 3] = [Self::Freehold, Self::FreeholdClassic, Self::FreeholdVm];

    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Freehold => "freehold",
            Self::FreeholdClassic => "freehold-classic",
            Self::FreeholdVm => "freehold-vm",
        }
    }

    /// Its list, below `proofs/mutants`.
    const fn list(self) -> &'static str {
        match self {
            Self::Freehold => "mutants.json",
            Self::FreeholdClassic => "classic.json",
            Self::FreeholdVm => "vm.json",
        }
    }

    /// Its folder.
    pub(crate) fn folder(self, root: &Path) -> PathBuf {
        root.join("crates").join(self.name())
    }
}

/// One change to one place of a crate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    /// Below the crate's `src`.
    pub(crate) file: String,
    /// A text that the file has once, and that has `old` once: needed where the file has `old` more
    /// often. Of both the layout may differ from the file's.
    #[serde(default)]
    within: Option<String>,
    /// What is replaced: an expression, or statements that end in a semicolon.
    old: String,
    new: String,
    /// What the original is for.
    pub(crate) why: String,
    /// What probably notices it soonest: `lib::TEST` and `loom::TEST` of its sources,
    /// or `suite::FILE::TEST` of `tests/suite`.
    #[serde(default)]
    first: Option<String>,
    /// Why no test notices it, where that is so.
    #[serde(default)]
    pub(crate) survives: Option<String>,
}

impl Mutant {
    /// Weakens an ordering: only loom can tell for sure.
    pub(crate) fn is_ordering(&self) -> bool {
        self.old.contains("Ordering::")
            || self.first.as_ref().is_some_and(|first| first.starts_with("loom"))
    }

    /// The program and the tests of it to begin with.
    pub(crate) fn first(&self) -> Option<(&str, &str)> {
        let first = self.first.as_deref()?;
        Some(first.split_once("::").unwrap_or((first, "")))
    }

    /// Where in the file's text it is.
    fn place(&self, text: &str) -> Result<Range<usize>, String> {
        let found = once(text, self.within.as_deref().unwrap_or(&self.old)).and_then(|outer| {
            let inner = once(&text[outer.clone()], &self.old)?;
            Ok(outer.start + inner.start..outer.start + inner.end)
        });
        found.map_err(|error| format!("{}: {}: {error}", self.name, self.file))
    }
}

/// The original, or whichever of these mutants of one place was chosen.
fn switch(mutants: &[Mutant], here: &[(Range<usize>, usize)]) -> String {
    let old = &mutants[here[0].1].old;
    let last = format!("{{ {old} }}");
    let all = here.iter().rev().fold(last, |rest, &(_, number)| {
        format!("if crate::mutants::on({number}) {{ {} }} else {rest}", mutants[number].new)
    });
    if old.ends_with(';') { all } else { format!("({all})") }
}

/// The text without what rustfmt decides: blanks, new lines, and the comma behind the last of several
/// lines. And where in the text each byte of the rest is.
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

/// Reads a crate's list.
pub(crate) fn read(root: &Path, package: Package) -> Result<Vec<Mutant>, String> {
    let list = package.list();
    let text = text_of(&root.join("proofs/mutants").join(list))?;
    let mutants: Vec<Mutant> =
        serde_json::from_str(&text).map_err(|error| format!("{list}: {error}"))?;
    let mut names = BTreeSet::new();
    match mutants.iter().find(|mutant| !names.insert(&mutant.name)) {
        Some(twice) => Err(format!("{list}: two are called {}", twice.name)),
        None => Ok(mutants),
    }
}

/// The text of a file with a switch at the place of each of its mutants.
///
/// # Errors
///
/// A mutant whose text the file does not have exactly once, or two whose places overlap and are not
/// the same.
pub(crate) fn switched(mutants: &[Mutant], file: &str, text: &str) -> Result<String, String> {
    let here = mutants.iter().enumerate().filter(|(_, mutant)| mutant.file == file);
    let mut places: Vec<(Range<usize>, usize)> = here
        .map(|(number, mutant)| Ok((mutant.place(text)?, number)))
        .collect::<Result<_, String>>()?;
    places.sort_by_key(|(place, _)| (place.start, place.end));
    let overlap =
        |two: &&[(Range<usize>, usize)]| two[0].0 != two[1].0 && two[0].0.end > two[1].0.start;
    if let Some(two) = places.windows(2).find(overlap) {
        return Err(format!("{} and {} overlap", mutants[two[0].1].name, mutants[two[1].1].name));
    }
    let mut new = text.to_owned();
    for here in places.chunk_by(|one, other| one.0 == other.0).rev() {
        new.replace_range(here[0].0.clone(), &switch(mutants, here));
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    #[test]
    fn every_mutant_has_its_place_in_the_sources() {
        Package::ALL.into_iter().for_each(has_its_place);
    }

    fn has_its_place(package: Package) {
        let mutants = read(&root(), package).unwrap();
        let sources = package.folder(&root()).join("src");
        for file in mutants.iter().map(|mutant| mutant.file.as_str()).collect::<BTreeSet<_>>() {
            let text = text_of(&sources.join(file)).unwrap();
            switched(&mutants, file, &text).unwrap_or_else(|error| panic!("{error}"));
        }
        // Each is an expression, or statements, by itself: its switch goes around it, and a name that
        // the old text gives to something would end there.
        let whole = |text: &str| text.matches('{').count() == text.matches('}').count();
        let torn = mutants.iter().find(|mutant| {
            !whole(&mutant.old) || !whole(&mutant.new) || mutant.old.starts_with("let ")
        });
        assert!(
            torn.is_none(),
            "{}: half a brace, or a name that ends with it",
            torn.map_or("", |mutant| &mutant.name)
        );
        let suite = package.folder(&root()).join("tests/suite");
        let own = text_of_all(&sources);
        let has = |text: &str, test: &str| text.contains(&format!("fn {test}"));
        for (program, test) in mutants.iter().filter_map(Mutant::first) {
            let found = match program {
                "lib" | "loom" => has(&own, test),
                "suite" => {
                    let (module, test) = test.split_once("::").unwrap_or((test, ""));
                    has(&text_of(&suite.join(module).with_extension("rs")).unwrap(), test)
                }
                other => panic!("there is no program called {other}"),
            };
            assert!(found, "{program} has no test called {test}");
        }
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

    /// What notices it, or why nothing can.
    #[test]
    fn the_page_on_the_model_has_each_mutant_once() {
        let page = text_of(&root().join("docs/model.md")).unwrap();
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        for mutant in read(&root(), Package::Freehold).unwrap() {
            let name = format!("`{}`", mutant.name);
            let with_it = rows
                .iter()
                .filter(|row| row.split('|').nth(1).is_some_and(|names| names.contains(&name)));
            assert_eq!(with_it.count(), 1, "{name} in docs/model.md");
        }
    }

    fn mutant(old: &str, within: Option<&str>) -> Mutant {
        let text = |text: &str| text.to_owned();
        let (name, file, new, why) = (text(old), text("f"), text("no"), text(""));
        Mutant {
            name,
            file,
            within: within.map(text),
            old: text(old),
            new,
            why,
            first: None,
            survives: None,
        }
    }

    #[test]
    fn a_place_is_found_however_its_lines_are_broken() {
        let broken = "  a.exchange(\n    1,\n    2,\n  )\n  .is_ok();\n";
        assert_eq!(
            switched(
                &[mutant("a.exchange(1, 2).is_ok()", Some("a.exchange(1, 2)\n.is_ok();"))],
                "f",
                broken
            ),
            Ok("  (if crate::mutants::on(0) { no } else { a.exchange(1, 2).is_ok() });\n"
                .to_owned())
        );
        assert!(switched(&[mutant("a.exchange(1,)", None)], "f", broken).is_err());
    }

    #[test]
    fn a_place_that_is_not_one_is_an_error() {
        let text = "a + b;\nc(a);\n";
        let one = |old, within| switched(&[mutant(old, within)], "f", text);
        assert!(one("d", None).unwrap_err().contains("no such text"));
        assert!(one("a", None).unwrap_err().contains("2 places"));
        assert_eq!(
            one("a", Some("c(a)")).unwrap(),
            "a + b;\nc((if crate::mutants::on(0) { no } else { a }));\n"
        );
        assert_eq!(
            one("c(a);", None).unwrap(),
            "a + b;\nif crate::mutants::on(0) { no } else { c(a); }\n"
        );
        let two = [mutant("a + b", None), mutant("b;", None)];
        assert!(switched(&two, "f", text).unwrap_err().contains("overlap"));
        assert_eq!(switched(&two, "g", text).unwrap(), text);
        let same =
            [mutant("a + b", None), Mutant { new: "never".to_owned(), ..mutant("a + b", None) }];
        assert_eq!(
            switched(&same, "f", text).unwrap(),
            "(if crate::mutants::on(0) { no } else if crate::mutants::on(1) { never } else { a + b });\nc(a);\n"
        );
    }
}
