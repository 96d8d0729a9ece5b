//! The calls: allocating and freeing, on whichever CPU and through whichever door.
//!
//! | file | what |
//! |---|---|
//! | [`frames`] | `Frames`, the calls as a trait |
//! | [`handle`] | `Handle`, the calls of one CPU; `On` and `Owned` by name |
//! | [`door`] | how a handle gets into its CPU's state |
//! | [`chunk`] | the calls of a single chunk, from their first instruction |
//! | [`short`] | the fast way of both, where the CPU has what it takes |
//! | [`ladder`] | the slow way of one chunk of up to a block: the ladder |
//! | [`outside`] | an allocation in no CPU's state |
//! | [`bulk`] | many single frames |
//! | [`free`] | frames of one word |
//! | [`range`] | chunks and ranges: blocks and words, checked before anything changes |
//! | [`placed`] | within address limits, aligned to more than their size, above order 9 |
//! | [`fit`] | runs of any number of frames |

pub(crate) mod bulk;
pub(crate) mod chunk;
pub(crate) mod door;
pub(crate) mod fit;
pub(crate) mod frames;
pub(crate) mod free;
pub(crate) mod handle;
pub(crate) mod ladder;
pub(crate) mod outside;
pub(crate) mod placed;
pub(crate) mod range;
pub(crate) mod short;

#[cfg(feature = "debug-poison")]
use crate::FrameRange;
use crate::block::tag::CMA;
use crate::primitive::Plain;
use crate::zone::Zone;
use crate::{Freehold, Order, Pfn, Platform, Request};

impl<P: Platform> Freehold<'_, P> {
    /// Tells the host's poison check about frames on their way out.
    #[inline(always)]
    pub(crate) fn handed_out(&self, pfn: Pfn, order: Order) {
        #[cfg(feature = "debug-poison")]
        if let Some(frames) = FrameRange::new(pfn, order.frames()) {
            self.platform.check_poison(frames);
        }
        #[cfg(not(feature = "debug-poison"))]
        let _ = (pfn, order);
    }
}

/// The types of block to look at: the request's own, and CMA before it (over half of the zone's free
/// frames are CMA) or after it, where there is CMA and it will do.
fn types_in(zone: &Zone<'_>, request: &Request) -> [Option<usize>; 2] {
    let own = request.migratetype as usize;
    if !request.cma() || zone.cma_blocks.get() == 0 {
        [Some(own), None]
    } else if zone.cma_comes_first() {
        [Some(CMA), Some(own)]
    } else {
        [Some(own), Some(CMA)]
    }
}
