//! How handles of frames hold on to their arena.

use std::ops::Deref;
use std::sync::Arc;

use super::Arena;

/// How a [`Frames`](crate::Frames) refers to its arena: by reference, or by a counted one.
///
/// - `&'a Arena` costs nothing: for frames that live within a scope. The compiler sees to it that
///   the arena outlives them.
/// - `&'static Arena` costs nothing: for frames in structures of any kind, of an arena that was
///   [leaked](Arena::leak).
/// - `Arc<Arena>` costs two atomic operations a handle: for frames in structures, of an arena that
///   goes when the last of them does.
///
/// So there is no way to drop an arena before its frames, and nothing to check when they are used.
pub trait Handle: Deref<Target = Arena> + Clone + sealed::Sealed {}

impl Handle for &Arena {}
impl Handle for Arc<Arena> {}

mod sealed {
    /// Only references that always lead to the same arena.
    pub trait Sealed {}
    impl Sealed for &super::Arena {}
    impl Sealed for std::sync::Arc<super::Arena> {}
}
