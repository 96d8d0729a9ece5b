//! Limits of a control group: one that is made for the test where this process may, and texts of one
//! where it may not.

use std::fs;
use std::path::{Path, PathBuf};

use freehold_host::{Arena, ControlGroup, Error};

use crate::common::child::fork;
use crate::common::skipped;

const MIB: u64 = 1 << 20;

/// A group below this process's own, or below the root, with a limit; gone when dropped.
struct Group(PathBuf);

impl Group {
    fn with_limit(bytes: u64) -> Result<Self, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mut why = String::from("no group that limits memory");
        for line in groups.lines() {
            let parts: Vec<_> = line.splitn(3, ':').collect();
            let [_, controllers, path] = parts[..] else { continue };
            let (root, limit) = match controllers {
                "" => ("/sys/fs/cgroup", "memory.max"),
                _ if controllers.split(',').any(|name| name == "memory") => {
                    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
                }
                _ => continue,
            };
            for above in [path.trim_matches('/'), ""] {
                let name = format!("freehold-test-{}", std::process::id());
                let folder = Path::new(root).join(above).join(name);
                // Of version 2 a group has a limit only where the one above it hands that on.
                let made =
                    fs::create_dir(&folder).map(|()| Self(folder.clone())).and_then(|made| {
                        fs::write(folder.join(limit), bytes.to_string()).map(|()| made)
                    });
                match made {
                    Ok(made) => return Ok(made),
                    Err(error) => why = format!("{}: {error}", folder.display()),
                }
            }
        }
        Err(why)
    }

    /// Moves the calling process into it.
    fn join(&self) -> std::io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), std::process::id().to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just ended may still count for a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        skipped("removing a control group", &self.0.display());
    }
}

#[test]
fn an_arena_keeps_to_half_of_what_its_control_group_may_use() {
    let test = "an_arena_keeps_to_half_of_what_its_control_group_may_use";
    let group = match Group::with_limit(96 * MIB) {
        Ok(group) => group,
        Err(why) => return skipped(test, &why),
    };
    let status = fork(|| {
        if let Err(error) = group.join() {
            skipped(test, &error);
            return true;
        }
        let told = ControlGroup::read().unwrap();
        assert_eq!(told.limit, 96 * MIB);
        // Much more than the group may use: without a limit of its own this process would be killed.
        let arena = Arena::builder(1 << 30).resident_limit(told.limit / 2).build().unwrap();
        let mut held = Vec::new();
        let refused = loop {
            match arena.frames(256) {
                Ok(mut frames) => {
                    frames.fill(1);
                    held.push(frames);
                }
                Err(error) => break error,
            }
        };
        assert_eq!(refused, Error::Limit { bytes: 48 * MIB });
        let full = ControlGroup::read().unwrap().used;
        // The kernel counts in batches, a few pages for each CPU.
        assert!((44 * MIB..=96 * MIB).contains(&full), "{full}");
        held.clear();
        arena.trim().unwrap();
        let less = ControlGroup::read().unwrap().used;
        assert!(less <= full - 40 * MIB, "{less} of {full}");
        true
    });
    assert_eq!(status, 0);
}

#[test]
fn the_limit_of_a_control_group_is_read_below_any_directory() {
    let root = std::env::temp_dir().join(format!("freehold-group-{}", std::process::id()));
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/self/cgroup", "0::/job/part\n");
    assert_eq!(ControlGroup::read_below(&root), None, "nothing limits it");
    write("sys/fs/cgroup/job/part/memory.max", "max\n");
    write("sys/fs/cgroup/job/memory.max", "1048576\n");
    write("sys/fs/cgroup/job/memory.current", "4096\n");
    let read = ControlGroup::read_below(&root).unwrap();
    assert_eq!((read.limit, read.used), (MIB, 4096));
    fs::remove_dir_all(&root).unwrap();
}
