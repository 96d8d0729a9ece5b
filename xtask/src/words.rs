//! Words that the project does not write: a comment says what it is about, and names who does
//! something.
//!
//! A comment that begins with "The same" sends its reader to another one; "for who" and its like are
//! riddles. What is looked at: comments of every source, and every page, of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use crate::build;

/// Folders of which nothing is ours, or nothing is a source.
const PASSED_OVER: [&str; 5] = ["target", ".git", "node_modules", "corpus", "pictures"];
/// The ends of the names of sources, and of pages.
const SOURCES: [&str; 8] = ["rs", "c", "h", "cpp", "js", "css", "py", "bt"];
/// How no comment begins.
const BEGINNINGS: [&str; 4] = ["The same ", "The same,", "As above", "As there"];
/// What no comment and no page has.
const CHAINS: [&str; 6] = ["for who", "of who", "to who", "by who", "such a one", "in vain"];

/// The text of a line that is a comment and nothing else.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim();
    let text = ["///", "//!", "//", "/**", "/*"].iter().find_map(|mark| line.strip_prefix(mark));
    let text = text.or_else(|| (line == "*").then_some("").or_else(|| line.strip_prefix("* ")));
    text.map(|text| text.trim_end_matches("*/").trim())
}

/// Comments of a source with the line in which each begins: lines that follow each other are one, an
/// empty one ends it.
fn comments(source: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (at, line) in source.lines().enumerate() {
        let text = comment(line).filter(|text| !text.is_empty());
        match (text, found.last_mut()) {
            (Some(text), Some((_, before))) if goes_on => {
                before.push(' ');
                before.push_str(text);
            }
            (Some(text), _) => found.push((at + 1, text.to_owned())),
            (None, _) => {}
        }
        goes_on = text.is_some();
    }
    found
}

/// Whether `phrase` is in `text` as words: "for whom" is not "for who".
fn has(text: &str, phrase: &str) -> bool {
    let letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.match_indices(phrase).any(|(at, _)| {
        !letter(text[..at].chars().next_back()) && !letter(text[at + phrase.len()..].chars().next())
    })
}

/// What is wrong with a comment, or with a paragraph of a page.
fn complaint(text: &str) -> Option<&'static str> {
    let beginning = BEGINNINGS.iter().find(|words| text.starts_with(**words));
    beginning.or_else(|| CHAINS.iter().find(|words| has(text, words))).copied()
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if !PASSED_OVER.iter().any(|passed| name == *passed) {
                files(&path, into);
            }
        } else {
            into.push(path);
        }
    }
}

#[test]
fn comments_are_found_with_what_is_wrong_with_them() {
    let source = "/// The same, by name.\n///\n/// One line\n/// goes on.\nfn a() {} // of who\n";
    let found = comments(source);
    assert_eq!(found, [(1, "The same, by name.".to_owned()), (3, "One line goes on.".to_owned())]);
    assert_eq!(complaint(&found[0].1), Some("The same,"));
    assert_eq!(complaint(&found[1].1), None);
    assert_eq!(complaint("A list for who asks"), Some("for who"));
    assert_eq!(complaint("A list for whom it concerns, of whole blocks"), None);
    assert_eq!(
        comments("/** As above. */\n * of it\n\n * text"),
        [(1, "As above. of it".to_owned()), (4, "text".to_owned())]
    );
}

#[test]
fn no_comment_and_no_page_has_words_that_we_do_not_write() {
    let root = build::root();
    let mut all = Vec::new();
    files(&root, &mut all);
    let (mut looked_at, mut wrong) = (0, Vec::new());
    for path in all {
        let name = path.strip_prefix(&root).expect("below the root").display().to_string();
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        let is_source = SOURCES.contains(&end);
        if name.ends_with("xtask/src/words.rs") || !(is_source || end == "md") {
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else { continue };
        looked_at += 1;
        let parts = if is_source { comments(&text) } else { vec![(1, text.replace('\n', " "))] };
        let is_wrong = |(line, part): &(usize, String)| {
            let found = complaint(part);
            found.map(|words| format!("{name}:{line}: \"{words}\""))
        };
        wrong.extend(parts.iter().filter_map(is_wrong));
    }
    assert!(looked_at > 500, "only {looked_at} files were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
