//! Large requests: whole frames of an arena, with their number in a table beside it.
//!
//! ```text
//! arena    |....|AAAAA|..|BBB|.......    frames, 4 KiB each
//! lengths  | 0  |5 0 0 0 0|0|3 0 0|0     4 bytes each: written where an allocation begins
//! ```
//!
//! A free that finds 0 there was never an allocation, or was freed before: the program ends, as it
//! does with other mallocs.
//!
//! **realloc.** Frames behind an allocation are added in place where they are free. Otherwise the
//! pages of a long allocation are moved by `mremap(2)` to the new addresses, and shorter ones are
//! copied. Where pages have been moved the kernel keeps a mapping apart. So freed ones are mapped
//! afresh, and no more than [`MOVED_MOST`] live at a time. They go by way of addresses that the
//! kernel chooses: told where, Linux before 6.17 unmaps what is there before it looks whether the
//! pages are of one mapping, and later ones may move the first of several and then fail.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use freehold_host::freehold::{FrameRange, Pfn};
use freehold_host::{Arena, Backing, Error, Frames, Numa};

use crate::{FROM, errno, next, no_memory, options, report, returns, set_errno};

pub(crate) const PAGE: usize = 4096;
/// Pages are moved from so many bytes on: a call costs some microseconds, as copying as much does.
const MOVED_LEAST: usize = 256 << 10;
/// Of the 65,530 mappings that a process may have, each moved allocation takes two.
const MOVED_MOST: u32 = 8192;
/// In an entry of `lengths`: its pages have been moved there.
const MOVED: u32 = 1 << 31;

/// An arena, and how long the allocations in it are.
pub(crate) struct Place {
    arena: &'static Arena,
    base: usize,
    bytes: usize,
    lengths: &'static [AtomicU32],
}

/// This process's arena first, then its parent's, and so on: written once each.
const PLACES: usize = 8;
static TABLE: [AtomicPtr<Place>; PLACES] = [const { AtomicPtr::new(ptr::null_mut()) }; PLACES];
/// How many of them there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Where the first is, for a look without the table.
static BASE: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
/// There is more than the first.
static MORE: AtomicBool = AtomicBool::new(false);
/// The arena of this very process; null in a child that has none yet.
static CURRENT: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());
/// Somebody makes it.
static MAKING: AtomicBool = AtomicBool::new(false);

/// How many allocations were lengthened or moved, by which way; and how many there was no room for.
pub(crate) static IN_PLACE: AtomicU32 = AtomicU32::new(0);
pub(crate) static REMAPPED: AtomicU32 = AtomicU32::new(0);
pub(crate) static COPIED: AtomicU32 = AtomicU32::new(0);
pub(crate) static PASSED_ON: AtomicU32 = AtomicU32::new(0);
/// Moved ones that live.
static MOVED_NOW: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread is inside the arena: what that asks for comes from the next malloc.
pub(crate) struct Inside(());

impl Inside {
    #[inline(always)]
    pub(crate) fn enter() -> Option<Self> {
        (!INSIDE.replace(true)).then_some(Self(()))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// The arena that a pointer is into.
#[inline(always)]
pub(crate) fn place_of(pointer: *mut c_void) -> Option<&'static Place> {
    // Acquire, with `make`'s store: with no base yet, NULL would be in the arena.
    let bytes = BYTES.load(Ordering::Acquire);
    if pointer.addr().wrapping_sub(BASE.load(Ordering::Relaxed)) < bytes {
        // SAFETY: written before `BYTES`, and never freed.
        return unsafe { TABLE[0].load(Ordering::Acquire).as_ref() };
    }
    // Relaxed: whoever has a pointer into an arena has it from a call behind that which made it.
    if MORE.load(Ordering::Relaxed) { place_in_table(pointer) } else { None }
}

#[cold]
fn place_in_table(pointer: *mut c_void) -> Option<&'static Place> {
    // SAFETY: what the table has is never freed.
    let places = TABLE.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() });
    let mut within = places.filter(|place| pointer.addr().wrapping_sub(place.base) < place.bytes);
    within.next()
}

extern "C" fn forked() {
    CURRENT.store(ptr::null_mut(), Ordering::Relaxed);
    // Whoever was making one is not in this process.
    MAKING.store(false, Ordering::Relaxed);
    INSIDE.set(false);
    returns::forked();
}

pub(crate) fn follow_forks() {
    // SAFETY: a function that stays: nobody unloads what is preloaded.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

/// This process's arena.
#[inline(always)]
pub(crate) fn current() -> Option<&'static Place> {
    // SAFETY: never freed. Acquire, with `make`'s store.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Addresses for an arena: four times the machine's memory, 64 GiB to 4 TiB; half of what there may
/// be (`RLIMIT_AS`) at most.
fn sensible_size() -> u64 {
    // SAFETY: a question, and a place for the answer.
    let (pages, limit) = unsafe {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_AS, &raw mut limit);
        (libc::sysconf(libc::_SC_PHYS_PAGES), limit.rlim_cur)
    };
    let wanted = (4 * PAGE as u64 * pages.max(0) as u64).clamp(64 << 30, 4 << 40);
    if limit == libc::RLIM_INFINITY { wanted } else { wanted.min(limit / 2) }
}

fn try_size(bytes: u64) -> Result<&'static Arena, Error> {
    let options = options::get();
    let builder = Arena::builder(bytes).backing(options.backing).least_run(options.least_run);
    // The kernel joins no mappings of different memory policies: see `map_afresh`. By itself it
    // takes memory of the node that touches it first.
    Ok(builder.numa(Numa::ZonesOnly).build()?.leak())
}

/// Makes this process's arena, unless another thread does.
#[cold]
fn make() -> Option<&'static Place> {
    let at = COUNT.load(Ordering::Relaxed);
    if at >= PLACES || MAKING.swap(true, Ordering::Acquire) {
        return None;
    }
    if let Some(place) = current() {
        MAKING.store(false, Ordering::Release);
        return Some(place);
    }
    let asked = options::get().size;
    let mut size = if asked > 0 { asked } else { sensible_size() };
    let arena = loop {
        match try_size(size) {
            Ok(arena) => break arena,
            // Where there are not so many addresses, fewer.
            Err(_) if asked == 0 && size > 256 << 20 => size /= 4,
            Err(error) => {
                report::say(&format!("no arena, so all goes to the malloc behind it: {error}"));
                FROM.store(usize::MAX, Ordering::Relaxed);
                return None;
            }
        }
    };
    let range = arena.range();
    let Some(lengths) = lengths(range.len() as usize) else {
        report::say("no addresses for a table of lengths; set FREEHOLD_MALLOC_SIZE to less");
        FROM.store(usize::MAX, Ordering::Relaxed);
        return None;
    };
    let (base, bytes) = ((range.start.get() as usize) * PAGE, (range.len() as usize) * PAGE);
    let place = Box::leak(Box::new(Place { arena, base, bytes, lengths }));
    TABLE[at].store(place, Ordering::Release);
    COUNT.store(at + 1, Ordering::Relaxed);
    if at == 0 {
        BASE.store(base, Ordering::Relaxed);
        BYTES.store(bytes, Ordering::Release);
    } else {
        MORE.store(true, Ordering::Release);
    }
    CURRENT.store(place, Ordering::Release);
    MAKING.store(false, Ordering::Release);
    Some(place)
}

/// Zeros, which cost nothing until they are written.
fn lengths(frames: usize) -> Option<&'static [AtomicU32]> {
    let bytes = frames * size_of::<AtomicU32>();
    let (rw, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: new memory, which nobody else has, all zeros, for good.
    unsafe {
        let table = libc::mmap(ptr::null_mut(), bytes, rw, flags, -1, 0);
        if table == libc::MAP_FAILED {
            return None;
        }
        Some(std::slice::from_raw_parts(table.cast(), frames))
    }
}

/// So many bytes at a multiple of `align`; `None` where the next malloc is to be asked.
pub(crate) fn take(bytes: usize, align: usize, zeroed: bool) -> Option<NonNull<u8>> {
    let _inside = Inside::enter()?;
    let place = current().or_else(make)?;
    let frames = bytes.div_ceil(PAGE);
    // What is cut off again at either side.
    let more = if align > PAGE { align.div_ceil(PAGE) - 1 } else { 0 };
    let all = frames.checked_add(more)? as u64;
    let found =
        if zeroed { Frames::zeroed(place.arena, all) } else { Frames::new(place.arena, all) };
    let Ok(found) = found else {
        PASSED_ON.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    let range = found.into_raw();
    let start = place.number(range.start.get() as usize * PAGE);
    let first = (place.base + start * PAGE).next_multiple_of(align);
    let first = place.number(first);
    let end = place.number(range.end.get() as usize * PAGE);
    place.give(start, first);
    place.give(first + frames, end);
    place.lengths[first].store(frames as u32, Ordering::Relaxed);
    NonNull::new(place.pointer(first))
}

impl Place {
    /// Which frame an address is in.
    #[inline(always)]
    fn number(&self, address: usize) -> usize {
        (address - self.base) / PAGE
    }

    fn pointer(&self, frame: usize) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.base + frame * PAGE)
    }

    fn range(&self, start: usize, end: usize) -> FrameRange {
        let pfn = |frame: usize| Pfn::new((self.base / PAGE + frame) as u64);
        FrameRange { start: pfn(start), end: pfn(end) }
    }

    /// The arena is that of this process, and not of a parent's.
    fn is_current(&self) -> bool {
        current().is_some_and(|current| ptr::eq(current, self))
    }

    /// Frames go home.
    fn give(&self, start: usize, end: usize) {
        if start >= end {
            return;
        }
        // What the arena writes down of its guarded frames is not to be asked of itself.
        let _inside = Inside::enter();
        let refused = if self.is_current() {
            // SAFETY: they are allocated: the table, or the caller, has just taken them.
            unsafe { self.arena.free_range(self.range(start, end)) }.err()
        } else {
            Some(Error::Forked)
        };
        match refused {
            None => {}
            // This process's own copy.
            Some(Error::Forked) => {
                let bytes = (end - start) * PAGE;
                // SAFETY: nobody uses them any more.
                unsafe { libc::madvise(self.pointer(start).cast(), bytes, libc::MADV_DONTNEED) };
            }
            Some(error) => wrong(self.pointer(start), &error.to_string()),
        }
    }

    /// A new mapping in place of moved pages, which the kernel joins to its neighbours; whether it
    /// had room for it.
    fn map_afresh(&self, start: usize, end: usize) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the frames are ours, and nobody uses what is in them.
        let there = unsafe {
            libc::mmap(self.pointer(start).cast(), (end - start) * PAGE, rw, flags, -1, 0)
        };
        there != libc::MAP_FAILED
    }

    /// Gives up the frames of an allocation that are behind its first `keep`.
    fn cut(&self, start: usize, entry: u32, keep: usize) {
        let end = start + (entry & !MOVED) as usize;
        if entry & MOVED != 0 {
            let _ = self.map_afresh(start + keep, end);
            if keep == 0 {
                MOVED_NOW.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.give(start + keep, end);
    }

    /// The entry of an allocation. The program ends where there is none.
    fn entry(&self, pointer: *mut c_void) -> u32 {
        let entry = self.lengths[self.number(pointer.addr())].load(Ordering::Relaxed);
        if entry == 0 || pointer.addr() % PAGE != 0 {
            wrong(pointer.cast(), "it is no allocation, or has been freed");
        }
        entry
    }
}

/// Ends the program, which has freed or resized what it must not.
#[cold]
fn wrong(pointer: *mut u8, why: &str) -> ! {
    report::say(&format!(
        "free, realloc or malloc_usable_size of {pointer:p}: {why}. Compile with \
         -fsanitize=address, or run under valgrind without this library, to see who did it"
    ));
    std::process::abort()
}

/// # Safety
///
/// As free(3), for a pointer into that arena.
pub(crate) unsafe fn free(place: &'static Place, pointer: *mut c_void) {
    let before = errno();
    let number = place.number(pointer.addr());
    let entry = place.entry(pointer);
    // Of two frees at once, one finds it.
    if place.lengths[number].swap(0, Ordering::Relaxed) == 0 {
        wrong(pointer.cast(), "it has been freed at the same moment");
    }
    place.cut(number, entry, 0);
    returns::freed(entry & !MOVED);
    set_errno(before);
}

pub(crate) fn size(place: &'static Place, pointer: *mut c_void) -> usize {
    (place.entry(pointer) & !MOVED) as usize * PAGE
}

/// # Safety
///
/// As realloc(3), for a pointer into that arena.
pub(crate) unsafe fn resize(
    place: &'static Place,
    pointer: *mut c_void,
    bytes: usize,
) -> *mut c_void {
    if bytes == 0 {
        // SAFETY: the caller's promise.
        unsafe { free(place, pointer) };
        return ptr::null_mut();
    }
    let (number, entry) = (place.number(pointer.addr()), place.entry(pointer));
    let (had, wanted) = ((entry & !MOVED) as usize, bytes.div_ceil(PAGE));
    if crate::is_large(bytes) {
        if wanted <= had {
            if wanted < had {
                place.lengths[number].store(wanted as u32 | entry & MOVED, Ordering::Relaxed);
                place.cut(number, entry, wanted);
                returns::freed((had - wanted) as u32);
            }
            return pointer;
        }
        if place.is_current() && extend(place, number, had, wanted) {
            place.lengths[number].store(wanted as u32 | entry & MOVED, Ordering::Relaxed);
            IN_PLACE.fetch_add(1, Ordering::Relaxed);
            return pointer;
        }
    }
    let large = if crate::is_large(bytes) { take(bytes, PAGE, false) } else { None };
    let new = large.map_or_else(|| next::malloc(bytes), |new| new.as_ptr().cast());
    if new.is_null() {
        return no_memory();
    }
    if large.is_none() || !move_pages(place, pointer, new, had) {
        COPIED.fetch_add(1, Ordering::Relaxed);
        let copied = bytes.min(had * PAGE);
        // SAFETY: both are as long as that, and the new one is ours.
        unsafe { ptr::copy_nonoverlapping(pointer.cast::<u8>(), new.cast(), copied) };
    }
    // SAFETY: the caller's promise.
    unsafe { free(place, pointer) };
    new
}

/// Adds the frames behind an allocation, where they are free.
fn extend(place: &'static Place, number: usize, had: usize, wanted: usize) -> bool {
    let Some(_inside) = Inside::enter() else { return false };
    // SAFETY: the allocation is the caller's, and the handle lives in here.
    let frames = unsafe { Frames::from_raw(place.arena, place.range(number, number + had)) };
    let Ok(mut frames) = frames else { return false };
    let done = frames.try_extend((wanted - had) as u64).is_ok();
    let _ = frames.into_raw();
    done
}

/// Has the kernel put the pages of an allocation to the start of another; whether it has. What they
/// leave behind is mapped, and zero.
fn move_pages(place: &Place, from: *mut c_void, to: *mut c_void, frames: usize) -> bool {
    let bytes = frames * PAGE;
    let new = place_of(to).filter(|_| bytes >= MOVED_LEAST);
    let Some(new) = new.filter(|new| new.arena.backing() == Backing::Private) else { return false };
    if !place.is_current() || MOVED_NOW.load(Ordering::Relaxed) >= MOVED_MOST {
        return false;
    }
    // Refused, with nothing done, where the pages are of several mappings, and before Linux 5.7.
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
    let anywhere = ptr::null_mut::<c_void>();
    // SAFETY: the range is the caller's.
    let between = unsafe { libc::mremap(from, bytes, bytes, flags, anywhere) };
    if between == libc::MAP_FAILED {
        return false;
    }
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: one range was made just now, and of the caller's nothing is used yet.
    let moved = unsafe { libc::mremap(between, bytes, bytes, flags, to) };
    let number = new.number(to.addr());
    if moved != to {
        // It may have unmapped the new place.
        if !new.map_afresh(number, number + frames) {
            report::say(&format!("realloc of {from:p}: no mapping is left for its new place"));
            std::process::abort();
        }
        // SAFETY: both are as long as that, and nobody else knows either.
        unsafe {
            ptr::copy_nonoverlapping(between.cast::<u8>(), to.cast(), bytes);
            libc::munmap(between, bytes);
        }
        COPIED.fetch_add(1, Ordering::Relaxed);
        return true;
    }
    new.lengths[number].fetch_or(MOVED, Ordering::Relaxed);
    MOVED_NOW.fetch_add(1, Ordering::Relaxed);
    REMAPPED.fetch_add(1, Ordering::Relaxed);
    true
}

/// Gives back what is free; whether there was any.
pub(crate) fn trim() -> bool {
    let Some(_inside) = Inside::enter() else { return false };
    let trimmed = current().map(|place| place.arena.trim());
    trimmed.is_some_and(|done| done.is_ok_and(|released| released.bytes > 0))
}

/// One pass over the arena; whether it found anything to give back, now or the next time.
pub(crate) fn pass() -> bool {
    let Some(_inside) = Inside::enter() else { return false };
    let Some(place) = current() else { return false };
    let Ok(done) = place.arena.pass() else { return false };
    done.seen > 0 || done.bytes > 0 || done.cut_short
}

/// Why this process has no arena.
pub(crate) fn why_none() -> &'static str {
    if FROM.load(Ordering::Relaxed) == usize::MAX {
        "no arena in this process: there was no room for one"
    } else if COUNT.load(Ordering::Relaxed) >= PLACES {
        "no arena in this process: eight of those that it was forked from have one each"
    } else {
        "no arena in this process: no request was large enough"
    }
}

/// Statistics of this process's arena.
pub(crate) fn stats() -> Option<freehold_host::Stats> {
    let _inside = Inside::enter()?;
    Some(current()?.arena.stats())
}
