//! The files that `--picture` names: one for each trace, opened before any work and written after it.
//!
//! A file is only emptied when its picture is there, so a trace that cannot be read leaves an older picture as it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use freehold_trace::Source;

use super::error::CliError;
use super::given;
use crate::replay::Replay;
use crate::report::picture;

/// A file that can be written to, waiting for its picture.
pub(super) struct PictureFile {
    path: PathBuf,
    file: File,
    /// Whether it was not there before.
    made: bool,
}

/// Opens the files for the pictures of `traces`, in their order; none at all stands for the sample. Of several traces,
/// each one's name goes into the file's: `p.svg` becomes `p-redis.svg`.
pub(super) fn open(path: &Path, traces: &[PathBuf], timeline: Option<&Path>) -> Result<Vec<PictureFile>, CliError> {
    given::svg(path)?;
    let mut files: Vec<PictureFile> = Vec::new();
    for path in paths(path, traces) {
        let same = |other: &Path| {
            other == path
                || fs::canonicalize(other)
                    .ok()
                    .is_some_and(|other| fs::canonicalize(&path).is_ok_and(|path| path == other))
        };
        let taken = if traces.iter().any(|trace| same(trace)) {
            Some("a trace")
        } else if timeline.is_some_and(same) {
            Some("the timeline")
        } else {
            None
        };
        let opened = match taken {
            Some(what) => Err(CliError::new(format!("the picture would overwrite {what}: {}", path.display()))
                .hint("give --picture another file")),
            None => PictureFile::open(path),
        };
        match opened {
            Ok(file) => files.push(file),
            Err(error) => {
                files.into_iter().for_each(PictureFile::discard);
                return Err(error);
            }
        }
    }
    Ok(files)
}

/// The file of each trace. Two traces of one name get numbers.
fn paths(path: &Path, traces: &[PathBuf]) -> Vec<PathBuf> {
    if traces.len() < 2 {
        return vec![path.to_owned()];
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut paths: Vec<PathBuf> = Vec::new();
    for trace in traces {
        let name = Source::from_arg(trace).name();
        // Nothing in a trace's name may lead into another folder.
        let name: String = name.chars().map(|c| if std::path::is_separator(c) { '_' } else { c }).collect();
        let numbered = |n: usize| {
            let number = if n == 1 { String::new() } else { format!("-{n}") };
            let ending = path.extension().map_or(String::new(), |ending| format!(".{}", ending.to_string_lossy()));
            path.with_file_name(format!("{stem}-{name}{number}{ending}"))
        };
        let free = (1..).map(numbered).find(|path| !paths.contains(path));
        paths.extend(free);
    }
    paths
}

impl PictureFile {
    fn open(path: PathBuf) -> Result<Self, CliError> {
        let made = !path.exists();
        match OpenOptions::new().write(true).create(true).truncate(false).open(&path) {
            Ok(file) => Ok(Self { path, file, made }),
            Err(error) => {
                Err(cannot_write(&path, &error)
                    .hint("give --picture a file in a folder that exists and may be written to"))
            }
        }
    }

    /// Draws.
    pub(super) fn write(mut self, replay: &Replay) -> Result<(), CliError> {
        let written = picture::render(replay).map_err(io::Error::other).and_then(|svg| {
            // Pipes and devices have no length to set.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            self.file.write_all(svg.as_bytes())
        });
        written.map_err(|error| cannot_write(&self.path, &error))
    }

    /// There will be no picture: nothing is left behind that was not there.
    pub(super) fn discard(self) {
        if self.made {
            // An empty file left over is no reason to fail.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    CliError::new(format!("cannot write the picture to {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str, traces: &[&str]) -> Vec<String> {
        let traces: Vec<PathBuf> = traces.iter().map(PathBuf::from).collect();
        paths(Path::new(path), &traces).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn several_traces_have_a_file_each() {
        assert_eq!(named("out/p.svg", &[]), ["out/p.svg"]);
        assert_eq!(named("out/p.svg", &["a/redis.parquet"]), ["out/p.svg"]);
        assert_eq!(named("out/p.svg", &["redis.parquet", "thp.txt.zst"]), ["out/p-redis.svg", "out/p-thp.svg"]);
        assert_eq!(named("p", &["a/x.parquet", "b/x.parquet", "-"]), ["p-x", "p-x-2", "p-stdin"]);
    }
}
