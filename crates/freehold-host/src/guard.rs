//! The guard mode, in which mistakes with memory end the program where they are made: uses of
//! freed frames, and accesses beyond an allocation.
//!
//! ```text
//! |red|AAAAA|red|...........|BB|BB red|    red: one frame, or as many as a chunk of a power of two
//!  no access outside of what is handed out
//!
//! free(A)   no access; waits in a queue with what was freed before it
//!           16 MiB wait: the oldest is free for others
//! ```
//!
//! What is shut may not be accessed to the kernel (mprotect(2)), nor to AddressSanitizer and
//! valgrind where the program runs under them, which say who did it and where. No thread finds a
//! CPU of such an arena the short way, so that all calls pass by here, and other arenas pay
//! nothing.
//!
//! Where a process may have no more mappings, all of the arena is open from then on: the kernel
//! finds no mistakes there any more.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold::{FRAME_SIZE, FrameRange, FreeError, Order, Pfn};

use crate::memory::Memory;

/// Frames that wait: 16 MiB.
const WAIT: u64 = (16 << 20) / FRAME_SIZE;

type Region = unsafe extern "C" fn(*const c_void, usize);

/// AddressSanitizer's two functions, where it is in this process.
#[derive(Clone, Copy)]
struct Asan {
    poison: Region,
    unpoison: Region,
}

impl Asan {
    fn find() -> Option<Self> {
        let find = |name: &std::ffi::CStr| {
            // SAFETY: a name that ends with a zero.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            // SAFETY: what has that name is a function of that type.
            (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Region>(found) })
        };
        let poison = find(c"__asan_poison_memory_region")?;
        Some(Self { poison, unpoison: find(c"__asan_unpoison_memory_region")? })
    }
}

/// A request to valgrind, as its manual has it (3.3, "The Client Request mechanism"). What it
/// answers; 0 where this is not valgrind.
#[cfg(target_arch = "x86_64")]
fn valgrind(request: usize, base: usize, bytes: usize) -> usize {
    let arguments = [request, base, bytes, 0, 0, 0];
    let mut answer = 0;
    // SAFETY: a register that is rotated by twice its width, and one that is exchanged with itself:
    // nothing to a processor. valgrind reads the arguments, and writes the answer.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            inout("rdi") 0usize => _,
            in("rax") arguments.as_ptr(),
            inout("rdx") answer,
            options(nostack),
        );
    }
    answer
}

#[cfg(not(target_arch = "x86_64"))]
fn valgrind(_: usize, _: usize, _: usize) -> usize {
    0
}

const RUNNING: usize = 0x1001;
const NO_ACCESS: usize = 0x4d43_0000;
const DEFINED: usize = 0x4d43_0002;

#[derive(Default)]
struct State {
    /// Frames that are handed out.
    live: HashSet<u64>,
    /// Behind an allocation, by its first frame, the end of the frames that nobody has.
    red: HashMap<u64, u64>,
    queue: VecDeque<FrameRange>,
    waiting: u64,
}

/// See the module's documentation.
pub(crate) struct Guard {
    state: Mutex<State>,
    /// The kernel had no room for one mapping more: all stays open, and mistakes are missed.
    blind: AtomicBool,
    /// No frame from there on was ever poisoned.
    top: AtomicU64,
    asan: Option<Asan>,
    valgrind: bool,
}

impl Guard {
    /// Of an arena of which nothing is handed out yet.
    pub(crate) fn new(memory: &Memory) -> Self {
        let guard = Self {
            state: Mutex::default(),
            blind: AtomicBool::new(false),
            top: AtomicU64::new(memory.first().get()),
            asan: Asan::find(),
            valgrind: valgrind(RUNNING, 0, 0) != 0,
        };
        memory.shut();
        guard
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, memory: &Memory, range: FrameRange, open: bool) {
        let (base, bytes) = memory.bytes(range);
        if let Some(asan) = self.asan {
            // Relaxed: whoever ends the arena is behind all of its calls.
            self.top.fetch_max(range.end.get(), Ordering::Relaxed);
            let call = if open { asan.unpoison } else { asan.poison };
            // SAFETY: memory of the arena's.
            unsafe { call(base.as_ptr().cast(), bytes) };
        }
        if self.valgrind {
            let request = if open { DEFINED } else { NO_ACCESS };
            valgrind(request, base.as_ptr().addr(), bytes);
        }
    }

    /// Frames are handed out.
    pub(crate) fn open(&self, memory: &Memory, range: FrameRange) {
        self.state().live.extend(range.start.get()..range.end.get());
        if !memory.set_access(range, true) {
            // A process has 65,530 mappings at most, mostly: with all of it open there is one.
            self.blind.store(true, Ordering::Relaxed);
            memory.set_access(memory.range(), true);
        }
        self.tell(memory, range, true);
    }

    /// How many frames are to be taken for so many, with those behind them that nobody gets.
    pub(crate) fn with_red_zone(count: u64) -> u64 {
        let chunk = count.is_power_of_two() && count < Order::MAX.frames();
        if chunk { 2 * count } else { count.saturating_add(1) }
    }

    /// So many frames were taken for `count`: those that are handed out.
    pub(crate) fn keep_red_zone(&self, memory: &Memory, all: FrameRange, count: u64) -> FrameRange {
        let end = Pfn::new(all.start.get() + count);
        self.tell(memory, FrameRange { start: end, end: all.end }, false);
        self.state().red.insert(end.get(), all.end.get());
        FrameRange { start: all.start, end }
    }

    /// Frames are freed: none has access from now on. Returns those that have waited long enough;
    /// they are free for others when their memory has been freed.
    pub(crate) fn shut(
        &self,
        memory: &Memory,
        range: FrameRange,
    ) -> Result<Vec<FrameRange>, FreeError> {
        let mut state = self.state();
        let frames = || range.start.get()..range.end.get();
        if let Some(pfn) = frames().find(|pfn| !state.live.contains(pfn)) {
            return Err(FreeError::DoubleFree { pfn: Pfn::new(pfn) });
        }
        if range.is_empty() {
            return Err(FreeError::ZeroLength);
        }
        for pfn in frames() {
            state.live.remove(&pfn);
        }
        // Relaxed: whoever is handed out what was shut opens it.
        if !self.blind.load(Ordering::Relaxed) {
            memory.set_access(range, false);
        }
        self.tell(memory, range, false);
        let end = state.red.remove(&range.end.get()).map_or(range.end, Pfn::new);
        state.queue.push_back(FrameRange { start: range.start, end });
        state.waiting += end.get() - range.start.get();
        Ok(Self::out(&mut state, WAIT))
    }

    fn out(state: &mut State, most: u64) -> Vec<FrameRange> {
        let mut out = Vec::new();
        while state.waiting > most {
            let Some(oldest) = state.queue.pop_front() else { break };
            state.waiting -= oldest.len();
            out.push(oldest);
        }
        out
    }

    /// The arena ends, and others get its addresses, by system calls that nobody sees.
    pub(crate) fn end(&self, memory: &Memory) {
        let top = Pfn::new(self.top.load(Ordering::Relaxed));
        self.tell(memory, FrameRange { start: memory.first(), end: top }, true);
    }

    /// All that waits: memory is short.
    pub(crate) fn all_waiting(&self) -> Vec<FrameRange> {
        Self::out(&mut self.state(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arena;
    use crate::child::fork;

    /// Frames that are poisoned.
    static POISONED: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

    extern "C" fn poison(base: *const c_void, bytes: usize) {
        let frames = (base.addr()..base.addr() + bytes).step_by(4096);
        POISONED.lock().unwrap().get_or_insert_default().extend(frames);
    }

    extern "C" fn unpoison(base: *const c_void, bytes: usize) {
        let inside = |&at: &usize| !(base.addr()..base.addr() + bytes).contains(&at);
        POISONED.lock().unwrap().get_or_insert_default().retain(inside);
    }

    #[test]
    fn nothing_of_an_ended_arena_is_poisoned() {
        let mut arena = Arena::builder(64 << 20).guard(true).build().unwrap();
        arena.inner.guard.as_mut().unwrap().asan = Some(Asan { poison, unpoison });
        let all: Vec<_> = (0..17).map(|n| arena.frames(100 * n + 1).unwrap()).collect();
        drop(all);
        let poisoned = || POISONED.lock().unwrap().as_ref().unwrap().len();
        assert!(poisoned() > 10_000);
        let mut arena = Some(arena);
        let mut ends = || {
            drop(arena.take());
            poisoned() == 0
        };
        assert_eq!(fork(&mut ends), 0, "of a forked child");
        assert!(ends());
    }
}
