//! What an arena consists of, for its calls and its passes.

use std::sync::Arc;

use crate::core::Core;
use crate::guard::Guard;
use crate::memory::Memory;
use crate::notes::Notes;
use crate::release::Release;
use crate::watch::Watch;

/// See the module's documentation.
pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    pub(crate) notes: Arc<Notes>,
    pub(crate) memory: Memory,
    /// Nothing is ever given back.
    pub(crate) pinned: bool,
    pub(crate) watch: Watch,
    pub(crate) release: Release,
    pub(crate) guard: Option<Guard>,
}
