//! What `freehold replay fidelity` prints and refuses.

use crate::common::machine_files::{FLAGS, Folder, NONE, Types, one_zone, trace_of};
use crate::common::tables::assert_printed;
use crate::common::{assert_refused, data, json};
use predicates::prelude::*;
use predicates::str::contains;

use crate::fidelity::fidelity;

#[test]
fn wrong_usage_says_what_is_wrong() {
    for [option, value] in [["--memory", "8G"], ["--cma", "10%"]] {
        let said = format!("unexpected argument '{option}'");
        let said = [&said, "Usage: freehold replay fidelity"];
        assert_refused(fidelity().args([option, value]), &said);
    }
}

#[test]
fn against_the_kernel_prints_both_sides() {
    let short = data("recorded/built/vanilla-shells.parquet");
    let refilled = contains("frames refilled under the zone lock");
    let both = refilled.and(contains("frames drained")).and(contains("7.1"));
    fidelity().arg(short).assert().code(0).stdout(both);
    let trace = data("page-cache-churn.parquet");
    let document = json(fidelity().arg("--json").arg(&trace));
    let against = &document["against_kernel"];
    assert_eq!(against["zone"], "Normal");
    assert_eq!(against["engines"][0]["engine"], "6.18");
    assert!(against["engines"][0]["refilled_frames"]["kernel"].as_u64() > Some(0));
    assert!(against["engines"][0]["drained_frames"]["within"].is_boolean());
}

/// From fuller lists fewer frames are refilled. The ranges stand beside the prediction alone.
#[test]
fn drawn_starts_show_how_far_apart_they_end() {
    let trace = data("recorded/built/vanilla-shells.parquet");
    let engines = |arguments: &[&str]| {
        json(fidelity().arg("--json").args(arguments).arg(&trace))["against_kernel"]["engines"]
            .clone()
    };
    let drawn = engines(&["--starts", "3", "--seed", "2"]);
    let refilled = &drawn[0]["refilled_frames"];
    let [least, most] = [0, 1].map(|end| refilled["starts"][end].as_u64().unwrap());
    assert!(least <= most && most < refilled["engine"].as_u64().unwrap(), "{refilled}");
    assert!(drawn[1]["refilled_frames"].get("starts").is_none(), "{drawn}");
    assert_eq!(drawn, engines(&["--starts", "3", "--seed", "2"]), "the seed decides");
    assert!(engines(&[])[0]["refilled_frames"].get("starts").is_none());
}

#[test]
fn against_the_kernel_without_a_zoneinfo() {
    let folder = Folder::new();
    let path = folder.file("good.txt", trace_of(65536, 0, 1, FLAGS));
    assert_refused(fidelity().arg(&path), &["no zoneinfo", "NAME.zoneinfo.before.txt"]);
    folder.file("good.zoneinfo.before.txt", "these are not the zones you are looking for\n");
    assert_refused(fidelity().arg(&path), &["line 1"]);
}

/// What no engine has the lists of cannot be compared.
#[test]
fn a_kernel_with_other_pageblocks_is_refused() {
    let movable = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    let types: Types<'_> =
        &[("Unmovable", 4, &NONE), ("Movable", 12, &movable), ("Reclaimable", 0, &NONE)];
    let refill = "           cat-400     [000] .....    70.000111: mm_page_alloc_zone_locked: \
                  page=x pfn=0x10000 order=0 migratetype=1 percpu_refill=1\n";
    let folder = Folder::new();
    let mut files = one_zone(16384, &movable, Some((10, types)));
    files.trace += refill;
    let trace = folder.write(&files);
    assert_refused(fidelity().arg(trace), &["pageblocks of order 10"]);
}

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite fidelity:: -- --ignored"]
fn tables_fit_the_terminal() {
    assert_printed(|| {
        let mut command = fidelity();
        command.args(["--no-progress", "-e", "6.18,-free-high-half"]);
        command.arg(data("recorded/ticks/sort.parquet"));
        command
    });
}
