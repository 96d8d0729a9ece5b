//! Machines of every kind beside a trace: what is built is what their files say, in their pages;
//! and files that were damaged give no figures.

use std::fs;
use std::path::Path;

use crate::common::machine_files::{
    CMA_FREE, CMA_SIZE, DEVICE, FLAGS, Files, Folder, NONE, Types, before_4_4, buddyinfo,
    pagetypeinfo, plain, trace_of, with_cma, zone,
};
use serde_json::Value;

use crate::replay::command::{refused, replay, replayed, run};

/// The figures of the machine, in the order of the arrays below.
fn machine(document: &Value) -> [u64; 6] {
    let of = |name: &str| document["machine"][name].as_u64().unwrap_or_else(|| panic!("{name}"));
    [
        of("page_size"),
        of("pageblock_order"),
        of("free_frames_recorded"),
        of("free_frames_begin"),
        of("free_frames_left_out"),
        of("cma_frames"),
    ]
}

#[test]
fn pages_and_blocks_of_other_sizes() {
    assert_eq!(machine(&replayed(&plain(), &[])), [4096, 9, 3330, 3330, 0, 0]);

    // 64 KiB: 9 + 5 * 8 + 4096 + 3 * 8192 free, and requests of the largest order in parts.
    let free = [9, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3];
    let none = [0; 14];
    let types: Types<'_> =
        &[("Unmovable", 2, &none), ("Movable", 6, &free), ("Reclaimable", 0, &none)];
    let large = Files {
        zoneinfo: zone(0, "Normal", 28_721, 65536, 65536, ""),
        buddyinfo: buddyinfo(&[(0, "Normal", &free)]),
        pagetypeinfo: pagetypeinfo(13, &[(0, "Normal", types)]),
        trace: trace_of(65536, 0, 1, FLAGS),
    };
    assert_eq!(machine(&replayed(&large, &[])), [65536, 13, 28_721, 28_721, 0, 0]);
    let untyped = Files { pagetypeinfo: None, ..large.clone() };
    assert_eq!(machine(&replayed(&untyped, &[])), [65536, 13, 28_721, 28_721, 0, 0]);
    let mut huge = Files { trace: trace_of(65536, 13, 1, FLAGS), ..large.clone() };
    huge.trace = huge
        .trace
        .lines()
        .filter(|line| !line.contains("pfn=0x18000") && !line.contains("pfn=0x1a000"))
        .map(|line| format!("{line}\n"))
        .collect();
    let document = replayed(&huge, &[]);
    let trace = &document["trace"];
    assert_eq!((trace["in_parts"].as_u64(), trace["lost_frees"].as_u64()), (Some(4), Some(0)));
    assert_eq!(trace["peak_live_frames"], 4 * 8192);
    let allocs = document["engines"][0]["by_order"]["allocs"][10][1].as_u64().unwrap();
    let failed = document["engines"][0]["failed"].as_u64().unwrap();
    assert_eq!(allocs + failed, 4 * 8, "every part is asked for");

    // 16 KiB: orders to 11.
    let free = [7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let small = Files {
        zoneinfo: zone(0, "Normal", 4105, 16384, 65536, ""),
        buddyinfo: buddyinfo(&[(0, "Normal", &free)]),
        pagetypeinfo: None,
        trace: trace_of(65536, 0, 1, FLAGS),
    };
    assert_eq!(machine(&replayed(&small, &[])), [4096, 9, 4105, 4105, 0, 0], "assumed");
    assert_eq!(machine(&replayed(&small, &["--page-size", "64K"]))[0], 65536);

    // Blocks of order 10 and of order 5.
    for (order, blocks) in [(10, [4, 11, 1]), (5, [96, 400, 16])] {
        let movable = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
        let types: Types<'_> = &[
            ("Unmovable", blocks[0], &NONE),
            ("Movable", blocks[1], &movable),
            ("Reclaimable", blocks[2], &NONE),
        ];
        let other = Files {
            zoneinfo: zone(0, "Normal", 5122, 16384, 65536, ""),
            buddyinfo: buddyinfo(&[(0, "Normal", &movable)]),
            pagetypeinfo: pagetypeinfo(order, &[(0, "Normal", types)]),
            trace: trace_of(65536, 0, 1, FLAGS),
        };
        assert_eq!(machine(&replayed(&other, &[])), [4096, u64::from(order), 5122, 5122, 0, 0]);
    }
}

#[test]
fn the_table_says_what_the_engines_have_otherwise() {
    let files = plain();
    let folder = Folder::new();
    let trace = folder.write(&files);
    let table = |trace: &Path| {
        let output = run(&["replay", "--no-progress", "-e", "vanilla", trace.to_str().unwrap()]);
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(!table(&trace).contains("recorded with pages of"));
    let free = [7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let other = Files {
        zoneinfo: zone(0, "Normal", 4105, 16384, 65536, ""),
        buddyinfo: buddyinfo(&[(0, "Normal", &free)]),
        pagetypeinfo: None,
        ..files
    };
    let trace = folder.write(&other);
    assert!(table(&trace).contains("pages of 4 KiB are ASSUMED"));
    fs::write(folder.path().join("m.meminfo.before.txt"), "MemTotal:  262144 kB\n").unwrap();
    let text = table(&trace);
    assert!(!text.contains("ASSUMED"), "{text}");
    assert!(text.contains("pages of 16 KiB, orders 0 to 11 and pageblocks of order 11"), "{text}");
    assert!(text.contains("replayed on 1 CPU with 256.0 MiB"), "{text}");
}

#[test]
fn cma_and_reserve_and_other_zones() {
    // CMA that zoneinfo does not print.
    let without = with_cma(CMA_FREE, false);
    assert_eq!(machine(&replayed(&without, &[])), [4096, 9, 2564, 2564, 0, 2048]);
    // Without a pagetypeinfo nobody knows how much there was, and that is said.
    let unknown = Files { pagetypeinfo: None, ..without.clone() };
    assert_eq!(machine(&replayed(&unknown, &[])), [4096, 9, 2564, 2564, 0, 0]);
    let said = |files: &Files| {
        let folder = Folder::new();
        let trace = folder.write(files);
        let output = run(&["replay", "--no-progress", "-e", "vanilla", trace.to_str().unwrap()]);
        let text = String::from_utf8(output.stdout).unwrap();
        text.contains("513 pages of CMA were free, and no file says how much there was")
    };
    assert!(said(&unknown) && !said(&without));
    let with = with_cma(CMA_SIZE, false);
    assert_eq!(machine(&replayed(&with, &[])), [4096, 9, 2564, 2564, 0, 2048]);

    // Before 4.4 Reserve's 8 free pages are free memory.
    let document = replayed(&before_4_4(), &[]);
    assert_eq!(machine(&document), [4096, 9, 2059, 2059, 0, 0]);
    assert_eq!(
        document["engines"][0]["by_order"]["allocs"][0],
        serde_json::json!([0, 6, 0]),
        "movable"
    );

    // A trace in zone Movable of node 300, beside HighMem and a device without managed memory.
    let zones = Files {
        zoneinfo: zone(0, "HighMem", 4, 16384, 65536, "")
            + DEVICE
            + &zone(300, "Movable", 1029, 16384, 1 << 20, ""),
        buddyinfo: buddyinfo(&[
            (0, "HighMem", &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (300, "Movable", &[5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ]),
        pagetypeinfo: None,
        trace: trace_of(1 << 20, 0, 1, FLAGS),
    };
    assert_eq!(machine(&replayed(&zones, &[])), [4096, 9, 1029, 1029, 0, 0]);
}

#[test]
fn numbers_of_another_kernel_are_read_with_kernel_or_refused() {
    let text = trace_of(65536, 0, 1, "0x6280ca");
    let files = Files { trace: text, ..plain() };
    let error = refused(&files, &[]);
    assert!(error.contains("--kernel VERSION"), "{error}");
    let document = replayed(&files, &["--kernel", "4.18"]);
    assert_eq!(
        (&document["trace"]["kernel"], &document["trace"]["ignored"]),
        (&"Linux 4.18".into(), &0.into())
    );
    // Requests by name are read as those by number are, on a machine too small for all of them.
    let named =
        Files { trace: trace_of(65536, 0, 1, "GFP_HIGHUSER_MOVABLE|__GFP_ZERO"), ..plain() };
    let engines = |files: &Files, more: &[&str]| {
        let mut engines = replayed(files, more)["engines"].clone();
        engines[0]["ns_per_event"] = 0.into();
        engines
    };
    let with = |more: &'static [&'static str]| [&["--memory", "4M"], more].concat();
    assert_eq!(
        engines(&files, &with(&["--kernel", "4.18.0-513.el8.x86_64"])),
        engines(&named, &with(&[]))
    );
    // A copy of /proc/version beside the trace says it too.
    let folder = Folder::new();
    let trace = folder.write(&files);
    fs::write(folder.path().join("m.version.txt"), "Linux version 4.18.0-80.el8 (x) #1\n").unwrap();
    assert!(replay(&trace, &[]).status.success());
    let output = run(&["replay", "--kernel", "soon", trace.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
}

/// About a hundred ways in which copies and recordings break. None gives figures.
#[test]
#[expect(clippy::too_many_lines, reason = "a table: each file and what is wrong with it")]
fn damaged_files_give_no_figures() {
    let whole = plain();
    let folder = Folder::new();
    let mut tried = 0;
    let mut gives_none = |what: &str, files: &Files| {
        tried += 1;
        let output = replay(&folder.write(files), &[]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{what} gives figures\n{errors}"
        );
        assert!(errors.contains("error:") && !errors.contains("panicked"), "{what}: {errors}");
    };
    let lines = |text: &str| text.lines().map(|line| format!("{line}\n")).collect::<Vec<_>>();

    // Cut at the end of every line: a zoneinfo and a pagetypeinfo are whole or not.
    let zoneinfo = lines(&whole.zoneinfo);
    for n in 0..zoneinfo.len() {
        gives_none(
            &format!("zoneinfo of {n} lines"),
            &Files { zoneinfo: zoneinfo[..n].concat(), ..whole.clone() },
        );
    }
    let types = lines(whole.pagetypeinfo.as_ref().unwrap());
    for n in 0..types.len() {
        let pagetypeinfo = Some(types[..n].concat());
        gives_none(&format!("pagetypeinfo of {n} lines"), &Files { pagetypeinfo, ..whole.clone() });
    }
    // Cut within a line.
    let buddy = whole.buddyinfo.clone().unwrap();
    for keep in [0, 10, 22, 30, 37, 44, 51, 58, 65, 72, 79, 86, buddy.trim_end().len() - 1] {
        let buddyinfo = Some(buddy[..keep].to_owned());
        gives_none(&format!("buddyinfo of {keep} bytes"), &Files { buddyinfo, ..whole.clone() });
    }
    let trace = &whole.trace;
    let middle = trace.find("70.000131").unwrap();
    for cut in (0..100).step_by(10) {
        let trace = trace[..middle + cut].to_owned();
        gives_none(&format!("a trace cut at {cut}"), &Files { trace, ..whole.clone() });
    }
    // One thing for another, in each file.
    let swaps: &[(&str, &str)] = &[
        ("pages free     3330", "pages free     330"),
        ("pages free     3330", "pages free     33300"),
        ("pages free     3330", "pages free     x330"),
        ("managed  16384", "managed  1638"),
        ("managed  16384", "managed  163840"),
        ("present  16384", "present  1638"),
        ("spanned  16384", "spanned  1"),
        ("start_pfn:           65536", "start_pfn:           6553"),
        ("start_pfn:           65536", "start_pfn:           655360"),
        ("zone   Normal", "zone   Movable"),
        ("Node 0, zone   Normal\n", "Node x, zone   Normal\n"),
        ("min      20", "min      -20"),
        ("count: 9", "count: nine"),
        ("cpu: 0", "cpu: 99999999"),
    ];
    for (from, to) in swaps {
        let zoneinfo = whole.zoneinfo.replacen(from, to, 1);
        assert_ne!(zoneinfo, whole.zoneinfo, "{from}");
        gives_none(&format!("zoneinfo with {to}"), &Files { zoneinfo, ..whole.clone() });
    }
    let swaps: &[(&str, &str)] = &[
        ("order: 9", "order: 19"),
        ("order: 9", "order: 12"),
        ("block:  512", "block:  521"),
        ("Movable", "Moveable"),
        ("zone   Normal, type    Unmovable", "zone   DMA, type    Unmovable"),
        ("Number of blocks type", "Number of blocks"),
        ("    24", "     2"),
        ("    24", "   240"),
    ];
    for (from, to) in swaps {
        let text = whole.pagetypeinfo.clone().unwrap();
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        gives_none(
            &format!("pagetypeinfo with {to}"),
            &Files { pagetypeinfo: Some(changed), ..whole.clone() },
        );
    }
    for (what, changed) in [
        ("twice", format!("{buddy}{buddy}")),
        ("of more orders", buddy.replace('\n', " 0\n")),
        ("without its largest chunks", buddy.replacen("     3 ", "     0 ", 1)),
        ("of another node", buddy.replace("Node 0", "Node 1")),
        ("of another zone", buddy.replace("Normal", "  DMA")),
        ("of words", buddy.replacen("     1", "   one", 1)),
        ("that is a zoneinfo", whole.zoneinfo.clone()),
        ("of nothing", "\n".to_owned()),
    ] {
        gives_none(
            &format!("buddyinfo {what}"),
            &Files { buddyinfo: Some(changed), ..whole.clone() },
        );
    }
    gives_none("a buddyinfo for a zoneinfo", &Files { zoneinfo: buddy.clone(), ..whole.clone() });
    let swaps: &[(&str, &str)] = &[
        ("order=0", "order=40"),
        ("order=0", "order=-1"),
        ("order=0 ", ""),
        ("pfn=0x10000", "pfn=10000g"),
        ("pfn=0x10000", "pfn=1000f"),
        ("migratetype=1", "migratetype=2"),
        ("migratetype=1", "migratetype=7"),
        ("GFP_HIGHUSER_MOVABLE", "GFP_HIGHUSER_MOVABL"),
        ("GFP_HIGHUSER_MOVABLE", "GFP_KERNEL"),
        ("GFP_HIGHUSER_MOVABLE", "0x100cca"),
        ("[000]", "[9000]"),
        ("[000]", "000"),
        ("cat-400", "cat"),
        ("70.000111:", "70.000111"),
        ("70.000121:", "1070.000121:"),
        ("70.000111:", "70000111:"),
        ("mm_page_alloc: page=x", "mm_page_alloc: page=x\0\0\0"),
        (
            "order=0\n",
            "order=0           cat-400     [000] d..1.    70.000231: mm_page_free: page=x \
             pfn=0x10001 order=0\n",
        ),
        ("# tracer: nop\n", "PK\u{3}\u{4}\n"),
        ("# tracer: nop\n", "a.dat: cpus=1\n"),
        ("# tracer: nop\n", "# nop latency trace v1.1.5 on 6.18\n"),
    ];
    for (from, to) in swaps {
        // Not the first request alone: what all of them show would be believed.
        let changed = trace.replacen(from, to, 1);
        assert_ne!(&changed, trace, "{from}");
        gives_none(&format!("a trace with {to}"), &Files { trace: changed, ..whole.clone() });
    }
    assert!(tried >= 100, "{tried}");
    assert!(replay(&folder.write(&whole), &[]).status.success(), "whole it is read");
}

/// Two nodes, each with requests of its own.
#[test]
fn rows_are_replayed_in_the_zone_that_their_frames_lie_in() {
    let free = [26, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let files = Files {
        zoneinfo: zone(0, "Normal", 26, 8192, 65536, "") + &zone(1, "Normal", 26, 8192, 73728, ""),
        buddyinfo: buddyinfo(&[(0, "Normal", &free), (1, "Normal", &free)]),
        pagetypeinfo: None,
        trace: trace_of(65536, 0, 1, FLAGS) + &trace_of(73728, 0, 1, FLAGS).replace(" 70.", " 71."),
    };
    let document = replayed(&files, &[]);
    let rows = document["rows_by_zone"].as_array().unwrap();
    let rows: Vec<_> = rows.iter().map(|of| of["rows"].as_u64().unwrap()).collect();
    assert_eq!(rows, [12, 12, 0]);
    assert_eq!(document["engines"][0]["allocs"], 6);
    assert_eq!(document["other_zones"][0]["engines"][0]["allocs"], 6);
    let sum = &document["sum"][0];
    assert_eq!((&sum["allocs"], &sum["failed"]), (&12.into(), &0.into()));
    let one = replayed(&files, &["--zone", "1:Normal"]);
    assert!(one["other_zones"].is_null() && one["sum"].is_null());
    assert_eq!((&one["engines"][0]["allocs"], &one["trace"]["events"]), (&6.into(), &12.into()));
    let folder = Folder::new();
    let trace = folder.write(&files);
    let trace = trace.to_str().unwrap();
    let output = run(&["replay", "--no-progress", "-e", "vanilla", "--wide", trace]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lie = "rows by zone: 12 in zone Normal of node 0, 12 in zone Normal of node 1";
    assert!(text.contains(lie) && text.contains("all zones"), "{text}");
    let errors = String::from_utf8(run(&["replay", "--zone", "DMA", trace]).stderr).unwrap();
    assert!(errors.contains("none of its rows lies in zone DMA"), "{errors}");
    // Files of different moments are refused for the zone that is built, and for no other.
    let later = Files {
        buddyinfo: buddyinfo(&[
            (0, "Normal", &free),
            (1, "Normal", &[26, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]),
        ]),
        ..files
    };
    assert_eq!(replayed(&later, &["--zone", "0:Normal"])["engines"][0]["allocs"], 6);
    let trace = folder.write(&later);
    let output = run(&["replay", "--zone", "1:Normal", trace.to_str().unwrap()]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && errors.contains("more than 1 %"), "{errors}");
}
