//! Whether everything came home.

use freehold::PAGEBLOCK_FRAMES;

use super::{Failure, Machine, same};

/// What was free at some moment, when nothing ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// Free frames.
    pub frames: u64,
    /// Blocks that are wholly free.
    pub blocks: u64,
    /// Double frees that showed late.
    pub late: u64,
}

impl Home {
    /// As it is now; brings home what CPUs hold.
    pub fn now(machine: &impl Machine) -> Self {
        let freehold = machine.freehold();
        machine.tidy();
        freehold.drain_all();
        let zones = (0..freehold.zone_count()).filter_map(|zone| freehold.zone_stats(zone));
        let (frames, blocks) =
            zones.fold((0, 0), |sum, zone| (sum.0 + zone.free, sum.1 + zone.free_blocks));
        Self { frames, blocks, late: freehold.totals().late_double_frees }
    }

    /// Compares with now, and checks every invariant of the allocator.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub fn check(&self, machine: &impl Machine) -> Result<(), Failure> {
        let freehold = machine.freehold();
        // Once while CPUs hold what they do, once when all is home.
        for drained in [false, true] {
            if drained {
                freehold.drain_all();
            }
            if let Err(violation) = freehold.validate() {
                machine.print(format_args!("    {violation}"));
                return Err(Failure {
                    what: violation.what,
                    found: violation.found,
                    expected: violation.expected,
                });
            }
        }
        let now = Self::now(machine);
        same("frames are missing", now.frames, self.frames)?;
        same("blocks are not whole", now.blocks, self.blocks)?;
        same("double frees that showed late", now.late, self.late)?;
        debug_assert!(now.blocks * PAGEBLOCK_FRAMES <= now.frames);
        Ok(())
    }
}
