//! Whether an engine is whole again once everything has been given back: no frame lost, every chunk
//! as large as it can be, no broken invariant.

use freehold::Migratetype;

use crate::engine::{Engine, Memory};

/// The largest order on an engine's free lists that this check knows of.
const LARGEST: usize = 10;
const BLOCK: usize = 9;

/// What is wrong with an engine that has everything back, in words; empty if it is whole.
pub fn check(engine: &dyn Engine, memory: &Memory) -> Vec<String> {
    let mut findings = Vec::new();
    if let Err(broken) = engine.validate() {
        findings.push(format!("a broken invariant: {broken}"));
    }
    if memory.free_frames != memory.managed_frames {
        let lost = memory.managed_frames.abs_diff(memory.free_frames);
        let what = if memory.free_frames < memory.managed_frames { "lost" } else { "too many" };
        findings.push(format!(
            "{lost} frames {what}: {} of {} are free",
            memory.free_frames, memory.managed_frames
        ));
    }
    if memory.pcp_frames != 0 {
        findings.push(format!(
            "{} frames are still held by CPUs after draining all",
            memory.pcp_frames
        ));
    }
    findings.extend(unmerged(memory));
    findings
}

/// Where an engine counted other allocations and frees than were made.
pub fn miscounted(counted: (u64, u64), made: (u64, u64)) -> Option<String> {
    let ((allocs, frees), (made_allocs, made_frees)) = (counted, made);
    (counted != made).then(|| {
        format!(
            "the engine counted {allocs} allocations and {frees} frees, but {made_allocs} and \
             {made_frees} were made"
        )
    })
}

/// Free memory that is in smaller chunks than it could be.
///
/// Memory is a whole number of largest chunks, so all of it can be in those, but for two things:
/// blocks set aside (HIGHATOMIC, CMA, isolated) do not merge with others, so each keeps itself and
/// its buddy at the order of a block; and a machine described by a zoneinfo may end in the middle
/// of a largest chunk.
fn unmerged(memory: &Memory) -> Option<String> {
    let aside: u64 = Migratetype::ALL
        .iter()
        .filter(|migratetype| !migratetype.is_mergeable())
        .map(|migratetype| memory.blocks_by_type[migratetype.index()])
        .sum();
    let tail = memory.managed_frames % (1 << LARGEST);
    let chunks = &memory.free_chunks;
    let small = chunks[..BLOCK].iter().enumerate().any(|(order, &n)| n > (tail >> order & 1));
    let blocks = chunks[BLOCK] > 2 * aside + (tail >> BLOCK & 1);
    (small || blocks).then(|| {
        let list: Vec<_> = chunks
            .iter()
            .enumerate()
            .filter(|(_, n)| **n > 0)
            .map(|(o, n)| format!("{n} of order {o}"))
            .collect();
        format!("free memory did not merge back into the largest chunks: {}", list.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(chunks: &[(usize, u64)]) -> Memory {
        let mut memory = Memory::default();
        for &(order, n) in chunks {
            memory.free_chunks[order] = n;
            memory.managed_frames += n << order;
        }
        memory
    }

    #[test]
    fn all_in_the_largest_chunks_is_merged() {
        assert_eq!(unmerged(&memory(&[(10, 3)])), None);
        assert_eq!(unmerged(&memory(&[(10, 3), (8, 1), (0, 1)])), None, "an odd end of memory");
    }

    #[test]
    fn buddies_that_stayed_apart_are_reported() {
        let text = unmerged(&memory(&[(10, 3), (9, 2)])).expect("two blocks that did not merge");
        assert!(text.contains("2 of order 9"), "{text}");
        assert!(unmerged(&memory(&[(10, 3), (0, 1024)])).is_some());
    }

    #[test]
    fn a_block_set_aside_keeps_its_buddy_apart() {
        let mut memory = memory(&[(10, 3), (9, 2)]);
        memory.blocks_by_type[Migratetype::HighAtomic.index()] = 1;
        assert_eq!(unmerged(&memory), None);
    }
}
