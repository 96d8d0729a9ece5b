//! What only the host knows, as C functions.

use core::ffi::c_void;
use core::ptr;

use freehold::{CpuId, Pfn, PressureLevel as EngineLevel};

/// The bands between a zone's watermarks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum PressureLevel {
    /// Above high, or above low after never having been below it.
    None = 0,
    /// Below low and not above high since.
    Low = 1,
    /// Below min: only requests with reserves are served from the zone.
    Min = 2,
}

/// How much memory a zone is short of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Pressure {
    /// The zone, as an index into the configuration.
    pub zone: u32,
    /// How bad it is.
    pub level: PressureLevel,
    /// Free frames in the zone's own hand when the level was read.
    pub free: u64,
    /// The watermarks, in frames: min, low, high.
    pub watermarks: [u64; 3],
}

/// What the host brings. Copied by `freehold_new`. Any function may be null, which means what it
/// says beside it.
///
/// Every function may be called on any CPU, by several at once, and gets `user` as it is. None
/// may throw a C++ exception or longjmp out, and none but `pressure` may call the allocator.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Platform {
    /// Handed to every function.
    pub user: *mut c_void,
    /// Which CPU the caller runs on, for `freehold_here`. The answer may be stale by the time
    /// it is used; a CPU's state is locked either way. Null: CPU 0, always.
    pub current_cpu: Option<unsafe extern "C" fn(user: *mut c_void) -> u16>,
    /// Makes every CPU that may run a CPU's owner pass a full memory barrier before it returns:
    /// membarrier(2) with MEMBARRIER_CMD_PRIVATE_EXPEDITED, an inter-processor interrupt. Only
    /// called when somebody reaches into a CPU that another party owns. Null: there is none, and
    /// owned CPUs are entered with an ordinary lock.
    pub heavy_barrier: Option<unsafe extern "C" fn(user: *mut c_void)>,
    /// Called in every turn of a wait for a lock. Null: the processor's pause instruction.
    pub relax: Option<unsafe extern "C" fn(user: *mut c_void)>,
    /// A zone's pressure level has changed. Called without any lock held.
    pub pressure: Option<unsafe extern "C" fn(user: *mut c_void, pressure: *const Pressure)>,
    /// A frame was freed twice in a way that the second call could not see; it is free once.
    /// May be called with locks held: record it. Null: only counted.
    pub late_double_free: Option<unsafe extern "C" fn(user: *mut c_void, pfn: u64)>,
}

/// The allocator's host: the caller's functions.
pub(crate) struct Host(Platform);

// SAFETY: `freehold_new` demands that the functions may be called, with this pointer, on any CPU
// and by several at once.
unsafe impl Send for Host {}
// SAFETY: likewise.
unsafe impl Sync for Host {}

impl Host {
    /// # Safety
    ///
    /// `platform` is null, or its functions keep the promises of [`Platform`] as long as this
    /// lives.
    pub(crate) unsafe fn new(platform: *const Platform) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { platform.as_ref() }.copied().unwrap_or(Platform {
            user: ptr::null_mut(),
            current_cpu: None,
            heavy_barrier: None,
            relax: None,
            pressure: None,
            late_double_free: None,
        }))
    }
}

impl freehold::Platform for Host {
    fn current_cpu(&self) -> CpuId {
        // SAFETY: the promise made to `new`.
        CpuId::new(self.0.current_cpu.map_or(0, |current_cpu| unsafe { current_cpu(self.0.user) }))
    }

    fn has_heavy_barrier(&self) -> bool {
        self.0.heavy_barrier.is_some()
    }

    fn heavy_barrier(&self) {
        if let Some(heavy_barrier) = self.0.heavy_barrier {
            // SAFETY: the promise made to `new`.
            unsafe { heavy_barrier(self.0.user) };
        }
    }

    fn relax(&self) {
        match self.0.relax {
            // SAFETY: the promise made to `new`.
            Some(relax) => unsafe { relax(self.0.user) },
            None => core::hint::spin_loop(),
        }
    }

    fn pressure(&self, pressure: freehold::Pressure) {
        let Some(tell) = self.0.pressure else { return };
        let level = match pressure.level {
            EngineLevel::None => PressureLevel::None,
            EngineLevel::Low => PressureLevel::Low,
            EngineLevel::Min => PressureLevel::Min,
        };
        let freehold::Pressure { zone, free, watermarks, .. } = pressure;
        let pressure = Pressure { zone: zone as u32, level, free, watermarks };
        // SAFETY: the promise made to `new`.
        unsafe { tell(self.0.user, &raw const pressure) };
    }

    fn late_double_free(&self, pfn: Pfn) {
        if let Some(tell) = self.0.late_double_free {
            // SAFETY: the promise made to `new`.
            unsafe { tell(self.0.user, pfn.get()) };
        }
    }
}
