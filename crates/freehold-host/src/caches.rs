//! How many of the machine's CPUs share a last-level cache, read from the kernel's own texts: as
//! many of an arena's CPUs hold pageblocks together.
//!
//! ```text
//! /sys/devices/system/cpu/online                              "0-15"          CPUs
//! /sys/devices/system/cpu/cpu0/cache/index3/level             "3"             how far from the CPU
//! /sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list   "0-7"           whose it is
//! ```
//!
//! The number is all that is taken over, not which CPUs these are: an arena's CPUs are threads,
//! which the kernel moves about. For the same reason fewer than the allocator's own 16 count as
//! nothing known: a program may have more threads than the machine has CPUs, and small groups would
//! keep blocks apart that have no caches of their own.

use std::path::Path;
use std::sync::OnceLock;

use crate::numa::parse_list;

/// Groups of the allocator where nobody tells it anything.
const USUAL: u16 = 16;
/// Kinds of caches that are looked at: there are four, of data, of instructions, and two of both.
const KINDS: u32 = 16;

/// More than 16 CPUs that share a cache on this machine, if so many do. Read once.
pub(crate) fn cpus_per_cache() -> Option<u16> {
    static FOUND: OnceLock<Option<u16>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let directory = Path::new("/sys/devices/system/cpu");
        worth_telling(most_per_cache(|path| std::fs::read_to_string(directory.join(path)).ok()))
    })
}

fn worth_telling(per_cache: Option<u16>) -> Option<u16> {
    per_cache.filter(|&cpus| cpus > USUAL)
}

/// The CPUs of the cache that most share, of those furthest from each CPU. `None` where the kernel
/// tells of none. Looks at one CPU of each cache.
fn most_per_cache(mut text: impl FnMut(&str) -> Option<String>) -> Option<u16> {
    let mut left = parse_list(&text("online")?)?;
    let mut most = 0;
    while let Some(&cpu) = left.first() {
        let sharing = last_level(cpu, &mut text).unwrap_or_default();
        most = most.max(sharing.len());
        left.retain(|&other| other != cpu && !sharing.contains(&other));
    }
    u16::try_from(most).ok().filter(|&most| most != 0)
}

/// Whose the cache furthest from that CPU is.
fn last_level(cpu: u32, text: &mut impl FnMut(&str) -> Option<String>) -> Option<Vec<u32>> {
    let mut file = |kind: u32, name: &str| text(&format!("cpu{cpu}/cache/index{kind}/{name}"));
    let level = |kind| Some((file(kind, "level")?.trim().parse::<u32>().ok()?, kind));
    let (_, last) = (0..KINDS).map_while(level).max()?;
    parse_list(&file(last, "shared_cpu_list")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose last-level caches are these CPUs', each CPU also with caches of its own, and
    /// its kernel's texts.
    fn machine(
        online: &'static str,
        caches: &'static [&'static str],
    ) -> impl FnMut(&str) -> Option<String> {
        move |path| {
            if path == "online" {
                return Some(format!("{online}\n"));
            }
            let (cpu, rest) = path.strip_prefix("cpu")?.split_once("/cache/index")?;
            let cpu: u32 = cpu.parse().ok()?;
            let text = match rest {
                "0/level" | "1/level" => "1".to_owned(),
                "2/level" => "2".to_owned(),
                "3/level" => "3".to_owned(),
                "3/shared_cpu_list" => {
                    let shared =
                        |list: &&&str| parse_list(list).is_some_and(|cpus| cpus.contains(&cpu));
                    (*caches.iter().find(shared)?).to_owned()
                }
                _ => return None,
            };
            Some(text + "\n")
        }
    }

    #[test]
    fn the_cache_that_most_share_counts() {
        // Two sockets of 8 cores and 16 threads; four caches of 4 cores; one cache smaller than the
        // others.
        assert_eq!(most_per_cache(machine("0-31", &["0-7,16-23", "8-15,24-31"])), Some(16));
        assert_eq!(most_per_cache(machine("0-15", &["0-3", "4-7", "8-11", "12-15"])), Some(4));
        assert_eq!(most_per_cache(machine("0-5", &["0", "1-5"])), Some(5));
    }

    #[test]
    fn a_machine_without_a_third_level_has_its_second_one() {
        let texts = |path: &str| {
            let text = match path {
                "online" => "0-3",
                "cpu0/cache/index0/level" => "1",
                "cpu0/cache/index1/level" => "2",
                "cpu0/cache/index1/shared_cpu_list" => "0-3",
                _ => return None,
            };
            Some(text.to_owned())
        };
        assert_eq!(most_per_cache(texts), Some(4));
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_not_known() {
        assert_eq!(most_per_cache(|_| None), None);
        assert_eq!(most_per_cache(machine("0-3", &[])), None);
        assert_eq!(most_per_cache(machine("x", &["0-3"])), None);
        // Of CPU 2 nothing is known; the others count.
        assert_eq!(most_per_cache(machine("0-2", &["0-1"])), Some(2));
        assert_eq!(most_per_cache(machine("0-1", &["0-4294967295"])), None);
    }

    #[test]
    fn each_cache_is_looked_at_once() {
        let mut looks = 0;
        let mut texts = machine("0-31", &["0-15", "16-31"]);
        let counted = |path: &str| {
            looks += u32::from(path.ends_with("shared_cpu_list"));
            texts(path)
        };
        assert_eq!(most_per_cache(counted), Some(16));
        assert_eq!(looks, 2);
    }

    #[test]
    fn groups_smaller_than_the_usual_ones_are_not_asked_for() {
        assert_eq!(
            [None, Some(2), Some(16), Some(17)].map(worth_telling),
            [None, None, None, Some(17)]
        );
    }
}
