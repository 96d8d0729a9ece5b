//! Frees whose allocation lies before the trace: frames that are freed and that nothing before has
//! touched.

use freehold::{CpuId, Order, Pfn};

use crate::replay::frame_set::FrameSet;

/// An allocation that the trace does not show, on the CPU that frees it. What kind it was is not
/// known: movable is by far the most frequent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Injection {
    /// Its first frame in the trace's numbering.
    pub pfn: Pfn,
    pub order: Order,
    /// The CPU that allocates.
    pub cpu: CpuId,
}

/// Finds them. Costs memory in proportion to the frames touched.
#[derive(Default)]
pub(in crate::replay) struct Warm {
    touched: FrameSet,
    pub(in crate::replay) found: Vec<Injection>,
    /// Frames of them.
    pub(in crate::replay) freed: u64,
    /// Frees of frames that were touched and are free already.
    pub(in crate::replay) repeated: u64,
}

impl Warm {
    pub(super) fn allocated(&mut self, pfn: Pfn, order: Order) {
        self.touched.insert(pfn, order);
    }

    /// `known`: they were live as far as the trace shows.
    pub(super) fn freed(&mut self, cpu: CpuId, pfn: Pfn, order: Order, known: bool) {
        let is_first = self.touched.insert(pfn, order);
        self.repeated += u64::from(!is_first && !known);
        if is_first && !known && order <= Order::LINUX_MAX {
            self.freed += order.frames();
            self.found.push(Injection { pfn, order, cpu });
        }
    }
}
