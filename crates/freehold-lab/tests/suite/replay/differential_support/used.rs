//! Which frames an engine has handed out, kept beside it.

use std::collections::BTreeSet;

use freehold::{FrameRange, Order, Pfn};

use super::BASE;
use super::shape::Shape;

/// Which frames an engine has handed out.
pub struct Used {
    pub spans: Vec<FrameRange>,
    pub memory: BTreeSet<(u64, u64)>,
    pub frames: Vec<bool>,
}

impl Used {
    pub fn new(shape: &Shape) -> Self {
        let spans = shape.spans();
        let memory = spans
            .iter()
            .flat_map(|&span| shape.memory(span))
            .map(|r| (r.start.get(), r.end.get()))
            .collect();
        let end = spans.last().unwrap().end.get();
        Self { spans, memory, frames: vec![false; (end - BASE) as usize] }
    }

    pub fn exists(&self, pfn: u64) -> bool {
        self.memory
            .range(..=(pfn, u64::MAX))
            .next_back()
            .is_some_and(|&(start, end)| start <= pfn && pfn < end)
    }

    pub fn is_free(&self, pfn: u64) -> bool {
        self.exists(pfn) && !self.frames[(pfn - BASE) as usize]
    }

    pub fn take(&mut self, start: Pfn, frames: u64) -> Result<(), String> {
        match (start.get()..start.get() + frames).find(|&pfn| !self.is_free(pfn)) {
            Some(pfn) => {
                Err(format!("handed out {start}+{frames}, of which {pfn:#x} was not free"))
            }
            None => {
                (start.get()..start.get() + frames)
                    .for_each(|pfn| self.frames[(pfn - BASE) as usize] = true);
                Ok(())
            }
        }
    }

    pub fn give(&mut self, start: Pfn, frames: u64) {
        (start.get()..start.get() + frames)
            .for_each(|pfn| self.frames[(pfn - BASE) as usize] = false);
    }

    /// An aligned free run of that order, within one zone.
    pub fn run(&self, order: Order) -> Option<Pfn> {
        let len = order.frames();
        self.spans.iter().find_map(|span| {
            let starts =
                (span.start.get().next_multiple_of(len)..span.end.get()).step_by(len as usize);
            let mut starts = starts.take_while(|start| start + len <= span.end.get());
            starts.find(|&start| (start..start + len).all(|pfn| self.is_free(pfn))).map(Pfn::new)
        })
    }
}
