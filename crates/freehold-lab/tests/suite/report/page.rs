//! What is in a report: the verdict first, every figure, and nothing that runs.

use std::fs;
use std::sync::OnceLock;

use freehold_lab::tables::decimal;
use serde_json::{Value, json};

use super::valid::problems;
use crate::common::{freehold, result};

/// The sample through all engines.
pub(crate) fn replay() -> &'static Value {
    static REPLAY: OnceLock<Value> = OnceLock::new();
    REPLAY.get_or_init(|| result("replay --json"))
}

/// The report of these documents.
fn report(documents: &[Value]) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("report.html");
    let text: String = documents.iter().map(|document| format!("{document}\n")).collect();
    freehold().arg("report").arg("-o").arg(&file).arg("-").write_stdin(text).assert().success();
    fs::read_to_string(file).unwrap()
}

/// Where a text stands first.
fn at(html: &str, text: &str) -> usize {
    html.find(text).unwrap_or_else(|| panic!("{text} is not in the page"))
}

#[test]
fn the_verdict_comes_first_then_where_it_is_from_then_one_picture_then_the_table() {
    let html = report(&[replay().clone()]);
    let verdict = at(&html, "<p class=\"verdict\">");
    let (picture, table) = (at(&html, "<figure><svg"), at(&html, "<table>"));
    let from = ["command", "program", "sha256 of the trace", "replayed on"];
    let from = from.map(|name| at(&html, &format!("<dt>{name}</dt>")));
    assert!(verdict < from[0] && from.is_sorted() && from[3] < picture && picture < table);
    let said = &html[verdict..at(&html, "<dl>")];
    assert!(said.contains("Is the zone lock a problem on this machine of 2 CPUs? No"), "{said}");
    assert!(said.contains("Most wholly free blocks at the end: freehold"), "{said}");
    let words = said.split_whitespace().count();
    assert!(words < 60, "two sentences, not {words} words");
}

#[test]
fn every_figure_of_a_replay_is_in_its_page_exactly() {
    let html = report(&[replay().clone()]);
    let mut found = 0;
    for engine in replay()["engines"].as_array().unwrap() {
        let names = "zone_lock_acquisitions zone_lock_work zone_lock_work_mean shared_writes \
                     pcp_hit_rate refills free_blocks_end unusable_index_mean lost_frames";
        for name in names.split(' ') {
            let value = engine[name].as_f64().expect(name);
            assert!(html.contains(&format!("<data value=\"{value}\">")), "{name}: {value}");
            found += 1;
        }
    }
    assert_eq!(found, 45, "nine figures of five engines");
    // And the JSON itself, for programs.
    let data = html.split("type=\"application/json\">").nth(1).unwrap();
    let data: Value = serde_json::from_str(data.split("</script>").next().unwrap()).unwrap();
    assert_eq!(data[0]["data"], *replay());
}

#[test]
fn memory_and_blocks_are_of_the_machines_pages() {
    let mut of_large = replay().clone();
    of_large["machine"]["page_size"] = json!(65536);
    let frames = of_large["machine"]["memory_frames"].as_u64().unwrap();
    let html = report(&[of_large]);
    at(&html, &format!(" {} GiB, ", decimal(frames as f64 / f64::from(1 << 14))));
    at(&html, "32 MiB blocks free at the end");
    assert!(!html.contains(">2 MiB blocks"));
}

#[test]
fn each_replay_has_its_section_and_the_page_is_html() {
    let failed = json!({"trace": {"name": "gone.parquet"}, "error": "no such <file>"});
    let html = report(&[replay().clone(), failed]);
    assert_eq!(problems(&html), Vec::<String>::new());
    assert_ne!(problems(&html.replacen("</section>", "", 1)), Vec::<String>::new());
    at(&html, "Not replayed: no such &lt;file&gt;");
    assert_eq!(html.matches("<section").count(), 2);
}

#[test]
fn where_allocations_fail_the_warning_is_the_verdict() {
    let html = report(&[result("replay --json --memory 64M -e vanilla -e freehold")]);
    assert!(!html.contains("class=\"verdict\""));
    at(&html, "<p class=\"warning\">Over 1 % of allocations failed");
}
