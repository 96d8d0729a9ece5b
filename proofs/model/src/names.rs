//! What differs only in the names of frames, words and blocks is one world.

use crate::Kind::*;
use crate::protocol::*;

impl World {
    /// This world with its frames, words and blocks in an order of its own: what differs only
    /// in their names is one.
    pub fn named_anew(mut self) -> Self {
        for b in 0..self.blocks.len() as u8 {
            for w in 0..WORDS as u8 {
                let (low, high) = self.columns(b, w);
                if high < low {
                    self.bits(b, w, |bits| {
                        if bits & 0b11 == bits { bits >> 1 | (bits & 1) << 1 } else { bits }
                    });
                }
            }
            if self.word_key(b, 1) < self.word_key(b, 0) {
                self.swap_words(b);
            }
        }
        if self.blocks.len() == 2 && self.block_key(1) < self.block_key(0) {
            self.swap_blocks();
        }
        self
    }

    /// Runs over whatever says something of single frames of a word.
    fn bits(&mut self, b: u8, w: u8, mut f: impl FnMut(u8) -> u8) {
        let (bi, wi) = (usize::from(b), usize::from(w));
        let block = &mut self.memory.blocks[bi];
        for bits in [&mut block.words[wi], &mut block.used[wi], &mut block.owed[wi]] {
            *bits = f(*bits);
        }
        for cpu in self.memory.cpus.iter_mut() {
            cpu.hand[bi][wi] = f(cpu.hand[bi][wi]);
        }
        for todo in self.todo.iter_mut() {
            for d in todo.iter_mut().filter(|d| d.kind != Recall && (d.b, d.w) == (b, w)) {
                (d.bits, d.freed) = (f(d.bits), f(d.freed));
            }
            for d in todo.iter_mut().filter(|d| d.kind == FileWord && d.b == b && d.w > w) {
                d.n = d.n & !(FULL << (2 * w)) | f(d.n >> (2 * w) & FULL) << (2 * w);
            }
        }
    }

    /// What is said of a word's two frames, in one order.
    fn columns(&mut self, b: u8, w: u8) -> (u64, u64) {
        let (mut low, mut high) = (0, 0);
        self.bits(b, w, |bits| {
            (low, high) = (low << 1 | u64::from(bits & 1), high << 1 | u64::from(bits >> 1 & 1));
            bits
        });
        (low, high)
    }

    fn word_key(&self, b: u8, w: u8) -> impl Ord + use<> {
        let (bi, wi) = (usize::from(b), usize::from(w));
        let block = &self.blocks[bi];
        let hands: [u8; 3] =
            std::array::from_fn(|c| self.cpus.get(c).map_or(0, |cpu| cpu.hand[bi][wi]));
        let todo = self.todo().fold(0, |said, d| said << 1 | u128::from((d.b, d.w) == (b, w)));
        (block.words[wi], block.used[wi], block.leases[wi], hands, todo)
    }

    fn swap_words(&mut self, b: u8) {
        // A lister reads them one after the other: its view of a block half read has an order.
        let ordered = [FileWord, RetireLease, RetireTake, RemoveWord, Fill];
        if self.todo().any(|d| d.b == b && ordered.contains(&d.kind)) {
            return;
        }
        let block = &mut self.blocks[usize::from(b)];
        for words in [&mut block.words, &mut block.used, &mut block.owed, &mut block.leases] {
            words.swap(0, 1);
        }
        self.cpus.iter_mut().for_each(|cpu| cpu.hand[usize::from(b)].swap(0, 1));
        for todo in self.todo.iter_mut() {
            for d in todo.iter_mut().filter(|d| d.kind != Recall && d.b == b && d.w != NONE) {
                d.w ^= 1;
            }
        }
    }

    fn block_key(&self, b: u8) -> impl Ord + use<> {
        let of = |c: usize| {
            self.cpus
                .get(c)
                .map_or(([0; WORDS], false), |cpu| (cpu.hand[usize::from(b)], cpu.kept == b))
        };
        let hands: [([u8; WORDS], bool); 3] = std::array::from_fn(of);
        let todo = self.todo().fold(0, |said, d| said << 1 | u128::from(d.b == b));
        (self.blocks[usize::from(b)], hands, todo)
    }

    fn swap_blocks(&mut self) {
        // Who goes through the blocks one after the other has an order.
        if self.todo().any(|d| matches!(d.kind, LeaveToZone | LeaveToZone2)) {
            return;
        }
        self.blocks.swap(0, 1);
        for cpu in self.cpus.iter_mut() {
            cpu.hand.swap(0, 1);
            cpu.kept = if cpu.kept == NONE { NONE } else { cpu.kept ^ 1 };
        }
        for todo in self.todo.iter_mut() {
            todo.iter_mut().filter(|d| d.b != NONE).for_each(|d| d.b ^= 1);
        }
    }
}
