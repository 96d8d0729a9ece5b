//! Where things are: the workspace, what is built, programs, parts of rustc.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A setting of cargo's (`--config`), for release builds in which something else than the
/// workspace's own crates is hot, as loom, or `core` where that is compiled, too: `Cargo.toml` has
/// dependencies compiled for nothing.
pub(crate) const OPTIMISED: &str = "profile.release.package.\"*\".opt-level=3";

pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A folder of rustc's, below `lib/rustlib`.
pub(crate) fn of_rustc(folder: &str) -> PathBuf {
    let told = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = told.map(|done| String::from_utf8_lossy(&done.stdout).into_owned());
    Path::new(sysroot.unwrap_or_default().trim()).join("lib/rustlib").join(folder)
}

/// Where everything is built: named to cargo, too, so that no configuration of the user's can put
/// it elsewhere.
pub(crate) fn target() -> PathBuf {
    root().join(
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from),
    )
}
