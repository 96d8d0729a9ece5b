//! Machines of every kind beside a trace: what is built is what their files say, in their pages;
//! and files that were damaged give no figures.

use std::fs;

use crate::common::machine_files::{
    FLAGS, Files, Folder, before_4_4, buddyinfo, one_zone, plain, trace_of, with_cma, zone,
};
use serde_json::Value;

use crate::replay::command::{refused, replay, replayed, run, table};

/// The figures of the machine, in the order of the arrays below.
fn machine(document: &Value) -> [u64; 6] {
    let of = |name: &str| document["machine"][name].as_u64().unwrap_or_else(|| panic!("{name}"));
    let free = ["recorded", "begin", "left_out"].map(|what| of(&format!("free_frames_{what}")));
    [of("page_size"), of("pageblock_order"), free[0], free[1], free[2], of("cma_frames")]
}

#[test]
fn zones_that_overlap_are_a_guess() {
    let zones = [zone(0, "Normal", 9, 4096, 65536, ""), zone(0, "Movable", 9, 4096, 67584, "")];
    let files = |zones: &[String]| Files { zoneinfo: zones.concat(), ..plain() };
    let files = |zones| Files { buddyinfo: None, pagetypeinfo: None, ..files(zones) };
    let said = "which rows lie in zone Movable of node 0, whose span overlaps this one";
    let guessed = |zones| replayed(&files(zones), &[])["machine"]["guessed"].to_string();
    assert!(guessed(&zones).contains(said), "{}", guessed(&zones));
    assert!(!guessed(&zones[..1]).contains("overlaps"));
}

#[test]
fn the_table_says_what_the_engines_have_otherwise() {
    let folder = Folder::new();
    let trace = folder.write(&plain());
    assert!(!table(&trace).contains("recorded with pages of"));
    let trace = folder.write(&one_zone(16384, &[7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2], None));
    assert!(table(&trace).contains("pages of 4 KiB are ASSUMED"));
    fs::write(folder.path().join("m.meminfo.before.txt"), "MemTotal:  262144 kB\n").unwrap();
    let text = table(&trace);
    assert!(!text.contains("ASSUMED"), "{text}");
    assert!(text.contains("pages of 16 KiB, orders 0 to 11 and pageblocks of order 11"), "{text}");
    assert!(text.contains("replayed on 1 CPU with 256.0 MiB"), "{text}");
}

/// `random_machines` has the figures.
#[test]
fn cma_of_unknown_size_is_said_and_reserve_is_free_memory() {
    // CMA that zoneinfo does not print: without a pagetypeinfo nobody knows how much there was.
    let without = with_cma();
    let unknown = Files { pagetypeinfo: None, ..without.clone() };
    assert_eq!(machine(&replayed(&unknown, &[])), [4096, 9, 2564, 2564, 0, 0]);
    let said = |files: &Files| {
        let folder = Folder::new();
        let text = table(&folder.write(files));
        text.contains("513 pages of CMA were free, and no file says how much there was")
    };
    assert!(said(&unknown) && !said(&without));

    // Before 4.4 Reserve's 8 free pages are free memory.
    let document = replayed(&before_4_4(), &[]);
    assert_eq!(machine(&document), [4096, 9, 2059, 2059, 0, 0]);
    let of = |name: &str| document["engines"][0][name].as_u64();
    assert_eq!((of("allocs"), of("fallbacks")), (Some(6), Some(0)), "movable, as memory is");
}

#[test]
fn numbers_of_another_kernel_are_read_with_kernel_or_refused() {
    let files = Files { trace: trace_of(65536, 0, 1, "0x6280ca"), ..plain() };
    let error = refused(&files, &[]);
    assert!(error.contains("--kernel VERSION"), "{error}");
    let document = replayed(&files, &["--kernel", "4.18"]);
    assert_eq!(document["trace"]["kernel"], "Linux 4.18");
    assert_eq!(document["trace"]["ignored"], 0);
    // Requests by name are read as those by number are, on a machine too small for all of them.
    let named =
        Files { trace: trace_of(65536, 0, 1, "GFP_HIGHUSER_MOVABLE|__GFP_ZERO"), ..plain() };
    let engines = |files: &Files, more: &[&str]| {
        let mut engines = replayed(files, more)["engines"].clone();
        engines[0]["ns_per_event"] = 0.into();
        engines
    };
    let with = |more: &'static [&'static str]| [&["--memory", "4M"], more].concat();
    let rhel = with(&["--kernel", "4.18.0-513.el8.x86_64"]);
    assert_eq!(engines(&files, &rhel), engines(&named, &with(&[])));
    // A copy of /proc/version beside the trace says it too.
    let folder = Folder::new();
    let trace = folder.write(&files);
    fs::write(folder.path().join("m.version.txt"), "Linux version 4.18.0-80.el8 (x) #1\n").unwrap();
    assert!(replay(&trace, &[]).status.success());
    let output = run(&["replay", "--kernel", "soon", trace.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
}

/// One thing for another, each in a file of that kind.
const SWAPS: &[(&str, &str, &str)] = &[
    ("zoneinfo", "pages free     3330", "pages free     330"),
    ("zoneinfo", "pages free     3330", "pages free     33300"),
    ("zoneinfo", "pages free     3330", "pages free     x330"),
    ("zoneinfo", "managed  16384", "managed  1638"),
    ("zoneinfo", "managed  16384", "managed  163840"),
    ("zoneinfo", "present  16384", "present  1638"),
    ("zoneinfo", "spanned  16384", "spanned  1"),
    ("zoneinfo", "start_pfn:           65536", "start_pfn:           6553"),
    ("zoneinfo", "start_pfn:           65536", "start_pfn:           655360"),
    ("zoneinfo", "zone   Normal", "zone   Movable"),
    ("zoneinfo", "Node 0, zone   Normal\n", "Node x, zone   Normal\n"),
    ("zoneinfo", "min      20", "min      -20"),
    ("zoneinfo", "count: 9", "count: nine"),
    ("zoneinfo", "cpu: 0", "cpu: 99999999"),
    ("pagetypeinfo", "order: 9", "order: 19"),
    ("pagetypeinfo", "order: 9", "order: 12"),
    ("pagetypeinfo", "block:  512", "block:  521"),
    ("pagetypeinfo", "Movable", "Moveable"),
    ("pagetypeinfo", "zone   Normal, type    Unmovable", "zone   DMA, type    Unmovable"),
    ("pagetypeinfo", "Number of blocks type", "Number of blocks"),
    ("pagetypeinfo", "    24", "     2"),
    ("pagetypeinfo", "    24", "   240"),
    ("buddyinfo", "\n", " 0\n"),
    ("buddyinfo", "     3 ", "     0 "),
    ("buddyinfo", "Node 0", "Node 1"),
    ("buddyinfo", "Normal", "  DMA"),
    ("buddyinfo", "     1", "   one"),
    // Not the first request alone: what all of them show would be believed.
    ("trace", "order=0", "order=40"),
    ("trace", "order=0", "order=-1"),
    ("trace", "order=0 ", ""),
    ("trace", "pfn=0x10000", "pfn=10000g"),
    ("trace", "pfn=0x10000", "pfn=1000f"),
    ("trace", "migratetype=1", "migratetype=2"),
    ("trace", "migratetype=1", "migratetype=7"),
    ("trace", "GFP_HIGHUSER_MOVABLE", "GFP_HIGHUSER_MOVABL"),
    ("trace", "GFP_HIGHUSER_MOVABLE", "GFP_KERNEL"),
    ("trace", "GFP_HIGHUSER_MOVABLE", "0x100cca"),
    ("trace", "[000]", "[9000]"),
    ("trace", "[000]", "000"),
    ("trace", "cat-400", "cat"),
    ("trace", "70.000111:", "70.000111"),
    ("trace", "70.000121:", "1070.000121:"),
    ("trace", "70.000111:", "70000111:"),
    ("trace", "mm_page_alloc: page=x", "mm_page_alloc: page=x\0\0\0"),
    (
        "trace",
        "order=0\n",
        "order=0           cat-400     [000] d..1.    70.000231: mm_page_free: page=x \
         pfn=0x10001 order=0\n",
    ),
    ("trace", "# tracer: nop\n", "PK\u{3}\u{4}\n"),
    ("trace", "# tracer: nop\n", "a.dat: cpus=1\n"),
    ("trace", "# tracer: nop\n", "# nop latency trace v1.1.5 on 6.18\n"),
];

/// About a hundred ways in which copies and recordings break. None gives figures.
#[test]
fn damaged_files_give_no_figures() {
    let whole = plain();
    let folder = Folder::new();
    let buddy = whole.buddyinfo.clone().unwrap();
    let text_of = |kind: &str| match kind {
        "zoneinfo" => whole.zoneinfo.clone(),
        "buddyinfo" => buddy.clone(),
        "pagetypeinfo" => whole.pagetypeinfo.clone().unwrap(),
        _ => whole.trace.clone(),
    };
    let mut tried = 0;
    let mut gives_none = |kind: &str, what: &str, text: String| {
        tried += 1;
        let whole = whole.clone();
        let files = match kind {
            "zoneinfo" => Files { zoneinfo: text, ..whole },
            "buddyinfo" => Files { buddyinfo: Some(text), ..whole },
            "pagetypeinfo" => Files { pagetypeinfo: Some(text), ..whole },
            _ => Files { trace: text, ..whole },
        };
        let output = replay(&folder.write(&files), &[]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let has_figures = output.status.success() || !output.stdout.is_empty();
        assert!(!has_figures, "{kind} {what} gives figures\n{errors}");
        let is_error = errors.contains("error:") && !errors.contains("panicked");
        assert!(is_error, "{kind} {what}: {errors}");
    };
    // Cut at the end of every line: a zoneinfo and a pagetypeinfo are whole or not.
    for kind in ["zoneinfo", "pagetypeinfo"] {
        let text = text_of(kind);
        let lines: Vec<_> = text.split_inclusive('\n').collect();
        for n in 0..lines.len() {
            gives_none(kind, &format!("of {n} lines"), lines[..n].concat());
        }
    }
    // Cut within a line.
    for keep in [0, 10, 22, 30, 37, 44, 51, 58, 65, 72, 79, 86, buddy.trim_end().len() - 1] {
        gives_none("buddyinfo", &format!("of {keep} bytes"), buddy[..keep].to_owned());
    }
    let middle = whole.trace.find("70.000131").unwrap();
    for cut in (0..100).step_by(10) {
        gives_none("trace", &format!("cut at {cut}"), whole.trace[..middle + cut].to_owned());
    }
    for (kind, from, to) in SWAPS {
        let text = text_of(kind);
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        gives_none(kind, &format!("with {to}"), changed);
    }
    gives_none("buddyinfo", "twice", buddy.repeat(2));
    gives_none("buddyinfo", "that is a zoneinfo", whole.zoneinfo.clone());
    gives_none("buddyinfo", "of nothing", "\n".to_owned());
    gives_none("zoneinfo", "that is a buddyinfo", buddy.clone());
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
    let text = table(&trace);
    let trace = trace.to_str().unwrap();
    let lie = "rows by zone: 12 in zone Normal of node 0, 12 in zone Normal of node 1";
    assert!(text.contains(lie) && text.contains("all zones"), "{text}");
    let errors = String::from_utf8(run(&["replay", "--zone", "DMA", trace]).stderr).unwrap();
    assert!(errors.contains("none of its rows lies in zone DMA"), "{errors}");
    assert!(errors.ends_with("hint: --zone 1:Normal\n"), "{errors}");
    // Files of different moments are refused for the zone that is built, and for no other.
    let more = [26, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    let both = buddyinfo(&[(0, "Normal", &free), (1, "Normal", &more)]);
    let later = Files { buddyinfo: both, ..files };
    assert_eq!(replayed(&later, &["--zone", "0:Normal"])["engines"][0]["allocs"], 6);
    let trace = folder.write(&later);
    let output = run(&["replay", "--zone", "1:Normal", trace.to_str().unwrap()]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && errors.contains("more than 1 %"), "{errors}");
}

/// A report as 6.12 prints it: 1,024 of 16,384 pages of zone Normal free, 41 of them on lists.
const REPORT: &str = "\
[ 10.5] Mem-Info:
[ 10.5] Node 0 DMA free:64kB boost:0kB min:40kB low:48kB high:56kB present:4096kB managed:4096kB free_pcp:0kB free_cma:0kB
[ 10.5] lowmem_reserve[]: 0 60 60
[ 10.5] Node 0 Normal free:4096kB boost:0kB min:80kB low:100kB high:120kB present:65536kB managed:65536kB free_pcp:164kB free_cma:0kB
[ 10.5] lowmem_reserve[]: 0 0 0
[ 10.5] Node 0 DMA: 0*4kB 0*8kB 0*16kB 0*32kB 1*64kB (U) 0*128kB 0*256kB 0*512kB 0*1024kB 0*2048kB 0*4096kB = 64kB
[ 10.5] Node 0 Normal: 512*4kB (UM) 0*8kB 0*16kB 0*32kB 0*64kB 0*128kB 0*256kB 0*512kB 0*1024kB 1*2048kB (M) 0*4096kB = 4096kB
";

#[test]
fn a_kernel_log_is_where_a_replay_begins_and_what_it_lacks_is_said() {
    let folder = Folder::new();
    let trace = folder.write(&plain());
    let log = folder.path().join("dmesg.txt");
    fs::write(&log, REPORT).unwrap();
    let log = log.to_str().unwrap();
    let said = |more: &[&str]| {
        let args = ["replay", "--no-progress", "-e", "vanilla", "--machine", log];
        let output = run(&[&args, more, &[trace.to_str().unwrap()]].concat());
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let document: Value = serde_json::from_str(&said(&["--json"]).0).unwrap();
    assert_eq!(machine(&document), [4096, 9, 1024, 1024, 0, 0]);
    let of = &document["machine"];
    assert_eq!((&of["origin"], of["list_frames_begin"].as_u64()), (&"described".into(), Some(41)));
    assert_eq!((&of["memory_frames"], &of["page_size_told"]), (&16384.into(), &true.into()));
    let guessed = of["guessed"].to_string();
    let (text, _) = said(&[]);
    assert!(text.contains("the machine that files describe: 4.0 MiB free"), "{text}");
    let rows = "which rows lie in which zone: all are replayed in zone Normal";
    for what in [rows, "migratetypes", "what each CPU's lists hold"] {
        let told = text.contains(&format!("GUESSED, for no file says it: {what}"));
        assert!(told && guessed.contains(what), "{what}: {guessed}\n{text}");
    }
    // Another zone, and none of that name.
    let document: Value = serde_json::from_str(&said(&["--json", "--zone", "DMA"]).0).unwrap();
    assert_eq!(document["machine"]["free_frames_begin"], 16);
    assert!(said(&["--zone", "HighMem"]).1.contains("there is no zone HighMem in it"));
    // What says no sizes builds no machine.
    fs::write(log, "Node 0, zone Normal 1 0 0 0 0 0 0 0 0 0 3\n").unwrap();
    assert!(said(&[]).1.contains("does not say how large the machine's zones are"));
    // The recorded machine without a pagetypeinfo has its types guessed, too.
    let trace = folder.write(&Files { pagetypeinfo: None, ..plain() });
    assert!(table(&trace).contains("says it: migratetypes: all"));
}

/// The pages of `plain`: its free chunks, each in its place.
fn plain_pages(free_last: &str) -> String {
    let quarter = "0".repeat(64) + &"f".repeat(64);
    let singles = "0000000000000005".to_owned() + &"0".repeat(112);
    format!(
        "10000 6 0 0 0 0 0 all\n10c00 1 256 0 0 0 0 {quarter}\n10e00 1 510 0 0 0 0 {singles}\n\
         11000 23 0 0 0 0 512 none\n13e00 1 {free_last}\n"
    )
}

#[test]
fn blocks_recorded_by_page_are_those_that_a_replay_begins_with() {
    let folder = Folder::new();
    let trace = folder.write(&plain());
    let replayed = |pages: &str| {
        fs::write(folder.path().join("m.pages.before.txt"), pages).unwrap();
        let output = replay(&trace, &[]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let document = serde_json::from_slice::<Value>(&output.stdout);
        document.unwrap_or_else(|_| panic!("{errors}"))
    };
    let document = replayed(&plain_pages("512 0 0 0 0 none"));
    assert_eq!(machine(&document), [4096, 9, 3330, 3330, 0, 0]);
    assert_eq!(document["machine"]["by_page"], true);
    // A moment earlier 62 pages more were free: as many begin in use.
    let busy = plain_pages("512 0 0 0 0 none")
        .replace("510 0 0 0 0 0000000000000005", "448 0 0 0 0 ffffffffffffffff");
    let busy = busy.replace("ffffffffffffffff0000", "7fffffffffffffff0000").replace("448 ", "449 ");
    let document = replayed(&busy);
    assert_eq!((machine(&document)[3], &document["machine"]["by_page"]), (3330, &true.into()));
    assert!(document["machine"]["guessed"].to_string().contains("a moment earlier"));
    // Of another time: they are left alone, and that is said.
    let document = replayed(&plain_pages("0 0 0 0 0 all"));
    assert_eq!((machine(&document)[3], &document["machine"]["by_page"]), (3330, &false.into()));
    let guessed = document["machine"]["guessed"].to_string();
    assert!(guessed.contains("3,842 pages are recorded as free and 3,330 counted"), "{guessed}");
    fs::write(folder.path().join("m.pages.before.txt"), "10000 1 all\n").unwrap();
    let damaged = String::from_utf8(replay(&trace, &[]).stderr).unwrap();
    assert!(damaged.contains("m.pages.before.txt: line 1"), "{damaged}");
}
