//! A set of frames: a bit each, in groups of 512 that exist once one of them is in the set.

use std::collections::HashMap;

use freehold::{Order, Pfn};

#[derive(Default)]
pub struct FrameSet {
    groups: HashMap<u64, Box<[u64; 8]>>,
}

impl FrameSet {
    /// Adds the chunk; true if none of its frames was in the set.
    pub fn insert(&mut self, pfn: Pfn, order: Order) -> bool {
        let mut untouched = true;
        let (mut at, end) = (pfn.get(), pfn.get() + order.frames());
        while at < end {
            let group = self.groups.entry(at / 512).or_default();
            let word = &mut group[(at % 512 / 64) as usize];
            let bits = (end - at).min(64 - at % 64);
            let mask = (u64::MAX >> (64 - bits)) << (at % 64);
            untouched &= *word & mask == 0;
            *word |= mask;
            at += bits;
        }
        untouched
    }

    pub fn contains(&self, pfn: Pfn) -> bool {
        let (group, bit) = (pfn.get() / 512, pfn.get() % 512);
        self.groups.get(&group).is_some_and(|bits| bits[(bit / 64) as usize] >> (bit % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_frames_tells_new_from_old() {
        let mut set = FrameSet::default();
        assert!(set.insert(Pfn::new(1024), Order::PAGEBLOCK));
        assert!(!set.insert(Pfn::new(1535), Order::ZERO));
        assert!(set.insert(Pfn::new(1536), Order::ZERO));
        assert!(!set.insert(Pfn::new(1536), Order::COSTLY));
        assert!(set.insert(Pfn::new(1544), Order::COSTLY));
        assert!(set.contains(Pfn::new(1551)) && !set.contains(Pfn::new(1552)));
    }
}
