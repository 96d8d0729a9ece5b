// A program over a frame allocator, compiled twice: the one line before it is included says which
// allocator it is.

use std::alloc::Layout;
use std::collections::BTreeMap;

/// What a run can be told apart by: the two allocators may hand out other frames, but as many, as
/// often.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) allocated: u64,
    pub(crate) refused: u64,
    pub(crate) singles_at_the_end: u64,
    pub(crate) largest_at_the_end: usize,
}

static SHARED: LockedFrameAllocator<33> = LockedFrameAllocator::new();

/// Random allocations of powers of two and frees, checked against a map of what is handed out.
pub(crate) fn random(seed: u64, start: usize, end: usize, steps: u32) -> Outcome {
    let mut frames = FrameAllocator::<33>::new();
    frames.insert(start..end);
    let mut live: BTreeMap<usize, usize> = BTreeMap::new();
    // In the order of allocation: what is freed must not depend on where the allocator put it.
    let mut order: Vec<(usize, usize)> = Vec::new();
    let (mut allocated, mut refused) = (0, 0);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut next = move |below: u64| random.u64(..below);
    // Little of the memory at a time, so that neither allocator runs into its own fragmentation,
    // where they may differ.
    let total = end - start;
    let mut used = 0;
    for _ in 0..steps {
        if used < total / 8 && next(5) < 3 {
            let count = 1 << next(6);
            let layout = Layout::from_size_align(1 << next(4), 1 << next(5)).unwrap();
            let (taken, size, align) = match next(3) {
                0 => (
                    frames.alloc_aligned(layout),
                    layout.size().max(layout.align()),
                    layout.align(),
                ),
                _ => (frames.alloc(count), count, count),
            };
            let Some(first) = taken else {
                refused += 1;
                continue;
            };
            assert!(first >= start && first + size <= end, "{first:#x} is outside");
            assert_eq!(first % align, 0, "{first:#x} is not aligned");
            if let Some((before, len)) = live.range(..first + size).next_back() {
                assert!(before + len <= first, "{first:#x} is handed out twice");
            }
            live.insert(first, size);
            order.push((first, size));
            used += size;
            allocated += size as u64;
        } else if !order.is_empty() {
            let (first, size) = order.swap_remove(next(order.len() as u64) as usize);
            frames.dealloc(first, size);
            live.remove(&first);
            used -= size;
        }
    }
    for (first, size) in live {
        frames.dealloc(first, size);
    }
    let mut largest = 1;
    while let Some(first) = frames.alloc(largest * 2) {
        frames.dealloc(first, largest * 2);
        largest *= 2;
    }
    let singles = std::iter::from_fn(|| frames.alloc(1)).count() as u64;
    Outcome { allocated, refused, singles_at_the_end: singles, largest_at_the_end: largest }
}

/// From several threads, behind the lock.
pub(crate) fn threads() -> usize {
    SHARED.lock().add_frame(0x1000, 0x3000);
    std::thread::scope(|scope| {
        for t in 0..3 {
            scope.spawn(move || {
                for i in 0..2000 {
                    let count = 1 << ((i + t) % 5);
                    let first = SHARED.lock().alloc(count).unwrap();
                    SHARED.lock().dealloc(first, count);
                }
            });
        }
    });
    std::iter::from_fn(|| SHARED.lock().alloc(1024)).count()
}

/// The edges of the calls.
pub(crate) fn edges() -> Vec<Option<usize>> {
    let mut frames = FrameAllocator::<10>::default();
    let mut seen = vec![frames.alloc(1)];
    frames.add_frame(64, 64);
    seen.push(frames.alloc(1));
    frames.add_frame(0, 1024);
    // Neighbours, in two pieces.
    frames.add_frame(1024, 2048);
    seen.push(frames.alloc(1024)); // ORDER 10: at most 512
    seen.push(frames.alloc(usize::MAX / 2));
    seen.push(frames.alloc(512).map(|first| first % 512));
    seen.push(frames.alloc(257).map(|first| first % 512)); // rounded up in where it starts
    seen.push(frames.alloc_at(3, 2)); // misaligned
    let mut at = FrameAllocator::<10>::new();
    at.add_frame(0, 2048);
    seen.extend([at.alloc_at(1024, 1024), at.alloc_at(1024, 512)]); // ORDER 10: at most 512
    let mut rest = FrameAllocator::<33>::new();
    rest.add_frame(0x4000, 0x5000);
    seen.push(rest.alloc_at(0x4800, 256));
    seen.push(rest.alloc_at(0x4880, 1)); // taken
    seen.push(rest.alloc_at(0x5000, 1)); // not there
    rest.dealloc(0x4800, 256);
    seen.push(rest.alloc_at(0x4880, 1));
    seen
}

/// What is left for larger requests at the ends of memory after smaller ones.
pub(crate) fn ends() -> Vec<Option<usize>> {
    let mut seen = Vec::new();
    let mut three = FrameAllocator::<33>::new();
    three.add_frame(0, 3);
    seen.extend([three.alloc(1), three.alloc(2), three.alloc(1)]);
    three.dealloc(2, 1);
    seen.push(three.alloc(1));
    // Ends of 1, 2 and 4 frames before a multiple of 512, and of 8 and 1 behind another.
    let mut frames = FrameAllocator::<33>::new();
    frames.add_frame(512 - 7, 1024 + 9);
    let sizes = [1, 1, 2, 4, 8];
    let mut taken = 0;
    for size in sizes {
        let first = frames.alloc(size);
        taken += size;
        seen.push(first.map(|first| usize::from((512..1024).contains(&first))));
    }
    // The block in the middle is whole.
    seen.push(frames.alloc(512));
    assert_eq!(taken, 16);
    seen.push(frames.alloc(1));
    seen
}

/// An allocation of four frames of which three are given back, with somebody on the fourth: how
/// often is that handed out to somebody else?
pub(crate) fn the_fourth_frame() -> usize {
    let mut frames = FrameAllocator::<33>::new();
    frames.add_frame(0x100, 0x104);
    let first = frames.alloc(4).unwrap();
    frames.dealloc(first, 3);
    let again: Vec<usize> = std::iter::from_fn(|| frames.alloc(1)).collect();
    again.iter().filter(|&&frame| frame == first + 3).count()
}
