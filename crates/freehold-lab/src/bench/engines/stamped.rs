//! Any engine, each frame stamped while it is in use.
//!
//! A figure is worth nothing if two threads got the same frame. The warm-up of every benchmark
//! therefore runs the same loops through this wrapper, which writes a word a frame on allocation
//! and on free and finds any frame handed out twice. The stamps are atomics in an array of their
//! own beside the engine, one a frame, so that the check itself needs no memory that could not be
//! shared. Of engines whose frame numbers are addresses, which may be anywhere, the stamps are in
//! maps behind locks.

use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold::{CpuId, FrameRange, FreeError, Order, Pfn};

use crate::bench::calls::{Calls, Machine, Refused, START};
use crate::trials::simulated::Simulated;

pub struct Stamped<'m, M> {
    machine: &'m M,
    stamps: Stamps,
}

enum Stamps {
    /// One for each frame from [`START`] on.
    Array(Vec<AtomicU32>),
    /// By number, shared out by its lowest bits so that threads seldom meet.
    Maps(Vec<Mutex<HashMap<u64, u32>>>),
}

const MAPS: usize = 64;

fn locked(map: &Mutex<HashMap<u64, u32>>) -> MutexGuard<'_, HashMap<u64, u32>> {
    // A map is whole whatever its holder's panic was about.
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stamps {
    /// Puts a stamp and returns the one before; `None` where there is no such frame.
    fn swap(&self, pfn: Pfn, stamp: u32) -> Option<u32> {
        match self {
            Self::Array(stamps) => {
                let stamps = stamps.get(pfn.get().wrapping_sub(START.get()) as usize)?;
                // AcqRel: a frame's stamps follow one another in the order in which it changed
                // hands.
                Some(stamps.swap(stamp, AcqRel))
            }
            Self::Maps(maps) => {
                let mut map = locked(&maps[pfn.get() as usize % MAPS]);
                Some(map.insert(pfn.get(), stamp).unwrap_or(0))
            }
        }
    }
}

impl<'m, M: Machine> Stamped<'m, M> {
    /// Stamps for that many frames, none in use.
    pub fn new(machine: &'m M, frames: u64) -> Self {
        let stamps = if machine.is_memory() {
            Stamps::Maps((0..MAPS).map(|_| Mutex::default()).collect())
        } else {
            Stamps::Array((0..frames).map(|_| AtomicU32::new(0)).collect())
        };
        Self { machine, stamps }
    }

    /// How many frames have been handed out at least once. Nobody may use the machine meanwhile.
    pub fn distinct(&self) -> u64 {
        self.count(|stamp| stamp & USED != 0)
    }

    /// Frames in use. Nobody may use the machine meanwhile.
    pub fn in_use(&self) -> u64 {
        self.count(|stamp| stamp & !USED != 0)
    }

    fn count(&self, is: impl Fn(u32) -> bool) -> u64 {
        let count = match &self.stamps {
            Stamps::Array(stamps) => stamps.iter().filter(|stamp| is(stamp.load(Acquire))).count(),
            Stamps::Maps(maps) => maps
                .iter()
                .map(|map| locked(map).values().filter(|&&stamp| is(stamp)).count())
                .sum(),
        };
        count as u64
    }

    fn take(&self, pfn: Pfn, order: Order, owner: u32) -> Result<(), Refused> {
        for pfn in pfn.get()..pfn.get() + order.frames() {
            let pfn = Pfn::new(pfn);
            if self.stamps.swap(pfn, owner | USED).ok_or(Refused::Overlap { pfn })? & !USED != 0 {
                return Err(Refused::Overlap { pfn });
            }
        }
        Ok(())
    }

    fn give(&self, range: FrameRange) -> Result<(), Refused> {
        for pfn in range.start.get()..range.end.get() {
            let pfn = Pfn::new(pfn);
            if self.stamps.swap(pfn, USED).ok_or(Refused::Overlap { pfn })? & !USED == 0 {
                return Err(Refused::Free(FreeError::DoubleFree { pfn }));
            }
        }
        Ok(())
    }

    fn chunk(pfn: Pfn, order: Order) -> FrameRange {
        FrameRange { start: pfn, end: Pfn::new(pfn.get() + order.frames()) }
    }
}

/// The frame has been handed out before.
const USED: u32 = 1 << 31;

impl<M: Machine> Machine for Stamped<'_, M> {
    type Cpu<'a>
        = StampedCpu<'a, M>
    where
        Self: 'a;

    fn cpu(&self, cpu: CpuId) -> Result<StampedCpu<'_, M>, Refused> {
        let owner = u32::from(cpu.get()) + 1;
        Ok(StampedCpu { calls: self.machine.cpu(cpu)?, stamps: self, owner })
    }

    fn engine(&self) -> Option<&dyn Simulated> {
        self.machine.engine()
    }

    fn is_memory(&self) -> bool {
        self.machine.is_memory()
    }
}

pub struct StampedCpu<'a, M: Machine + 'a> {
    calls: M::Cpu<'a>,
    stamps: &'a Stamped<'a, M>,
    owner: u32,
}

impl<M: Machine> Calls for StampedCpu<'_, M> {
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused> {
        let pfn = self.calls.alloc(order)?;
        self.stamps.take(pfn, order, self.owner)?;
        Ok(pfn)
    }

    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        self.stamps.give(Stamped::<M>::chunk(pfn, order))?;
        self.calls.free(pfn, order)
    }

    fn alloc_bulk(&mut self, out: &mut [Pfn]) -> Result<(), Refused> {
        self.calls.alloc_bulk(out)?;
        out.iter().try_for_each(|&pfn| self.stamps.take(pfn, Order::ZERO, self.owner))
    }

    fn free_bulk(&mut self, frames: &[Pfn]) -> Result<(), Refused> {
        frames
            .iter()
            .try_for_each(|&pfn| self.stamps.give(Stamped::<M>::chunk(pfn, Order::ZERO)))?;
        self.calls.free_bulk(frames)
    }

    fn split(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        self.calls.split(pfn, order)
    }

    fn free_range(&mut self, range: FrameRange) -> Result<(), Refused> {
        self.stamps.give(range)?;
        self.calls.free_range(range)
    }

    fn alloc_unmovable(&mut self, order: Order) -> Result<Pfn, Refused> {
        let pfn = self.calls.alloc_unmovable(order)?;
        self.stamps.take(pfn, order, self.owner)?;
        Ok(pfn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out the same frame again and again.
    struct Broken;

    impl Machine for Broken {
        type Cpu<'a> = Broken;
        fn cpu(&self, _: CpuId) -> Result<Broken, Refused> {
            Ok(Broken)
        }
    }

    impl Calls for Broken {
        fn alloc(&mut self, _: Order) -> Result<Pfn, Refused> {
            Ok(START)
        }
        fn free(&mut self, _: Pfn, _: Order) -> Result<(), Refused> {
            Ok(())
        }
    }

    #[test]
    fn a_frame_handed_out_twice_is_found() {
        let stamped = Stamped::new(&Broken, 16);
        let mut cpu = stamped.cpu(CpuId::new(0)).unwrap();
        assert_eq!(cpu.alloc(Order::ZERO), Ok(START));
        assert_eq!(cpu.alloc(Order::ZERO), Err(Refused::Overlap { pfn: START }));
        assert_eq!(cpu.free(START, Order::ZERO), Ok(()));
        assert_eq!(
            cpu.free(START, Order::ZERO),
            Err(Refused::Free(FreeError::DoubleFree { pfn: START }))
        );
        assert_eq!(cpu.alloc_bulk(&mut [Pfn::default(); 2]), Err(Refused::Overlap { pfn: START }));
        assert_eq!(stamped.distinct(), 1);
    }
}
