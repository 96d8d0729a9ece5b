//! Instructions that a document names, against those that callgrind counts.
//!
//! ```text
//!  "says": "{PageByPage} page by page, {Batched} in batches"        each hole is what the program is called with
//!             |                          |
//!     valgrind --tool=callgrind PROGRAM PageByPage                  counted inside the function that "toggle" names,
//!             |                                                     divided by "per"
//!     "11,309 page by page, ..." in the document                    within 2 %: another compiler inlines otherwise
//! ```

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::block::words;

/// How far a figure may be off, in parts of a hundred.
const TOLERANCE: u64 = 2;

/// What is counted, and of which program.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Callgrind {
    /// Below the folder that cargo builds into.
    program: String,
    /// The function inside which instructions count, as `--toggle-collect` takes it.
    toggle: String,
    /// How often it does what the figure is of.
    per: u64,
}

impl Callgrind {
    /// Whether there is a valgrind.
    pub(super) fn is_there() -> bool {
        Command::new("valgrind").arg("--version").output().is_ok_and(|done| done.status.success())
    }

    /// What is wrong with the figures of a document, each with what was counted.
    pub(super) fn differences(
        &self,
        target: &Path,
        text: &str,
        says: &str,
    ) -> Result<Vec<String>, String> {
        let figures = figures(text, says)
            .ok_or_else(|| format!("the document does not say '{says}' with any figures"))?;
        let mut different = Vec::new();
        for (arguments, said) in figures {
            let counted = self.count(target, &arguments)?;
            if said.abs_diff(counted) * 100 > counted * TOLERANCE {
                different.push(format!("{arguments}: {counted}, not {said}"));
            }
        }
        Ok(different)
    }

    fn count(&self, target: &Path, arguments: &str) -> Result<u64, String> {
        let program = target.join(&self.program);
        let done = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
            .arg(format!("--toggle-collect={}", self.toggle))
            .arg(&program)
            .args(arguments.split_whitespace())
            .output()
            .map_err(|error| format!("valgrind: {error}"))?;
        let told = String::from_utf8_lossy(&done.stderr);
        collected(&told)
            .filter(|_| done.status.success())
            .map(|all| all / self.per.max(1))
            .ok_or_else(|| format!("{} {arguments} under valgrind: {told}", program.display()))
    }
}

/// The instructions that callgrind says it has collected.
fn collected(told: &str) -> Option<u64> {
    let line = told.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// The figures in the holes of `says` where a document says that, each with its hole's text.
fn figures(text: &str, says: &str) -> Option<Vec<(String, u64)>> {
    let (text, says) = (words(text), words(says));
    let (first, rest) = says.split_once('{')?;
    text.match_indices(first).find_map(|(at, _)| {
        let (mut text, mut says) = (&text[at + first.len()..], rest);
        let mut found = Vec::new();
        loop {
            let (hole, behind) = says.split_once('}')?;
            let end = text.find(|letter: char| !(letter.is_ascii_digit() || letter == ','));
            let number = text[..end.unwrap_or(text.len())].trim_end_matches(',');
            found.push((hole.to_owned(), number.replace(',', "").parse().ok()?));
            text = &text[number.len()..];
            let (literal, next) =
                behind.split_once('{').map_or((behind, None), |(a, b)| (a, Some(b)));
            text = text.strip_prefix(literal)?;
            match next {
                Some(next) => says = next,
                None => return Some(found),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_across_lines_and_commas() {
        let text = "It takes **11,309**\npage by page, 2,128, batched.";
        let found = figures(text, "takes {PageByPage} page by page, {Batched big}, batched");
        let expected = [("PageByPage".to_owned(), 11_309), ("Batched big".to_owned(), 2_128)];
        assert_eq!(found.as_deref(), Some(&expected[..]));
        assert_eq!(figures(text, "takes {PageByPage} flushes"), None);
        assert_eq!(figures(text, "takes two"), None, "no hole");
    }

    #[test]
    fn callgrind_says_what_it_has_collected() {
        let told = "==1== Events    : Ir\n==1== Collected : 23161234\n==1== \n";
        assert_eq!(collected(told), Some(23_161_234));
        assert_eq!(collected("==1== nothing"), None);
    }
}
