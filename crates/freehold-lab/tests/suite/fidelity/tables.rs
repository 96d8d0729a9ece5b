//! Tables at 80 to 160 columns and without a terminal: they fit, and no name and no number
//! is broken.

use crate::common::tables::{WIDTHS, assert_whole};

use crate::fidelity::fidelity;

/// What a command prints, at most so wide.
fn printed(arguments: &[&str], columns: Option<u16>) -> String {
    let mut command = fidelity();
    command.args(arguments);
    if let Some(columns) = columns {
        command.env("COLUMNS", columns.to_string());
    }
    let done = command.assert().success();
    String::from_utf8(done.get_output().stdout.clone()).expect("UTF-8")
}

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/recorded/ticks/sort.parquet");

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite fidelity:: -- --ignored"]
fn an_engine_beside_the_kernel() {
    let command = ["--no-progress", "-e", "6.18,-free-high-half", TRACE];
    let wide = printed(&[&command[..], &["--wide"]].concat(), None);
    for width in WIDTHS {
        assert_whole(&printed(&command, Some(width)), &wide, width);
    }
    // Without a terminal.
    assert_whole(&printed(&command, None), &wide, 120);
}
