//! `malloc` for programs that nobody will patch: large requests come from an arena, the rest goes
//! on to the malloc that was there before.
//!
//! ```text
//! LD_PRELOAD=libfreehold-malloc.so program
//!
//! malloc(n)   n < from    the next malloc: glibc's, jemalloc, whatever is loaded behind this one
//!             n >= from   an arena                                   large.rs
//!             no room     the next malloc
//! free(p)     p in arena  its frames go home                         large.rs
//!             elsewhere   the next free
//! ```
//!
//! Until this library's constructor has run, everything goes on. So the options are read when there
//! is an environment, and no arena is made while the loader is at work.
//!
//! A small request costs a comparison and a jump more than without it.

// It is made of Linux's calls and of glibc's: elsewhere there is nothing in it.
#![cfg(target_os = "linux")]
// No module of this has a caller outside of it, so nothing is documented for any.
#![allow(missing_docs, clippy::missing_safety_doc, reason = "malloc(3) has the contract")]

mod large;
mod next;
mod options;
mod report;
mod returns;

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use large::PAGE;

/// The least request that an arena serves; none as long as there is no arena.
pub(crate) static FROM: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Run by the loader, before the program's own constructors and `main`.
extern "C" fn begin() {
    next::resolve();
    large::follow_forks();
    // Relaxed: whoever reads the old value passes its request on.
    FROM.store(options::get().from, Ordering::Relaxed);
}

extern "C" fn end() {
    if options::get().stats {
        report::print();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

#[inline(always)]
fn is_large(bytes: usize) -> bool {
    bytes >= FROM.load(Ordering::Relaxed)
}

fn no_memory() -> *mut c_void {
    set_errno(libc::ENOMEM);
    ptr::null_mut()
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the C library's own, of this thread.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// What has to go on is passed on by a jump.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    if is_large(bytes) {
        if let Some(found) = large::take(bytes, PAGE, false) {
            return found.as_ptr().cast();
        }
    }
    next::malloc(bytes)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, each: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(each) else { return no_memory() };
    if is_large(bytes) {
        if let Some(found) = large::take(bytes, PAGE, true) {
            return found.as_ptr().cast();
        }
    }
    next::calloc(count, each)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(pointer: *mut c_void) {
    match large::place_of(pointer) {
        // SAFETY: the caller's promise: it has this memory, and does not use it any more.
        Some(place) => unsafe { large::free(place, pointer) },
        // SAFETY: as above.
        None => unsafe { next::free(pointer) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(pointer: *mut c_void, bytes: usize) -> *mut c_void {
    if let Some(place) = large::place_of(pointer) {
        // SAFETY: the caller's promise, as for `free`.
        return unsafe { large::resize(place, pointer, bytes) };
    }
    if !is_large(bytes) || pointer.is_null() {
        // SAFETY: as above; null is a malloc.
        return unsafe {
            if pointer.is_null() { malloc(bytes) } else { next::realloc(pointer, bytes) }
        };
    }
    let Some(new) = large::take(bytes, PAGE, false) else {
        // SAFETY: as above.
        return unsafe { next::realloc(pointer, bytes) };
    };
    // SAFETY: as above; the new memory is ours, and as long as that.
    unsafe {
        let had = next::usable_size(pointer).min(bytes);
        ptr::copy_nonoverlapping(pointer.cast::<u8>(), new.as_ptr(), had);
        next::free(pointer);
    }
    new.as_ptr().cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    pointer: *mut c_void,
    count: usize,
    each: usize,
) -> *mut c_void {
    match count.checked_mul(each) {
        // SAFETY: the caller's promise.
        Some(bytes) => unsafe { realloc(pointer, bytes) },
        None => no_memory(),
    }
}

/// Memory at a multiple of `align`, which is a power of two.
fn aligned(align: usize, bytes: usize) -> *mut c_void {
    if is_large(bytes) {
        if let Some(found) = large::take(bytes, align.max(PAGE), false) {
            return found.as_ptr().cast();
        }
    }
    next::memalign(align, bytes)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    // The next larger power of two, as glibc has it.
    match align.checked_next_power_of_two() {
        Some(align) => aligned(align, bytes),
        None => no_memory(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    aligned(align, bytes)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    align: usize,
    bytes: usize,
) -> c_int {
    if !align.is_power_of_two() || align % size_of::<*mut c_void>() != 0 {
        return libc::EINVAL;
    }
    let before = errno();
    let found = aligned(align, bytes);
    set_errno(before);
    if found.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { out.write(found) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(bytes: usize) -> *mut c_void {
    aligned(PAGE, bytes)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.checked_next_multiple_of(PAGE) {
        Some(bytes) => aligned(PAGE, bytes),
        None => no_memory(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(pointer: *mut c_void) -> usize {
    match large::place_of(pointer) {
        Some(place) => large::size(place, pointer),
        // SAFETY: the caller's promise.
        None => unsafe { next::usable_size(pointer) },
    }
}

/// Gives back what is free in the arena, and then what is so in the malloc behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_trim(keep: usize) -> c_int {
    let given = large::trim();
    next::trim(keep) | c_int::from(given)
}
