//! The malloc that was there before this one: what `dlsym(RTLD_NEXT)` finds.
//!
//! `dlsym` may itself allocate, and the loader may before this library's constructor has run. So
//! each function's place holds at first one of our own, which looks all of them up; what is asked
//! for meanwhile comes from a small buffer, and is never freed.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Two = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Size = unsafe extern "C" fn(*mut c_void) -> usize;
type Trim = unsafe extern "C" fn(usize) -> c_int;

/// A function of the next malloc, or what looks for it.
struct Door(AtomicPtr<c_void>);

impl Door {
    const fn new(first: *mut c_void) -> Self {
        Self(AtomicPtr::new(first))
    }

    #[inline(always)]
    fn get(&self) -> *mut c_void {
        // Relaxed: any value it ever has can be called.
        self.0.load(Ordering::Relaxed)
    }

    fn find(&self, name: &CStr) {
        // SAFETY: a name that ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if !found.is_null() {
            self.0.store(found, Ordering::Relaxed);
        }
    }
}

static MALLOC: Door = Door::new(first_malloc as *mut c_void);
static CALLOC: Door = Door::new(first_calloc as *mut c_void);
static FREE: Door = Door::new(first_free as *mut c_void);
static REALLOC: Door = Door::new(first_realloc as *mut c_void);
static MEMALIGN: Door = Door::new(first_memalign as *mut c_void);
static SIZE: Door = Door::new(no_size as *mut c_void);
static TRIM: Door = Door::new(no_trim as *mut c_void);

/// 0: nobody has looked; 1: somebody is; 2: done.
static STATE: AtomicU32 = AtomicU32::new(0);

/// Looks all functions up, once.
pub(crate) fn resolve() {
    if STATE.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    // The one that others are tried again by is the last.
    CALLOC.find(c"calloc");
    FREE.find(c"free");
    REALLOC.find(c"realloc");
    MEMALIGN.find(c"memalign");
    SIZE.find(c"malloc_usable_size");
    TRIM.find(c"malloc_trim");
    MALLOC.find(c"malloc");
    if MALLOC.get() == first_malloc as *mut c_void {
        crate::report::say(
            "there is no malloc behind this one; preload it only into programs that are linked \
             with a C library",
        );
        std::process::abort();
    }
    STATE.store(2, Ordering::Relaxed);
}

/// Whether a first call is to be made again, with what has been found.
fn found() -> bool {
    resolve();
    STATE.load(Ordering::Relaxed) == 2
}

unsafe extern "C" fn first_malloc(bytes: usize) -> *mut c_void {
    if found() { malloc(bytes) } else { early(bytes, 16) }
}

unsafe extern "C" fn first_calloc(count: usize, each: usize) -> *mut c_void {
    // The buffer is zero, and given out once.
    if found() { calloc(count, each) } else { early(count.saturating_mul(each), 16) }
}

unsafe extern "C" fn first_memalign(align: usize, bytes: usize) -> *mut c_void {
    if found() { memalign(align, bytes) } else { early(bytes, align) }
}

unsafe extern "C" fn first_free(pointer: *mut c_void) {
    if found() {
        // SAFETY: the caller's promise.
        unsafe { free(pointer) };
    }
}

unsafe extern "C" fn first_realloc(pointer: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise; `realloc` itself knows early memory.
    if found() { unsafe { realloc(pointer, bytes) } } else { ptr::null_mut() }
}

unsafe extern "C" fn no_size(_: *mut c_void) -> usize {
    0
}

unsafe extern "C" fn no_trim(_: usize) -> c_int {
    0
}

const EARLY: usize = 32 << 10;

/// What is handed out while the next malloc is looked for, each piece behind its size.
#[repr(align(16))]
struct Early(UnsafeCell<[u8; EARLY]>);
// SAFETY: each byte is handed out once, by an atomic addition.
unsafe impl Sync for Early {}

static BUFFER: Early = Early(UnsafeCell::new([0; EARLY]));
static USED: AtomicUsize = AtomicUsize::new(0);

fn early(bytes: usize, align: usize) -> *mut c_void {
    let Some(room) = bytes.checked_add(align.max(16) + 16) else { return ptr::null_mut() };
    let room = room.next_multiple_of(16);
    let base = BUFFER.0.get().cast::<u8>();
    // Relaxed: each piece is one caller's.
    let start = USED.fetch_add(room, Ordering::Relaxed);
    if start.saturating_add(room) > EARLY {
        return ptr::null_mut();
    }
    let at = (base.addr() + start + 16).next_multiple_of(align.max(16)) - base.addr();
    // SAFETY: the piece and the 16 bytes before it are in the buffer, and this call's.
    unsafe {
        base.add(at - 8).cast::<usize>().write(bytes);
        base.add(at).cast()
    }
}

/// The size of a piece of the buffer.
#[inline(always)]
fn early_size(pointer: *const c_void) -> Option<usize> {
    if pointer.addr().wrapping_sub(BUFFER.0.get().addr()) >= EARLY {
        return None;
    }
    // SAFETY: `early` has written it.
    Some(unsafe { pointer.byte_sub(8).cast::<usize>().read() })
}

#[inline(always)]
pub(crate) fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: each door holds a function of its type; this one asks for nothing.
    unsafe { transmute::<*mut c_void, Malloc>(MALLOC.get())(bytes) }
}

#[inline(always)]
pub(crate) fn calloc(count: usize, each: usize) -> *mut c_void {
    // SAFETY: as in `malloc`.
    unsafe { transmute::<*mut c_void, Two>(CALLOC.get())(count, each) }
}

pub(crate) fn memalign(align: usize, bytes: usize) -> *mut c_void {
    // SAFETY: as in `malloc`.
    unsafe { transmute::<*mut c_void, Two>(MEMALIGN.get())(align, bytes) }
}

/// # Safety
///
/// As free(3).
#[inline(always)]
pub(crate) unsafe fn free(pointer: *mut c_void) {
    if early_size(pointer).is_none() {
        // SAFETY: as in `malloc`; the pointer is the caller's promise.
        unsafe { transmute::<*mut c_void, Free>(FREE.get())(pointer) };
    }
}

/// # Safety
///
/// As realloc(3).
#[inline(always)]
pub(crate) unsafe fn realloc(pointer: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(had) = early_size(pointer) else {
        // SAFETY: as in `malloc`; the pointer is the caller's promise.
        return unsafe { transmute::<*mut c_void, Realloc>(REALLOC.get())(pointer, bytes) };
    };
    let new = malloc(bytes);
    if !new.is_null() {
        // SAFETY: both are as long as that, and the new one is ours.
        unsafe { ptr::copy_nonoverlapping(pointer.cast::<u8>(), new.cast(), had.min(bytes)) };
    }
    new
}

/// # Safety
///
/// As malloc_usable_size(3).
pub(crate) unsafe fn usable_size(pointer: *mut c_void) -> usize {
    match early_size(pointer) {
        Some(size) => size,
        // SAFETY: as in `malloc`; the pointer is the caller's promise.
        None => unsafe { transmute::<*mut c_void, Size>(SIZE.get())(pointer) },
    }
}

pub(crate) fn trim(keep: usize) -> c_int {
    // SAFETY: as in `malloc`.
    unsafe { transmute::<*mut c_void, Trim>(TRIM.get())(keep) }
}
