//! Looking in from outside: statistics, pageblocks, and the walk that proves the invariants.

pub(crate) mod glance;
pub(crate) mod stats;
pub(crate) mod validate;
