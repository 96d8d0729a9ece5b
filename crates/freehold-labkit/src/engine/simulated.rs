//! What the simulator needs of an engine beside [`Engine`]: what a call has done, whose lists a
//! frame goes home to, and the call as it goes where a lock is found busy.
//!
//! The engines count under their own locks. One thread plays all CPUs, so what a call did is the
//! difference of a few counters before and after it; nothing is added to the engines' paths for it.

use freehold::{AllocError, CpuId, Pfn};
use serde::{Deserialize, Serialize};

use super::{Engine, Request, count};

/// How a design shares its lists, which is what the cost of a call depends on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// A CPU frees to its own lists: every kernel up to 7.3.
    Lists,
    /// A free goes to the lists of the pageblock's owner, under that CPU's lock: pcp-buddy as
    /// posted.
    Owners,
    /// A free goes to a lock-free list of the pageblock's owner: pcp-buddy with `remote-list`.
    OwnersRemoteList,
    /// A free sets a bit of its block, by one atomic where another CPU holds the block: freehold.
    Freehold,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Lists, Self::Owners, Self::OwnersRemoteList, Self::Freehold];

    /// The engine that its costs are measured on.
    #[must_use]
    pub const fn measured_on(self) -> &'static str {
        match self {
            Self::Lists => "vanilla",
            Self::Owners => "pcp-buddy",
            Self::OwnersRemoteList => "pcp-buddy-fixed",
            Self::Freehold => "freehold",
        }
    }
}

/// Totals of one CPU and of a zone; a call did what they grow by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// Holds of the zone lock.
    pub holds: u64,
    /// Steps in them.
    pub steps: u64,
    /// Chunks split, merged or taken over under the CPU's own lock; refills, for freehold.
    pub changes: u64,
    /// List entries that merge passes looked at.
    pub merge_steps: u64,
    /// Frames that came from the zone's lists.
    pub refilled: u64,
    /// Heavy barriers, as [`Simulated::heavy_barriers`].
    pub barriers: u64,
}

count! { Marks: holds steps changes merge_steps refilled barriers }

/// An engine that can be simulated.
pub trait Simulated: Engine {
    /// How it shares its lists.
    fn family(&self) -> Family;

    /// What has been done so far: under a zone's lock, and under `cpu`'s for that zone. Zones are
    /// numbered by rising address. Constant time.
    fn marks(&self, zone: usize, cpu: CpuId) -> Marks;

    /// The CPU whose lists or blocks a frame goes home to; `None`: the freeing CPU's, or the
    /// zone's.
    fn home(&self, pfn: Pfn) -> Option<CpuId>;

    /// An allocation that finds its CPU's lock held by somebody else.
    ///
    /// # Errors
    ///
    /// As [`Engine::alloc`].
    fn alloc_finding_busy(&self, cpu: CpuId, request: Request) -> Result<Pfn, AllocError>;

    /// Times that all CPUs were made to pass a full memory barrier because somebody reached into a
    /// CPU's state; 0 for designs without such barriers.
    fn heavy_barriers(&self) -> u64 {
        0
    }
}
