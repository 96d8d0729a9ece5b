//! The loops that one thread runs.
//!
//! Honesty: every result is looked at and every frame number is used; nothing but the engine's
//! calls and a load or store of a frame number is in a timed loop. No frame's memory is touched in
//! them: they measure the allocator.
//!
//! A pair's frame number stays in a register from the allocation to the free, as it would with any
//! caller.
//! [`black_box`] would send it through memory, and waiting for that store is a third of what a fast
//! pair takes on some CPUs. What could be gained by the compiler's seeing both calls is little:
//! engines keep their state in atomics and behind locks, whose accesses compilers do not leave out.

use std::hint::black_box;
use std::time::Duration;

use freehold::{CpuId, Order, Pfn};

use super::calls::{Calls, Machine, Refused};
use super::clock::timed;
use crate::trials::random::Random;

/// The CPU that the loops of this file play.
const CPU: CpuId = CpuId::new(0);

pub const BULK: usize = 64;

/// Allocates and frees, `n` times. `ORDER` is a constant, as it is where kernels call their
/// allocators.
///
/// Not inlined: one function for each engine and order.
#[inline(never)]
pub fn pairs<C: Calls, const ORDER: u8>(cpu: &mut C, n: u64) -> Result<(), Refused> {
    let order = const { Order::new(ORDER).unwrap() };
    let mut seen = 0;
    for _ in 0..n {
        let pfn = cpu.alloc(order)?;
        seen ^= pfn.get();
        cpu.free(pfn, order)?;
    }
    black_box(seen);
    Ok(())
}

/// Nanoseconds per pair.
pub fn pair<M: Machine, const ORDER: u8>(machine: &M, n: u64) -> Result<f64, Refused> {
    let mut cpu = machine.cpu(CPU)?;
    // Whatever the first allocation after a drain costs belongs to `bulk`.
    pairs::<_, ORDER>(&mut cpu, n / 16 + 1)?;
    Ok(per(timed(|| pairs::<_, ORDER>(&mut cpu, n))?, n))
}

/// Allocates `n` frames and frees them, in several ways: nanoseconds a frame allocated one by one,
/// freed in that order, freed in the reverse order, allocated [`BULK`] at a time, and freed so many
/// at a time.
pub fn bulk<M: Machine>(machine: &M, n: usize) -> Result<[f64; 5], Refused> {
    let each = |time| per(time, n as u64);
    let mut frames = vec![Pfn::default(); n];
    let mut cpu = machine.cpu(CPU)?;
    let alloc = each(timed(|| alloc_all(&mut cpu, &mut frames))?);
    let free = each(timed(|| free_all(&mut cpu, frames.iter()))?);
    drop(cpu);

    machine.drain();
    let mut cpu = machine.cpu(CPU)?;
    alloc_all(&mut cpu, &mut frames)?;
    let free_reversed = each(timed(|| free_all(&mut cpu, frames.iter().rev()))?);
    drop(cpu);

    machine.drain();
    let mut cpu = machine.cpu(CPU)?;
    let bulk_alloc = each(timed(|| {
        frames.chunks_mut(BULK).try_for_each(|chunk| cpu.alloc_bulk(black_box(chunk)))
    })?);
    let bulk_free = each(timed(|| free_all_bulk(&mut cpu, &frames))?);
    Ok([alloc, free, free_reversed, bulk_alloc, bulk_free])
}

/// Nanoseconds for each of `n` frames freed in random order.
pub fn random_free<M: Machine>(machine: &M, n: usize, seed: u64) -> Result<f64, Refused> {
    let mut frames = vec![Pfn::default(); n];
    let mut cpu = machine.cpu(CPU)?;
    alloc_all(&mut cpu, &mut frames)?;
    shuffle(&mut frames, seed);
    Ok(per(timed(|| free_all(&mut cpu, frames.iter()))?, n as u64))
}

#[inline(never)]
pub fn alloc_all<C: Calls>(cpu: &mut C, frames: &mut [Pfn]) -> Result<(), Refused> {
    for frame in frames {
        *frame = cpu.alloc(Order::ZERO)?;
    }
    Ok(())
}

#[inline(never)]
pub fn free_all<'f, C: Calls>(
    cpu: &mut C,
    frames: impl Iterator<Item = &'f Pfn>,
) -> Result<(), Refused> {
    for frame in frames {
        cpu.free(*frame, Order::ZERO)?;
    }
    Ok(())
}

#[inline(never)]
fn free_all_bulk<C: Calls>(cpu: &mut C, frames: &[Pfn]) -> Result<(), Refused> {
    frames.chunks(BULK).try_for_each(|chunk| cpu.free_bulk(black_box(chunk)))
}

/// Fisher and Yates, from a seed that must not be 0.
pub fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut random = Random::new(seed);
    for i in (1..items.len()).rev() {
        items.swap(i, random.below(i as u64 + 1) as usize);
    }
}

/// Nanoseconds each.
pub(super) fn per(time: Duration, n: u64) -> f64 {
    time.as_nanos() as f64 / n as f64
}
