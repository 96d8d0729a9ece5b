//! Every table of `freehold` at 80, 100 and 120 columns and without a terminal: it fits, and no
//! name and no number is broken.

use crate::common::replays::{alloc, free, named, through};
use crate::common::tables::{WIDTHS, assert_printed, assert_whole};
use freehold_lab::engines::MachineConfig;
use freehold_lab::replay::{Recorded, Replay};
use freehold_lab::tables::table::{self, Style};

const ENGINES: [&str; 6] =
    ["5.17", "vanilla", "pcp-buddy", "pcp-buddy-fixed", "pcp-buddy-fixed,-merge", "freehold"];

/// A small replay through engines with long names.
fn replayed() -> Replay {
    let of = |n: u64| ((n % 2) as u16, 0x1000 + n * 16, (n % 4) as u8);
    let alloc = |(n, (cpu, pfn, size))| alloc(n, cpu, pfn, size);
    let free = |(n, (cpu, pfn, size))| free(600 + n, cpu, pfn, size);
    let allocs = (0..600).map(|n| alloc((n, of(n))));
    let events = allocs.chain((0..400).map(|n| free((n, of(n))))).collect();
    let trace = Recorded { name: "a-trace-with-a-name".into(), events };
    let machine = MachineConfig::new(1 << 16, 2);
    through(&trace, &named(ENGINES, &machine), &machine)
}

#[test]
fn a_replay() {
    let replay = replayed();
    let wide = table::render(&replay, Style { wide: true, ..Style::plain(80) });
    for width in WIDTHS {
        let text = table::render(&replay, Style::plain(width));
        assert_whole(&text, &wide, width);
        assert!(!text.contains("Not shown"), "engines are shown in several tables: {text}");
    }
}

#[test]
fn engines_are_listed() {
    assert_printed(|| {
        let mut command = crate::common::freehold();
        command.arg("engines");
        command
    });
}
