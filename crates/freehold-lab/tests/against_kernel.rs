//! Preset `6.18` against what Linux 6.18 itself counted in the recorded traces.

use std::io::Write;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

/// The recordings, or `None` (said loudly) where they are not beside the checkout.
fn recordings() -> Option<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let Ok(entries) = folder.read_dir() else {
        // Not `eprintln!`, which the test harness swallows when the test passes: a skip has to be seen.
        let _ = writeln!(std::io::stderr(), "SKIPPED: no recorded traces in {}", folder.display());
        return None;
    };
    let mut traces: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "parquet"))
        .collect();
    traces.sort();
    Some(traces)
}

fn compare(traces: &[PathBuf], more: &[&str]) -> Vec<Value> {
    let mut command = Command::cargo_bin("freehold").unwrap();
    command.args(["replay", "--against-kernel", "--json"]).args(more).args(traces);
    let output = command.assert().success().get_output().stdout.clone();
    let document: Value = serde_json::from_slice(&output).unwrap();
    document["traces"].as_array().unwrap().clone()
}

fn within(trace: &Value) -> bool {
    let engine = &trace["against_kernel"]["engines"][0];
    let counts = ["refilled_frames", "drained_frames"].map(|what| &engine[what]);
    for count in counts {
        let (kernel, model) = (count["kernel"].as_f64().unwrap(), count["engine"].as_f64().unwrap());
        // The verdict is recomputed here, so that a wrong one in the program would show.
        let close = (model - kernel).abs() <= 0.15 * kernel;
        assert_eq!(count["within"].as_bool(), Some(close), "{trace}");
    }
    counts.iter().all(|count| count["within"] == true)
}

#[test]
fn the_model_refills_and_drains_as_the_kernel_did() {
    let Some(traces) = recordings() else { return };
    let compared = compare(&traces, &[]);
    assert_eq!(compared.len(), traces.len());
    let close = compared.iter().filter(|trace| within(trace)).count();
    assert!(close >= 5, "{close} of {} traces are within 15 %", compared.len());
}

#[test]
fn five_are_close_even_without_knowing_which_lists_were_filled() {
    let Some(traces) = recordings() else { return };
    let compared = compare(&traces, &["--starting-lists", "zoneinfo"]);
    let close = compared.iter().filter(|trace| within(trace)).count();
    assert!(close >= 5, "{close} of {} traces are within 15 %", compared.len());
}

/// The comparison can fail: a kernel without one of 6.18's rules does something else.
#[test]
fn another_kernel_is_told_apart() {
    let Some(traces) = recordings() else { return };
    let churn: Vec<PathBuf> = traces.into_iter().filter(|path| path.ends_with("page-cache-churn.parquet")).collect();
    if churn.is_empty() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no recording of page-cache-churn");
        return;
    }
    let both = [churn[0].clone(), churn[0].clone()];
    for other in ["6.18,-free-high-half", "6.18,-auto-high"] {
        let compared = compare(&both, &["--engine", other]);
        assert!(!within(&compared[0]), "{other} counts as the kernel did");
    }
}
