//! Malloc families as plain memory, called directly and never installed as this program's
//! allocator: what an arena is measured beside.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::ptr::NonNull;

use crate::bench::mapping::PAGE;

/// Something that gives memory: one of malloc's families.
pub(super) struct Heap<A: 'static> {
    heap: &'static A,
    /// Has it give back what it holds and nobody uses.
    purge: fn(),
}

/// A piece of memory, gone when this is dropped.
pub(super) struct Piece<A: GlobalAlloc + 'static> {
    base: NonNull<u8>,
    layout: Layout,
    heap: &'static A,
}

pub(super) fn system() -> Heap<System> {
    fn purge() {
        // Other C libraries have no such call; what they keep, they keep.
        #[cfg(target_env = "gnu")]
        {
            unsafe extern "C" {
                fn malloc_trim(pad: usize) -> std::ffi::c_int;
            }
            // SAFETY: glibc's; any thread may call it at any time.
            unsafe { malloc_trim(0) };
        }
    }
    Heap { heap: &System, purge }
}

#[cfg(feature = "peers")]
pub(super) fn mimalloc() -> Heap<mimalloc::MiMalloc> {
    fn purge() {
        unsafe extern "C" {
            fn mi_collect(force: bool);
        }
        // SAFETY: mimalloc's, which is linked in; any thread may call it at any time.
        unsafe { mi_collect(true) };
    }
    Heap { heap: &mimalloc::MiMalloc, purge }
}

#[cfg(feature = "peers")]
pub(super) fn jemalloc() -> Heap<tikv_jemallocator::Jemalloc> {
    use std::ffi::{c_char, c_int, c_void};
    use std::ptr::null_mut;

    fn purge() {
        unsafe extern "C" {
            fn _rjem_mallctl(
                name: *const c_char,
                old: *mut c_void,
                old_len: *mut usize,
                new: *mut c_void,
                new_len: usize,
            ) -> c_int;
        }
        // All arenas are number 4096 to it.
        for name in [c"thread.tcache.flush", c"arena.4096.decay", c"arena.4096.purge"] {
            // SAFETY: jemalloc's, which is linked in; it reads and writes no value by these names.
            unsafe { _rjem_mallctl(name.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
        }
    }
    Heap { heap: &tikv_jemallocator::Jemalloc, purge }
}

impl<A: GlobalAlloc + 'static> Heap<A> {
    /// So many bytes of whole pages, with a byte written in each page.
    pub(super) fn touched(&self, bytes: usize) -> Option<Piece<A>> {
        self.piece(bytes).inspect(|piece| piece.touch(0))
    }

    fn piece(&self, bytes: usize) -> Option<Piece<A>> {
        let layout = Layout::from_size_align(bytes.max(1), PAGE).ok()?;
        // SAFETY: the size is not 0.
        let base = NonNull::new(unsafe { self.heap.alloc(layout) })?;
        Some(Piece { base, layout, heap: self.heap })
    }

    pub(super) fn purge(&self) {
        (self.purge)();
    }

    /// So many allocations of so many bytes, each freed at once and not touched.
    #[inline(never)]
    pub(super) fn pairs(&self, bytes: usize, n: u64) -> Result<(), String> {
        for _ in 0..n {
            drop(black_box(self.piece(bytes).ok_or_else(|| format!("no {bytes} bytes"))?));
        }
        Ok(())
    }

    /// A buffer that is doubled from a page on until it has so many bytes; a byte is written in
    /// every page as it comes.
    pub(super) fn doubled(&self, bytes: usize) -> Result<(), String> {
        let none = || "there is no memory".to_owned();
        // Not aligned to more than any buffer is: that is what `realloc` of these is made for.
        let layout = Layout::from_size_align(PAGE, 16).map_err(|_| none())?;
        // SAFETY: the size is not 0.
        let base = NonNull::new(unsafe { self.heap.alloc(layout) }).ok_or_else(none)?;
        let mut buffer = Piece { base, layout, heap: self.heap };
        buffer.touch(0);
        while buffer.layout.size() < bytes {
            let (old, size) = (buffer.layout.size(), buffer.layout.size() * 2);
            // SAFETY: the buffer is this allocator's, of that layout, and the new size is not 0 and
            // in range.
            let base = unsafe { self.heap.realloc(buffer.base.as_ptr(), buffer.layout, size) };
            buffer.base = NonNull::new(base).ok_or_else(none)?;
            buffer.layout = Layout::from_size_align(size, 16).map_err(|_| none())?;
            buffer.touch(old);
        }
        Ok(())
    }
}

impl<A: GlobalAlloc> Piece<A> {
    /// Writes a byte in each page from `start` on.
    fn touch(&self, start: usize) {
        for at in (start..self.layout.size()).step_by(PAGE) {
            // SAFETY: within the piece, which is this value's alone. Volatile: nobody reads it.
            unsafe { self.base.add(at).write_volatile(1) };
        }
    }
}

impl<A: GlobalAlloc> Drop for Piece<A> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: allocated by that heap with that layout, and not used any more.
        unsafe { self.heap.dealloc(self.base.as_ptr(), self.layout) };
    }
}
