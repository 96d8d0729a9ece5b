//! Memory that comes and goes, is emptied, or is asked for by its place.
//!
//! | file | what |
//! |---|---|
//! | [`populate`] | memory becomes the zone's; what follows from how much there is: watermarks, home zones, limits |
//! | [`hotplug`] | CPUs and memory that come and go |
//! | [`isolate`] | blocks from which nothing is allocated while they are emptied; walking them |
//! | [`contig`] | allocation of a given range |
//! | [`evacuate`] | which block to empty next, and emptying it |

pub(crate) mod contig;
pub(crate) mod evacuate;
pub(crate) mod hotplug;
pub(crate) mod isolate;
pub(crate) mod populate;
