//! Changes to somebody else's source by rules that name the place: a short text to find, within a
//! function where one text is not enough, and what goes before, after or instead of it. No copy of
//! that source is kept here. A rule that finds no place, or more places than it says, is an error
//! with its name: the source is another one than the rules were written for.
//!
//! ```text
//! {"name", "file", "find", "why"}    what is found, and why it is changed
//! {..., "before" | "after": LINES}   whole lines around the line that has it
//! {..., "instead": TEXT}             in its place
//! {..., "within": TEXT}              from there to the end of the function
//! {..., "times": N | "all"}          how often it is there; once where nothing is said
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::super::Trouble;

#[derive(Deserialize, Debug)]
#[serde(untagged)]
enum Text {
    Whole(String),
    Lines(Vec<String>),
}

impl Text {
    fn joined(&self) -> String {
        match self {
            Self::Whole(text) => text.clone(),
            Self::Lines(lines) => lines.join("\n"),
        }
    }
}

/// How often a text has to be there.
#[derive(Deserialize, Debug)]
#[serde(untagged)]
enum Times {
    Exactly(usize),
    /// The word `all`: at least once.
    Word(String),
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Rule {
    name: String,
    file: String,
    #[serde(default)]
    within: Option<String>,
    find: String,
    #[serde(default)]
    times: Option<Times>,
    #[serde(default)]
    before: Option<Text>,
    #[serde(default)]
    after: Option<Text>,
    #[serde(default)]
    instead: Option<Text>,
    why: String,
}

/// A part of one of our own files that is left out on purpose, or is `instead`.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    pub(super) file: String,
    #[serde(default)]
    within: Option<String>,
    find: String,
    /// Nothing where it does not say: an empty statement.
    #[serde(default)]
    instead: Option<String>,
}

impl Part {
    /// The file without it.
    pub(super) fn left_out(&self, text: &str) -> Result<String, Trouble> {
        let rule = Rule {
            name: String::new(),
            file: self.file.clone(),
            within: self.within.clone(),
            find: self.find.clone(),
            times: None,
            before: None,
            after: None,
            instead: Some(Text::Whole(self.instead.clone().unwrap_or_else(|| ";".to_owned()))),
            why: String::new(),
        };
        rule.apply(text).map_err(|why| Trouble::Wrong(format!("{}: {why}", self.file)))
    }
}

#[derive(Debug)]
pub(super) struct Rules(Vec<Rule>);

/// Texts of a source that are changed, by path. One that is asked for the first time is read.
#[derive(Default, Debug)]
pub(super) struct Texts {
    source: PathBuf,
    pub(super) changed: BTreeMap<String, String>,
}

impl Texts {
    /// Of the source in that folder.
    pub(super) fn of(source: &Path) -> Self {
        Self { source: source.to_path_buf(), changed: BTreeMap::new() }
    }

    fn take(&mut self, file: &str) -> Result<String, Trouble> {
        if let Some(text) = self.changed.remove(file) {
            return Ok(text);
        }
        let path = self.source.join(file);
        fs::read_to_string(&path)
            .map_err(|error| Trouble::Wrong(format!("{}: {error}", path.display())))
    }
}

/// Reads a list of this folder, which says what its licence is, and what it is for.
pub(super) fn list<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Trouble> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Told<T> {
        license: String,
        why: String,
        #[serde(alias = "plants", alias = "readers", alias = "patches")]
        rules: Vec<T>,
    }
    let wrong = |error: String| Trouble::Wrong(format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let told: Told<T> = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if told.license != "GPL-2.0" || told.why.is_empty() {
        return Err(wrong("says neither its licence, GPL-2.0, nor what it is for".to_owned()));
    }
    Ok(told.rules)
}

impl Rules {
    pub(super) fn read(path: &Path) -> Result<Self, Trouble> {
        list(path).map(Self)
    }

    /// The files that they change; one as often as it has rules.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|rule| rule.file.as_str())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|rule| rule.name.clone())
    }

    /// Without those of which it says that they are left out.
    pub(super) fn without(mut self, left_out: impl Fn(&str) -> bool) -> Self {
        self.0.retain(|rule| !left_out(&rule.name));
        self
    }

    /// Those of some files.
    pub(super) fn within(mut self, is_one: impl Fn(&str) -> bool) -> Self {
        self.0.retain(|rule| is_one(&rule.file));
        self
    }

    /// Applies them, one after the other.
    pub(super) fn apply(&self, texts: &mut Texts) -> Result<(), Trouble> {
        for rule in &self.0 {
            let text = texts.take(&rule.file)?;
            let changed = rule.apply(&text).map_err(|why| {
                Trouble::Wrong(format!(
                    "the rule {} does not fit {}: {why} (what it is for: {})",
                    rule.name, rule.file, rule.why
                ))
            })?;
            texts.changed.insert(rule.file.clone(), changed);
        }
        Ok(())
    }
}

impl Rule {
    /// Where it looks: everywhere, or from a text to the end of the function that begins there.
    fn place(&self, text: &str) -> Result<Range<usize>, String> {
        let Some(within) = &self.within else { return Ok(0..text.len()) };
        let start = text.find(within).ok_or_else(|| format!("there is no \"{within}\""))?;
        let end = text[start..].find("\n}\n").map_or(text.len(), |length| start + length);
        Ok(start..end)
    }

    fn apply(&self, text: &str) -> Result<String, String> {
        let place = self.place(text)?;
        let part = &text[place.clone()];
        let found = part.matches(self.find.as_str()).count();
        let fits = match &self.times {
            None => found == 1,
            Some(Times::Exactly(times)) => found == *times,
            Some(Times::Word(word)) if word == "all" => found > 0,
            Some(Times::Word(word)) => return Err(format!("\"{word}\" is no number of times")),
        };
        if !fits {
            return Err(format!("\"{}\" is there {found} times", self.find));
        }
        if self.instead.is_none() && self.find.contains('\n') {
            return Err("lines go around one line, not around several".to_owned());
        }
        let part = match (&self.before, &self.after, &self.instead) {
            (Some(lines), None, None) => self.around(part, &lines.joined(), true),
            (None, Some(lines), None) => self.around(part, &lines.joined(), false),
            (None, None, Some(other)) => part.replace(self.find.as_str(), &other.joined()),
            _ => return Err("one of before, after and instead says what to do".to_owned()),
        };
        Ok([&text[..place.start], &part, &text[place.end..]].concat())
    }

    /// With lines before or after each line that has the text.
    fn around(&self, part: &str, lines: &str, before: bool) -> String {
        let mut out = String::with_capacity(part.len() + lines.len() + 1);
        for line in part.split_inclusive('\n') {
            let has = line.contains(self.find.as_str());
            if has && before {
                out.extend([lines, "\n"]);
            }
            out.push_str(line);
            if has && !before {
                let ends = line.ends_with('\n');
                out.extend(if ends { [lines, "\n"] } else { ["\n", lines] });
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    /// A made-up source.
    const SOURCE: &str = "\
static void drain(void)
{
\ttake(&zone);
\tleave(&zone);
}

static void refill(void)
{
\ttake(&zone);
\tleave(&zone);
}
";

    fn changed(rule: &str) -> Result<String, String> {
        let rules = Rules(vec![serde_json::from_str(rule).unwrap()]);
        let mut texts = Texts::default();
        texts.changed.insert("a.c".to_owned(), SOURCE.to_owned());
        rules.apply(&mut texts).map_err(|trouble| trouble.to_string())?;
        Ok(texts.changed.remove("a.c").unwrap())
    }

    #[test]
    fn a_rule_changes_the_place_that_it_names() {
        let refill = r#""name":"r","file":"a.c","why":"w","within":"void refill("#;
        let before = changed(&format!(
            r#"{{{refill}","find":"leave(&zone);","before":["\tcount(1);","\tcount(2);"]}}"#
        ));
        let (head, tail) = SOURCE.split_at(SOURCE.rfind("\tleave").unwrap());
        assert_eq!(before.unwrap(), format!("{head}\tcount(1);\n\tcount(2);\n{tail}"));
        let after =
            changed(&format!(r#"{{{refill}","find":"take(&zone);","after":"\tcount(1);"}}"#));
        assert_eq!(after.unwrap(), format!("{head}\tcount(1);\n{tail}"));
        let all = r#"{"name":"r","file":"a.c","why":"w","find":"take(","instead":"counted(",
            "times":"all"}"#;
        assert_eq!(changed(all).unwrap(), SOURCE.replace("take(", "counted("));
        let twice =
            r#"{"name":"r","file":"a.c","why":"w","find":"leave(","instead":"go(","times":2}"#;
        assert_eq!(changed(twice).unwrap(), SOURCE.replace("leave(", "go("));
    }

    #[test]
    fn a_rule_without_a_place_is_an_error_that_names_it() {
        let error = |more: &str| {
            changed(&format!(r#"{{"name":"gone-{}","file":"a.c","why":"w",{more}}}"#, more.len()))
                .unwrap_err()
        };
        let nowhere = error(r#""find":"lock(","instead":"""#);
        assert!(nowhere.contains("gone-") && nowhere.contains("there 0 times"), "{nowhere}");
        // Two places where one is meant are no place either.
        assert!(error(r#""find":"take(","instead":"""#).contains("there 2 times"));
        assert!(error(r#""find":"take(","instead":"","times":3"#).contains("there 2 times"));
        let elsewhere = error(r#""within":"void merge(","find":"take(","instead":"""#);
        assert!(elsewhere.contains("no \"void merge("));
        assert!(error(r#""find":"refill""#).contains("says what to do"));
        assert!(error(r#""find":"}\n\nstatic","before":"""#).contains("around several"));
        let often = error(r#""find":"refill","instead":"","times":"often""#);
        assert!(often.contains("no number of times"));
    }

    #[test]
    fn every_file_of_rules_can_be_read_and_says_what_it_is_for() {
        let folder = build::root().join("os/linux/built");
        let mut read = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_rules = path.extension().is_some_and(|extension| extension == "json");
            let others = ["plants.json", "readers.json", "series.json"];
            if is_rules && !others.iter().any(|name| path.ends_with(name)) {
                let rules = Rules::read(&path).unwrap();
                assert!(rules.0.iter().all(|rule| !rule.why.is_empty()), "{}", path.display());
                read += 1;
            }
        }
        assert_eq!(read, 7);
    }
}
