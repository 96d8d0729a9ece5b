//! Whether malloc families give memory back by themselves: as they come, or never.
//!
//! mimalloc and jemalloc give the system memory back some time after it was freed (10 ms and 10 s
//! unless told otherwise); what comes next pays for the call and for the faults. Freehold's frames
//! stay where they are. To see how much of a difference is that and how much the allocator, each is
//! measured as it comes, and told to keep what it has.
//!
//! The setting is the process's: whoever takes its turn makes it first. snmalloc has none to make:
//! it gives back when its caches of blocks overflow, by no clock.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

unsafe extern "C" {
    fn mi_collect(force: bool);
    fn mi_option_set(option: c_int, value: c_long);
    fn _rjem_mallctl(
        name: *const c_char,
        old: *mut c_void,
        old_len: *mut usize,
        new: *mut c_void,
        new_len: usize,
    ) -> c_int;
}

/// `mi_option_purge_delay` of mimalloc's header, milliseconds.
const PURGE_DELAY: c_int = 15;
/// As both have it unless told otherwise; never.
const MIMALLOC_DELAY: c_long = 10;
const JEMALLOC_DELAY: isize = 10_000;
const NEVER: i8 = -1;

/// What is set now. Both begin with purging.
static MIMALLOC_PURGES: AtomicBool = AtomicBool::new(true);
static JEMALLOC_PURGES: AtomicBool = AtomicBool::new(true);

/// Has mimalloc purge from now on, or not.
pub(crate) fn mimalloc_purges(purges: bool) {
    // Relaxed: turns are one thread's.
    if MIMALLOC_PURGES.swap(purges, Ordering::Relaxed) == purges {
        return;
    }
    let delay = if purges { MIMALLOC_DELAY } else { c_long::from(NEVER) };
    // SAFETY: mimalloc's, which is linked in; any thread may call them at any time. What is free
    // goes back first: a segment keeps the setting that it was made with.
    unsafe {
        mi_collect(true);
        mi_option_set(PURGE_DELAY, delay);
    }
}

/// Has mimalloc give back all it can, whatever is set.
pub(crate) fn mimalloc_collect() {
    // SAFETY: mimalloc's, which is linked in; any thread may call it at any time.
    unsafe { mi_collect(true) };
}

/// Has jemalloc purge from now on, or not.
pub(crate) fn jemalloc_purges(purges: bool) {
    // Relaxed: turns are one thread's.
    if JEMALLOC_PURGES.swap(purges, Ordering::Relaxed) == purges {
        return;
    }
    let delay = if purges { JEMALLOC_DELAY } else { isize::from(NEVER) };
    // Of arenas to come, and of each that is there.
    set_delay(c"arenas.dirty_decay_ms", delay);
    for arena in 0..jemalloc_arenas() {
        let name = std::ffi::CString::new(format!("arena.{arena}.dirty_decay_ms"));
        if let Ok(name) = name {
            set_delay(&name, delay);
        }
    }
}

/// An arena that nobody has used yet has no delay to set, and refuses.
fn set_delay(name: &std::ffi::CStr, mut delay: isize) {
    let new = (&raw mut delay).cast();
    // SAFETY: jemalloc's, which is linked in; it reads a value of that size by such a name.
    unsafe {
        _rjem_mallctl(
            name.as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            new,
            size_of::<isize>(),
        )
    };
}

fn jemalloc_arenas() -> u32 {
    let (mut arenas, mut len) = (0u32, size_of::<u32>());
    let old = (&raw mut arenas).cast();
    // SAFETY: jemalloc's, which is linked in; it writes a value of that size by this name.
    unsafe {
        _rjem_mallctl(c"arenas.narenas".as_ptr(), old, &raw mut len, std::ptr::null_mut(), 0)
    };
    arenas
}

/// Has jemalloc give back all it can, whatever is set.
pub(crate) fn jemalloc_collect() {
    use std::ptr::null_mut;
    // All arenas are number 4096 to it.
    for name in [c"thread.tcache.flush", c"arena.4096.decay", c"arena.4096.purge"] {
        // SAFETY: jemalloc's, which is linked in; neither reads nor writes a value by these names.
        unsafe { _rjem_mallctl(name.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jemalloc_delay() -> isize {
        let (mut delay, mut len) = (0isize, size_of::<isize>());
        let old = (&raw mut delay).cast();
        // SAFETY: as in `jemalloc_arenas`.
        let failed = unsafe {
            _rjem_mallctl(
                c"arenas.dirty_decay_ms".as_ptr(),
                old,
                &raw mut len,
                std::ptr::null_mut(),
                0,
            )
        };
        assert_eq!(failed, 0, "there is such a name");
        delay
    }

    /// The option is known by a number only: its value is what its name in the environment and the
    /// header say.
    #[test]
    fn both_are_told_what_they_are_told() {
        unsafe extern "C" {
            fn mi_option_get(option: c_int) -> c_long;
        }
        // SAFETY: mimalloc's.
        let mimalloc_delay = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!((mimalloc_delay(), jemalloc_delay()), (MIMALLOC_DELAY, JEMALLOC_DELAY));
        mimalloc_purges(false);
        jemalloc_purges(false);
        assert_eq!((mimalloc_delay(), jemalloc_delay()), (-1, -1));
        mimalloc_purges(true);
        jemalloc_purges(true);
        assert_eq!((mimalloc_delay(), jemalloc_delay()), (MIMALLOC_DELAY, JEMALLOC_DELAY));
    }
}
