//! A report on paper: every tab, in light, and as it was afterwards.

use std::fs;
use std::io::Write;
use std::process::Command;

use serde_json::json;

use super::support::*;

/// The text of a file's first page; `None`, said loudly, where there is no pdftotext.
fn first_page(pdf: &[u8]) -> Option<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("report.pdf");
    fs::write(&file, pdf).unwrap();
    let Ok(done) =
        Command::new("pdftotext").args(["-f", "1", "-l", "1"]).arg(&file).arg("-").output()
    else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED the words on a report's first page: there is no pdftotext here"
        );
        return None;
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(String::from_utf8_lossy(&done.stdout).split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite report:: -- --ignored"]
fn a_report_prints_all_of_it_in_light() {
    let Some(mut page) = open("a_report_prints_all_of_it_in_light") else { return };
    let report = Report::all();
    page.prefer("dark");
    page.open(&report.file(), "view=replay");
    let state = "[document.documentElement.dataset.theme, \
                 document.querySelectorAll('[role=tabpanel]:not([hidden])').length, \
                 document.querySelectorAll('details.benchmark:not([open])').length, \
                 [...document.querySelectorAll('.plot')].filter((one) => !one.firstChild && \
                 one.closest('.panel:not([hidden])')).length]";
    page.eval(&format!("addEventListener('beforeprint', () => {{ window.printed = {state}; }})"));
    let verdict = page.eval("document.querySelector('#panel-replay .verdict').innerText");
    let pdf = page.pdf();
    assert!(pdf.starts_with(b"%PDF-") && pdf.len() > 20_000, "{} bytes", pdf.len());
    assert_eq!(
        page.eval("window.printed"),
        json!(["light", VIEWS.len(), 0, 0]),
        "light, every tab, every benchmark open, no chart without its curves"
    );
    page.settle();
    let after = page.eval(state);
    assert_eq!((&after[0], &after[1]), (&json!("dark"), &json!(1)), "as it was");
    assert_eq!(page.complaints(), [] as [String; 0]);
    if let Some(text) = first_page(&pdf) {
        let verdict = verdict.as_str().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&verdict), "{verdict} in {text}");
    }
}
