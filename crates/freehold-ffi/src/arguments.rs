//! What callers hand over, checked once at the door: pointers, orders, migratetypes.

use core::slice;

use freehold::{FrameRange, Migratetype, Order, Pfn};

use crate::failure::Failure;

/// What a pointer points to, unless it is null.
///
/// # Safety
///
/// Null, or valid for reads as long as `'a`, with nobody writing meanwhile.
#[inline(always)]
pub(crate) unsafe fn shared<'a, T>(
    pointer: *const T,
    name: &'static str,
) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or(Failure::Null(name))
}

/// `len` things in a row. Where there are none the pointer may be anything.
///
/// # Safety
///
/// Null, or valid for reads of that many as long as `'a`, with nobody writing meanwhile.
#[inline(always)]
pub(crate) unsafe fn array<'a, T>(
    pointer: *const T,
    len: usize,
    name: &'static str,
) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::Null(name));
    }
    check_len::<T>(len, name)?;
    // SAFETY: not null, and the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts(pointer, len) })
}

/// Room for `len` frame numbers, to be written to.
///
/// # Safety
///
/// Null, or valid for writes of that many as long as `'a`, and nobody else's meanwhile.
#[inline(always)]
pub(crate) unsafe fn array_of_frames_mut<'a>(
    pointer: *mut u64,
    len: usize,
    name: &'static str,
) -> Result<&'a mut [Pfn], Failure> {
    if len == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() {
        return Err(Failure::Null(name));
    }
    check_len::<u64>(len, name)?;
    // SAFETY: not null, and the rest is the caller's promise. A Pfn is a u64 (`repr(transparent)`),
    // of which any bits are a value; the allocator only writes here.
    Ok(unsafe { slice::from_raw_parts_mut(pointer.cast(), len) })
}

/// `len` frame numbers in a row.
///
/// # Safety
///
/// As [`array`].
#[inline(always)]
pub(crate) unsafe fn array_of_frames<'a>(
    pointer: *const u64,
    len: usize,
    name: &'static str,
) -> Result<&'a [Pfn], Failure> {
    // SAFETY: a Pfn is a u64 (`repr(transparent)`); the rest is the caller's promise.
    unsafe { array(pointer.cast(), len, name) }
}

/// No array is longer than what an address difference can tell.
#[inline(always)]
fn check_len<T>(len: usize, name: &'static str) -> Result<(), Failure> {
    match len.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
        _ => Err(Failure::Argument {
            what: name,
            value: len as u64,
            allowed: "an array that fits into memory",
        }),
    }
}

/// Writes a result to where the caller wants it.
///
/// # Safety
///
/// Null, or valid for a write.
#[inline(always)]
pub(crate) unsafe fn put<T>(pointer: *mut T, name: &'static str, value: T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::Null(name));
    }
    // SAFETY: not null, and the rest is the caller's promise.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Writes a result to where the caller wants it, if it does.
///
/// # Safety
///
/// Null, or valid for a write.
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
pub(crate) fn migratetype(migratetype: u8) -> Result<Migratetype, Failure> {
    Migratetype::from_index(migratetype.into()).ok_or(Failure::Migratetype { migratetype })
}

#[inline(always)]
pub(crate) fn frames(start: u64, end: u64) -> FrameRange {
    FrameRange { start: Pfn::new(start), end: Pfn::new(end) }
}
