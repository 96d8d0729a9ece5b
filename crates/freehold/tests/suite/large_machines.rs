//! A sparse machine of 3 TiB: pieces of memory around the edges of 128 MiB, 1 GiB and 512 GiB, of
//! whole frames, against a table of all its frames. Requests of orders 0 to 18 that fail are looked
//! for in the table.
//!
//! Its summaries have several words of the upper level, where a word stands for 512 GiB.

use crate::common::*;
use crate::length::length;
use fastrand::Rng;

/// Frames of 128 MiB and 1 GiB.
const SECTION: u64 = 1 << 15;
const GIB: u64 = 1 << 18;

/// Where memory is. One order 18 fits into the second, the fourth and the last piece.
fn pieces() -> [FrameRange; 5] {
    [
        range(SECTION - 700, 1600),
        range(GIB - 3 * 512, GIB + 9 * 512 + 7),
        range(512 * GIB - 70 * 512, 70 * 512 + 300),
        range(1536 * GIB - SECTION, 2 * GIB + 2 * SECTION),
        range(3071 * GIB - 512, GIB + 512),
    ]
}

/// Which frames are free, piece by piece.
struct Table(Vec<(FrameRange, Vec<bool>)>);

impl Table {
    fn frames(&mut self, of: FrameRange) -> &mut [bool] {
        let within = |piece: &FrameRange| piece.contains(of.start) && of.end <= piece.end;
        let (piece, frames) = self.0.iter_mut().find(|(piece, _)| within(piece)).unwrap();
        let first = piece.start.get();
        &mut frames[(of.start.get() - first) as usize..(of.end.get() - first) as usize]
    }

    fn set(&mut self, of: FrameRange, free: bool) {
        let frames = self.frames(of);
        assert!(frames.iter().all(|&is| is != free), "{of:?}");
        frames.fill(free);
    }

    /// A chunk of that order, of a drawn type; `None` where there is none.
    fn alloc(&mut self, door: &dyn Frames, n: u8, random: &mut Rng) -> Option<(Pfn, u8)> {
        let request = Request::new(order(n), Migratetype::PCP[random.usize(..3)]);
        match door.alloc(request) {
            Ok(pfn) => {
                assert!(pfn.is_aligned(order(n)));
                self.set(range(pfn.get(), 1 << n), false);
                Some((pfn, n))
            }
            Err(error) => {
                assert!(is_no_memory(Err(error)), "{error}");
                assert_eq!(self.chunk(n), None, "order {n} has failed");
                None
            }
        }
    }

    /// A free chunk of that order.
    fn chunk(&self, order: u8) -> Option<u64> {
        let len = 1 << order;
        self.0.iter().find_map(|(piece, frames)| {
            let first = piece.start.get();
            (first.next_multiple_of(len)..piece.end.get())
                .step_by(len as usize)
                .filter(|start| start + len <= piece.end.get())
                .find(|start| {
                    let at = (start - first) as usize;
                    frames[at..at + len as usize].iter().all(|&free| free)
                })
        })
    }
}

#[test]
fn a_request_fails_only_where_no_chunk_is_free_on_terabytes_with_edges() {
    let memory = pieces();
    for seed in 0..length(2, 20) {
        let mut random = Rng::with_seed(seed);
        let zones = [unmarked(&memory)];
        let span = range(0, 3072 * GIB);
        let zones = zones.map(|zone| ZoneConfig { span, ..zone });
        let fh = build(&Config { extra_ranges: 4, ..Config::new(2, &zones) }, &SingleCpu);
        let mut table =
            Table(memory.iter().map(|&piece| (piece, vec![true; piece.len() as usize])).collect());
        let mut held: Vec<(Pfn, u8)> = Vec::new();
        for step in 0..900 {
            let door = fh.on(cpu(random.u16(..2)));
            // Filled and emptied by turns.
            if random.u32(..10) < [3, 7][step / 150 % 2] && !held.is_empty() {
                let (pfn, n) = held.swap_remove(random.usize(..held.len()));
                // A part of it stays in use.
                if n > 0 && random.bool() {
                    let half = Pfn::new(pfn.get() + (1 << (n - 1)));
                    held.push((half, n - 1));
                    table.set(range(pfn.get(), 1 << (n - 1)), true);
                    door.free_range(range(pfn.get(), 1 << (n - 1))).unwrap();
                } else {
                    table.set(range(pfn.get(), 1 << n), true);
                    door.free(pfn, order(n)).unwrap();
                }
                continue;
            }
            let n = [random.u8(..19), random.u8(14..19), random.u8(..10)][random.usize(..3)];
            held.extend(table.alloc(&door, n, &mut random));
        }
        // All of it, the largest chunks first: each order fails once.
        for n in (0..19).rev() {
            let all = std::iter::from_fn(|| table.alloc(&fh.on(cpu(0)), n, &mut random));
            held.extend(all);
        }
        assert_eq!(fh.zone_stats(0).unwrap().free, 0);
        fh.validate().unwrap();
        for (pfn, n) in held {
            fh.on(cpu(0)).free(pfn, order(n)).unwrap();
        }
        assert_all_free(&fh);
    }
}
