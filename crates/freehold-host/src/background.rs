//! The optional thread that makes a pass each decay time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Error;
use crate::inner::Inner;
use crate::own_thread;
use crate::pass::{Which, pass};

/// The least time between two passes: looking at every block takes time, too, and what has been
/// free for a shorter while is mostly about to be used again.
const LEAST: Duration = Duration::from_millis(100);

/// See the module's documentation.
pub(crate) struct Background {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<()>,
}

impl Background {
    pub(crate) fn start(inner: &Arc<Inner>, every: Duration) -> Result<Self, Error> {
        let every = every.max(LEAST);
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (inner, theirs) = (Arc::clone(inner), Arc::clone(&stop));
        let thread = own_thread::spawn("freehold-release", move || {
            let (stopped, bell) = &*theirs;
            let mut guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
            while !*guard {
                let (back, waited) =
                    bell.wait_timeout(guard, every).unwrap_or_else(PoisonError::into_inner);
                guard = back;
                if waited.timed_out() && !*guard {
                    drop(guard);
                    // What the kernel refuses is counted in the statistics; the next pass tries
                    // again.
                    let _ = pass(&inner, Which::Decayed);
                    guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
                }
            }
        });
        let thread = thread.map_err(|error| Error::Os {
            call: "clone (the background thread)",
            errno: error.raw_os_error().unwrap_or(0),
            bytes: 0,
            hint: "raise RLIMIT_NPROC, or call Arena::pass from a thread of your own",
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread and waits for it. In a forked child there is no such thread.
    pub(crate) fn stop(self, forked: bool) {
        if forked {
            std::mem::forget(self);
            return;
        }
        let (stopped, bell) = &*self.stop;
        *stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        bell.notify_all();
        // It does not panic; if it did, the arena would go all the same.
        let _ = self.thread.join();
    }
}
