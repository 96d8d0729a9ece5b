//! The rules of the kernel's design and the claims of the proposals: tables of (preset, calls,
//! counts), one text a subject beside this file.
//!
//! ```text
//!   = A rule, in words.
//!     machine 4 zone                        calls, the same for every row: see `play.rs`
//!     take 0 movable into=a; put a
//!   5.18 | 7.2: zone.merges=10              a row: presets, and what they must say: see `ask.rs`
//!   *: failed=0                             all presets; a line that ends with \ goes on
//!   7.2,-type-hygiene: $n=3 type.movable=1  $n stands for 3 in the calls, in this row
//!   let two                                 calls with a name, for `do two` in rules below
//!     machine 2; take 9 movable x2 into=a
//! ```
//!
//! One thread plays all CPUs, so that every count is exact. Watermarks are zero unless a machine is
//! given some, so that all memory can be handed out. Frames are named by their distance from the
//! zone's start: `@512`. A row that is wrong is printed with what is the case instead, and all rows
//! are tried before a table fails.

mod ask;
mod lists;
mod play;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use freehold_classic::presets;
use play::Player;

/// A rule under way: its words and its calls.
#[derive(Default)]
struct Rule {
    words: String,
    calls: Vec<String>,
}

impl Rule {
    /// Plays the rule for one preset; what is wrong.
    fn play(&self, preset: &str, row: &str) -> Vec<String> {
        let (mut calls, mut checks) = (self.calls.clone(), Vec::new());
        for word in row.split_whitespace() {
            match word.strip_prefix('$').and_then(|word| word.split_once('=')) {
                Some((name, value)) => {
                    let name = format!("${name}");
                    calls.iter_mut().for_each(|call| *call = call.replace(&name, value));
                }
                None => checks.push(word),
            }
        }
        let played = catch_unwind(AssertUnwindSafe(|| {
            let mut player = Player::new(preset);
            player.play(&calls);
            checks.iter().for_each(|check| player.check(check));
            player.wrong
        }));
        played.unwrap_or_else(|_| vec!["it panicked, see above".to_owned()])
    }
}

/// Plays all rows of a table.
fn table(text: &str) {
    let (mut rule, mut rows, mut wrong) = (Rule::default(), 0, Vec::new());
    let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let text = text.split(" \\\n").map(str::trim_start).collect::<Vec<_>>().join(" ");
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(words) = line.strip_prefix("= ").or(line.strip_prefix("let ")) {
            rule = Rule { words: words.to_owned(), calls: Vec::new() };
        } else if let Some(calls) = line.strip_prefix("  ") {
            for call in calls.split(';').map(str::trim) {
                match call.strip_prefix("do ") {
                    Some(name) => rule.calls.extend(named[name].iter().cloned()),
                    None => rule.calls.push(call.to_owned()),
                }
            }
            named.insert(rule.words.clone(), rule.calls.clone());
        } else {
            let (names, row) = line.split_once(':').unwrap_or_else(|| panic!("a row? {line}"));
            let all = presets().iter().map(|preset| preset.name);
            let names = match names {
                "*" => all.collect::<Vec<_>>(),
                names => names.split('|').map(str::trim).collect(),
            };
            for preset in names {
                rows += 1;
                let found = rule.play(preset, row);
                wrong
                    .extend(found.iter().map(|what| format!("{}\n  {preset}: {what}", rule.words)));
            }
        }
    }
    assert!(rows > 0, "a table without rows");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            table(include_str!(concat!(stringify!($name), ".txt")));
        }
    )*};
}

tables! {
    /// What the zone takes, where the rest goes, what joins, and where it is put.
    buddy
    /// What a type that has nothing left takes from the others.
    fallback
    /// Who may use which part of a zone's memory: watermarks, reserves, HIGHATOMIC, CMA.
    reserve
    /// The lists of one CPU: in which order frames come and go, how much it takes and keeps.
    pcp
    /// Who gives frames back to the zone, and when.
    drain
    /// Many single frames freed at once, and splitting.
    range
    /// One particular range: isolation, migration, and undoing all of it.
    contig
    /// From a machine that a set-up has used to one that begins.
    setup
    /// "Follow-up on high-order PCP caching", February 2022.
    high_order_pcp
    /// "Free contiguous order-0 pages efficiently", January 2026.
    contiguous_free
    /// "pcp buddy allocator", April 2026: what each part of the RFC claims.
    pcp_buddy
    /// What reviewers found wrong with it, what was found here, and each repair.
    pcp_buddy_review
    /// What it leaves open, each question a switch.
    pcp_buddy_questions
}
