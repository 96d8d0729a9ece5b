//! Both modes' tables at 80 to 160 columns and without a terminal: they fit, and no name and no number
//! is broken.

use freehold_testkit::tables::{WIDTHS, assert_whole};

use crate::modes;

/// What a command prints, at most so wide.
fn printed(arguments: &[&str], columns: Option<u16>) -> String {
    let mut command = modes();
    command.args(arguments);
    if let Some(columns) = columns {
        command.env("COLUMNS", columns.to_string());
    }
    let done = command.assert().success();
    String::from_utf8(done.get_output().stdout.clone()).expect("UTF-8")
}

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/recorded/ticks/sort.parquet");

#[test]
fn a_replay_on_threads() {
    use freehold_labkit::engines::MachineConfig;
    use freehold_labkit::replay::{Beginning, NamedEngine, Recorded, ReplayOptions, survey};
    use freehold_labkit::report::table::{Columns, Style};
    use freehold_replay_modes::threads::{build, render, replay_on_threads};
    use freehold_testkit::replays::{alloc, free};

    let of = |n: u64| ((n % 2) as u16, 0x1000 + n * 16, (n % 4) as u8);
    let events =
        (0..600).map(|n| (n, of(n))).map(|(ms, (cpu, pfn, order))| alloc(ms, cpu, pfn, order));
    let frees =
        (0..400).map(|n| (600 + n, of(n))).map(|(ms, (cpu, pfn, order))| free(ms, cpu, pfn, order));
    let trace =
        Recorded { name: "a-trace-with-a-name".into(), events: events.chain(frees).collect() };
    let survey = survey(&trace, false, |_, _| {}).expect("memory can be read");
    let machine = MachineConfig::new(1 << 16, 2);
    let names = [
        "5.17",
        "vanilla",
        "pcp-buddy",
        "pcp-buddy-fixed",
        "pcp-buddy-fixed,-merge",
        "freehold,owned",
    ];
    let engines = names.map(|name| NamedEngine {
        name: name.to_owned(),
        engine: build(&name.parse().expect("a name"), &machine).expect("it suits"),
    });
    let options = ReplayOptions { cpus: 2, warm: false, jobs: 1, samples: 10, memory_maps: 0 };
    let (beginning, frames) = (Beginning::default(), machine.memory_frames);
    let (replay, threads) =
        replay_on_threads(beginning, &trace, &survey, &engines, frames, options, 0.1)
            .expect("memory can be read");
    let wide = render(&replay, &threads, Style { columns: Columns::All, ..Style::plain(80) });
    for width in WIDTHS {
        let text = render(&replay, &threads, Style::plain(width));
        assert_whole(&text, &wide, width);
        assert!(!text.contains("Not shown"), "engines are shown in several tables: {text}");
    }
}

#[test]
#[ignore = "long: cargo test -p freehold-replay-modes --test suite -- --ignored"]
fn an_engine_beside_the_kernel() {
    let command = ["fidelity", "--no-progress", "-e", "6.18,-free-high-half", TRACE];
    let wide = printed(&[&command[..], &["--wide"]].concat(), None);
    for width in WIDTHS {
        assert_whole(&printed(&command, Some(width)), &wide, width);
    }
    // Without a terminal.
    assert_whole(&printed(&command, None), &wide, 120);
}
