//! What users pick instead. Most are behind the feature `peers`; they are known by name in every
//! build, so that a build without them can say what is missing.

use freehold_trials::kinds::kinds;

pub struct About {
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
}

kinds! {
    /// An engine that is neither Freehold nor a design of the kernel's.
    Peer, About, ("engine", "bench -e help"):
    BuddySystem: About {
        name: "buddy_system_allocator",
        summary: "the buddy_system_allocator crate behind its spin lock, as most Rust kernels use it",
    },
    Mmap: About {
        name: "mmap",
        summary: "mmap and munmap, a system call each; frames cost nothing before they are touched",
    },
    Bitmap: About {
        name: "bitmap-allocator",
        summary: "the bitmap-allocator crate behind a spin lock, as several Rust kernels use it",
    },
    Mimalloc: About { name: "mimalloc", summary: "mimalloc's blocks of 4 KiB << order, aligned to 4 KiB" },
    Jemalloc: About { name: "jemalloc", summary: "jemalloc's blocks of 4 KiB << order, aligned to 4 KiB" },
    MimallocKeeps: About {
        name: "mimalloc-keeps",
        summary: "mimalloc told to give no memory back to the system",
    },
    JemallocKeeps: About {
        name: "jemalloc-keeps",
        summary: "jemalloc told to give no memory back to the system",
    },
    Snmalloc: About { name: "snmalloc", summary: "snmalloc's blocks of 4 KiB << order, aligned to 4 KiB" },
}

impl Peer {
    /// How to make a build that has them.
    pub const BUILD: &str = "cargo run --release -p freehold-lab --features peers -- bench ...";

    /// What has to be done before it can be measured; `None` where it can.
    pub fn needs(self) -> Option<String> {
        let is_there = cfg!(feature = "peers") || matches!(self, Self::BuddySystem | Self::Mmap);
        (!is_there).then(|| format!("engine {} needs a build with --features peers", self.name()))
    }
}
