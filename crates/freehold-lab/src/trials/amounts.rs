//! CPUs and memory of simulated machines on the command line.

use crate::cli::size::{parse_bytes, whole};
use freehold::FRAME_SIZE;

/// CPUs of a simulated machine at most.
pub const SIMULATED_CPUS_MAX: u16 = 1024;
/// Parses an amount of memory that is a part of a machine: in frames, of which there may be fewer
/// than one of the largest chunks.
pub fn parse_frames(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes < FRAME_SIZE {
        return Err(format!("{text} is too little: 4K is the least, one frame"));
    }
    Ok(bytes / FRAME_SIZE)
}

/// The CPUs of a simulated machine.
pub fn parse_cpus(text: &str) -> Result<u16, String> {
    whole(1..=SIMULATED_CPUS_MAX)(text)
}
