//! What a test has happen in the middle of a call of its own thread: when a run has been cut from
//! what the thread keeps and is not handed out yet, or when a pass has blocks in hand.

use std::cell::RefCell;

type Meanwhile = Box<dyn FnOnce()>;

thread_local! {
    pub(crate) static MEANWHILE: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
}

/// Called there. Once, for what is set.
pub(crate) fn happens() {
    if let Some(meanwhile) = MEANWHILE.take() {
        meanwhile();
    }
}
