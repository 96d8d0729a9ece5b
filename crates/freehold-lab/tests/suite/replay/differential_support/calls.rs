//! What a history is made of.

use proptest::prelude::*;

use super::CPUS;

#[derive(Clone, Copy, Debug)]
pub enum Call {
    Alloc {
        cpu: u16,
        order: u8,
        migratetype: usize,
        no_fragment: bool,
    },
    Bulk {
        cpu: u16,
        frames: usize,
        migratetype: usize,
    },
    /// A live allocation as it was made, by any CPU.
    Free {
        cpu: u16,
        pick: usize,
    },
    /// Into smaller allocations.
    Split {
        pick: usize,
        to: u8,
    },
    /// Split into single frames, then a part of them by one call; every `keep`th of that part is
    /// still referenced.
    FreeRange {
        cpu: u16,
        pick: usize,
        from: u64,
        len: u64,
        keep: u64,
    },
    /// Many single frames by one call, `step` apart in the list of live allocations.
    FreeBulk {
        cpu: u16,
        pick: usize,
        frames: usize,
        step: usize,
    },
    /// A frame that is free, or none at all.
    WrongFree {
        cpu: u16,
        frame: u64,
    },
    /// Exactly these frames, if nothing has to be moved; given back at once.
    Contig {
        cpu: u16,
        frame: u64,
        len: u64,
    },
    Tick {
        cpu: u16,
    },
    Drain,
    Offline {
        cpu: u16,
    },
    Online {
        cpu: u16,
    },
}

pub fn call() -> impl Strategy<Value = Call> {
    let cpu = || 0..CPUS;
    let order =
        prop_oneof![6 => Just(0u8), 4 => 1u8..4, 3 => 0u8..11, 1 => Just(9u8), 1 => Just(10u8)];
    let migratetype = || prop_oneof![2 => Just(1usize), 1 => 0usize..3];
    prop_oneof![
        12 => (cpu(), order, migratetype(), any::<bool>())
            .prop_map(|(cpu, order, migratetype, no_fragment)| {
                Call::Alloc { cpu, order, migratetype, no_fragment }
            }),
        4 => (cpu(), prop_oneof![3 => 1usize..130, 1 => 130usize..4000], migratetype())
            .prop_map(|(cpu, frames, migratetype)| Call::Bulk { cpu, frames, migratetype }),
        10 => (cpu(), any::<usize>()).prop_map(|(cpu, pick)| Call::Free { cpu, pick }),
        2 => (any::<usize>(), 0u8..10).prop_map(|(pick, to)| Call::Split { pick, to }),
        3 => (cpu(), any::<usize>(), 0u64..1024, 1u64..1025, 0u64..6)
            .prop_map(|(cpu, pick, from, len, keep)| {
                Call::FreeRange { cpu, pick, from, len, keep }
            }),
        4 => (cpu(), any::<usize>(), 1usize..600, 1usize..8)
            .prop_map(|(cpu, pick, frames, step)| Call::FreeBulk { cpu, pick, frames, step }),
        2 => (cpu(), any::<u64>()).prop_map(|(cpu, frame)| Call::WrongFree { cpu, frame }),
        2 => (cpu(), any::<u64>(), 1u64..1500)
            .prop_map(|(cpu, frame, len)| Call::Contig { cpu, frame, len }),
        1 => cpu().prop_map(|cpu| Call::Tick { cpu }),
        1 => Just(Call::Drain),
        1 => cpu().prop_map(|cpu| Call::Offline { cpu }),
        1 => cpu().prop_map(|cpu| Call::Online { cpu }),
    ]
}
