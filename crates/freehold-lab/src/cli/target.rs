//! Files that options name: asked before the work whether they can be written, and written after
//! it.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
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
    pub const ROWS: Self = Self { what: "rows", option: "--output" };
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

    /// As [`replace_with`](Self::replace_with), of what is there as a whole.
    pub fn replace(self, path: &Path, contents: &str) -> Result<(), CliError> {
        let failed = |error| self.failed(path, &error);
        self.replace_with(path, |out| out.write_all(contents.as_bytes()).map_err(failed))
    }

    /// Writes so that a reader finds all of it or what was there before; after an error, too. A
    /// link is followed; what is no plain file (a device, a pipe, a terminal) is written to, and so
    /// is a file in a folder that takes no other; '-' is standard output.
    pub fn replace_with<T>(
        self,
        path: &Path,
        write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        if is_dash(path) {
            return output::stream(write);
        }
        let failed = |error| self.failed(path, &error);
        let is_link = path.is_symlink();
        let file = fs::canonicalize(path);
        let is_plain = file.as_ref().map_or(!is_link, |file| file.is_file());
        let file = file.unwrap_or_else(|_| path.to_owned());
        let mut unfinished = file.clone().into_os_string();
        unfinished.push(".unfinished");
        let beside = if is_plain { File::create(&unfinished).ok() } else { None };
        let Some(mut out) = beside.map(BufWriter::new) else {
            let mut out = BufWriter::new(File::create(path).map_err(failed)?);
            let done = write(&mut out)?;
            return out.flush().map(|()| done).map_err(failed);
        };
        let done = write(&mut out).and_then(|done| {
            out.flush().and_then(|()| fs::rename(&unfinished, &file)).map_err(failed)?;
            Ok(done)
        });
        if done.is_err() {
            // The error that matters is the first.
            let _ = fs::remove_file(&unfinished);
        }
        done
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

pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
