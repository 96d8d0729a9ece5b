//! Threads as CPUs, with everything counted that a call may wait for.

use std::cell::Cell;
use std::mem::MaybeUninit;

use freehold::{Config, ConfigError, CpuId, Freehold, Platform};

thread_local! {
    static WAITS: Cell<u64> = const { Cell::new(0) };
    static BARRIERS: Cell<u64> = const { Cell::new(0) };
}

struct Threads {
    barrier: bool,
}

/// The allocator of every case; compiled for any platform, as the other tests have it.
pub(crate) type Core = Freehold<'static, &'static dyn Platform>;

/// membarrier(2), with a command that takes no pointer; whether it is done.
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: neither of the two commands below takes a pointer or writes anywhere.
    cfg!(not(miri)) && unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } == 0
}

/// A machine; `barrier` where owners of CPUs are to rely on membarrier(2), if the system has it. It
/// lives as long as the program, as do threads stuck in it.
///
/// # Errors
///
/// There is no such machine.
pub(crate) fn core(config: &Config<'_>, barrier: bool) -> Result<&'static Core, ConfigError> {
    Ok(leaked(config, barrier)?.0)
}

/// What a machine is made of, to be freed once nobody has it any more.
pub(crate) struct Leaked {
    core: *mut Core,
    platform: *mut Threads,
    metadata: *mut [MaybeUninit<u8>],
}

impl Leaked {
    /// Frees it.
    ///
    /// # Safety
    ///
    /// Nobody has the machine.
    pub(crate) unsafe fn free(self) {
        // SAFETY: each comes from `Box::into_raw`, and the caller says that nobody has the first,
        // which alone has the others.
        unsafe {
            drop(Box::from_raw(self.core));
            drop(Box::from_raw(self.platform));
            drop(Box::from_raw(self.metadata));
        }
    }
}

/// As [`core`], for a machine that ends before the program does.
pub(crate) fn leaked(
    config: &Config<'_>,
    barrier: bool,
) -> Result<(&'static Core, Leaked), ConfigError> {
    // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED.
    let barrier = barrier && membarrier(16);
    let size = config.metadata_size()?;
    let metadata = Box::into_raw(Box::<[u8]>::new_uninit_slice(size));
    let platform = Box::into_raw(Box::new(Threads { barrier }));
    // SAFETY: both are of this moment and nobody else has them; they live until `Leaked::free`.
    let core = unsafe { Freehold::new(config, &mut *metadata, &*platform as &dyn Platform) }?;
    let core = Box::into_raw(Box::new(core));
    // SAFETY: as above.
    Ok((unsafe { &*core }, Leaked { core, platform, metadata }))
}

/// Turns of waits, and heavy barriers, that calls of this thread have taken.
pub(crate) fn counts() -> (u64, u64) {
    (WAITS.get(), BARRIERS.get())
}

impl Platform for Threads {
    /// Of the calls that name no CPU.
    fn current_cpu(&self) -> CpuId {
        CpuId::new(0)
    }

    fn has_heavy_barrier(&self) -> bool {
        self.barrier
    }

    fn heavy_barrier(&self) {
        BARRIERS.set(BARRIERS.get() + 1);
        // MEMBARRIER_CMD_PRIVATE_EXPEDITED. It can fail only where it has not been registered.
        let done = membarrier(8);
        debug_assert!(done);
    }

    fn relax(&self) {
        WAITS.set(WAITS.get() + 1);
        // More threads than cores: the thread that is waited for needs this one.
        std::thread::yield_now();
    }
}
