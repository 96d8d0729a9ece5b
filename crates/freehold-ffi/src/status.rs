//! What a call says about itself: one number for each kind of mistake or trouble.

use core::ffi::{CStr, c_char, c_int};

use Status as S;

/// What became of a call. Zero is success; the numbers are part of the ABI and never change
/// their meaning (12 and 13 had one that is gone).
///
/// Whatever a failed call returns: nothing has changed, unless the function says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// No free chunk of that size that the request may use. `found`: the order, or the frames.
    NoMemory = 1,
    /// There are no chunks of that order. `found`: the order; `expected`: the largest.
    OrderTooLarge = 2,
    /// No migratetype, or one that no request may name. `found`: it.
    BadMigratetype = 3,
    /// A range of no frames.
    ZeroLength = 4,
    /// Not inside one zone, or over a hole. `pfn`: the first frame that cannot be part of it.
    BadRange = 5,
    /// A frame is in use, or its block is being isolated; try again. `pfn`: the frame.
    Busy = 6,
    /// The request may not wait for locks and one was held.
    WouldBlock = 7,
    /// There is no such CPU, or it is offline. `found`: the CPU.
    CpuOffline = 8,
    /// Somebody owns that CPU. `found`: the CPU.
    CpuOwned = 9,
    /// The frame is free already. `pfn`: the frame.
    DoubleFree = 10,
    /// The frame was never handed out. `pfn`: the frame.
    NeverAllocated = 11,
    /// No zone has that frame. `pfn`: the frame.
    OutOfZone = 14,
    /// There is no memory at that frame. `pfn`: the frame.
    Hole = 15,
    /// The range ends behind its zone. `pfn`: the first frame behind the zone.
    PastEnd = 16,
    /// No such chunk starts there, or memory cannot be removed from there. `found`: the order.
    Misaligned = 17,
    /// Memory to be added is there already. `pfn`: the first such frame.
    Present = 18,
    /// Memory to be removed is not there. `pfn`: the first such frame.
    Absent = 19,
    /// The configuration left no room for another section or piece of memory.
    NoRoom = 20,
    /// There must be 1 to 32,766 CPUs, no more online than there are. `found`: the number.
    ConfigCpus = 21,
    /// There must be 1 to 64 zones, and the zone one of them. `found`: the number, or index.
    ConfigZones = 22,
    /// A span or CMA piece is empty, or not of whole pageblocks. `pfn`: where it starts.
    ConfigSpan = 23,
    /// Configuration: memory or CMA outside its zone, or empty. `pfn`: where it starts.
    ConfigOutsideZone = 24,
    /// Two pieces of memory, or two zones, share frames. `pfn`: the first of them.
    ConfigOverlap = 25,
    /// Watermarks must rise: min, low, high.
    Watermarks = 26,
    /// The metadata region is too small. `found`: bytes given; `expected`: bytes needed.
    MetadataTooSmall = 27,
    /// That CPU handle has been released. `found`: the CPU.
    CpuNotOwned = 28,
    /// A pointer was null that must not be. The message names it.
    NullPointer = 29,
    /// A value is out of its range. `found`: it; the message says which and what is allowed.
    InvalidArgument = 30,
    /// The invariant walk found a defect. `pfn`, `found`, `expected`: what is broken.
    Broken = 31,
    /// The kernel refused a system call. `os_errno`: why; `found`: how many bytes it was about.
    Os = 32,
    /// The arena is the parent process's. Make a new one after a fork.
    Forked = 33,
    /// The system's pages are not 4 KiB. `found`: their size.
    PageSize = 34,
    /// Frames of another arena, or of none. `pfn`: the first such frame.
    OutsideArena = 35,
    /// Trouble of a kind that this version has no number for; the message says what.
    Other = 36,
    /// The arena has been destroyed.
    Ended = 37,
    /// A signal handler has called while its thread was inside its first call on an arena.
    Reentered = 38,
    /// The arena's limit on resident memory is reached. `found`: the limit in bytes.
    Limit = 39,
}

/// What each of them means.
const TEXTS: &[(S, &CStr)] = &[
    (S::Ok, c"success"),
    (S::NoMemory, c"out of memory: no free chunk of that size that the request may use"),
    (S::OrderTooLarge, c"the order is too large"),
    (S::BadMigratetype, c"a request may not name that migratetype"),
    (S::ZeroLength, c"a range of no frames"),
    (S::BadRange, c"the range leaves its zone or covers a hole"),
    (S::Busy, c"a frame is still in use; try again"),
    (S::WouldBlock, c"a lock was held and the request may not wait for it"),
    (S::CpuOffline, c"the CPU does not exist or is offline"),
    (S::CpuOwned, c"the CPU is owned; release its handle first"),
    (S::DoubleFree, c"double free: the frame is free already"),
    (S::NeverAllocated, c"the frame was never allocated"),
    (S::OutOfZone, c"no zone has that frame"),
    (S::Hole, c"the frame lies in a hole: there is no memory there"),
    (S::PastEnd, c"the range ends behind its zone"),
    (S::Misaligned, c"a chunk of that order cannot start at that frame"),
    (S::Present, c"the memory is there already"),
    (S::Absent, c"the memory is not there"),
    (S::NoRoom, c"no room: set spare_sections and extra_ranges higher"),
    (S::ConfigCpus, c"there must be 1 to 32766 CPUs, and at most as many online"),
    (S::ConfigZones, c"there must be 1 to 64 zones, and the zone must be one of them"),
    (S::ConfigSpan, c"a span or CMA piece must be of whole pageblocks, not empty, below PFN 2^40"),
    (S::ConfigOutsideZone, c"a piece of memory is empty or outside its zone's span"),
    (S::ConfigOverlap, c"two pieces of memory or two zones share frames"),
    (S::Watermarks, c"watermarks must rise: min <= low <= high"),
    (S::MetadataTooSmall, c"the metadata region is too small; ask freehold_metadata_size"),
    (S::CpuNotOwned, c"the CPU handle has been released"),
    (S::NullPointer, c"a pointer is null that must not be"),
    (S::InvalidArgument, c"an argument is out of its range"),
    (S::Broken, c"broken invariant: a defect of the allocator or of its metadata"),
    (S::Os, c"the operating system refused a call"),
    (S::Forked, c"the arena belongs to the parent process; make a new one after fork"),
    (S::PageSize, c"the system's pages are not 4096 bytes"),
    (S::OutsideArena, c"the frames are not of this arena"),
    (S::Other, c"trouble of a kind that this version does not know"),
    (S::Ended, c"the arena has been destroyed"),
    (S::Reentered, c"called from a signal handler that has interrupted another call of its thread"),
    (S::Limit, c"the arena's limit on resident memory is reached"),
];

/// What a status means, in a few English words; `"unknown status"` for numbers that are none.
/// Never null; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_strerror(status: c_int) -> *const c_char {
    let known = TEXTS.iter().find(|(known, _)| *known as c_int == status);
    known.map_or(c"unknown status", |(_, text)| text).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_status_has_a_text_of_its_own() {
        // SAFETY: the texts end with a zero and live for ever.
        let text = |status| unsafe { CStr::from_ptr(freehold_strerror(status)) };
        let known = (0..40).filter(|status| ![12, 13].contains(status));
        assert_eq!(known.map(text).collect::<BTreeSet<_>>().len(), TEXTS.len());
        for wrong in [-1, 12, 13, 40, c_int::MAX] {
            assert_eq!(text(wrong), c"unknown status");
        }
    }

    /// What the allocator accepts and refuses, and the numbers that the texts name.
    #[test]
    fn the_limits_that_texts_name_are_those_of_the_allocator() {
        use freehold::{Config, ConfigError, FrameRange, Pfn, ZoneConfig};
        let size = |cpus: u16, zones: usize| {
            let memory: Vec<_> = (0..zones as u64)
                .map(|zone| [FrameRange::new(Pfn::new(zone << 20), 512).unwrap()])
                .collect();
            let zones: Vec<_> = memory.iter().map(|memory| ZoneConfig::new(memory)).collect();
            Config::new(cpus, &zones).metadata_size().map(drop)
        };
        let named = |status: Status| {
            let text = TEXTS.iter().find(|(known, _)| *known == status).unwrap().1;
            let number =
                text.to_str().unwrap().split("1 to ").nth(1).unwrap().split(' ').next().unwrap();
            number.parse::<u16>().unwrap()
        };
        let cpus = named(Status::ConfigCpus);
        assert_eq!(size(cpus, 1), Ok(()));
        assert_eq!(size(cpus + 1, 1), Err(ConfigError::Cpus { cpus: cpus + 1 }));
        let zones = usize::from(named(Status::ConfigZones));
        assert_eq!(size(1, zones), Ok(()));
        assert_eq!(size(1, zones + 1), Err(ConfigError::Zones { zones: zones + 1 }));
        // The header says it once more, where the field is.
        let header = include_str!("../include/freehold.h");
        let grouped = format!("{},{:03}", cpus / 1000, cpus % 1000);
        assert_eq!(header.matches(&format!("1 to {grouped}")).count(), 2);
    }
}
