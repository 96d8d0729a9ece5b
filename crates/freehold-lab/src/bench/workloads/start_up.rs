//! `start-up`: from nothing to the first frame, for as much memory as suits the engine, told for a TiB.

use crate::bench::calls::{Machine, Refused};
use crate::bench::figures::Figures;
use crate::bench::metric::{About, metric};

/// Frames of a TiB.
const TIB: f64 = (1u64 << 28) as f64;

pub const ABOUT: About = About {
    what: "An allocator is made for 1 TiB, in memory fresh from the system, and a frame is allocated. Engines that \
           write a record of every frame are made for 4 GiB, and the time is multiplied; the others also for 64 TiB.",
    source: "boot; LLFree's authors (USENIX ATC 2023) tell the time of initialisation",
    metrics: &[
        metric("ms_per_tib", "ms", "making it and one allocation, for a TiB"),
        metric("ms_64_tib", "ms", "the same for 64 TiB, as a whole; engines that write no record of every frame"),
    ],
    ..About::ONE_THREAD
};

pub fn measure<M: Machine>(machine: &M) -> Result<Figures, Refused> {
    let (time, frames) = machine.start_up()?;
    let figures = Figures::default().with("ms_per_tib", time.as_secs_f64() * 1e3 * TIB / frames as f64);
    Ok(figures.with_any("ms_64_tib", machine.start_up_64_tib()?.map(|time| time.as_secs_f64() * 1e3)))
}
