//! All CPUs allocate and free chunks of all sorts at once, as chance will have it, and check what
//! they hold.

use freehold::{Migratetype, Order, Pfn, Request};

use super::{Failure, Machine, Team, chain, stamped, succeeds};

const STEPS: u64 = 4000;
const HELD: usize = 48;

/// A small generator of numbers that look random (xorshift): the same ones in each run.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next one.
    #[expect(clippy::should_implement_trait, reason = "there is always a next one")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

pub(super) fn churn<M: Machine>(machine: &M) -> Result<(), Failure> {
    let before = machine.freehold().totals();
    Team::run(machine, |member| {
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ (member.cpu as u64 + 1) << 20);
        let mut held = [None::<(Pfn, Order, u64)>; HELD];
        for step in 0..STEPS + HELD as u64 {
            let place =
                if step < STEPS { numbers.next() as usize % HELD } else { (step - STEPS) as usize };
            if let Some((pfn, order, whose)) = held[place].take() {
                chain::check(machine, pfn, order, whose)?;
                succeeds(machine, "a chunk cannot be freed", member.frames.free(pfn, order))?;
            }
            if step >= STEPS {
                continue;
            }
            // Mostly single frames, now and then more, seldom a whole block.
            let order = match numbers.next() % 64 {
                0 => 9,
                1..8 => 3 + numbers.next() % 4,
                8..24 => 1 + numbers.next() % 2,
                _ => 0,
            };
            let order = Order::new(order as u8).unwrap_or(Order::ZERO);
            let migratetype = Migratetype::PCP[numbers.next() as usize % 3];
            let pfn = member.frames.alloc(Request::new(order, migratetype));
            let pfn = succeeds(machine, "a chunk is not to be had", pfn)?;
            let whose = member.cpu as u64 | step << 8;
            stamped(machine, pfn, order, whose);
            held[place] = Some((pfn, order, whose));
        }
        Ok(())
    })?;
    let totals = machine.freehold().totals();
    machine.print(format_args!(
        "    {} allocations, {} refills, {} shared writes, {} recalls",
        totals.cpus.total_allocs() - before.cpus.total_allocs(),
        totals.cpus.refills - before.cpus.refills,
        totals.shared_writes - before.shared_writes,
        totals.cpus.recalls - before.cpus.recalls,
    ));
    Ok(())
}
