//! Files that options name: asked before the work whether they can be written, and written after
//! it.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::error::CliError;

/// What is to be written, and the option that says where.
#[derive(Clone, Copy)]
pub struct Target {
    what: &'static str,
    option: &'static str,
}

impl Target {
    pub const HTML: Self = Self { what: "page", option: "--html" };
    pub const METRICS: Self = Self { what: "metrics", option: "--prometheus" };
    pub const MODEL: Self = Self { what: "model", option: "--output" };
    pub const PAGE: Self = Self { what: "report", option: "-o" };
    pub const TRACE: Self = Self { what: "trace", option: "--output" };
    pub const PICTURE: Self = Self { what: "picture", option: "--picture" };

    /// Fails where the file, if one is wanted, cannot be written or is one of `others`. Leaves what
    /// is there as it is.
    pub fn check(self, path: Option<&PathBuf>, others: &[(&str, &Path)]) -> Result<(), CliError> {
        let Some(path) = path else { return Ok(()) };
        self.is_none_of(path, others)?;
        let found = path.metadata().ok();
        // A pipe that is opened and closed has ended for its reader.
        if found.as_ref().is_some_and(|found| !found.is_file() && !found.is_dir()) {
            return Ok(());
        }
        OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(
            |error| {
                let folder = folder(path);
                if folder.is_dir() {
                    return self.failed(path, &error);
                }
                self.failed(path, &format!("there is no folder {}", folder.display()))
            },
        )?;
        if found.is_none() {
            // An empty file left over is no reason to fail.
            let _ = fs::remove_file(path);
        }
        Ok(())
    }

    /// Fails where the file is one of `others`.
    fn is_none_of(self, path: &Path, others: &[(&str, &Path)]) -> Result<(), CliError> {
        match others.iter().find(|(_, other)| {
            !is_dash(other) && !is_dash(path) && resolved(other) == resolved(path)
        }) {
            Some((taken, _)) => Err(CliError::new(format!(
                "the {} would overwrite {taken}: {}",
                self.what,
                path.display()
            ))
            .hint(format!("give {} another file", self.option))),
            None => Ok(()),
        }
    }

    pub fn write(self, path: &Path, contents: impl AsRef<[u8]>) -> Result<(), CliError> {
        fs::write(path, contents).map_err(|error| self.failed(path, &error))
    }

    pub fn failed(self, path: &Path, error: &impl Display) -> CliError {
        CliError::new(format!("cannot write the {} to {}: {error}", self.what, path.display()))
            .hint(format!(
                "give {} a file in a folder that exists and may be written to",
                self.option
            ))
    }
}

/// Whether a path stands for standard input or output.
pub fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What a file is called whatever the way to it, there already or not.
fn resolved(path: &Path) -> PathBuf {
    let beside = |_| Ok(fs::canonicalize(folder(path))?.join(path.file_name().unwrap_or_default()));
    fs::canonicalize(path).or_else(beside).unwrap_or_else(|_: io::Error| path.to_owned())
}
