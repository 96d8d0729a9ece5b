//! stub
pub(crate) fn poll() {}
