//! Files that options name: asked before the work whether they can be written, and written after
//! it.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use super::error::CliError;
use super::output;

/// What is to be written, and the option that says where.
#[derive(Clone, Copy)]
pub struct Target {
    what: &'static str,
    option: &'static str,
}

impl Target {
    pub const METRICS: Self = Self { what: "metrics", option: "--prometheus" };
    pub const PAGE: Self = Self { what: "report", option: "-o" };
    pub const TRACE: Self = Self { what: "trace", option: "--output" };
    pub const HTML: Self = Self { what: "page", option: "--html" };
    pub const PICTURE: Self = Self { what: "picture", option: "--picture" };

    /// Fails where the file, if one is wanted, cannot be written. Leaves what is there as it is.
    pub fn check(self, path: Option<&PathBuf>) -> Result<(), CliError> {
        let Some(path) = path.filter(|path| !is_dash(path)) else { return Ok(()) };
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

    pub fn write(self, path: &Path, contents: impl AsRef<[u8]>) -> Result<(), CliError> {
        fs::write(path, contents).map_err(|error| self.failed(path, &error))
    }

    /// Writes so that a reader finds all of it or what was there before. A link is followed; what
    /// is no plain file (a device, a pipe, a terminal) is written to; '-' is standard output.
    pub fn replace(self, path: &Path, contents: &str) -> Result<(), CliError> {
        if is_dash(path) {
            return output::print(contents);
        }
        let is_link = path.is_symlink();
        let file = fs::canonicalize(path);
        let is_plain = file.as_ref().map_or(!is_link, |file| file.is_file());
        if !is_plain {
            return self.write(path, contents);
        }
        let file = file.unwrap_or_else(|_| path.to_owned());
        let unfinished = file.with_extension("unfinished");
        self.write(&unfinished, contents)?;
        fs::rename(&unfinished, &file).map_err(|error| self.failed(path, &error))
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

/// The folder of a file.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
