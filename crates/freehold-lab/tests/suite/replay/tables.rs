//! Every table of `freehold` at 80, 100 and 120 columns and without a terminal: it fits, and no
//! name and no number is broken.

use crate::common::replays::{alloc, free};
use crate::common::tables::{WIDTHS, assert_printed, assert_whole};
use freehold_lab::engines::{self, MachineConfig};
use freehold_lab::replay::{
    Beginning, NamedEngine, Recorded, Replay, ReplayOptions, replay, survey,
};
use freehold_lab::tables::table::{self, Columns, Style};

const ENGINES: [&str; 6] =
    ["5.17", "vanilla", "pcp-buddy", "pcp-buddy-fixed", "pcp-buddy-fixed,-merge", "freehold"];

/// A small replay through engines with long names.
fn replayed() -> Replay {
    let mut events = Vec::new();
    for n in 0..600 {
        events.push(alloc(n, (n % 2) as u16, 0x1000 + n * 16, (n % 4) as u8));
    }
    for n in 0..400 {
        events.push(free(600 + n, (n % 2) as u16, 0x1000 + n * 16, (n % 4) as u8));
    }
    let trace = Recorded { name: "a-trace-with-a-name".into(), events };
    let survey = survey(&trace, false, |_, _| {}).expect("memory can be read");
    let machine = MachineConfig::new(1 << 16, 2);
    let named = |name: &str| NamedEngine {
        name: name.to_owned(),
        engine: engines::build(&name.parse().expect("a name"), &machine)
            .expect("it suits the machine"),
    };
    let engines = ENGINES.map(named);
    let options = ReplayOptions { cpus: 2, warm: false, jobs: 1, samples: 10 };
    let (beginning, frames) = (Beginning::default(), machine.memory_frames);
    replay(beginning, &trace, &survey, &engines, frames, options, |_, _| {})
        .expect("memory can be read")
}

fn assert_table(render: impl Fn(Style) -> String) {
    let wide = render(Style { columns: Columns::All, ..Style::plain(80) });
    for width in WIDTHS {
        let text = render(Style::plain(width));
        assert_whole(&text, &wide, width);
        assert!(!text.contains("Not shown"), "engines are shown in several tables: {text}");
    }
}

#[test]
fn a_replay() {
    let serial = replayed();
    assert_table(|style| table::render(&serial, style));
}

#[test]
fn engines_are_listed() {
    assert_printed(|| {
        let mut command = crate::common::freehold();
        command.arg("engines");
        command
    });
}
