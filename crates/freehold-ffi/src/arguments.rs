//! What callers hand over, checked once at the door: pointers, orders, migratetypes.
//!
//! The unsafe functions here, in [`config`](crate::config) and in [`error`](crate::error) promise
//! for their pointers what the [crate](crate#pointers) does: each is null, or valid for its reads
//! or writes, of as many as are said, as long as `'a`, and nobody else writes there meanwhile.

use core::slice;

use freehold::{FrameRange, Migratetype, Order, Pfn};

use crate::failure::Failure;

/// What a pointer points to, unless it is null.
#[inline(always)]
pub(crate) unsafe fn shared<'a, T>(
    pointer: *const T,
    name: &'static str,
) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or(Failure::Null(name))
}

/// `len` things in a row. Where there are none the pointer may be anything.
#[inline(always)]
pub(crate) unsafe fn array<'a, T>(
    pointer: *const T,
    len: usize,
    name: &'static str,
) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    check(pointer, len, name)?;
    // SAFETY: not null, and the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts(pointer, len) })
}

/// Room for `len` frame numbers, to be written to.
#[inline(always)]
pub(crate) unsafe fn array_of_frames_mut<'a>(
    pointer: *mut u64,
    len: usize,
    name: &'static str,
) -> Result<&'a mut [Pfn], Failure> {
    if len == 0 {
        return Ok(&mut []);
    }
    check(pointer, len, name)?;
    // SAFETY: not null, and the rest is the caller's promise. A Pfn is a u64 (`repr(transparent)`),
    // of which any bits are a value; the allocator only writes here.
    Ok(unsafe { slice::from_raw_parts_mut(pointer.cast(), len) })
}

/// `len` frame numbers in a row.
#[inline(always)]
pub(crate) unsafe fn array_of_frames<'a>(
    pointer: *const u64,
    len: usize,
    name: &'static str,
) -> Result<&'a [Pfn], Failure> {
    // SAFETY: a Pfn is a u64 (`repr(transparent)`); the rest is the caller's promise.
    unsafe { array(pointer.cast(), len, name) }
}

/// An array that is there, and no longer than what an address difference can tell.
#[inline(always)]
fn check<T>(pointer: *const T, len: usize, name: &'static str) -> Result<(), Failure> {
    wanted(pointer, name)?;
    match len.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
        _ => Err(Failure::Argument {
            what: name,
            value: len as u64,
            allowed: "an array that fits into memory",
        }),
    }
}

/// Writes a result to where the caller wants it, if it does.
#[inline(always)]
pub(crate) unsafe fn put_if_wanted<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: not null, and the rest is the caller's promise.
        unsafe { pointer.write(value) };
    }
}

/// Refuses a null pointer before anything is done whose result could then not be told.
#[inline(always)]
pub(crate) fn wanted<T>(pointer: *const T, name: &'static str) -> Result<(), Failure> {
    if pointer.is_null() { Err(Failure::Null(name)) } else { Ok(()) }
}

#[inline(always)]
pub(crate) fn order(order: u8) -> Result<Order, Failure> {
    Order::new(order).ok_or(Failure::Order { order })
}

#[inline(always)]
pub(crate) fn migratetype(migratetype: u8, most: Migratetype) -> Result<Migratetype, Failure> {
    let known = Migratetype::from_index(migratetype.into());
    known.ok_or(Failure::Migratetype { migratetype, most })
}

#[inline(always)]
pub(crate) fn frames(start: u64, end: u64) -> FrameRange {
    FrameRange { start: Pfn::new(start), end: Pfn::new(end) }
}
