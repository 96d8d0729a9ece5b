//! How much memory this process's control group may use, read from the kernel's own texts.
//!
//! ```text
//! /proc/self/cgroup                                  "0::/user.slice/job"       version 2
//! /sys/fs/cgroup/user.slice/job/memory.max           "1073741824" or "max"
//! /sys/fs/cgroup/user.slice/memory.max               each group above limits it, too
//! /sys/fs/cgroup/user.slice/job/memory.current       "52428800"
//!
//! /proc/self/cgroup                                  "7:memory:/job"            version 1
//! /sys/fs/cgroup/memory/job/memory.limit_in_bytes, memory.usage_in_bytes
//! ```

use std::path::Path;

/// Limits of version 1 that are none: the largest multiple of a page in an `i64`.
const NONE: u64 = 1 << 62;

/// What the control group of this process may use, and does.
///
/// ```
/// use freehold_host::{Arena, ControlGroup};
///
/// // At most half of what the group may use.
/// let limit = ControlGroup::read().map_or(u64::MAX, |group| group.limit / 2);
/// let arena = Arena::builder(64 << 20).resident_limit(limit.max(2 << 20)).build()?;
/// # Ok::<(), freehold_host::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ControlGroup {
    /// Bytes that it may use: the least of its own limit and those above it.
    pub limit: u64,
    /// Bytes in use by the group that has this limit, all of its processes together.
    pub used: u64,
}

impl ControlGroup {
    /// This process's. `None` where nothing limits it, or the kernel does not say.
    #[must_use]
    pub fn read() -> Option<Self> {
        Self::read_below(Path::new("/"))
    }

    /// As the files below another directory than `/` have it: for programs that see the machine's
    /// own ones elsewhere, and for tests.
    #[must_use]
    pub fn read_below(root: &Path) -> Option<Self> {
        Self::of(|path| std::fs::read_to_string(root.join(path)).ok())
    }

    /// From texts by path.
    fn of(text: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let groups = text("proc/self/cgroup")?;
        let of_version = |line: &str| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let names = match (number, controllers) {
                ("0", "") => ("sys/fs/cgroup", "memory.max", "memory.current"),
                _ if controllers.split(',').any(|name| name == "memory") => {
                    ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
                }
                _ => return None,
            };
            Some((names, path.trim_matches('/').to_owned()))
        };
        let found = groups.lines().filter_map(of_version).flat_map(|((root, max, used), path)| {
            let text = &text;
            // The group itself, and those above it up to the root, as this process sees them.
            let ends: Vec<usize> = path.match_indices('/').map(|(end, _)| end).collect();
            let above = [path.len()].into_iter().chain(ends.into_iter().rev()).chain([0]);
            let folders: Vec<String> = above.map(|end| path[..end].to_owned()).collect();
            folders.into_iter().filter_map(move |folder| {
                let number = |name: &str| {
                    let folder =
                        if folder.is_empty() { String::new() } else { format!("/{folder}") };
                    text(&format!("{root}{folder}/{name}"))?.trim().parse::<u64>().ok()
                };
                let limit = number(max).filter(|&limit| limit < NONE)?;
                Some(Self { limit, used: number(used).unwrap_or(0) })
            })
        });
        found.min_by_key(|group| group.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(files: &[(&str, &str)]) -> Option<ControlGroup> {
        ControlGroup::of(|path| {
            files.iter().find(|(name, _)| *name == path).map(|(_, text)| format!("{text}\n"))
        })
    }

    #[test]
    fn the_least_limit_from_the_group_upwards_counts() {
        let mut files = vec![
            ("proc/self/cgroup", "0::/user.slice/job"),
            ("sys/fs/cgroup/user.slice/job/memory.max", "max"),
            ("sys/fs/cgroup/user.slice/job/memory.current", "100"),
            ("sys/fs/cgroup/user.slice/memory.max", "4096"),
            ("sys/fs/cgroup/user.slice/memory.current", "300"),
        ];
        assert_eq!(group(&files), Some(ControlGroup { limit: 4096, used: 300 }));
        files[1].1 = "2048";
        assert_eq!(group(&files), Some(ControlGroup { limit: 2048, used: 100 }));
        assert_eq!(group(&files[..1]), None);
        assert_eq!(group(&[]), None);
    }

    #[test]
    fn version_one_says_so_with_other_names() {
        let files = [
            ("proc/self/cgroup", "8:cpu,cpuacct:/a\n7:memory:/a/b\n0::/"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "8192"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "5"),
        ];
        assert_eq!(group(&files), Some(ControlGroup { limit: 8192, used: 5 }));
    }
}
