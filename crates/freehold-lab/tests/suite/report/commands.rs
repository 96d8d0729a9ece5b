//! The commands whose results are reported and compared.

use std::process::Command;

/// What `freehold` prints on standard output with these arguments; it must succeed.
pub(crate) fn freehold(arguments: &[&str]) -> Vec<u8> {
    let done = Command::new(env!("CARGO_BIN_EXE_freehold"))
        .args(arguments)
        .env_remove("COLUMNS")
        .output()
        .expect("it starts");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}
