//! The C and C++ programs, by `make check`, against the library that cargo has just built for this
//! very test. What is left out here for its length, `make check` does without `QUICK`.
#![cfg(all(target_os = "linux", feature = "std"))]

use std::env;
use std::process::Command;

#[test]
fn the_c_interface_passes_make_check() {
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !has("make") || !has("cc") {
        eprintln!("SKIPPED the C programs: there is no make, or no cc");
        return;
    }
    // Cargo puts the libraries where this test's own executable is.
    let test = env::current_exe().expect("a test has a path");
    let built = test.parent().expect("in a directory").display();
    // An example to cargo, which builds it before all tests, but not for this one alone.
    let malloc = test.with_file_name("../examples/libfreehold_malloc.so");
    if !malloc.exists() {
        let folder = test.ancestors().nth(2).and_then(|folder| folder.file_name());
        let profile = folder.filter(|name| *name != "debug").unwrap_or("dev".as_ref());
        let build = Command::new(env!("CARGO"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["build", "--quiet", "--example", "freehold_malloc", "--profile"])
            .arg(profile)
            // Where it is run by another command than `cargo test`, too.
            .arg("--target-dir")
            .args(test.ancestors().nth(3))
            .status();
        assert!(build.is_ok_and(|status| status.success()) && malloc.exists(), "{malloc:?}");
    }
    let malloc = malloc.display();
    let done = Command::new("make")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // Not this cargo's own job server and flags.
        .env_remove("MAKEFLAGS")
        .env_remove("CARGO_MAKEFLAGS")
        .args(["--silent", "check", "PREBUILT=1", "QUICK=1"])
        .arg(format!("BUILD={built}"))
        .arg(format!("MALLOC={malloc}"))
        .arg(format!("CHECK={}/freehold-ffi", env!("CARGO_TARGET_TMPDIR")))
        .output()
        .expect("make is there");
    let said = String::from_utf8_lossy(&done.stdout);
    let complained = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}{complained}");
    assert!(said.contains("everything passed"), "{said}");
    // What was skipped, past the test harness's capture.
    complained.lines().filter(|line| line.starts_with("SKIPPED")).for_each(|line| {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{line}\n").as_bytes());
    });
}
