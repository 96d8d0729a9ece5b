//! Lists of chunks by name, and how a call says which of them it means.
//!
//! ```text
//!   a  a[3]  a[..50]  a[50..]     all that was put into `a`, one, some
//!   a%2=0  a%4<2  a%4>1           those whose frame number leaves such a rest
//!   a+7  a.block  a.rev           each frame's neighbour; its pageblock; from the last on
//!   a.in(0+512)  a.out(0+512)     those in a range, those beside it
//!   a.turns(b)                    the first of `a`, the first of `b`, the second of `a`, ...
//!   @8  @0..40  @512^9            frame 8; 40 single frames; a chunk of order 9 at frame 512
//! ```

use std::collections::BTreeMap;

use freehold::{FrameRange, Order, Pfn};

/// Where the zone of a machine begins, unless it says so otherwise.
pub(super) const BASE: u64 = 0x10_0000;

/// Where a chunk is, and of which order.
pub(super) type Chunk = (Pfn, u8);

/// The frame `frames` behind the start of the zone.
pub(super) fn at(frames: u64) -> Pfn {
    Pfn::new(BASE + frames)
}

pub(super) fn order(order: u8) -> Order {
    Order::new(order).unwrap()
}

pub(super) fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("a number? {text}"))
}

#[derive(Default)]
pub(super) struct Lists(pub(super) BTreeMap<String, Vec<Chunk>>);

impl Lists {
    /// The chunks that a text means: several, with commas between.
    pub(super) fn get(&self, text: &str) -> Vec<Chunk> {
        text.split(',').flat_map(|part| self.part(part)).collect()
    }

    /// The first of them.
    pub(super) fn first(&self, text: &str) -> Pfn {
        self.get(text).first().unwrap_or_else(|| panic!("{text} is empty")).0
    }

    /// `START+LENGTH`, in frames from the zone's start, or from a list's first chunk.
    pub(super) fn range(&self, text: &str) -> FrameRange {
        let (start, length) = text.rsplit_once('+').unwrap_or_else(|| panic!("a range? {text}"));
        let start = match start.parse() {
            Ok(start) => at(start),
            Err(_) => self.first(start),
        };
        FrameRange::new(start, number(length)).unwrap()
    }

    fn part(&self, text: &str) -> Vec<Chunk> {
        if let Some(frames) = text.strip_prefix('@') {
            let (frames, of) = frames.split_once('^').unwrap_or((frames, "0"));
            let of = number(of) as u8;
            return match frames.split_once("..") {
                Some((from, to)) => (number(from)..number(to)).map(|n| (at(n), of)).collect(),
                None => vec![(at(number(frames)), of)],
            };
        }
        let name = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
        let (name, mut rest) = text.split_at(name);
        let mut chunks =
            self.0.get(name).unwrap_or_else(|| panic!("no list {name} in {text}")).clone();
        while !rest.is_empty() {
            let end = rest[1..].find(['[', '%', '+', '.']).map_or(rest.len(), |end| end + 1);
            // Dots and signs inside brackets are the brackets'.
            let end = match rest.find(['[', '(']).filter(|&open| open < end) {
                Some(open) => open + rest[open..].find([']', ')']).unwrap() + 1,
                None => end,
            };
            chunks = self.narrowed(chunks, &rest[..end]);
            rest = &rest[end..];
        }
        chunks
    }

    fn narrowed(&self, chunks: Vec<Chunk>, how: &str) -> Vec<Chunk> {
        let inside = || how[how.find(['[', '(']).unwrap() + 1..how.len() - 1].to_owned();
        if how.starts_with('[') {
            let inside = inside();
            let Some((from, to)) = inside.split_once("..") else {
                return vec![chunks[number(&inside) as usize]];
            };
            let from = if from.is_empty() { 0 } else { number(from) as usize };
            let to = if to.is_empty() { chunks.len() } else { number(to) as usize };
            return chunks[from..to].to_vec();
        }
        if let Some(rest) = how.strip_prefix('%') {
            let sign = rest.find(['=', '<', '>']).unwrap();
            let (of, is) = (number(&rest[..sign]), number(&rest[sign + 1..]));
            let fits = |rest: u64| match &how[sign + 1..=sign + 1] {
                "=" => rest == is,
                "<" => rest < is,
                _ => rest > is,
            };
            return chunks.into_iter().filter(|(pfn, _)| fits(pfn.get() % of)).collect();
        }
        if let Some(by) = how.strip_prefix('+') {
            let by = number(by);
            return chunks.iter().map(|(pfn, _)| (Pfn::new(pfn.get() + by), 0)).collect();
        }
        match how.split('(').next().unwrap() {
            ".block" => chunks.iter().map(|(pfn, _)| (pfn.pageblock(), 9)).collect(),
            ".rev" => chunks.into_iter().rev().collect(),
            ".turns" => {
                let others = self.get(&inside());
                chunks.into_iter().zip(others).flat_map(|(mine, other)| [mine, other]).collect()
            }
            side @ (".in" | ".out") => {
                let range = self.range(&inside());
                let fits = |pfn| range.contains(pfn) == (side == ".in");
                chunks.into_iter().filter(|(pfn, _)| fits(*pfn)).collect()
            }
            _ => panic!("{how} says nothing of a list"),
        }
    }
}
