//! GLUE, to be replaced by the adapter to `freehold-classic`: until that crate has its presets nothing can be named.

use super::{Catalogue, MachineConfig};
use crate::engine::Engine;

pub(super) fn catalogue() -> Catalogue {
    Catalogue::default()
}

pub(super) fn build(_name: &str, _machine: &MachineConfig) -> Result<Box<dyn Engine>, String> {
    Err("freehold-classic is not there yet".into())
}
