//! Packages of the distribution: downloaded and unpacked into a folder. Nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Trouble;
use super::tools::{output, run};

pub(super) fn unpack(package: &Path, folder: &Path) -> Result<(), Trouble> {
    run(Command::new("dpkg-deb").arg("-x").arg(package).arg(folder))
}

pub(super) fn apt_get_download(folder: &Path, names: &[&str]) -> Result<(), Trouble> {
    let mut apt = Command::new("apt-get");
    apt.current_dir(folder).args(["-qq", "download"]).args(names);
    output(&mut apt).map(drop).map_err(|error| {
        let why = "cannot be downloaded (apt-get update may help)";
        Trouble::Missing(format!("{} {why}: {error}", names.join(", ")))
    })
}

pub(super) fn files_ending_in(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, Trouble> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
