//! What users pick instead, behind the feature `peers`: known by name in every build, so that a build without them can
//! say what is missing.

use crate::kinds::kinds;

/// What is printed of a peer.
pub struct About {
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
}

kinds! {
    /// A peer from crates.io that ordinary builds leave out.
    Peer, About, ("engine", "bench -e help"):
    Bitmap: About {
        name: "bitmap-allocator",
        summary: "the bitmap-allocator crate behind a spin lock, as several Rust kernels use it",
    },
    Mimalloc: About { name: "mimalloc", summary: "mimalloc's blocks of 4 KiB << order, aligned to 4 KiB" },
    Jemalloc: About { name: "jemalloc", summary: "jemalloc's blocks of 4 KiB << order, aligned to 4 KiB" },
    Snmalloc: About { name: "snmalloc", summary: "snmalloc's blocks of 4 KiB << order, aligned to 4 KiB" },
}

impl Peer {
    /// How to make a build that has them.
    pub const BUILD: &str = "cargo run --release -p freehold-lab --features peers -- bench ...";

    /// What has to be done before it can be measured; `None` where it can.
    pub fn needs(self) -> Option<String> {
        (!cfg!(feature = "peers")).then(|| format!("engine {} needs a build with --features peers", self.name()))
    }
}
