//! That tables fit the terminal and break no name and no number.

use std::collections::BTreeSet;

use assert_cmd::Command;

/// The widths of terminals that every table is looked at in.
pub const WIDTHS: [u16; 5] = [60, 80, 100, 120, 160];

/// Asserts that no line of `text` is wider than the terminal, and that every word in it is one of
/// the same table with all its columns, `wide`: a name or a number that is broken is two other
/// words. What is said of columns left out is looked at for its width alone.
///
/// # Panics
///
/// With the line or the word that is wrong, and the table.
pub fn assert_whole(text: &str, wide: &str, width: u16) {
    for line in text.lines() {
        let columns = line.chars().count();
        assert!(columns <= usize::from(width), "{columns} columns of {width}: {line}\n{text}");
    }
    let whole: BTreeSet<&str> = wide.split_whitespace().collect();
    let mut note = false;
    for line in text.lines().filter(|line| !line.starts_with(['─', '═'])) {
        note |= line.starts_with("Not shown: ");
        for word in line.split_whitespace().filter(|_| !note) {
            assert!(whole.contains(word), "{width}: '{word}' is a piece of a word\n{text}");
        }
        note &= !line.ends_with("some.");
    }
}

/// Asserts that of what a command prints in each terminal, and without one in 120 columns.
pub fn assert_printed(command: impl Fn() -> Command) {
    let printed = |wide: bool, columns: Option<u16>| {
        let mut command = command();
        command.args(wide.then_some("--wide")).env_remove("COLUMNS");
        command.envs(columns.map(|columns| ("COLUMNS", columns.to_string())));
        super::printed(&mut command)
    };
    let wide = printed(true, None);
    for width in WIDTHS {
        assert_whole(&printed(false, Some(width)), &wide, width);
    }
    assert_whole(&printed(false, None), &wide, 120);
}
