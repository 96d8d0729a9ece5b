//! What `freehold replay fidelity` prints and refuses.

use crate::common::machine_files::{
    FLAGS, Files, Folder, NONE, Types, buddyinfo, pagetypeinfo, trace_of, zone,
};
use crate::common::tables::assert_printed;
use crate::common::{data, json};
use predicates::prelude::*;
use predicates::str::contains;

use crate::fidelity::fidelity;

#[test]
fn wrong_usage_says_what_is_wrong() {
    let wrong: &[(&[&str], &str)] = &[
        (&["--memory", "8G"], "unexpected argument '--memory'"),
        (&["--cma", "10%"], "unexpected argument '--cma'"),
        (&["--memory", "8G"], "Usage: freehold replay fidelity"),
    ];
    for (arguments, said) in wrong {
        fidelity().args(*arguments).assert().code(2).stdout("").stderr(contains(*said));
    }
}

#[test]
fn against_the_kernel_prints_both_sides() {
    let short = data("recorded/built/vanilla-shells.parquet");
    fidelity().arg(short).assert().code(0).stdout(
        contains("frames refilled under the zone lock")
            .and(contains("frames drained"))
            .and(contains("7.1")),
    );
    let trace = data("page-cache-churn.parquet");
    let document = json(fidelity().arg("--json").arg(&trace));
    let against = &document["against_kernel"];
    assert_eq!(against["zone"], "Normal");
    assert_eq!(against["engines"][0]["engine"], "6.18");
    assert!(against["engines"][0]["refilled_frames"]["kernel"].as_u64() > Some(0));
    assert!(against["engines"][0]["drained_frames"]["within"].is_boolean());
}

#[test]
fn against_the_kernel_without_a_zoneinfo() {
    let folder = Folder::new();
    let path = folder.file("good.txt", trace_of(65536, 0, 1, FLAGS));
    fidelity()
        .arg(&path)
        .assert()
        .code(2)
        .stdout("")
        .stderr(contains("no zoneinfo").and(contains("NAME.zoneinfo.before.txt")));
    folder.file("good.zoneinfo.before.txt", "these are not the zones you are looking for\n");
    fidelity().arg(&path).assert().code(2).stderr(contains("line 1"));
}

/// What no engine has the lists of cannot be compared.
#[test]
fn a_kernel_with_other_pageblocks_is_refused() {
    let movable = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    let types: Types<'_> =
        &[("Unmovable", 4, &NONE), ("Movable", 12, &movable), ("Reclaimable", 0, &NONE)];
    let refill = "           cat-400     [000] .....    70.000111: mm_page_alloc_zone_locked: \
                  page=x pfn=0x10000 \
                  order=0 migratetype=1 percpu_refill=1\n";
    let folder = Folder::new();
    let trace = folder.write(&Files {
        zoneinfo: zone(0, "Normal", 5122, 16384, 65536, ""),
        buddyinfo: buddyinfo(&[(0, "Normal", &movable)]),
        pagetypeinfo: pagetypeinfo(10, &[(0, "Normal", types)]),
        trace: trace_of(65536, 0, 1, FLAGS) + refill,
    });
    fidelity().arg(trace).assert().code(2).stderr(contains("pageblocks of order 10"));
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
