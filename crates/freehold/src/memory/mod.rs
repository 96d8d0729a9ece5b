//! Memory that comes and goes, is emptied, or is asked for by its place.
//!
//! | file | what |
//! |---|---|
//! | [`populate`] | memory becomes the zone's |
//! | [`hotplug`] | CPUs and memory that come and go |
//! | [`isolate`] | blocks from which nothing is allocated while they are emptied |
//! | [`contig`] | allocation of a given range |
//! | [`walk`] | for those who walk memory frame by frame |

pub(crate) mod contig;
pub(crate) mod hotplug;
pub(crate) mod isolate;
pub(crate) mod populate;
pub(crate) mod walk;
