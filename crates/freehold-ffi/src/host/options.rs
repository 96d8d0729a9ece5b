//! The knobs of an arena: a structure of which all zeros but for `size` and `bytes` is an arena as
//! `freehold_arena_new` makes it.

use core::ffi::c_void;
use core::mem::{MaybeUninit, offset_of};
use core::ptr;

use freehold_host::{
    Arena as HostArena, Backing as HostBacking, Builder, Numa as HostNuma, OnFork,
};

use crate::error::{Error, Failure, tell};
use crate::host::arena::Arena;
use crate::status::Status;

/// What the frames of an arena are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Backing {
    /// Private anonymous memory.
    Private = 0,
    /// A memfd, so that a frame can be mapped a second time.
    Memfd = 1,
    /// Private anonymous memory that the kernel may back with huge pages.
    HugePages = 2,
}

/// What a forked child finds at the arena's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum ForkRule {
    /// Its own copy (private memory only).
    Copy = 0,
    /// Nothing: touching a frame is a segmentation fault.
    Unmapped = 1,
}

/// What to do where there is more than one memory node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum NumaRule {
    /// A zone for each node, whose pages come from that node while it has memory.
    Prefer = 0,
    /// A zone for each node, whose pages come from that node or not at all.
    Bind = 1,
    /// A zone for each node, without telling the kernel.
    ZonesOnly = 2,
    /// One zone, whatever the machine looks like.
    Ignore = 3,
}

/// An allocation of so many neighbouring frames is about to fail, for the `attempts`th time. Says
/// whether it has freed something, so that it is to be tried again. Must not throw or longjmp.
pub type OnExhausted =
    Option<unsafe extern "C" fn(user: *mut c_void, frames: u64, attempts: u32) -> bool>;

/// An arena is at its limit of resident memory: bytes that the OS may back, and the limit. Must
/// not throw or longjmp.
pub type OnPressure = Option<unsafe extern "C" fn(user: *mut c_void, resident: u64, limit: u64)>;

/// The knobs of an arena to be made. Zero is the default of each but the first two.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ArenaOptions {
    /// `sizeof` this structure, as the program knows it.
    pub size: u32,
    /// What the frames are made of: a `freehold_backing`. Default: private memory.
    pub backing: u32,
    /// At least so many bytes, in whole blocks of 2 MiB; only what is used counts.
    pub bytes: u64,
    /// What a forked child finds: a `freehold_fork_rule`. Default: its own copy. Memfd arenas
    /// are always unmapped there.
    pub on_fork: u32,
    /// A `freehold_numa_rule`. Default: memory of the thread's own node first.
    pub numa: u32,
    /// How many threads can have a CPU for themselves at once, at most 30,000; later ones share
    /// others. Default: four for each of the machine's CPUs, but no more than one for each 16
    /// blocks.
    pub slots: u16,
    /// Not zero: the kernel backs the whole arena while it is made.
    pub populate: u8,
    /// Not zero: nothing is ever given back: for memory that a device knows the pages of.
    pub pinned: u8,
    /// The least run of free frames, a power of two from 1 to 512, that is given back out of a
    /// block in use. Default: 4.
    pub least_run: u64,
    /// The most bytes that the OS may back, in blocks of 2 MiB. At the limit free memory is given
    /// back first; calls that need more are refused with `FREEHOLD_STATUS_LIMIT`. Default: none.
    pub resident_limit: u64,
    /// Handed to the two callbacks.
    pub user: *mut c_void,
    /// Called before an allocation fails for want of frames, on the thread that allocates, with
    /// no lock held, as the next one is: they may free, allocate and trim. Default: nobody.
    pub on_exhausted: OnExhausted,
    /// Called at the limit on resident memory, before free memory is given back.
    pub on_pressure: OnPressure,
}

/// The program's own pointer, which the program lets any thread have.
struct User(*mut c_void);

// SAFETY: a program that sets a callback promises that it can be called on any thread.
unsafe impl Send for User {}
// SAFETY: the pointer is only handed to that callback.
unsafe impl Sync for User {}

impl User {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

fn choice<T: Copy>(
    what: &'static str,
    value: u32,
    all: &[T],
    allowed: &'static str,
) -> Result<T, Failure> {
    let found = usize::try_from(value).ok().and_then(|at| all.get(at));
    found.copied().ok_or(Failure::Argument { what, value: value.into(), allowed })
}

impl ArenaOptions {
    /// The caller's, which may be an older, shorter version: what that lacks is zero.
    ///
    /// # Safety
    ///
    /// Null, or as many bytes as it says.
    unsafe fn read(options: *const Self) -> Result<Self, Failure> {
        if options.is_null() {
            return Err(Failure::Null("options"));
        }
        let mut value = MaybeUninit::<Self>::zeroed();
        // SAFETY: it starts with its size in every version, and has so many bytes; all zeros, or
        // the caller's, are a value: integers, a pointer, and functions that may be null.
        unsafe {
            let size = (&raw const (*options).size).read() as usize;
            if !(offset_of!(Self, user)..=size_of::<Self>()).contains(&size) {
                let allowed = "the size of a freehold_arena_options that this library knows";
                return Err(Failure::Argument { what: "size", value: size as u64, allowed });
            }
            ptr::copy_nonoverlapping(options.cast::<u8>(), value.as_mut_ptr().cast(), size);
            Ok(value.assume_init())
        }
    }

    fn builder(&self) -> Result<Builder, Failure> {
        let backings = [HostBacking::Private, HostBacking::Memfd, HostBacking::HugePages];
        let rules = [OnFork::Copy, OnFork::Unmapped];
        let numa = [HostNuma::Prefer, HostNuma::Bind, HostNuma::ZonesOnly, HostNuma::Ignore];
        let mut builder = HostArena::builder(self.bytes)
            .backing(choice("backing", self.backing, &backings, "a freehold_backing")?)
            .on_fork(choice("on_fork", self.on_fork, &rules, "a freehold_fork_rule")?)
            .numa(choice("numa", self.numa, &numa, "a freehold_numa_rule")?)
            .populate(self.populate != 0)
            .pinned(self.pinned != 0);
        if self.slots != 0 {
            builder = builder.slots(self.slots);
        }
        if self.least_run != 0 {
            builder = builder.least_run(self.least_run);
        }
        if self.resident_limit != 0 {
            builder = builder.resident_limit(self.resident_limit);
        }
        Ok(self.callbacks(builder))
    }

    fn callbacks(&self, mut builder: Builder) -> Builder {
        if let Some(call) = self.on_exhausted {
            let user = User(self.user);
            builder = builder.on_exhausted(move |wanted| {
                // SAFETY: the promise of the program that has set it.
                unsafe { call(user.get(), wanted.frames, wanted.attempts) }
            });
        }
        if let Some(call) = self.on_pressure {
            let user = User(self.user);
            builder = builder.on_pressure(move |pressure| {
                // SAFETY: the promise of the program that has set it.
                unsafe { call(user.get(), pressure.resident, pressure.limit) }
            });
        }
        builder
    }
}

/// An arena with these knobs. Takes about a millisecond, whatever its size.
///
/// Requires: the callbacks can be called with `user` on any thread until the arena is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_new_with(
    options: *const ArenaOptions,
    arena: *mut *mut Arena,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        tell(arena, "arena", error, || {
            Ok(Arena::boxed(ArenaOptions::read(options)?.builder()?.build()?))
        })
    }
}
