//! What users pick instead. Most are behind the feature `peers`, which builds from the registry
//! alone, one behind a feature of its own; they are known by name in every build, so that a build
//! without them can say what is missing.

use crate::trials::kinds::kinds;

pub struct About {
    pub name: &'static str,
    pub summary: &'static str,
}

kinds! {
    /// An engine that is neither Freehold nor a design of the kernel's.
    Peer, About, ("engine", "bench -e help"):
    BuddySystem: About {
        name: "buddy_system_allocator",
        summary: "the buddy_system_allocator crate behind its spin lock, as most Rust kernels use \
                  it",
    },
    Mimalloc: About { name: "mimalloc", summary: "mimalloc's blocks of 4 KiB << order, aligned to 4 KiB" },
    Jemalloc: About { name: "jemalloc", summary: "jemalloc's blocks of 4 KiB << order, aligned to 4 KiB" },
    Snmalloc: About { name: "snmalloc", summary: "snmalloc's blocks of 4 KiB << order, aligned to 4 KiB" },
    Llfree: About {
        name: "llfree",
        summary: "LLFree's implementation in C, its classes and policy for movable frames, a slot \
                  for each CPU",
    },
}

impl Peer {
    /// The feature of a build that has it, and whether this build has that feature; `None` where
    /// every build has it.
    const fn feature(self) -> Option<(&'static str, bool)> {
        match self {
            Self::BuddySystem => None,
            Self::Llfree => Some(("llfree", cfg!(feature = "llfree"))),
            _ => Some(("peers", cfg!(feature = "peers"))),
        }
    }

    /// The feature that this build would need to measure it; `None` where it can.
    pub fn missing(self) -> Option<&'static str> {
        self.feature().and_then(|(name, is_there)| (!is_there).then_some(name))
    }

    /// What has to be done before it can be measured; `None` where it can.
    pub fn needs(self) -> Option<String> {
        let feature = self.missing()?;
        Some(format!("engine {} needs a build with --features {feature}", self.name()))
    }

    /// How to make a build that has it.
    pub fn build(self) -> String {
        let before = match self {
            Self::Llfree => {
                "git clone https://github.com/luhsra/llfree-c; export LLFREE_C=$PWD/llfree-c; "
            }
            _ => "",
        };
        let (name, feature) = (self.name(), self.feature().map_or("peers", |known| known.0));
        format!(
            "{before}cargo run --profile measure -p freehold-lab --features {feature} -- bench -e \
             {name} ..."
        )
    }
}
