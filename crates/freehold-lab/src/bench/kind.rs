//! Which benchmarks there are, by name, in the order in which they are listed and run. What each
//! is:
//! [`catalogue`](super::catalogue).

use crate::trials::kinds::names;

names! {
    Kind, ("benchmark", "bench --list"):
    Pair: "pair",
    Bulk: "bulk",
    RandomFree: "random-free",
    Order9Split: "order9-split",
    Contig: "contig",
    ProducerConsumer: "producer-consumer",
    RemoteFree: "remote-free",
    TwoThreads: "two-threads",
    SixteenThreads: "sixteen-threads",
    Depth: "depth",
    Churn: "churn",
    Mixed: "mixed",
    Orders: "orders",
    Doors: "doors",
    Tails: "tails",
    StartUp: "start-up",
    CmaRange: "cma-range",
    ManyAllocFewFree: "many-alloc-few-free",
    FewAllocManyFree: "few-alloc-many-free",
    NetperfLike: "netperf-like",
    ExitAvalanche: "exit-avalanche",
    PageFault1: "page-fault1",
    PageFault2: "page-fault2",
    Trunc: "trunc",
    Vmalloc: "vmalloc",
    Lazyfree: "lazyfree",
    GiveBack: "give-back",
    Arena: "arena",
}

impl Kind {
    /// Whether its timed loops write to the frames they allocate.
    pub const fn writes_memory(self) -> bool {
        matches!(
            self,
            Self::ManyAllocFewFree
                | Self::FewAllocManyFree
                | Self::NetperfLike
                | Self::PageFault1
                | Self::PageFault2
                | Self::Trunc
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("bulc".parse::<Kind>().unwrap_err().to_string().contains("did you mean 'bulk'"));
    }
}
