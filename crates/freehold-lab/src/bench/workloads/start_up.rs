//! `start-up`: from nothing to the first frame, for as much memory as suits the engine, told for a
//! TiB.

use std::time::Duration;

use crate::bench::calls::{Machine, Refused};
use crate::bench::figures::Figures;
use crate::bench::metric::{About, metric};

pub const ABOUT: About = About {
    what: "An allocator is made for 1 TiB, in memory fresh from the system, and a frame is allocated. Engines that \
           write a record of every frame are made for 4 GiB, and the time is multiplied; the others also for 64 TiB.",
    source: "boot; LLFree's authors (USENIX ATC 2023) tell the time of initialisation",
    metrics: &[
        metric("ms_per_tib", "ms", "making it and one allocation, for a TiB"),
        metric(
            "ms_64_tib",
            "ms",
            "the same for 64 TiB, as a whole; engines that write no record of every frame",
        ),
    ],
    ..About::ONE_THREAD
};

pub fn measure<M: Machine>(machine: &M) -> Result<Figures, Refused> {
    let (tib, of_64) = machine.start_up()?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Figures::default().with("ms_per_tib", ms(tib)).with_any("ms_64_tib", of_64.map(ms)))
}
