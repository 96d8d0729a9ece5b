//! Who in a kernel's tree looks for free pages by the marks and lists of its own allocator, each
//! with what becomes of it where the pages are Freehold's: `os/linux/built/readers.json`. A
//! function that nobody has judged fails the build of the kernel. So a newer kernel cannot bring a
//! walker that finds no free page and says nothing.
//!
//! ```text
//! {"file", "in", "becomes", "why"}   a file's functions, and what becomes of them
//! {..., "rules": [NAME]}             where it becomes "hooked": the rules that do it
//! ```
//!
//! Comments and strings do not count. A function is the last name before a `(` on a line that
//! begins at the left edge: a guess, good for the kernel's way of writing. What stands outside of
//! all functions is `outside`, a macro has its own name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::super::Trouble;
use super::super::tools::output;
use super::rules::list;

/// What a reader uses: the mark of a free page, its order, the zone's lists, blocks' kinds, counts.
const WORDS: &str = "\
    PageBuddy PGTY_buddy PAGE_BUDDY_MAPCOUNT_VALUE folio_test_buddy page_is_buddy \
    find_buddy_page_pfn buddy_order buddy_order_unsafe buddy_list free_area free_area_empty \
    get_page_from_free_area for_each_migratetype_order find_suitable_fallback is_free_buddy_page \
    take_page_off_buddy put_page_back_buddy PageReported page_is_guard NR_FREE_PAGES_BLOCKS \
    get_pageblock_migratetype get_pfnblock_migratetype boost_watermark";
/// Folders that are in no kernel image of ours, or have an allocator by themselves.
const APART: [&str; 6] =
    ["Documentation", "arch/arm64/kvm/hyp", "mm/freehold", "samples", "scripts", "tools"];

/// What becomes of a reader.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
enum Becomes {
    /// It asks Freehold, by rules that are named.
    Hooked,
    /// It asks functions that are hooked.
    ByHooked,
    /// It runs before the hand-over.
    Before,
    /// It works on the zone's lists, which are empty.
    NotReached,
    /// It is right as it is.
    Right,
    /// It declares or defines what others use.
    Defines,
    /// It prints something that is not so.
    PrintsWrongly,
    /// It finds what it looks for page by page.
    Slower,
    /// What it does is not done for Freehold's pages.
    Lost,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Reader {
    file: String,
    #[serde(rename = "in")]
    places: Vec<String>,
    becomes: Becomes,
    #[serde(default)]
    rules: Vec<String>,
    why: String,
}

/// All readers that are judged.
#[derive(Debug)]
pub(super) struct Readers(Vec<Reader>);

impl Readers {
    pub(super) fn read(path: &Path, rules: &BTreeSet<String>) -> Result<Self, Trouble> {
        let wrong = |why: String| Trouble::Wrong(format!("{}: {why}", path.display()));
        let readers: Vec<Reader> = list(path)?;
        for reader in &readers {
            let named =
                |what: &str| format!("{} {}: {what}", reader.file, reader.places.join(", "));
            if reader.why.is_empty() {
                return Err(wrong(named("no reason")));
            }
            if (reader.becomes == Becomes::Hooked) == reader.rules.is_empty() {
                return Err(wrong(named("rules are for what is hooked, and only for that")));
            }
            if let Some(rule) = reader.rules.iter().find(|rule| !rules.contains(*rule)) {
                return Err(wrong(named(&format!("there is no rule {rule}"))));
            }
        }
        Ok(Self(readers))
    }

    /// Whether all readers of the tree are judged.
    pub(super) fn judge(&self, source: &Path) -> Result<(), Trouble> {
        let places = |of: &Reader| {
            of.places.clone().into_iter().map(|at| (of.file.clone(), at)).collect::<Vec<_>>()
        };
        let known: BTreeSet<(String, String)> = self.0.iter().flat_map(places).collect();
        let found = readers_of(source)?;
        let new: Vec<String> = found
            .iter()
            .filter(|(place, _)| !known.contains(*place))
            .map(|((file, at), words)| format!("{file}: {at} ({})", words.join(", ")))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        Err(Trouble::Wrong(format!(
            "{} functions look for free pages and are not judged: say in \
             os/linux/built/readers.json what becomes of each, or hook it by a rule:\n  {}",
            new.len(),
            new.join("\n  ")
        )))
    }
}

/// Each reader below a folder, by file and function, with the words that it uses. Files that have
/// none are left to grep: to read 60,000 here takes most of a minute.
fn readers_of(source: &Path) -> Result<BTreeMap<(String, String), Vec<&'static str>>, Trouble> {
    let mut grep = Command::new("grep");
    grep.current_dir(source).env("LC_ALL", "C").args(["-rlFw", "--include=*.c", "--include=*.h"]);
    grep.args(WORDS.split_whitespace().flat_map(|word| ["-e", word]));
    let mut found = BTreeMap::new();
    for file in output(grep.arg("."))?.lines().map(|file| file.trim_start_matches("./")) {
        if APART.iter().any(|apart| Path::new(file).starts_with(apart)) {
            continue;
        }
        let text = fs::read(source.join(file))?;
        for (at, words) in readers_in(&String::from_utf8_lossy(&text)) {
            found.insert((file.to_owned(), at), words);
        }
    }
    Ok(found)
}

/// The readers of one file.
fn readers_in(text: &str) -> BTreeMap<String, Vec<&'static str>> {
    let mut found: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    let mut function = None;
    for line in code_only(text).lines() {
        let defined = line.strip_prefix('#').and_then(|line| {
            let name = line.trim_start().strip_prefix("define")?.trim_start();
            Some(name.split(|c: char| !is_name(c)).next().unwrap_or_default().to_owned())
        });
        if let Some(name) = begins(line) {
            function = Some(name.to_owned());
        }
        for word in WORDS.split_whitespace().filter(|word| has_word(line, word)) {
            let at = defined.as_ref().or(function.as_ref()).map_or("outside", |name| name);
            let words = found.entry(at.to_owned()).or_default();
            if !words.contains(&word) {
                words.push(word);
            }
        }
        if line.starts_with('}') {
            function = None;
        }
    }
    found
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The function whose head begins in that line.
fn begins(line: &str) -> Option<&str> {
    if !line.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') || line.contains([';', '='])
    {
        return None;
    }
    let before = line[..line.find('(')?].trim_end();
    let name = before.rsplit(|c: char| !is_name(c)).next()?;
    let macros = ["DECLARE", "DEFINE", "EXPORT", "MODULE", "TRACE"];
    (!name.is_empty() && !macros.iter().any(|start| name.starts_with(start))).then_some(name)
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_name) && !line[at + word.len()..].starts_with(is_name)
    })
}

/// The text without comments and what is in strings; each line stays a line.
fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        code.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with('/') {
            code.push('/');
            1
        } else {
            quoted(rest)
        };
        code.extend(rest[..length].chars().filter(|&c| c == '\n'));
        rest = &rest[length..];
    }
    code + rest
}

/// How long the quotation is that a text begins with; one that does not end in its line is none.
fn quoted(text: &str) -> usize {
    let quote = text.as_bytes()[0];
    let mut escaped = false;
    for (at, &byte) in text.as_bytes().iter().enumerate().skip(1) {
        match byte {
            b'\n' if !escaped => return 1,
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            _ if byte == quote => return at + 1,
            _ => {}
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::built::tree;

    const TEXT: &str = "\
/* PageBuddy() in a comment */
#define first_free(area) (free_area_empty(area) ? NULL : \"buddy_list\")
static bool
looks(struct page *page,
      int order)
{
\tchar quote = '\"'; /* it's no string */
\treturn PageBuddy(page) && buddy_order(page) == order; // free_area
}
int unlike(int PageBuddyLike) { return 0; }
struct list { struct list_head buddy_list; };
";

    #[test]
    fn a_reader_is_found_in_its_function() {
        let found = readers_in(TEXT);
        let wanted = [
            ("first_free", vec!["free_area_empty"]),
            ("looks", vec!["PageBuddy", "buddy_order"]),
            ("outside", vec!["buddy_list"]),
        ];
        assert_eq!(found, wanted.map(|(at, words)| (at.to_owned(), words)).into());
    }

    /// A tree with one function that is judged and one that is not.
    #[test]
    fn one_that_nobody_has_judged_is_refused() {
        let folder = std::env::temp_dir().join(format!("freehold-readers-{}", std::process::id()));
        for below in ["mm", "tools/mm"] {
            fs::create_dir_all(folder.join(below)).unwrap();
            let text = "int walks(void)\n{\n\tPageBuddy(p);\n}\n";
            fs::write(folder.join(below).join("walks.c"), text).unwrap();
        }
        let reader = |at: &str| Reader {
            file: "mm/walks.c".to_owned(),
            places: vec![at.to_owned()],
            becomes: Becomes::Right,
            rules: Vec::new(),
            why: "a test".to_owned(),
        };
        let judged = |at| Readers(vec![reader(at)]);
        let refused = judged("another").judge(&folder).unwrap_err().to_string();
        let passed = judged("walks").judge(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert!(refused.contains("mm/walks.c: walks (PageBuddy)"), "{refused}");
        passed.unwrap();
    }

    #[test]
    fn a_hook_that_is_no_rule_is_refused() {
        let path = crate::build::root().join("os/linux/built/readers.json");
        let rules: BTreeSet<String> = tree::rule_names().unwrap();
        Readers::read(&path, &rules).unwrap();
        let mut fewer = rules;
        assert!(fewer.remove("is-it-free"));
        let refused = Readers::read(&path, &fewer).unwrap_err().to_string();
        assert!(refused.contains("there is no rule is-it-free"), "{refused}");
    }
}
