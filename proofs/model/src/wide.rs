//! The search for more worlds than memory holds: breadth first, and of each world only a fingerprint
//! is remembered.
//!
//! Two different worlds have the same fingerprint of 64 bits with a probability of 2^-64; of `n`
//! worlds about `n * n / 2^65` are taken for one that was seen before and are left out: 0.03 of
//! them in a thousand million.

use std::hash::{Hash, Hasher};
use std::time::Instant;

use crate::Settings;
use crate::protocol::*;

/// What such a search came to.
#[derive(Debug)]
pub struct Breadth {
    /// Worlds come by.
    pub states: u64,
    /// How many of them differ, by their distance from the start.
    pub layers: Vec<u64>,
    /// Whether there was nothing left to search.
    pub ended: bool,
    /// Time.
    pub seconds: f64,
    /// What is wrong, and where.
    pub wrong: Option<(&'static str, World)>,
}

impl Breadth {
    /// How many worlds differ.
    pub fn unique(&self) -> u64 {
        self.layers.iter().sum()
    }
}

impl Settings {
    /// Searches on one thread, as far as `depth` steps and about so many different worlds, of which
    /// it is told layer by layer.
    pub fn search_wide(&self, most: u64, mut told: impl FnMut(&Breadth)) -> Breadth {
        let start = Instant::now();
        let mut found =
            Breadth { states: 1, layers: vec![1], ended: false, seconds: 0.0, wrong: None };
        let mut seen = Seen::new();
        let (mut layer, mut next, mut after) = (Layer::default(), Layer::default(), Vec::new());
        let first = World::new(self.cpus, self.blocks, self.budget);
        seen.is_new(fingerprint(&first));
        layer.push(&first);
        while found.wrong.is_none() && !layer.is_empty() && found.unique() < most {
            for s in layer.worlds() {
                if let Err(what) = self.verdict(&s) {
                    found.wrong = Some((what, s));
                    break;
                }
                self.all_after(&s, &mut after);
                found.states += after.len() as u64;
                for s in after.drain(..).filter(|s| !s.beyond) {
                    let s = s.named_anew();
                    if seen.is_new(fingerprint(&s)) {
                        next.push(&s);
                    }
                }
            }
            std::mem::swap(&mut layer, &mut next);
            next.clear();
            found.seconds = start.elapsed().as_secs_f64();
            if !layer.is_empty() {
                found.layers.push(layer.len());
            }
            told(&found);
            if self.depth != 0 && found.layers.len() > self.depth {
                break;
            }
        }
        found.ended = layer.is_empty();
        found
    }
}

/// Worlds, packed: what is still to be done has no gaps.
#[derive(Default)]
struct Layer {
    memory: Vec<(Memory, [u8; 3])>,
    todo: Vec<Do>,
}

impl Layer {
    fn push(&mut self, s: &World) {
        let mut steps = [0; 3];
        for (n, todo) in steps.iter_mut().zip(s.todo.iter()) {
            *n = todo.len() as u8;
            self.todo.extend_from_slice(todo);
        }
        self.memory.push((s.memory, steps));
    }

    fn worlds(&self) -> impl Iterator<Item = World> {
        let mut todo = self.todo.iter();
        self.memory.iter().map(move |&(memory, steps)| {
            let mut s = World { memory, ..World::new(memory.cpus.len() as u8, 1, [0; 4]) };
            for (n, list) in steps.iter().zip(s.todo.iter_mut()) {
                list.extend(todo.by_ref().take((*n).into()).copied());
            }
            s
        })
    }

    fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    fn clear(&mut self) {
        self.memory.clear();
        self.todo.clear();
    }
}

/// Fingerprints that were seen, in the first free place from where each belongs; 0 is a free place.
struct Seen {
    places: Vec<u64>,
    used: usize,
}

impl Seen {
    fn new() -> Self {
        Self { places: vec![0; 1 << 16], used: 0 }
    }

    /// Remembers it; whether it was not there before.
    fn is_new(&mut self, print: u64) -> bool {
        if self.used * 4 > self.places.len() * 3 {
            let more = vec![0; self.places.len() * 2];
            let old = std::mem::replace(&mut self.places, more);
            for print in old.into_iter().filter(|&print| print != 0) {
                let at = self.place(print);
                self.places[at] = print;
            }
        }
        let at = self.place(print);
        let new = self.places[at] == 0;
        self.places[at] = print;
        self.used += usize::from(new);
        new
    }

    fn place(&self, print: u64) -> usize {
        let mask = self.places.len() - 1;
        let mut at = print as usize & mask;
        while self.places[at] != 0 && self.places[at] != print {
            at = (at + 1) & mask;
        }
        at
    }
}

fn fingerprint(s: &World) -> u64 {
    let mut mixed = Mixed(0x9e37_79b9_7f4a_7c15);
    s.hash(&mut mixed);
    mixed.finish().max(1)
}

/// Both halves of a product of all that was said so far and of what is said next.
struct Mixed(u64);

impl Mixed {
    fn mix(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * 0xa076_1d64_78bd_642f;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        let mut last = Self(self.0);
        last.mix(0x2545_f491_4f6c_dd1d);
        last.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for eight in bytes.chunks(8) {
            let value = eight.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
            self.mix(value);
        }
    }
    fn write_u8(&mut self, value: u8) {
        self.mix(value.into());
    }
    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }
    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}
