//! What a program hears of an arena that runs short, and what it allows it: a limit on resident
//! memory, and callbacks before an allocation fails.
//!
//! ```text
//! frames of a block that the OS does not back are wanted
//!   resident + new <= limit                         handed out
//!   else  on_pressure, then a trim of this arena
//!   resident + new <= limit                         handed out
//!   else                                            Error::Limit, and the frames go home
//!
//! an allocation fails for want of frames
//!   on_exhausted says that it has freed some        tried again
//!   else                                            the error
//! ```

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use freehold::PAGEBLOCK_FRAMES;

/// An allocation that is about to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Exhausted {
    /// How many neighbouring frames are wanted.
    pub frames: u64,
    /// How often this allocation has been tried.
    pub attempts: u32,
}

/// An arena whose resident memory is at its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Pressure {
    /// Bytes of blocks that the OS may back.
    pub resident: u64,
    /// The limit.
    pub limit: u64,
}

type OnExhausted = Arc<dyn Fn(Exhausted) -> bool + Send + Sync>;
type OnPressure = Arc<dyn Fn(Pressure) + Send + Sync>;

/// See the module's documentation.
#[derive(Clone, Default)]
pub(crate) struct Watch {
    pub(crate) on_exhausted: Option<OnExhausted>,
    pub(crate) on_pressure: Option<OnPressure>,
    /// In blocks.
    pub(crate) limit: Option<u64>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// Attempts that a callback can have: one that says each time that it has freed something must not
/// keep its thread for ever.
const ATTEMPTS: u32 = 16;

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Runs a callback, unless this thread is in one.
pub(crate) fn called<R>(callback: impl FnOnce() -> R) -> Option<R> {
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            IN_CALLBACK.set(false);
        }
    }
    if IN_CALLBACK.replace(true) {
        return None;
    }
    let _ends = Ends;
    Some(callback())
}

impl Watch {
    /// Whether an allocation that has failed so often is to be tried once more.
    #[cold]
    pub(crate) fn try_again(&self, frames: u64, attempts: u32) -> bool {
        let Some(callback) = self.on_exhausted.as_ref().filter(|_| attempts < ATTEMPTS) else {
            return false;
        };
        called(|| callback(Exhausted { frames, attempts })).unwrap_or(false)
    }

    /// The arena is at its limit.
    #[cold]
    pub(crate) fn press(&self, resident: u64, limit: u64) {
        let bytes = |blocks: u64| blocks * PAGEBLOCK_FRAMES * freehold::FRAME_SIZE;
        if let Some(callback) = &self.on_pressure {
            let pressure = Pressure { resident: bytes(resident), limit: bytes(limit) };
            called(|| callback(pressure));
        }
    }
}
