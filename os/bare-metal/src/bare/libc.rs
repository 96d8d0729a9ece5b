//! What compiled `core` expects to find: four memory functions, and a name that unwinding would
//! use.
//!
//! The string instructions are written out, since a loop in Rust would be recognised as `memcpy`
//! and call itself.

use core::arch::asm;

/// # Safety
///
/// As C's `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller promises `len` readable bytes at `from` and writable ones at `to`; the
    // direction flag is clear, as the calling convention demands.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
///
/// As C's `memmove`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= len {
        // SAFETY: as the caller's promise; going upwards overwrites nothing that is still to be
        // read.
        return unsafe { memcpy(to, from, len) };
    }
    // SAFETY: as the caller's promise. From the end downwards, with the direction flag set only
    // meanwhile.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") len => _,
            inout("rdi") to.wrapping_add(len).wrapping_sub(1) => _,
            inout("rsi") from.wrapping_add(len).wrapping_sub(1) => _, options(nostack));
    }
    to
}

/// # Safety
///
/// As C's `memset`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    // SAFETY: the caller promises `len` writable bytes.
    unsafe {
        asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("al") byte as u8,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
///
/// As C's `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    for i in 0..len {
        // SAFETY: the caller promises `len` readable bytes at both. Volatile, so that this is not
        // made a call of itself.
        let (x, y) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
    }
    0
}

/// # Safety
///
/// As C's `bcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's promise is the same.
    unsafe { memcmp(a, b, len) }
}

/// Named by the unwind tables of `core`, which are thrown away. Never called: panics abort.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
