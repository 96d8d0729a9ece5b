//! One random history through Freehold and through each of the kernel's designs at once, call by
//! call.
//!
//! Engines choose different frames, so what must agree is not where things are but what is served.
//! After every call:
//!
//! * a single frame, and every frame of a bulk call, is served by both or by neither, and by both
//!   while any frame is free (beyond the min watermark, where there is one),
//! * a larger chunk is refused only by an engine that really has no aligned run of free frames of
//!   that order,
//! * nothing that an engine hands out overlaps what it has handed out before, or leaves memory,
//! * the same allocations are live, by number, and both count the same free frames,
//! * a range can be had exactly, without moving anything, where the engine has no frame of it in
//!   use, and only there,
//! * a wrong free is refused by both, and changes nothing in either.
//!
//! And in the end, with all freed: every frame is free in both, every block whole, the largest
//! order to be had.
//!
//! `PROPTEST_CASES=2000 cargo test -p freehold-lab --release --test suite differential` looks
//! longer. A failing history is printed call by call, with the engine to blame and the number of
//! the call.

use crate::common::length::length;
use crate::replay::differential_support::CPUS;
use crate::replay::differential_support::both::{Both, Checked};
use crate::replay::differential_support::calls::{Call, call};
use crate::replay::differential_support::shape::{SHAPES, Shape};
use freehold_classic::presets;
use proptest::prelude::*;
use proptest::test_runner::{Config as RunConfig, TestRunner};

fn play(design: &str, shape: &Shape, calls: &[Call]) -> Checked {
    let mut both = Both::new(shape, design);
    for (at, &call) in calls.iter().enumerate() {
        let played = both.play(call).and_then(|()| both.check(at % 8 == 0));
        played.map_err(|what| {
            format!("call {at}, {call:?}: {what} (beside {design}, machine: {})", shape.name)
        })?;
    }
    both.finish().map_err(|what| {
        format!("after all calls: {what} (beside {design}, machine: {})", shape.name)
    })
}

fn runner(cases: u32) -> TestRunner {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let default = RunConfig::default();
    TestRunner::new(RunConfig {
        cases: if asked { default.cases } else { cases },
        failure_persistence: None,
        ..default
    })
}

#[test]
fn both_serve_the_same_histories() {
    for preset in presets() {
        let strategy =
            (prop::sample::select(SHAPES.as_slice()), prop::collection::vec(call(), 1..200));
        let result = runner(length(4, 8)).run(&strategy, |(shape, calls)| {
            play(preset.name, &shape, &calls).map_err(TestCaseError::fail)
        });
        result.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Memory is filled to the last frame and emptied again and again: what is free is scattered over
/// all CPUs then.
#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite replay:: -- --ignored"]
fn both_serve_the_last_frame() {
    for preset in ["5.17", "vanilla", "pcp-buddy-fixed"] {
        for shape in &SHAPES {
            let mut calls = Vec::new();
            for round in 0..3u16 {
                let (mut cpu, fill) =
                    (round, Call::Bulk { cpu: round % CPUS, frames: 3999, migratetype: 1 });
                calls.extend([fill; 3]);
                for _ in 0..400 {
                    cpu = (cpu + 1) % CPUS;
                    calls.push(Call::Alloc {
                        cpu,
                        order: [0, 0, 1, 3][usize::from(cpu)],
                        migratetype: usize::from(round % 3),
                        no_fragment: false,
                    });
                }
                calls.extend(
                    [Call::Bulk { cpu, frames: 30_000, migratetype: usize::from(cpu % 3) }; 2],
                );
                let free = |n: u16| Call::FreeBulk {
                    cpu: n % CPUS,
                    pick: usize::from(n * 31),
                    frames: 900,
                    step: 3,
                };
                calls.extend((0..8).map(free));
                calls.extend(
                    (0..300).map(|n| Call::Free { cpu: n % CPUS, pick: usize::from(n) * 7919 }),
                );
            }
            play(preset, shape, &calls).unwrap_or_else(|what| panic!("{what}"));
        }
    }
}
