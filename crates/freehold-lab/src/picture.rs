//! The files that `--picture` names: one for each trace, looked at before any work and written
//! after it, so that a trace that cannot be read leaves an older picture as it was.

use std::path::{Path, PathBuf};

use freehold_trace::Source;

use super::error::CliError;
use super::given;
use super::target::Target;

/// The files for the pictures of `traces`, in their order, where they can be written; none at all
/// stands for the sample. Of several traces, each one's name goes into the file's: `p.svg` becomes
/// `p-redis.svg`.
pub(super) fn files(
    path: Option<&PathBuf>,
    traces: &[PathBuf],
    others: &[(&str, &Path)],
) -> Result<Vec<PathBuf>, CliError> {
    let Some(path) = path else { return Ok(Vec::new()) };
    given::svg(path)?;
    let paths = paths(path, traces);
    paths.iter().try_for_each(|path| Target::PICTURE.check(Some(path), others))?;
    Ok(paths)
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
        let name: String =
            name.chars().map(|c| if std::path::is_separator(c) { '_' } else { c }).collect();
        let numbered = |n: usize| {
            let number = if n == 1 { String::new() } else { format!("-{n}") };
            let ending = path
                .extension()
                .map_or(String::new(), |ending| format!(".{}", ending.to_string_lossy()));
            path.with_file_name(format!("{stem}-{name}{number}{ending}"))
        };
        let free = (1..).map(numbered).find(|path| !paths.contains(path));
        paths.extend(free);
    }
    paths
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
        assert_eq!(
            named("out/p.svg", &["redis.parquet", "thp.txt.zst"]),
            ["out/p-redis.svg", "out/p-thp.svg"]
        );
        assert_eq!(named("p", &["a/x.parquet", "b/x.parquet", "-"]), ["p-x", "p-x-2", "p-stdin"]);
    }
}
