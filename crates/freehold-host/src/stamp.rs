//! Whose memory this is: a word for each arena that is 0 in a forked child.
//!
//! ```text
//! parent                     child after fork
//! [ ... 0 0 0 | 3 | 1 ]      [ ... 0 0 0 | 0 | 0 ]      a page, emptied by the kernel
//! ```
//!
//! A child of `fork` has one thread; whatever lock another thread held at that moment stays held
//! for ever. So the child must not touch the allocator, and has to know that it is the child
//! without a system call on each operation. Every call compares its arena's word with the number
//! that the thread remembers: the same comparison that finds the thread's slot, so it costs one
//! load.
//!
//! | the page is emptied | by `fork(3)` | by a bare `clone(2)`, `_Fork` |
//! |---|---|---|
//! | by the kernel, `MADV_WIPEONFORK` | yes | yes |
//! | by a handler of the C library's, `pthread_atfork`, where that is forbidden or not heeded (a sandbox, an emulator) | yes | **no** |
//!
//! Pages are kept for the rest of the program, and their words are used again.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::Error;
use crate::mapping::Mapping;
use crate::sys::{self, Advice, no_room_or};

const WORDS: usize = 4096 / size_of::<AtomicU64>();

/// A page of words.
struct Page {
    mapping: Mapping,
    /// By word, whether an arena has it.
    taken: [AtomicU64; WORDS / 64],
    next: *const Page,
}

/// The page made last.
static PAGES: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());

/// Numbers are never used twice, so that a thread cannot take a new arena for one that is gone.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// All pages, the newest first. No lock: a child may be made at any moment.
fn pages() -> impl Iterator<Item = &'static Page> {
    // Acquire: pairs with the release that adds a page. Pages are never freed.
    let mut next = PAGES.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: a page, or null.
        let page = unsafe { next.as_ref() }?;
        next = page.next;
        Some(page)
    })
}

/// In a child, by the thread that is left.
extern "C" fn empty_all() {
    for word in pages().flat_map(Page::words) {
        // Relaxed: nobody else is there.
        word.store(0, Ordering::Relaxed);
    }
}

/// Whether the C library calls [`empty_all`] in each child.
fn is_told_of_forks() -> bool {
    static TOLD: AtomicBool = AtomicBool::new(false);
    // Relaxed, both: at worst it is asked for twice, which does no harm.
    if !TOLD.load(Ordering::Relaxed) {
        // SAFETY: the handler only stores to memory that stays.
        let told = unsafe { libc::pthread_atfork(None, None, Some(empty_all)) } == 0;
        TOLD.store(told, Ordering::Relaxed);
        return told;
    }
    true
}

impl Page {
    fn new() -> Result<Self, Error> {
        let mapping = Mapping::zeroed(4096)?;
        let page = (mapping.base(), mapping.len());
        // SAFETY: the page is ours and this advice changes nothing in this process.
        let emptied = unsafe { sys::advise(page, Advice::LinuxWipeOnFork) };
        if !is_told_of_forks() {
            let hint = "Linux 4.14 or later is needed, or memory for a handler of pthread_atfork";
            emptied.map_err(|errno| {
                Error::os("madvise(MADV_WIPEONFORK)", errno, 4096, no_room_or(hint, errno))
            })?;
        }
        Ok(Self { mapping, taken: Default::default(), next: ptr::null() })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is a page, so large enough and aligned, is never unmapped once it is
        // known, and is only used as such words.
        unsafe { std::slice::from_raw_parts(self.mapping.base().cast().as_ptr(), WORDS) }
    }

    /// A word that no arena has, the last ones first. The allocator writes what CPUs have, near the
    /// starts of pages, all the time, and a load whose address has the same last 12 bits as a store
    /// under way is held up by it: measured, 1.2 ns of 14.
    fn take(&self) -> Option<usize> {
        self.taken.iter().enumerate().rev().find_map(|(group, taken)| {
            // Acquire, with the release in `Stamp::drop`: who had the word before has left it 0.
            let one =
                |taken: u64| (taken != !0).then(|| taken | 1 << (63 - (!taken).leading_zeros()));
            let before = taken.fetch_update(Ordering::Acquire, Ordering::Relaxed, one).ok()?;
            Some(group * 64 + 63 - (!before).leading_zeros() as usize)
        })
    }

    /// Adds a page; one of its words.
    fn add() -> Result<(&'static Self, usize), Error> {
        let page = Box::new(Self::new()?);
        let word = WORDS - 1;
        page.taken[word / 64].store(1 << (word % 64), Ordering::Relaxed);
        let page = Box::into_raw(page);
        // Relaxed: the exchange below tells whether it is so still.
        let mut newest = PAGES.load(Ordering::Relaxed);
        loop {
            // SAFETY: nobody else knows of the page yet.
            unsafe { (*page).next = newest };
            // Release: whoever sees the page sees what is in it. Relaxed: it is tried again.
            match PAGES.compare_exchange_weak(newest, page, Ordering::Release, Ordering::Relaxed) {
                // SAFETY: it is never freed, and never written to from now on.
                Ok(_) => return Ok((unsafe { &*page }, word)),
                Err(other) => newest = other,
            }
        }
    }
}

/// See the module's documentation.
pub(crate) struct Stamp {
    page: &'static Page,
    word: usize,
}

// SAFETY: pages are atomics, and mappings that nobody unmaps.
unsafe impl Sync for Page {}

impl Stamp {
    pub(crate) fn new() -> Result<Self, Error> {
        let (page, word) = match pages().find_map(|page| Some((page, page.take()?))) {
            Some(found) => found,
            None => Page::add()?,
        };
        let stamp = Self { page, word };
        // Relaxed, both: only uniqueness matters; whoever shares the arena with another thread
        // orders the rest.
        stamp.word().store(NEXT.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Ok(stamp)
    }

    #[inline(always)]
    pub(crate) fn word(&self) -> &AtomicU64 {
        &self.page.words()[self.word]
    }

    /// The arena's number; 0 in a forked child.
    #[inline(always)]
    pub(crate) fn id(&self) -> u64 {
        // Relaxed: it never changes in this process.
        self.word().load(Ordering::Relaxed)
    }

    /// Whether this is a child of the process that made the arena.
    pub(crate) fn is_forked(&self) -> bool {
        self.id() == 0
    }
}

impl Drop for Stamp {
    fn drop(&mut self) {
        // Relaxed: the release below orders it before whoever takes the word next.
        self.word().store(0, Ordering::Relaxed);
        let free = !(1 << (self.word % 64));
        self.page.taken[self.word / 64].fetch_and(free, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::fork;

    #[test]
    fn words_are_used_again_and_numbers_are_not() {
        let stamps: Vec<_> = (0..3 * WORDS).map(|_| Stamp::new().unwrap()).collect();
        let mut words: Vec<_> = stamps.iter().map(|stamp| ptr::from_ref(stamp.word())).collect();
        let mut numbers: Vec<_> = stamps.iter().map(Stamp::id).collect();
        words.sort_unstable();
        words.dedup();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((words.len(), numbers.len()), (stamps.len(), stamps.len()));
        let (before, last) = (pages().count(), numbers[numbers.len() - 1]);
        drop(stamps);
        for _ in 0..10 * WORDS {
            assert!(Stamp::new().unwrap().id() > last);
        }
        // Others' arenas may have needed one.
        assert!(pages().count() <= before + 1);
    }

    /// Has the kernel refuse `MADV_WIPEONFORK` to this process from now on.
    fn refuse_the_advice() {
        let op =
            |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
        // The call's number, and the third argument's lower half.
        let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        let back = libc::BPF_RET | libc::BPF_K;
        let mut filter = [
            op(load, 0, 0, 0),
            op(equal, libc::SYS_madvise as u32, 0, 3),
            op(load, 16 + 2 * 8 + if cfg!(target_endian = "big") { 4 } else { 0 }, 0, 0),
            op(equal, libc::MADV_WIPEONFORK as u32, 0, 1),
            op(back, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
            op(back, libc::SECCOMP_RET_ALLOW, 0, 0),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: a filter that lives until it is in force.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
        }
    }

    /// In a sandbox, or under an emulator that does not heed the advice.
    #[test]
    fn a_child_is_found_out_without_the_kernel() {
        let status = fork(|| {
            refuse_the_advice();
            let before = pages().count();
            let mut stamps = Vec::new();
            while pages().count() == before {
                stamps.push(Stamp::new().unwrap());
            }
            let last = stamps.last().unwrap();
            let base = last.page.mapping.base().as_ptr();
            // SAFETY: advice about a page of this process's own.
            assert_ne!(unsafe { libc::madvise(base.cast(), 4096, libc::MADV_WIPEONFORK) }, 0);
            assert!(!last.is_forked());
            fork(|| last.is_forked()) == 0 && !last.is_forked()
        });
        assert_eq!(status, 0);
    }
}
