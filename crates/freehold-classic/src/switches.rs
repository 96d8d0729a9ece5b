//! Every change that the design went through, each a switch that can be on or off by itself.
//!
//! A preset is a set of switches ([`presets`](crate::presets)). Turning one off in an otherwise
//! equal engine shows what that one change is worth, which is how proposals argue and what their
//! benchmarks could not separate.

use core::fmt;

/// Where a change comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proposal {
    /// "Follow-up on high-order PCP caching", Mel Gorman, February 2022.
    HighOrderPcp,
    /// "Free contiguous order-0 pages efficiently", Ryan Roberts, January 2026.
    FreeContiguous,
    /// "pcp buddy allocator", Johannes Weiner, April 2026.
    PcpBuddy,
    /// What reviewers of the pcp-buddy proposal asked for, and what its author answered them.
    PcpBuddyReview,
    /// A change between the proposals that their kernels contain.
    Kernel,
    /// Nobody's in the threads: this project found the defect and chose the repair.
    FoundHere,
}

impl Proposal {
    /// The series' subject.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HighOrderPcp => "High-order PCP caching follow-up (2022)",
            Self::FreeContiguous => "Free contiguous order-0 pages (2026)",
            Self::PcpBuddy => "PCP buddy allocator (2026)",
            Self::PcpBuddyReview => "PCP buddy allocator, review (2026)",
            Self::Kernel => "kernel history",
            Self::FoundHere => "found here",
        }
    }

    /// Who posted it; `None` where that is not one person.
    #[must_use]
    pub const fn author(self) -> Option<&'static str> {
        match self {
            Self::HighOrderPcp => Some("Mel Gorman"),
            Self::FreeContiguous => Some("Ryan Roberts"),
            Self::PcpBuddy => Some("Johannes Weiner"),
            Self::PcpBuddyReview | Self::Kernel | Self::FoundHere => None,
        }
    }
}

macro_rules! switches {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $since:literal, $proposal:ident,
        $summary:literal $(, by $by:literal)? $(, until $until:literal)?
        $(, needs $($needs:ident)+)?;)*) => {
        /// One change to the design.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Switch {
            $($(#[$doc])* #[doc = $summary] $variant,)*
        }

        impl Switch {
            /// Every switch, oldest change first.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name used on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The first kernel that has the change; "RFC" for what was only posted, "review" for
            /// what was asked for, "here" for what neither was, "sysctl" for what is off unless an
            /// administrator sets it.
            #[must_use]
            pub const fn since(self) -> &'static str {
                match self { $(Self::$variant => $since,)* }
            }

            /// The first kernel that no longer has it.
            #[must_use]
            pub const fn until(self) -> Option<&'static str> {
                match self { $(Self::$variant => switches!(@first $($until)?),)* }
            }

            /// Whose idea it was: of what was posted the author, of what came up in a review who
            /// said it. `None` where the threads do not say, and for what was found here.
            #[must_use]
            pub const fn by(self) -> Option<&'static str> {
                match self { $(Self::$variant => match switches!(@first $($by)?) {
                    None => Proposal::$proposal.author(),
                    by => by,
                },)* }
            }

            /// The proposal it comes from.
            #[must_use]
            pub const fn proposal(self) -> Proposal {
                match self { $(Self::$variant => Proposal::$proposal,)* }
            }

            /// What it changes, in one sentence.
            #[must_use]
            pub const fn summary(self) -> &'static str {
                match self { $(Self::$variant => $summary,)* }
            }

            /// The switches without which this one has no meaning.
            #[must_use]
            pub const fn needs(self) -> &'static [Self] {
                match self { $(Self::$variant => &[$($(Self::$needs),+)?],)* }
            }
        }
    };
    (@first) => { None };
    (@first $text:literal) => { Some($text) };
}

switches! {
    CmaHalf = "cma-half", "5.8", Kernel,
        "Movable requests take CMA frames first while more than half of what is free is CMA; off: \
         last.";
    HighOrderPcp = "high-order-pcp", "5.14", HighOrderPcp,
        "The PCP keeps orders 1 to 3 and 9 as well; off (the 2022 series's 'revert'): order 0 \
         only.";
    RightBuddyPrefetch = "right-buddy-prefetch", "5.18", HighOrderPcp,
        "Bulk free prefetches the buddy of the chunk's own order, not always of order 0.";
    PindexRange = "pindex-range", "5.18", HighOrderPcp,
        "Bulk free narrows the range of lists it looks at as it finds them empty.", until "6.6";
    RangeWrap = "range-wrap", "5.18", HighOrderPcp,
        "The search for a list starts over where the narrowed range ends, not where all lists end \
         (as first posted).",
        by "Vlastimil Babka", until "6.6", needs PindexRange;
    SimpleSelection = "simple-selection", "5.18", HighOrderPcp,
        "Bulk free empties one list after the other instead of rotating with a growing share per \
         list.";
    RequestedFirst = "requested-first", "5.18", HighOrderPcp,
        "Bulk free starts with the list that overflowed, not with the one after it.",
        by "Vlastimil Babka", needs SimpleSelection;
    SinglePass = "single-pass", "5.18", HighOrderPcp,
        "Bulk free gives each chunk to the zone as it picks it, instead of collecting them on a \
         second list first.";
    HighOrderLimit = "high-order-limit", "5.18", HighOrderPcp,
        "A CPU that only frees gives its high-order pages back at once.", needs HighOrderPcp;
    ThpOneList = "thp-one-list", "6.0", Kernel,
        "One PCP list for all huge pages instead of one a type.", needs HighOrderPcp;
    AutoHigh = "auto-high", "6.7", Kernel,
        "The high mark tunes itself between high_min and high_max; refills grow with consecutive \
         allocations.";
    HighAtomicRounded = "highatomic-rounded", "6.8", Kernel,
        "The HIGHATOMIC reserve is 1 % of the zone rounded up to pageblocks, and nothing where \
         that is less than one; off: a pageblock more.";
    DrainPieces = "drain-pieces", "6.10", Kernel,
        "A drain of all gives up the locks after each 32 batches.";
    TypeHygiene = "type-hygiene", "6.10", Kernel,
        "A drained page goes to the list of its pageblock's type of now; merged pageblocks take \
         one type.";
    ThpByType = "thp-by-type", "6.10", Kernel,
        "Two order-9 PCP lists, movable and not, instead of one.", needs ThpOneList;
    ClaimSteal = "claim-steal", "6.15", Kernel,
        "Fallback first claims whole pageblocks from the largest order down, then takes single \
         pages from the smallest up.";
    RememberMode = "remember-mode", "6.15", Kernel,
        "A refill remembers which fallback stage served it and does not search the exhausted ones \
         again.", needs ClaimSteal;
    FreeHighHalf = "free-high-half", "6.16", Kernel,
        "High-order pages are given back after batch + high_min/2 consecutive frees, not after \
         batch.", needs AutoHigh HighOrderLimit;
    IsolateBit = "isolate-bit", "6.17", Kernel,
        "Isolation is a bit of its own: the pageblock's type survives it.";
    ChunkedDecay = "chunked-decay", "6.18", Kernel,
        "What decays goes back a batch at a time, each batch from the first list on; a huge page \
         counts as the batch.",
        needs AutoHigh;
    ChunkedDrain = "chunked-drain", "6.19", Kernel,
        "A drain after a free takes the zone lock for at most one batch at a time.";
    HighAtomicDirect = "highatomic-direct", "7.1", Kernel,
        "A HIGHATOMIC request finding its PCP list empty goes to the zone instead of refilling \
         the list.";
    ContigFree = "contig-free", "7.2", FreeContiguous,
        "A range or array of order-0 pages is freed in the largest aligned chunks.";
    ContigMaxOrder = "contig-max-order", "7.2", FreeContiguous,
        "Those chunks are of up to the largest order there is, not of at most a pageblock (as \
         first posted).",
        needs ContigFree;
    HighAtomicFirst = "highatomic-first", "7.3", Kernel,
        "A HIGHATOMIC request may use the reserve from its first attempt on, while memory is \
         plentiful; off: once that fails.";
    PageblockData = "pageblock-data", "RFC", PcpBuddy,
        "One struct a pageblock instead of packed bits.";
    Ownership = "ownership", "RFC", PcpBuddy,
        "PCP lists of every order up to a pageblock, split and kept by the CPU; pageblocks have \
         owners.", needs PageblockData HighOrderPcp;
    Route = "route", "RFC", PcpBuddy,
        "A freed page goes to the PCP of the CPU that owns its pageblock.", needs Ownership;
    Merge = "merge", "RFC", PcpBuddy,
        "Before a drain, buddies on the owner's PCP are merged bottom-up under the PCP lock.",
        needs Ownership;
    WholeFirst = "whole-first", "RFC", PcpBuddy,
        "Drains begin with whole pageblocks.", needs Ownership;
    FragmentTail = "fragment-tail", "RFC", PcpBuddy,
        "Drained fragments of owned blocks go to the tail of the zone's lists.", needs Ownership;
    Recover = "recover", "RFC", PcpBuddy,
        "Refill phase 0: take back fragments of owned blocks from the zone.", needs Ownership;
    Claim = "claim", "RFC", PcpBuddy,
        "Refill phase 1: take whole pageblocks and own them.", needs Ownership;
    Fragment = "fragment", "RFC", PcpBuddy,
        "Refill phase 2: take the largest chunks of the same type that fit.", needs Ownership;
    CmaPhases = "cma-phases", "review", PcpBuddyReview,
        "Phase 0 recovers CMA blocks for movable requests, phase 2 keeps the 50 % rule.",
        by "Frank van der Linden", needs Ownership;
    RemoteList = "remote-list", "review", PcpBuddyReview,
        "Remote frees go to a list that the owner absorbs (lock-free in the series; here with a lock \
         of its own); nobody takes another CPU's PCP lock to free.",
        by "Rik van Riel", needs Route;
    ForeignClaim = "foreign-claim", "here", FoundHere,
        "Phase 1 does not queue a block of a foreign type under the requested one (possible only \
         without type-hygiene).", needs Claim;
    MergeOnce = "merge-once", "here", FoundHere,
        "One merge pass a drain, not one before each of its chunks: the pass looks at everything \
         the PCP holds.", needs Merge;
    CountDrained = "count-drained", "here", FoundHere,
        "A drain in pieces of a batch counts the frames that went, not those asked for: a whole \
         block, eight times as many, ends it.",
        needs WholeFirst;
    OwnedByType = "owned-by-type", "review", PcpBuddyReview,
        "One list of owned blocks per migratetype, so that phase 0 does not walk past blocks of \
         other types.",
        by "Rik van Riel", needs Recover;
    PeerBlocks = "peer-blocks", "review", PcpBuddyReview,
        "A refill takes a whole pageblock from the next CPU that has one before it goes to the \
         zone; and instead of failing.",
        by "Zi Yan", needs Claim;
    MergeUnowned = "merge-unowned", "review", PcpBuddyReview,
        "Before a drain, buddies on the same PCP are merged without ownership, as a CPU number in \
         every page would allow.",
        by "Zi Yan";
    TargetedDrain = "targeted-drain", "review", PcpBuddyReview,
        "Isolating a range drains the CPUs that own its pageblocks, and the others only if frames \
         of it are left on PCPs.",
        by "Zi Yan, Johannes Weiner", needs Route;
    LeastDrain = "least-drain", "review", PcpBuddyReview,
        "Before every CPU is emptied, one after the other is asked for the frames that the \
         request lacks (a batch at least), and the request tried again.",
        by "Johannes Weiner, Zi Yan";
    DefragMode = "defrag-mode", "sysctl", Kernel,
        "vm.defrag_mode of 6.15 and later: nothing but whole blocks of another type is taken \
         before draining has failed to help.",
        by "Johannes Weiner";
}

impl Switch {
    /// The switch of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|switch| switch.name() == name)
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of switches that are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Switches(u64);

impl Switches {
    /// Nothing on: Linux 5.17 without what it had from before the proposals.
    pub const NONE: Self = Self(0);

    /// This set with `switch` on as well.
    #[must_use]
    pub const fn with(self, switch: Switch) -> Self {
        Self(self.0 | 1 << switch as u8)
    }

    /// This set with `switch` off.
    #[must_use]
    pub const fn without(self, switch: Switch) -> Self {
        Self(self.0 & !(1 << switch as u8))
    }

    /// Whether `switch` is on.
    #[inline]
    #[must_use]
    pub const fn has(self, switch: Switch) -> bool {
        self.0 & 1 << switch as u8 != 0
    }

    /// The switches that are on, oldest change first.
    pub fn iter(self) -> impl Iterator<Item = Switch> {
        Switch::ALL.iter().copied().filter(move |&switch| self.has(switch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found_again() {
        for &switch in Switch::ALL {
            assert_eq!(Switch::from_name(switch.name()), Some(switch));
        }
        assert_eq!(Switch::from_name("no-such-switch"), None);
        assert!(Switch::ALL.len() <= 64, "the set is one u64");
    }

    #[test]
    fn a_set_remembers_what_is_on() {
        let set = Switches::NONE.with(Switch::Merge).with(Switch::Claim).without(Switch::Merge);
        assert!(set.has(Switch::Claim) && !set.has(Switch::Merge));
        assert_eq!(set.iter().collect::<Vec<_>>(), [Switch::Claim]);
    }
}
