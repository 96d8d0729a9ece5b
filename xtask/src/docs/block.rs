//! Finding blocks in a document, and comparing them with what a command prints.

use std::ops::Range;

/// The contents of the first fenced block of output behind a line with `after`.
pub(super) fn fenced(text: &str, after: &str) -> Result<Range<usize>, String> {
    let (from, ..) = behind(text, after)?.next().ok_or("no line has that text")?;
    // Where the block that is open began, and whether it is one of output; a block of commands is
    // not what they print.
    let mut open: Option<(usize, bool)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        if !line.starts_with("```") {
            continue;
        }
        match open.take() {
            None => open = Some((at, matches!(line.trim_end(), "```" | "```text"))),
            Some((begun, true)) if begun > from && start > begun => return Ok(begun..start),
            Some(_) => {}
        }
    }
    Err("there is no block of output behind that line".into())
}

/// The rows of the first table behind a line with `after`.
pub(super) fn table(text: &str, after: &str) -> Result<Range<usize>, String> {
    let mut lines = behind(text, after)?;
    let (_, start, _) = lines
        .find(|(_, _, line)| line.starts_with("|--"))
        .ok_or("there is no table behind that line")?;
    let end = lines
        .take_while(|(_, _, line)| line.starts_with('|'))
        .last()
        .map_or(start, |(_, end, _)| end);
    Ok(start..end)
}

/// The lines from the first one with `after` on, each with where it begins and where the next one
/// does.
fn behind<'t>(
    text: &'t str,
    after: &str,
) -> Result<impl Iterator<Item = (usize, usize, &'t str)>, String> {
    let mut at = 0;
    let mut lines = text.split_inclusive('\n').map(move |line| {
        let start = at;
        at += line.len();
        (start, at, line)
    });
    let first = lines.find(|(_, _, line)| line.contains(after)).ok_or("no line has that text")?;
    Ok(std::iter::once(first).chain(lines))
}

/// `text` with another block.
pub(super) fn replaced(text: &str, block: Range<usize>, new: &str) -> String {
    format!("{}{new}{}", &text[..block.start], &text[block.end..])
}

/// All of an output, without spaces at the ends of lines.
pub(super) fn whole(output: &str) -> String {
    let lines: Vec<&str> = output.trim_end().lines().map(str::trim_end).collect();
    format!("{}\n", lines.join("\n"))
}

/// Numbers of two digits and more in a table that an output does not have.
pub(super) fn numbers_missing(table: &str, output: &str) -> Vec<String> {
    let numbers = |text: &str| -> Vec<String> {
        let part = |letter: char| !(letter.is_ascii_digit() || letter == ',' || letter == '.');
        let words = text.split(part).map(|word| word.trim_matches([',', '.']).replace(',', ""));
        words.filter(|word| word.len() > 1).collect()
    };
    let printed = numbers(output);
    // The first column is a name, and names may have numbers.
    let cells = table.lines().flat_map(|row| row.split('|').skip(2));
    cells.flat_map(numbers).filter(|number| !printed.contains(number)).collect()
}

/// Sentences of a block that an output does not have, however either's lines are broken.
pub(super) fn sentences_missing(block: &str, output: &str) -> Vec<String> {
    let block = words(block);
    let sentences = block.split_inclusive(['.', '?']).scan(String::new(), |sentence, part| {
        // A dot within a number ends nothing.
        let begins = part.starts_with(' ') || sentence.is_empty();
        let whole = begins.then(|| std::mem::take(sentence));
        sentence.push_str(part);
        Some(whole.unwrap_or_default())
    });
    let mut all: Vec<String> = sentences.filter(|sentence| !sentence.is_empty()).collect();
    let said: usize = all.iter().map(String::len).sum();
    all.push(block[said..].to_owned());
    all.retain(|sentence| !has_words(output, sentence));
    all
}

/// What a text says, however its lines are broken and whatever of it is bold.
pub(super) fn words(text: &str) -> String {
    text.replace("**", "").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a document says something. A figure at either end is no part of a longer one.
pub(super) fn has_words(text: &str, said: &str) -> bool {
    let (text, said) = (words(text), words(said));
    let is_digit = |letter: char| letter.is_ascii_digit();
    let (begins, ends) = (said.starts_with(is_digit), said.ends_with(is_digit));
    text.match_indices(&said).any(|(at, _)| {
        let (before, behind) = (&text[..at], &text[at + said.len()..]);
        let goes_on = behind.trim_start_matches([',', '.']).starts_with(is_digit);
        let began = before.ends_with(|letter| is_digit(letter) || ",.".contains(letter));
        !(begins && began || ends && goes_on)
    })
}

/// The lines in which two texts differ.
pub(super) fn difference(old: &str, new: &str) -> String {
    let differing = old.lines().zip(new.lines()).filter(|(old, new)| old != new);
    let differing: Vec<_> = differing.map(|(old, new)| format!("  - {old}\n  + {new}")).collect();
    let (before, after) = (old.lines().count(), new.lines().count());
    let length =
        if before == after { String::new() } else { format!("  ({before} lines, now {after})\n") };
    format!("{length}{}", differing.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "intro\n```sh\nfreehold x\n```\n\n```text\nold 1\n```\n\n| a | b \
                        |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\nend\n";

    #[test]
    fn blocks_are_found_behind_their_line() {
        assert_eq!(&TEXT[fenced(TEXT, "freehold x").unwrap()], "old 1\n");
        assert_eq!(&TEXT[table(TEXT, "intro").unwrap()], "| 1 | 2 |\n| 3 | 4 |\n");
        assert!(fenced(TEXT, "end").is_err() && table(TEXT, "nowhere").is_err());
        let block = fenced(TEXT, "intro").unwrap();
        assert_eq!(replaced(TEXT, block, "new\n").replace("new", "old 1"), TEXT);
    }

    #[test]
    fn words_are_found_across_lines() {
        assert!(has_words("It takes **1,234 to\n5,678** steps.", "takes 1,234 to 5,678 steps"));
        assert!(!has_words("It takes 1,234 to\n5,679 steps.", "takes 1,234 to 5,678 steps"));
        assert!(has_words("a. 23 and 12.", "23 and 12") && has_words("23, 12, 4", "23, 12"));
        for wrong in ["123 and 12", "1,23 and 12", ".23 and 12", "23 and 124", "23 and 12.4"] {
            assert!(!has_words(wrong, "23 and 12"), "{wrong}");
        }
    }

    #[test]
    fn sentences_that_nobody_prints_are_found() {
        let output = "Fewest: a, 0.5 (-1.5% of\n  6.18's 3.2).\nIs it? No: by b, 3.\nMore.\n";
        let block = "Fewest: a, 0.5 (-1.5% of 6.18's\n3.2).\nIs it? No: by b, 3.\n";
        assert!(sentences_missing(block, output).is_empty());
        let missing = |old, new| sentences_missing(&block.replace(old, new), output);
        assert_eq!(missing("3.2", "3.3"), ["Fewest: a, 0.5 (-1.5% of 6.18's 3.3)."]);
        assert_eq!(missing("b, 3", "b, 4"), [" No: by b, 4."]);
    }

    #[test]
    fn numbers_that_nobody_prints_are_found() {
        let output = "vanilla   1,234   0.5 %\nother  77";
        assert!(
            numbers_missing("| of 99 | **1,234**, 77 | 5 |\n| b | .5 | 0.5 |\n", output).is_empty()
        );
        assert_eq!(numbers_missing("| a | 1,235 | 78 |\n", output), ["1235", "78"]);
    }
}
