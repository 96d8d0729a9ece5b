//! Every operation, right and wrong, on every design and odd machines, against a set of frames.
//!
//! `PROPTEST_CASES=5000 cargo test -p freehold-classic --release --test suite model_ops` looks
//! longer, and CI's step `histories` plays 300 of each. What fails is kept in
//! `model_ops.proptest-regressions` and tried first.

use crate::model_support::Model;
use crate::model_support::machine::{SHAPES, machine};
use crate::model_support::steps::{Step, step};
use freehold_classic::{Classic, Design, Switch, presets};
use proptest::prelude::*;
use proptest::test_runner::{Config as RunConfig, FileFailurePersistence, TestRunner};

fn play(design: &str, shape: usize, steps: &[Step]) {
    let design = Design::parse(design).unwrap();
    let on = design.switches;
    let config = machine(design, shape);
    let mut model = Model::new(&config);
    let classic = Classic::new(config).unwrap();
    for (i, step) in steps.iter().enumerate() {
        model.apply(&classic, on, step);
        if i % 8 == 0 {
            model.check(&classic);
        }
    }
    model.check(&classic);
    model.finish(&classic);
}

fn runner(cases: u32) -> TestRunner {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let default = RunConfig::default();
    TestRunner::new(RunConfig {
        cases: if asked { default.cases } else { cases },
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/suite/model_ops.proptest-regressions",
        ))),
        ..default
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..250)
}

fn run_preset(name: &'static str) {
    // Twice as many where `FREEHOLD_SECONDS` gives them the time, as in CI.
    let has_time = std::env::var_os("FREEHOLD_SECONDS").is_some_and(|seconds| seconds != "0");
    let result =
        runner(if has_time { 16 } else { 8 }).run(&(0..SHAPES, steps()), |(shape, steps)| {
            play(name, shape, &steps);
            Ok(())
        });
    result.unwrap_or_else(|error| panic!("{name}: {error}"));
}

macro_rules! presets_hold {
    ($($test:ident = $preset:literal,)*) => {
        $(#[test] fn $test() { run_preset($preset); })*

        #[test]
        fn no_preset_is_left_out() {
            let tested = [$($preset),*];
            assert!(presets().iter().all(|preset| tested.contains(&preset.name)));
        }
    };
}

presets_hold! {
    linux_5_17 = "5.17",
    linux_5_17_patch_1 = "5.17+1",
    linux_5_17_patch_2 = "5.17+2",
    linux_5_17_patch_3 = "5.17+3",
    linux_5_17_patch_4 = "5.17+4",
    linux_5_18 = "5.18",
    linux_6_18 = "6.18",
    linux_7_1 = "7.1",
    linux_7_2 = "7.2",
    linux_7_3 = "7.3",
    pcp_buddy = "pcp-buddy",
    pcp_buddy_fixed = "pcp-buddy-fixed",
    linux_6_18_sparing = "6.18,+least-drain,+defrag-mode",
    pcp_buddy_fixed_sparing = "pcp-buddy-fixed,+least-drain,+defrag-mode",
    single_frames_merged = "7.2,-high-order-pcp,+merge-unowned",
    pcp_buddy_questions = "pcp-buddy,+peer-blocks,+merge-unowned,+targeted-drain",
    pcp_buddy_fixed_questions = "pcp-buddy-fixed,+peer-blocks,+merge-unowned,+targeted-drain",
}

/// A preset with some changes on that it does not have and some off that it has.
fn mixed_design() -> impl Strategy<Value = String> {
    let switch = (prop::sample::select(Switch::ALL), prop::bool::ANY);
    (prop::sample::select(presets()), prop::collection::vec(switch, 1..8)).prop_map(
        |(preset, switches)| {
            let switches = switches
                .iter()
                .map(|(switch, on)| format!(",{}{switch}", if *on { '+' } else { '-' }));
            preset.name.to_owned() + &switches.collect::<String>()
        },
    )
}

#[test]
fn any_mixture_of_switches_holds() {
    let result = runner(48).run(&(mixed_design(), 0..SHAPES, steps()), |(design, shape, steps)| {
        play(&design, shape, &steps);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
