//! What users pick instead, behind the feature `peers`: known by name in every build, so that a build without them can
//! say what is missing.

/// A peer from crates.io that ordinary builds leave out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Peer {
    /// `bitmap-allocator`, of several Rust kernels.
    Bitmap,
    Mimalloc,
    Jemalloc,
    Snmalloc,
}

impl Peer {
    pub const ALL: [Self; 4] = [Self::Bitmap, Self::Mimalloc, Self::Jemalloc, Self::Snmalloc];

    /// How to make a build that has them.
    pub const BUILD: &str = "cargo run --release -p freehold-lab --features peers -- bench ...";

    pub const fn name(self) -> &'static str {
        match self {
            Self::Bitmap => "bitmap-allocator",
            Self::Mimalloc => "mimalloc",
            Self::Jemalloc => "jemalloc",
            Self::Snmalloc => "snmalloc",
        }
    }

    pub const fn summary(self) -> &'static str {
        match self {
            Self::Bitmap => "the bitmap-allocator crate behind a spin lock, as several Rust kernels use it",
            Self::Mimalloc => "mimalloc's blocks of 4 KiB << order, aligned to 4 KiB",
            Self::Jemalloc => "jemalloc's blocks of 4 KiB << order, aligned to 4 KiB",
            Self::Snmalloc => "snmalloc's blocks of 4 KiB << order, aligned to 4 KiB",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|peer| peer.name() == name)
    }

    /// What has to be done before it can be measured; `None` where it can.
    pub fn needs(self) -> Option<String> {
        (!cfg!(feature = "peers")).then(|| format!("engine {} needs a build with --features peers", self.name()))
    }
}
