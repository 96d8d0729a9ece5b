//! The tab of `freehold bench`: contents, groups that open, and columns of only those engines that
//! have a figure.

use serde_json::{Value, json};

use super::support::*;

/// A run of every benchmark there is: two engines in all, and in half of them a third that the
/// others have no figure of.
fn whole_run() -> Value {
    let list: Value = serde_json::from_slice(&freehold(&["bench", "--list", "--json"])).unwrap();
    let benchmarks =
        list["benchmarks"].as_array().unwrap_or_else(|| list.as_array().expect("a list"));
    let mut rows = Vec::new();
    for (i, benchmark) in benchmarks.iter().enumerate() {
        for metric in benchmark["metrics"].as_array().unwrap() {
            let third = if i % 2 == 0 { "mmap of the system" } else { "vanilla,-merge" };
            for engine in ["freehold", "vanilla", third] {
                rows.push(json!({
                    "benchmark": benchmark["name"], "engine": engine, "metric": metric["name"], "unit": metric["unit"],
                    "median": 12.5, "min": 12.0, "max": 13.0, "runs": 7, "better": "less",
                }));
            }
        }
    }
    let about: serde_json::Map<String, Value> =
        benchmarks.iter().map(|one| (one["name"].as_str().unwrap().into(), one.clone())).collect();
    json!({"yardstick": {"rmw_ns": 2.6}, "benchmarks": about, "rows": rows})
}

const GROUPS: &str = "[...document.querySelectorAll('details.benchmark')]";

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite report:: -- --ignored"]
fn benchmarks_are_found_by_contents_and_open_one_by_one() {
    let Some(mut page) = open("benchmarks_are_found_by_contents_and_open_one_by_one") else {
        return;
    };
    let run = whole_run();
    let report = Report::of(&[run]);
    let short = "document.documentElement.scrollHeight";
    for (width, phone, most) in [(1280, false, 4500), (390, true, 7500)] {
        page.window(width, 844, phone);
        page.open(&report.file(), "view=bench");
        let contents = page.eval("document.querySelector('#panel-bench .contents').innerText");
        let contents = contents.as_str().unwrap();
        for expected in ["pair One thread allocates a chunk and frees it", "lazyfree", "near-mark"]
        {
            assert!(contents.contains(expected), "{expected} in {contents}");
        }
        let open = page.eval(&format!("{GROUPS}.map((one) => one.open)"));
        let open = open.as_array().unwrap();
        assert!(
            open.len() >= 16 && open[0] == true && open[1..].iter().all(|one| one == false),
            "{open:?}"
        );
        assert!(
            page.eval(short).as_u64().unwrap() < most,
            "{} pixels at {width}",
            page.eval(short)
        );
        assert_eq!(page.eval("document.documentElement.scrollWidth"), width, "sideways");
    }

    // A link to a benchmark opens it, in the contents and from elsewhere.
    page.eval(
        "[...document.querySelectorAll('.contents a')].find((one) => one.innerText === \
               'arena').click()",
    );
    page.settle();
    assert_eq!(page.eval("document.getElementById('bench-arena').open"), true);
    assert_eq!(
        page.eval("document.activeElement.innerText.split(/\\s/)[0]"),
        "arena",
        "the keyboard goes on from there"
    );
    assert!(page.eval("location.hash").as_str().unwrap().contains("at=bench-arena"));
    page.open(&report.file(), "view=bench&at=bench-lazyfree");
    assert_eq!(page.eval("document.getElementById('bench-lazyfree').open"), true);
    let top = page.eval("document.getElementById('bench-lazyfree').getBoundingClientRect().top");
    assert!((0.0..844.0).contains(&top.as_f64().unwrap()), "it is in sight: {top}");

    // No column without a figure, and what a metric is stands beside its name.
    page.eval(
        "[...document.querySelectorAll('#panel-bench button')].find((one) => one.innerText === \
         'Open all').click()",
    );
    page.settle();
    let empty = page.eval(&format!(
        "{GROUPS}.flatMap((group) => [...group.querySelectorAll('table')]).filter((table) =>
            [...table.tHead.rows[0].cells].some((_, i) => i > 0 && \
![...table.tBodies[0].rows].some((row) => row.cells[i]?.querySelector('data') || \
/\\d/.test(row.cells[i]?.innerText)))).length"
    ));
    assert_eq!(empty, 0, "columns without a figure");
    let pair = page.eval("document.getElementById('bench-pair').innerText");
    assert!(pair.as_str().unwrap().contains("an allocation and its free, single frames"), "{pair}");
    assert_eq!(
        page.eval("document.documentElement.scrollWidth"),
        390,
        "sideways, with all of them open"
    );
    assert_eq!(page.complaints(), [] as [String; 0]);
}
