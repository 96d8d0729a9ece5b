//! What the files beside a trace say of its zone, held against what was built of it.
//!
//! Amounts are pages of the recorded machine. Each must agree to the page, but for what is built in
//! whole regions of 1,024 pages (CMA, and which type a block has). What differs is said; what
//! differs by more than 1 % is an error, for a replay on another machine than the recorded one says
//! nothing about that.

use freehold::{Migratetype, Order};

use super::fill::Layout;
use crate::tables::thousands;

/// How far off is too far: one part in so many.
const PARTS: u64 = 100;

/// One zone as its files describe it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// The memory node it belongs to.
    pub node: u32,
    pub zone: String,
    pub page_size: u64,
    /// Whether that is known, and not assumed.
    pub page_size_told: bool,
    pub pageblock_order: u8,
    /// The largest order of a free chunk.
    pub max_order: u8,
    /// Pages that the allocator manages.
    pub managed: u64,
    /// Pages free in the zone.
    pub free: u64,
    /// Of these, in isolated blocks, which nobody can be given: in use here.
    pub isolated: u64,
    /// Pages on the CPUs' lists.
    pub held: u64,
    /// Pages of CMA; `None` where the user asks for other CMA than was recorded.
    pub cma: Option<u64>,
    /// Pages of CMA that were free, where no file says how much of it there was; else 0.
    pub cma_of_unknown_size: u64,
    /// Pages in unmovable, movable and reclaimable blocks; all 0 where no file says.
    pub blocks: [u64; 3],
    /// Whether free memory lies where it was recorded to lie, page by page.
    pub by_page: bool,
    /// What no file says, and what is taken instead.
    pub guessed: Vec<String>,
}

/// A number that is not what the files say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// What the number is of.
    pub what: &'static str,
    pub recorded: u64,
    pub built: u64,
    /// Whether it is off by more than 1 %.
    pub is_too_large: bool,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, recorded, built, .. } = self;
        write!(f, "{what}: {} pages recorded, {} built", thousands(*recorded), thousands(*built))
    }
}

impl Account {
    /// Whether the engines' own pageblocks and orders are those of the recorded machine.
    pub fn is_of_engines(&self) -> bool {
        self.pageblock_order == Order::PAGEBLOCK.get() && self.max_order == Order::LINUX_MAX.get()
    }

    /// What was built otherwise than recorded.
    pub fn differences(&self, layout: &Layout, cma: u64) -> Vec<Difference> {
        let region = Order::LINUX_MAX.frames();
        let mut found = Vec::new();
        let mut compare = |what, recorded: u64, built: u64, whole: u64, slack: u64| {
            let off = recorded.abs_diff(built);
            if off > 0 {
                let is_too_large = off > slack && off > whole / PARTS;
                found.push(Difference { what, recorded, built, is_too_large });
            }
        };
        let free = self.free.saturating_sub(self.isolated);
        compare("free", free, layout.free_frames(), free, 0);
        let listed = layout.recorded_on_lists();
        compare("on the CPUs' lists", listed, layout.listed_frames(), listed, 0);
        if let Some(recorded) = self.cma {
            compare("CMA", recorded, cma, recorded, region - 1);
        }
        let built = [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable]
            .map(|migratetype| layout.frames_of(migratetype));
        // The movable ones are what is left over. Of all of them a part may not be the allocator's,
        // of which type only a recording of each page can say.
        let typed = [("unmovable blocks", 0), ("reclaimable blocks", 2)];
        let all: u64 = self.blocks.iter().sum();
        let slack = if self.by_page { all.saturating_sub(self.managed) } else { 0 };
        if self.blocks.iter().any(|frames| *frames > 0) {
            for (what, at) in typed {
                let off = self.blocks[at].abs_diff(built[at]);
                if off >= region {
                    compare(what, self.blocks[at], built[at], self.managed, slack);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::fill::{Beside, Contents};

    fn account(free: u64) -> Account {
        Account {
            managed: 65536,
            free,
            cma: Some(0),
            blocks: [20 * 512, 100 * 512, 8 * 512],
            ..Account::default()
        }
    }

    #[test]
    fn what_is_built_is_what_was_recorded_or_said() {
        let mut contents = Contents { blocks: [20, 100, 8], ..Contents::default() };
        contents.free[1][10] = 10;
        let layout = Layout::new(&contents, &Beside::default(), 65536);
        assert_eq!(account(10_240).differences(&layout, 0), []);
        let held = Account { held: 1000, isolated: 512, ..account(10_752) };
        assert_eq!(held.differences(&layout, 0), [], "lists are no part of what is free");
        let off = account(10_340).differences(&layout, 0);
        assert_eq!(off[0].to_string(), "free: 10,340 pages recorded, 10,240 built");
        assert!(!off[0].is_too_large);
        assert!(account(10_345).differences(&layout, 0)[0].is_too_large);
        // Of CMA less than a region is rounding.
        let cma = Account { cma: Some(512), ..account(10_240) };
        assert!(!cma.differences(&layout, 1024)[0].is_too_large);
        assert!(cma.differences(&layout, 2048)[0].is_too_large);
        let blocks = Account { blocks: [24 * 512, 96 * 512, 8 * 512], ..account(10_240) };
        let found = blocks.differences(&layout, 0);
        assert_eq!(found[0].to_string(), "unmovable blocks: 12,288 pages recorded, 10,240 built");
        assert!(found[0].is_too_large);
    }
}
