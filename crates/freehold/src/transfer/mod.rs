//! The one way in which blocks and words change hands.
//!
//! ```text
//!            split                      lease
//!   zone  ----------->  the board  ------------------>  CPU
//!         <-----------             <------------------
//!        becomes whole               end of the lease
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`class`] | frames come into words; what the board says of a block; blocks become whole and split |
//! | [`whole`] | whole blocks come out of the zone's bitmap |
//! | [`lease`] | words go to a CPU and come back |
//! | [`refill`] | a CPU chooses the next block to take frames of |
//! | [`reserve`] | blocks are kept for requests that may not wait |
//! | [`claim`] | frames taken straight from a block's words, past the leases |
//! | [`recall`] | every CPU's leases end: one heavy barrier for all of them |
//! | [`moving`] | frames on the way outside every CPU's state: no request fails beside them |
//! | [`give_back`] | ticks, drains: what is not used goes to the zone |
//! | [`isolate`] | blocks from which nothing is allocated while they are emptied |
//! | [`contig`] | allocation of a given range |
//! | [`hotplug`] | CPUs and memory that come and go |
//! | [`populate`] | memory that becomes the zone's |

pub(crate) mod claim;
pub(crate) mod class;
pub(crate) mod contig;
pub(crate) mod give_back;
pub(crate) mod hotplug;
pub(crate) mod isolate;
pub(crate) mod lease;
pub(crate) mod moving;
pub(crate) mod populate;
pub(crate) mod recall;
pub(crate) mod refill;
pub(crate) mod reserve;
pub(crate) mod walk;
pub(crate) mod watch;
pub(crate) mod whole;
