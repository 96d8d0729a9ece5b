//! What happens next: the simulated CPUs by the time at which each goes on.
//!
//! One entry a CPU at most: a CPU is either in the queue or waits for another one. Two CPUs of the
//! same time go in the order in which they were put in, so that a run is the same every time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::time::Time;

/// CPUs in the order in which they go on.
#[derive(Debug, Default)]
pub struct Queue {
    heap: BinaryHeap<Reverse<(Time, u64, u16)>>,
    /// How many were put in so far.
    entered: u64,
}

impl Queue {
    pub fn push(&mut self, at: Time, cpu: u16) {
        self.heap.push(Reverse((at, self.entered, cpu)));
        self.entered += 1;
    }

    pub fn pop(&mut self) -> Option<(Time, u16)> {
        self.heap.pop().map(|Reverse((at, _, cpu))| (at, cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_then_by_order_of_entry() {
        let mut queue = Queue::default();
        for (at, cpu) in [(5, 1), (3, 2), (5, 0), (3, 7)] {
            queue.push(Time::from_ps(at), cpu);
        }
        let order: Vec<u16> = std::iter::from_fn(|| queue.pop()).map(|(_, cpu)| cpu).collect();
        assert_eq!(order, [2, 7, 1, 0]);
    }
}
