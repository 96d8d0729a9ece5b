//! The one way in which blocks and words change hands.
//!
//! ```text
//!            claim                    lease
//!   zone  ----------->  group  ------------------>  CPU
//!         <-----------         <------------------
//!          give back            end of the lease
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`held`] | a holder whose lock is taken: listing blocks, making them whole or split |
//! | [`whole`] | whole blocks come out of the zone's bitmap |
//! | [`announce`] | a free tells a block's holder that there is more in it than it knows |
//! | [`lease`] | words go to a CPU and come back |
//! | [`in_use`] | the block that a CPU leases words of without a lock, and those listed behind it |
//! | [`refill`] | a CPU chooses the next block to lease words of |
//! | [`claim`] | frames taken straight from a block's words, past the leases |
//! | [`recall`] | every CPU's leases end: one heavy barrier for all of them |
//! | [`give_back`] | ticks, drains: what is not used goes to the zone |
//! | [`isolate`] | blocks from which nothing is allocated while they are emptied |
//! | [`contig`] | allocation of a given range |
//! | [`hotplug`] | CPUs and memory that come and go |
//! | [`populate`] | memory that becomes the zone's |

pub(crate) mod announce;
pub(crate) mod claim;
pub(crate) mod contig;
pub(crate) mod give_back;
pub(crate) mod held;
pub(crate) mod hotplug;
pub(crate) mod in_use;
pub(crate) mod isolate;
pub(crate) mod lease;
pub(crate) mod populate;
pub(crate) mod recall;
pub(crate) mod refill;
pub(crate) mod whole;
