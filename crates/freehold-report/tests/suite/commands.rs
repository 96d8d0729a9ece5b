//! The commands whose results are reported and compared. They are other packages, whose programs
//! cargo does not build for this one's tests; so this test program plays them: it starts itself with
//! one test to run, which is the command.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// The arguments, one a line.
const ARGUMENTS: &str = "FREEHOLD_TEST_ARGUMENTS";

/// What `freehold` prints on standard output with these arguments; it must succeed.
pub(crate) fn freehold(arguments: &[&str]) -> Vec<u8> {
    let own = std::env::current_exe().expect("this program");
    let done = Command::new(own)
        .args(["--exact", "commands::play", "--nocapture"])
        .env(ARGUMENTS, arguments.join("\n"))
        .env_remove("COLUMNS")
        .output()
        .expect("this program starts");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    // The harness says first that it runs one test.
    let at = done.stdout.iter().position(|byte| b"{[".contains(byte)).unwrap_or(0);
    done.stdout[at..].to_vec()
}

/// The command, where [`freehold`] asks for it.
#[test]
fn play() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let words: Vec<&str> = arguments.lines().collect();
    let named = |name: &str, rest: &[&str]| -> Vec<OsString> {
        std::iter::once(&name).chain(rest).map(OsString::from).collect()
    };
    let code = match words[0] {
        "replay" if matches!(words.get(1), Some(&("threads" | "fidelity"))) => {
            freehold_replay_modes::main(named("freehold-replay-modes", &words[1..]))
        }
        "bench" => freehold_bench::main(named("freehold-bench", &words[1..])),
        "simulate" => freehold_simulate::main(named("freehold-simulate", &words[1..])),
        "report" => freehold_report::main(named("freehold-report", &words[1..])),
        "compare" => freehold_report::main(named("freehold-report", &words)),
        _ => freehold_lab::main(named("freehold", &words)),
    };
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}
