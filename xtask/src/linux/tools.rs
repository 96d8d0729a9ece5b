//! Other programs: run, with what they said where they fail.

use std::path::PathBuf;
use std::process::Command;

use super::Trouble;

/// Runs it; what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String, Trouble> {
    let name = command.get_program().to_string_lossy().into_owned();
    let missing = |error| Trouble::Missing(format!("{name} cannot be run: {error}"));
    let done = command.output().map_err(missing)?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    if done.status.success() {
        return Ok(said);
    }
    let complained = String::from_utf8_lossy(&done.stderr);
    Err(Trouble::Wrong(format!("{name} fails:\n{}{}", said, complained.trim_end())))
}

/// Runs it for what it does.
pub(crate) fn run(command: &mut Command) -> Result<(), Trouble> {
    output(command).map(drop)
}

/// What `ldd` found: libraries go to /lib, where they are looked for without being told, the loader
/// to where it must be.
pub(super) fn libraries(said: &str) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [name, "=>", path, _] => found.push((format!("lib/{name}"), path.into())),
            [path, _] if path.starts_with('/') => {
                found.push((path.trim_start_matches('/').to_owned(), path.into()))
            }
            _ => {}
        }
    }
    found
}

#[test]
fn the_loader_and_the_libraries_are_found() {
    let said = "\tlinux-vdso.so.1 (0x0007)\n\tlibz.so.1 => /lib/x86/libz.so.1 \
                (0x7f)\n\t/lib64/ld-linux.so.2 (0x8)\n";
    let pair = |name: &str, path: &str| (name.to_owned(), PathBuf::from(path));
    let library = pair("lib/libz.so.1", "/lib/x86/libz.so.1");
    let loader = pair("lib64/ld-linux.so.2", "/lib64/ld-linux.so.2");
    assert_eq!(libraries(said), [library, loader]);
}
