//! The details of a failure, for callers who want more than a number.
//!
//! An out parameter rather than a thread's last error: it works without threads and without std,
//! nothing can overwrite it behind the caller's back, and who passes null pays for nothing.

use core::ffi::c_char;
use core::fmt::{self, Write};

use freehold::{AllocError, ConfigError, FreeError, HotplugError, Pfn};

use crate::allocator::{Allocator, Engine};
use crate::arguments::{shared, wanted};
pub(crate) use crate::failure::Failure;
use crate::status::Status;

/// "No such frame", wherever a frame number is returned.
pub const FREEHOLD_NO_PFN: u64 = 0xFFFF_FFFF_FFFF_FFFF;

/// Bytes of `freehold_error.message`, the terminating zero included.
pub const FREEHOLD_MESSAGE_SIZE: usize = 256;

/// The details of a failure. A function that takes a pointer to one writes all of it when it
/// fails, and does not touch it when it succeeds; the pointer may be null.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Error {
    /// What was returned.
    pub status: Status,
    /// The kernel's error number, as in errno(3), where the kernel refused something; 0
    /// otherwise.
    pub os_errno: i32,
    /// The frame concerned; `FREEHOLD_NO_PFN` where there is none.
    pub pfn: u64,
    /// The offending value: an order, a CPU, a number of bytes; see the status. 0 where there is
    /// none.
    pub found: u64,
    /// What it should have been, or may be at most; see the status. 0 where there is none.
    pub expected: u64,
    /// Bulk frees: how many frames, from the start of the array, have been freed nevertheless.
    pub done: u64,
    /// All of it in English, with a terminating zero; cut off where it is too long.
    pub message: [c_char; FREEHOLD_MESSAGE_SIZE],
}

/// The numbers of a failure, without its message.
impl Error {
    fn new(status: Status) -> Self {
        let message = Message::EMPTY.bytes;
        let pfn = FREEHOLD_NO_PFN;
        Self { status, os_errno: 0, pfn, found: 0, expected: 0, done: 0, message }
    }

    fn at(status: Status, pfn: Pfn) -> Self {
        Self { pfn: pfn.get(), ..Self::new(status) }
    }

    fn found(self, found: u64) -> Self {
        Self { found, ..self }
    }

    fn expected(self, expected: u64) -> Self {
        Self { expected, ..self }
    }
}

fn alloc_facts(error: &AllocError) -> Error {
    match *error {
        AllocError::NoMemory { order } => Error::new(Status::NoMemory).found(order.get().into()),
        AllocError::NoRange { frames, .. } => Error::new(Status::NoMemory).found(frames),
        AllocError::OrderTooLarge { order, max } => {
            Error::new(Status::OrderTooLarge).found(order.get().into()).expected(max.get().into())
        }
        AllocError::BadMigratetype { migratetype } => {
            Error::new(Status::BadMigratetype).found(migratetype.index() as u64)
        }
        AllocError::ZeroLength => Error::new(Status::ZeroLength),
        AllocError::BadRange { pfn } => Error::at(Status::BadRange, pfn),
        AllocError::Busy { pfn } => Error::at(Status::Busy, pfn),
        AllocError::WouldBlock => Error::new(Status::WouldBlock),
        AllocError::CpuOffline { cpu } => Error::new(Status::CpuOffline).found(cpu.get().into()),
        AllocError::CpuOwned { cpu } => Error::new(Status::CpuOwned).found(cpu.get().into()),
        _ => Error::new(Status::Other),
    }
}

fn free_facts(error: &FreeError) -> Error {
    match *error {
        FreeError::DoubleFree { pfn } => Error::at(Status::DoubleFree, pfn),
        FreeError::NeverAllocated { pfn } => Error::at(Status::NeverAllocated, pfn),
        FreeError::OutOfZone { pfn } => Error::at(Status::OutOfZone, pfn),
        FreeError::Hole { pfn } => Error::at(Status::Hole, pfn),
        FreeError::PastEnd { pfn } => Error::at(Status::PastEnd, pfn),
        FreeError::Misaligned { pfn, order } => {
            Error::at(Status::Misaligned, pfn).found(order.get().into())
        }
        FreeError::OrderTooLarge { order, max } => {
            Error::new(Status::OrderTooLarge).found(order.get().into()).expected(max.get().into())
        }
        FreeError::ZeroLength => Error::new(Status::ZeroLength),
        FreeError::CpuOffline { cpu } => Error::new(Status::CpuOffline).found(cpu.get().into()),
        _ => Error::new(Status::Other),
    }
}

fn config_facts(error: &ConfigError) -> Error {
    match *error {
        ConfigError::Cpus { cpus: found } | ConfigError::Online { online: found, .. } => {
            Error::new(Status::ConfigCpus).found(found.into())
        }
        ConfigError::Zones { zones: found } | ConfigError::NoZone { zone: found } => {
            Error::new(Status::ConfigZones).found(found as u64)
        }
        ConfigError::Span { range } => Error::at(Status::ConfigSpan, range.start),
        ConfigError::OutsideZone { range } => Error::at(Status::ConfigOutsideZone, range.start),
        ConfigError::Overlap { pfn } => Error::at(Status::ConfigOverlap, pfn),
        ConfigError::TooSmall { given, needed } => {
            Error::new(Status::MetadataTooSmall).found(given as u64).expected(needed as u64)
        }
        ConfigError::Watermarks => Error::new(Status::Watermarks),
        ConfigError::TooLarge { sections } => Error::new(Status::InvalidArgument).found(sections),
        _ => Error::new(Status::Other),
    }
}

fn hotplug_facts(error: &HotplugError) -> Error {
    match *error {
        HotplugError::ZeroLength => Error::new(Status::ZeroLength),
        HotplugError::OutOfZone { pfn } => Error::at(Status::OutOfZone, pfn),
        HotplugError::Present { pfn } => Error::at(Status::Present, pfn),
        HotplugError::Absent { pfn } => Error::at(Status::Absent, pfn),
        HotplugError::Misaligned { pfn } => Error::at(Status::Misaligned, pfn),
        HotplugError::Busy { pfn } => Error::at(Status::Busy, pfn),
        HotplugError::NoRoom => Error::new(Status::NoRoom),
        _ => Error::new(Status::Other),
    }
}

#[cfg(feature = "std")]
fn host_facts(error: &freehold_host::Error) -> Error {
    use freehold_host::Error as Host;
    match *error {
        Host::Os { errno, bytes, .. } => {
            Error { os_errno: errno, ..Error::new(Status::Os).found(bytes) }
        }
        Host::NoRun { frames } => Error::new(Status::NoMemory).found(frames),
        Host::Forked => Error::new(Status::Forked),
        Host::PageSize { bytes } => Error::new(Status::PageSize).found(bytes as u64),
        Host::Knob { value, .. } => Error::new(Status::InvalidArgument).found(value),
        Host::OutsideArena { pfn } => Error::at(Status::OutsideArena, pfn),
        Host::Reentered => Error::new(Status::Reentered),
        Host::Limit { bytes } => Error::new(Status::Limit).found(bytes),
        _ => Error::new(Status::Other),
    }
}

impl Failure {
    fn facts(&self) -> Error {
        match self {
            Self::Null(_) => Error::new(Status::NullPointer),
            Self::Argument { value, .. } => Error::new(Status::InvalidArgument).found(*value),
            Self::Order { order } => Error::new(Status::OrderTooLarge)
                .found((*order).into())
                .expected(freehold::Order::MAX.get().into()),
            Self::Migratetype { migratetype, .. } => {
                Error::new(Status::BadMigratetype).found((*migratetype).into())
            }
            #[cfg(feature = "std")]
            Self::Ended => Error::new(Status::Ended),
            Self::NotOwned { cpu } => Error::new(Status::CpuNotOwned).found((*cpu).into()),
            Self::Alloc(error) => alloc_facts(error),
            Self::Free(error) => free_facts(error),
            Self::BulkFree(error) => Error { done: error.freed as u64, ..free_facts(&error.error) },
            Self::Config(error) => config_facts(error),
            Self::Hotplug(error) => hotplug_facts(error),
            Self::Broken(violation) => Error::at(Status::Broken, violation.pfn)
                .found(violation.found)
                .expected(violation.expected),
            #[cfg(feature = "std")]
            Self::Host(error) => host_facts(error),
        }
    }

    fn details(&self) -> Error {
        let mut message = Message::EMPTY;
        // It only fails where the message is full.
        let _ = write!(message, "{self}");
        Error { message: message.bytes, ..self.facts() }
    }
}

/// Text into C's array; what does not fit is cut off at a character's edge.
pub(crate) struct Message {
    pub(crate) bytes: [c_char; FREEHOLD_MESSAGE_SIZE],
    pub(crate) len: usize,
}

impl Message {
    pub(crate) const EMPTY: Self = Self { bytes: [0; FREEHOLD_MESSAGE_SIZE], len: 0 };
}

impl fmt::Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            let mut buffer = [0; 4];
            let encoded = character.encode_utf8(&mut buffer).as_bytes();
            // The last byte stays zero.
            if self.len + encoded.len() >= FREEHOLD_MESSAGE_SIZE {
                return Err(fmt::Error);
            }
            for &byte in encoded {
                self.bytes[self.len] = byte as c_char;
                self.len += 1;
            }
        }
        Ok(())
    }
}

/// Makes the call and turns its result into a status, with the details where they are wanted.
#[inline(always)]
pub(crate) unsafe fn answer(
    error: *mut Error,
    call: impl FnOnce() -> Result<(), Failure>,
) -> Status {
    match call() {
        Ok(()) => Status::Ok,
        // SAFETY: the caller's promise.
        Err(failure) => unsafe { fail(error, &failure) },
    }
}

/// [`answer`] of a call of the engine's that only says whether it could.
pub(crate) unsafe fn ask<E: Into<Failure>>(
    allocator: *const Allocator,
    error: *mut Error,
    call: impl FnOnce(&Engine) -> Result<(), E>,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { answer(error, || call(&shared(allocator, "allocator")?.engine).map_err(Into::into)) }
}

/// [`answer`] with a result that is written to `out`; before anything is done whose result could
/// then not be told, a null pointer there is refused.
#[inline(always)]
pub(crate) unsafe fn tell<T>(
    out: *mut T,
    name: &'static str,
    error: *mut Error,
    call: impl FnOnce() -> Result<T, Failure>,
) -> Status {
    let told = || {
        wanted(out, name)?;
        // SAFETY: not null, and the rest is the caller's promise.
        unsafe { out.write(call()?) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { answer(error, told) }
}

#[cold]
#[inline(never)]
pub(crate) unsafe fn fail(error: *mut Error, failure: &Failure) -> Status {
    if error.is_null() {
        return failure.facts().status;
    }
    let details = failure.details();
    // SAFETY: not null, and so writable by the caller's promise.
    unsafe { error.write(details) };
    details.status
}

/// Out of the hot calls, with what the allocator said as it is.
#[cold]
#[inline(never)]
pub(crate) unsafe fn fail_alloc(error: *mut Error, why: AllocError) -> Status {
    // SAFETY: the caller's promise.
    unsafe { fail(error, &why.into()) }
}

#[cold]
#[inline(never)]
pub(crate) unsafe fn fail_free(error: *mut Error, why: FreeError) -> Status {
    // SAFETY: the caller's promise.
    unsafe { fail(error, &why.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold::BulkFreeError;

    #[test]
    fn a_long_message_is_cut_off_and_ends_with_a_zero() {
        let mut message = Message::EMPTY;
        // Two bytes each, after one: the array ends in the middle of a character.
        assert!(write!(message, "x{}", "é".repeat(200)).is_err());
        assert_eq!(message.len, 255);
        assert_eq!(message.bytes[255], 0);
        let bytes: Vec<u8> = message.bytes[..255].iter().map(|&byte| byte as u8).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), format!("x{}", "é".repeat(127)));
    }

    #[test]
    fn a_failure_tells_its_frame_and_how_far_it_came() {
        let error = FreeError::DoubleFree { pfn: Pfn::new(0x77) };
        let details = Failure::from(BulkFreeError { freed: 5, error }).details();
        assert_eq!((details.status, details.pfn, details.done), (Status::DoubleFree, 0x77, 5));
        assert_eq!(Failure::Null("allocator").details().pfn, FREEHOLD_NO_PFN);
    }
}
