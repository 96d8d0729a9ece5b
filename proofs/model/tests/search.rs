//! The search finds nothing wrong with the protocol as it is, and each defect that is planted in
//! it.
//!
//! `docs/model.md` says what the settings mean, and what the long searches came to.

use freehold_model::search::DEFECTS;
use freehold_model::wide::Breadth;
use freehold_model::{Defect, Settings};

/// Runs a search that must find nothing.
fn sound(name: &str, settings: &Settings) {
    let found = settings.search(threads());
    println!(
        "{name}: {} worlds, {} different, {} steps deep, {:.1} s",
        found.states, found.unique, found.depth, found.seconds
    );
    if let Some((what, steps)) = found.wrong {
        panic!("{what}\n  {}", steps.join("\n  "));
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Two CPUs and a block: calls one after the other in every order, to the end of what there is.
#[test]
fn every_order_of_calls() {
    let plain = Settings { hints: false, budget: [0; 4], ..Settings::small() };
    sound("allocations and frees", &Settings { hints: true, ..plain.clone() });
    sound("with wrong frees", &Settings { hints: true, budget: [1, 0, 0, 0], ..plain.clone() });
    sound("with a CPU that goes", &Settings { budget: [0, 1, 0, 0], ..plain.clone() });
    sound(
        "with memory that goes",
        &Settings { hints: true, budget: [0, 0, 1, 0], ..plain.clone() },
    );
    sound("with whole blocks", &Settings { whole: true, ..plain.clone() });
    sound("three CPUs in two groups", &Settings { cpus: 3, ..plain });
}

/// Everything that the model has, every interleaving, as deep as a few seconds go.
#[test]
fn every_interleaving_of_everything_for_a_while() {
    let budget = [1, 1, 1, 255];
    let settings =
        Settings { cpus: 3, blocks: 2, budget, whole: true, depth: 9, ..Settings::small() };
    sound("three CPUs, two groups, two blocks", &settings);
    sound("two CPUs, a block", &Settings { budget, whole: true, depth: 16, ..Settings::small() });
}

/// One call may be interrupted anywhere, once, by any number of calls of the other CPU; some
/// minutes.
#[test]
#[ignore = "takes minutes"]
fn every_order_of_calls_with_a_preemption() {
    sound(
        "allocations and frees",
        &Settings { hints: false, budget: [0, 0, 0, 1], ..Settings::small() },
    );
}

/// The search that remembers fingerprints only comes by the same worlds.
#[test]
fn both_searches_find_the_same_worlds() {
    let budget = [1, 1, 1, 0];
    for settings in [
        Settings { budget: [0; 4], ..Settings::small() },
        Settings { budget, whole: true, ..Settings::small() },
    ] {
        let (all, wide) = (settings.search(threads()), settings.search_wide(u64::MAX, |_| ()));
        assert!(wide.ended && wide.wrong.is_none(), "{wide:?}");
        assert_eq!(all.unique as u64, wide.unique());
    }
}

/// What `FREEHOLD_MODEL` asks for: CPUs, blocks, wrong frees, hotplugs, isolations, preemptions,
/// hints, whole blocks, depth; all numbers. `FREEHOLD_DEFECT` plants one.
fn asked() -> (String, Settings) {
    let asked = std::env::var("FREEHOLD_MODEL").expect("FREEHOLD_MODEL says what to search");
    let n: Vec<usize> = asked.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let &[cpus, blocks, wrong, hotplugs, isolations, preemptions, hints, whole, depth] =
        n.as_slice()
    else {
        panic!("FREEHOLD_MODEL has {} numbers, and should have nine", n.len())
    };
    let budget = [wrong, hotplugs, isolations, preemptions].map(|n| n as u8);
    let (cpus, blocks, hints, whole) = (cpus as u8, blocks as u8, hints != 0, whole != 0);
    let defect = std::env::var("FREEHOLD_DEFECT").ok().map(|name| {
        let all = DEFECTS.into_iter().chain([Defect::TransitUnmarked]);
        all.into_iter().find(|d| format!("{d:?}") == name).expect("there is no defect of that name")
    });
    (asked, Settings { cpus, blocks, budget, leases: 1, hints, whole, depth, defect })
}

#[test]
#[ignore = "for long searches by hand"]
fn as_asked() {
    let (name, settings) = asked();
    sound(&name, &settings);
}

/// Three CPUs in two groups, two blocks, robbing, whole blocks and a CPU that goes: to the end. CI
/// runs it.
#[test]
#[ignore = "takes a minute or two"]
fn every_order_of_calls_of_three_cpus() {
    let budget = [0, 1, 0, 0];
    let settings =
        Settings { cpus: 3, blocks: 2, budget, hints: false, whole: true, ..Settings::small() };
    assert!(
        wide("three CPUs, two groups, two blocks", &settings, u64::MAX).ended,
        "the search did not come to its end"
    );
}

/// As far as `FREEHOLD_WORLDS` different ones, at 12 to 24 bytes each and what two layers take.
#[test]
#[ignore = "for long searches by hand"]
fn as_asked_wide() {
    let (name, settings) = asked();
    let most = std::env::var("FREEHOLD_WORLDS")
        .map_or(400_000_000, |n| n.parse().expect("FREEHOLD_WORLDS is a number"));
    wide(&name, &settings, most);
}

/// Runs a search that remembers fingerprints and must find nothing.
fn wide(name: &str, settings: &Settings, most: u64) -> Breadth {
    let found = settings.search_wide(most, |so_far| {
        let (unique, last) = (so_far.unique(), so_far.layers.last().unwrap());
        println!(
            "  {:4} steps: {last} worlds, {unique} in all, {:.0} s",
            so_far.layers.len() - 1,
            so_far.seconds
        );
    });
    println!(
        "{name}: {} worlds, {} different, {} steps deep, {:.1} s, {}",
        found.states,
        found.unique(),
        found.layers.len() - 1,
        found.seconds,
        if found.ended { "to the end" } else { "NOT to the end" }
    );
    if let Some((what, world)) = &found.wrong {
        panic!("{what}\n{world:#?}");
    }
    found
}

#[test]
fn each_planted_defect_is_found() {
    for defect in DEFECTS {
        let found = smallest_that_shows(defect).search(threads());
        let Some((what, steps)) = found.wrong else {
            panic!("{defect:?} is not found in {} worlds", found.unique)
        };
        println!(
            "{defect:?}: {what}, after {} steps, {} worlds, {:.1} s",
            steps.len(),
            found.unique,
            found.seconds
        );
    }
}

/// Settings small enough to be quick and large enough to show it.
fn smallest_that_shows(defect: Defect) -> Settings {
    let plain = Settings { hints: false, defect: Some(defect), ..Settings::small() };
    match defect {
        Defect::OfflineWithoutLook => Settings { budget: [0, 1, 0, 2], ..plain },
        Defect::LookAfterPut => Settings { budget: [1, 0, 0, 2], ..plain },
        Defect::NoLookAtTheWord => Settings { budget: [1, 0, 0, 2], ..plain },
        Defect::HintWithoutLook => Settings { hints: true, ..plain },
        Defect::OthersKeepWholeBlocks => Settings { cpus: 3, budget: [0; 4], whole: true, ..plain },
        Defect::NoPassThroughTheDoors => Settings { budget: [0, 0, 1, 2], hints: true, ..plain },
        Defect::IsolationWaitsForALook => {
            Settings { cpus: 3, budget: [0, 0, 2, 0], whole: true, ..plain }
        }
        Defect::AnnounceLooksOnce => Settings { budget: [0, 0, 0, 2], whole: true, ..plain },
        Defect::AnnounceBeforePut | Defect::ClassAfterWords => {
            Settings { budget: [0, 0, 0, 1], ..plain }
        }
        // One leases a word while its block is being split, and a third frees what it got before
        // the tag says so.
        Defect::LeaseWithoutLook => Settings { cpus: 3, budget: [0, 0, 0, 2], ..plain },
        _ => plain,
    }
}
