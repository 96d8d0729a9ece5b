//! `freehold contiguity --random`: what is drawn, how engines are put beside the first,
//! and what the gate says.

use std::collections::BTreeSet;

use crate::common::{assert_refused, document_of, freehold, text};
use assert_cmd::Command;
use freehold_lab::contiguity::{
    ByOrder, Cell, Comparison, DRAWN, DRAWN_IF_NAMED, Draw, Figures, Scenario, TOLERANCE, Workload,
};
use predicates::str::contains;

const MIB: u64 = 256;

fn draw(cells: u16, seed: u64, quick: bool) -> Draw {
    Draw {
        cells,
        seed,
        quick,
        workloads: DRAWN.to_vec(),
        seeds: vec![1],
        engines: vec!["vanilla".parse().unwrap()],
        allocations: 1000,
        moves: false,
    }
}

#[test]
fn what_is_drawn_keeps_within_its_limits_and_reaches_all_of_them() {
    for (quick, most) in [(false, 128 << 10), (true, 2 << 10)] {
        let all = draw(2000, 5, quick).scenarios();
        assert_eq!(all.len(), 2000);
        for one in &all {
            let mib = one.frames / MIB;
            assert!(one.frames % 1024 == 0 && (4..=most).contains(&mib), "{one:?}");
            let a_cpu = mib as f64 / f64::from(one.cpus);
            let used = one.used_percent.unwrap_or(0);
            let ok = match one.workload {
                Workload::KernelBuildLike => used == 0,
                Workload::Aging => (30..=85).contains(&used),
                _ => one.cpus == 2 && (64..=4096).contains(&mib) && (10..=80).contains(&used),
            };
            // Rounded to 4 MiB, which is much on one CPU.
            assert!(ok && (one.cpus <= 2 || (1.5..=1030.0).contains(&a_cpu)), "{one:?}");
        }
        let cpus: BTreeSet<u16> = all.iter().map(|one| one.cpus).collect();
        let wanted = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024];
        assert_eq!(cpus, BTreeSet::from(wanted));
        for workload in DRAWN {
            let of = |one: &&Scenario| one.workload == workload;
            assert!(all.iter().filter(of).count() > 500, "{workload}");
        }
        // As many below the geometric mean of 2 MiB and 1 GiB as above it.
        if !quick {
            let few = all.iter().filter(|one| one.cpus <= 64 && one.workload == Workload::Aging);
            let (below, above): (Vec<_>, Vec<_>) =
                few.partition(|one| one.frames / u64::from(one.cpus) < 45 * MIB);
            assert!(below.len().abs_diff(above.len()) < (below.len() + above.len()) / 5);
        }
    }
}

#[test]
fn loads_that_fill_memory_are_drawn_where_they_are_named() {
    let full = Draw { workloads: DRAWN_IF_NAMED.to_vec(), moves: true, ..draw(500, 5, false) };
    for one in full.scenarios() {
        let used = one.used_percent.unwrap_or(0);
        assert!((24..=64 << 10).contains(&(one.frames / MIB)) && (20..=98).contains(&used));
        assert!(one.moves && one.allocations >= 2 * one.frames, "{one:?}");
    }
}

#[test]
fn a_seed_brings_the_same_cells_and_more_of_them_begin_with_the_fewer() {
    let dozen = draw(12, 7, false).scenarios();
    assert_eq!(dozen, draw(12, 7, false).scenarios());
    assert_eq!(dozen[..], draw(40, 7, false).scenarios()[..12]);
    assert_ne!(dozen, draw(12, 8, false).scenarios());
    let twice = Draw {
        seeds: vec![1, 2],
        engines: ["vanilla", "freehold"].map(|name| name.parse().unwrap()).to_vec(),
        ..draw(12, 7, false)
    };
    let all = twice.scenarios();
    assert_eq!(all.len(), 12 * 2 * 2);
    let first: Vec<_> = all[..4].iter().map(|one| (one.seed, one.engine.name())).collect();
    assert_eq!(first, [(1, "vanilla"), (1, "freehold"), (2, "vanilla"), (2, "freehold")]);
}

#[test]
fn no_place_is_drawn_twice() {
    let all = Draw { workloads: vec![Workload::TwoCpuMix], ..draw(10_000, 3, true) }.scenarios();
    let places: BTreeSet<_> = all.iter().map(|one| (one.frames, one.used_percent)).collect();
    assert_eq!(places.len(), all.len());
}

/// A cell of `aging` whose free memory can serve orders 3, 4 and 9 to these shares.
fn cell(cpus: u16, engine: &str, seed: u64, contiguity: [f64; 3]) -> Cell {
    let [order3, order4, order9] = contiguity.map(|share| 1.0 - share);
    Cell {
        workload: Workload::Aging.name(),
        cpus,
        memory_mib: 64,
        used_percent: Some(70.0),
        allocations: Some(1000),
        seed,
        engine: engine.to_owned(),
        guesses: None,
        figures: Figures {
            unusable: Some(ByOrder { order3, order4, order9 }),
            ..Figures::default()
        },
        moments: Vec::new(),
        movement: None,
        layouts: None,
    }
}

#[test]
fn the_worst_of_three_orders_sorts_the_rows_and_seeds_are_averaged() {
    let cells = [
        cell(1, "vanilla", 1, [0.9, 0.8, 0.5]),
        cell(1, "freehold", 1, [0.95, 0.9, 0.6]),
        cell(2, "vanilla", 1, [0.9, 0.8, 0.5]),
        cell(2, "vanilla", 2, [0.9, 0.8, 0.7]),
        cell(2, "freehold", 1, [0.9, 0.75, 0.7]),
        cell(2, "freehold", 2, [0.9, 0.75, 0.6]),
        cell(3, "vanilla", 1, [0.9, 0.8, 0.5]),
        cell(3, "freehold", 1, [0.9, 0.8, 0.4]),
    ];
    let comparison = Comparison::of(&cells).unwrap();
    let cpus: Vec<u16> = comparison.rows.iter().map(|row| row.cpus).collect();
    assert_eq!((cpus, comparison.baseline.as_str()), (vec![3, 2, 1], "vanilla"));
    let two = &comparison.rows[1];
    let again = "--workload aging --memory 64M --cpus 2 --used 70 --allocations 1000 --seeds 1,2 -e \
                 vanilla -e freehold";
    assert_eq!(two.to_string(), again);
    assert_eq!(two.seeds, 2);
    assert!((two.baseline_contiguity.order9 - 0.6).abs() < 1e-9);
    assert!((two.contiguity.order9 - 0.65).abs() < 1e-9);
    assert!((two.worst() + 0.05).abs() < 1e-9, "order 4's: {}", two.worst());
    let tallies: Vec<_> =
        comparison.tallies.iter().map(|t| (t.order, t.not_below, t.cells)).collect();
    assert_eq!(tallies, [(3, 3, 3), (4, 2, 3), (9, 2, 3)]);
    assert!(!comparison.holds());
}

#[test]
fn less_by_no_more_than_the_tolerance_is_not_below() {
    for (less, holds) in [(0.0, true), (TOLERANCE - 1e-6, true), (TOLERANCE + 1e-6, false)] {
        for order in 0..3 {
            let mut mine = [0.5; 3];
            mine[order] -= less;
            let cells = [cell(4, "vanilla", 1, [0.5; 3]), cell(4, "freehold", 1, mine)];
            assert_eq!(Comparison::of(&cells).unwrap().holds(), holds, "{less} of {order}");
        }
    }
}

#[test]
fn seeds_that_only_one_engine_has_run_with_do_not_count() {
    let cells = [
        cell(4, "vanilla", 1, [0.5; 3]),
        cell(4, "freehold", 1, [0.5; 3]),
        // Stopped before the other engine's turn.
        cell(4, "vanilla", 2, [0.9; 3]),
        cell(8, "vanilla", 1, [0.9; 3]),
    ];
    let comparison = Comparison::of(&cells).unwrap();
    assert_eq!((comparison.rows.len(), comparison.rows[0].seeds), (1, 1));
    assert!(comparison.holds());
    assert_eq!(Comparison::of(&cells[..1]), None, "one engine has nothing beside it");
    assert_eq!(Comparison::of(&[]), None);
}

fn command(args: &[&str]) -> Command {
    let mut command = freehold();
    command.args(["contiguity", "--allocations", "100", "--seeds", "1"]).args(args);
    command
}

/// Two small mixes, drawn.
const DRAW: [&str; 7] = ["--random", "2", "--seed", "11", "--quick", "-w", "two-cpu-mix"];

#[test]
fn the_table_has_both_engines_and_a_line_for_each_order() {
    let drawn = contains("--random 2 --seed 11 --quick --workload two-cpu-mix");
    let text = text(&command(&DRAW).assert().success().stderr(drawn));
    let rows = text.lines().filter(|line| line.trim_start().starts_with("two-cpu-mix"));
    let rows: Vec<Vec<&str>> = rows.map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 2, "{text}");
    for row in rows {
        // Workload, percentage, CPUs, memory and its unit, and three orders of three figures.
        let cells = (row.len(), row[0], row[2], row[3]);
        assert_eq!(cells, (6 + 9, "two-cpu-mix,", "%", "2"), "{text}");
        for order in row[6..].chunks(3) {
            let [base, mine, difference] = [0, 1, 2].map(|n| order[n].parse::<f64>().unwrap());
            assert!((mine - base - difference).abs() < 0.002, "{text}");
            assert!(order[2].starts_with(['+', '-']), "{text}");
        }
    }
    for order in [3, 4, 9] {
        let start = format!("order {order}: freehold is above vanilla, or within .005 of it, in ");
        let of = text.lines().filter(|line| line.starts_with(&start));
        assert_eq!(of.count(), 1, "{text}");
    }
}

#[test]
fn json_has_the_seed_the_cells_and_the_comparison() {
    let document = document_of(&command(&DRAW).arg("--json").assert().success());
    let random = &document["random"];
    assert_eq!((&random["cells"], &random["seed"]), (&2.into(), &11.into()));
    assert_eq!(random["quick"], true);
    assert_eq!(document["cells"].as_array().unwrap().len(), 4);
    let comparison = &document["comparison"];
    assert_eq!(comparison["baseline"], "vanilla");
    assert_eq!(comparison["tolerance"], 0.005);
    let rows = comparison["rows"].as_array().unwrap();
    assert_eq!((rows.len(), comparison["tallies"].as_array().unwrap().len()), (2, 3));
    assert!(rows.iter().all(|row| row["difference"]["9"].is_number()), "{rows:?}");
}

#[test]
fn the_seed_is_printed_when_none_is_given_and_brings_the_same_cells() {
    let args = ["--random", "1", "--quick", "-w", "two-cpu-mix", "--json"];
    let first = command(&args).assert().success();
    let seed = document_of(&first)["random"]["seed"].as_u64().unwrap().to_string();
    let again = command(&args).args(["--seed", &seed]).assert().success();
    assert_eq!(text(&again), text(&first));
}

#[test]
fn the_gate_fails_where_an_engine_is_below_the_first_and_only_when_asked() {
    // One design under both of its names.
    command(&DRAW).args(["--gate", "-e", "7.2", "-e", "vanilla"]).assert().success();
    let worse = ["-e", "freehold", "-e", "vanilla"];
    let counts = ["--random", "2", "--seed", "11", "--quick", "-w", "aging"];
    command(&counts).args(worse).assert().success();
    command(&counts).args(worse).arg("--gate").assert().code(1);
    command(&DRAW).args(["--gate", "-e", "vanilla"]).assert().code(2).stderr(contains("--gate"));
}

#[test]
fn a_grid_is_compared_in_the_same_way() {
    let grid = ["-w", "two-cpu-mix", "--memory", "64M", "--used", "40", "--gate"];
    // Whichever way the gate says.
    let text = String::from_utf8(command(&grid).output().unwrap().stdout).unwrap();
    assert!(text.contains(" of 1 cells\n") && !text.contains("mixed blocks"), "{text}");
}

#[test]
fn mistakes_are_named() {
    let idle = "--random does not draw idle";
    assert_refused(&mut command(&["--random", "1", "-w", "idle"]), &[idle]);
    assert_refused(&mut command(&["--random", "1", "--cpus", "2"]), &["--cpus"]);
    let lacks = "not provided:\n  --move\n\n";
    assert_refused(&mut command(&["--quick", "--picture", "p.svg"]), &[lacks]);
    let again = "the same cells again: --random 1 --seed 3 --quick --move --workload thp --seeds 1 \
                 --engines best-fit --allocations 100";
    let words = "--random 1 --seed 3 --quick --move -w thp -e best-fit --json".split(' ');
    command(&words.collect::<Vec<_>>()).assert().success().stderr(contains(again));
}
