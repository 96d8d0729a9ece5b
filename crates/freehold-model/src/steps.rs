//! What each step does: the programs of all calls, as the code in `crates/freehold` makes them.

use crate::Kind::{self, *};
use crate::protocol::*;
use crate::{Defect, Settings};

/// Rounds of an allocation: the first one, and the one after all leases were recalled.
const SECOND: u8 = 10;

/// A step in the making: the world after it, and the thread that makes it.
struct Making<'a> {
    s: World,
    t: u8,
    settings: &'a Settings,
    others: Vec<World>,
}

impl World {
    /// The worlds that the next step of thread `t` may lead to; none where it waits or has nothing to do.
    pub fn step(&self, t: u8, settings: &Settings) -> Vec<World> {
        let mut s = self.clone();
        let Some(d) = s.cpus[usize::from(t)].todo.pop() else { return Vec::new() };
        let mut making = Making { s, t, settings, others: Vec::new() };
        if !making.run(d) {
            return Vec::new();
        }
        making.others.push(making.s);
        making.others
    }

    /// The same world where thread `t` has begun a call.
    pub fn begin(&self, t: u8, steps: &[Do]) -> World {
        let mut s = self.clone();
        s.cpus[usize::from(t)].todo.extend(steps.iter().rev());
        s
    }
}

impl Making<'_> {
    fn has(&self, defect: Defect) -> bool {
        self.settings.defect == Some(defect)
    }
    /// These come next, the first one first.
    fn next(&mut self, steps: &[Do]) {
        self.s.cpus[usize::from(self.t)].todo.extend(steps.iter().rev());
    }
    /// It may also go on like this.
    fn or(&mut self, steps: &[Do]) {
        let other = self.s.begin(self.t, steps);
        self.others.push(other);
    }
    /// It goes on with any of these.
    fn one_of(&mut self, choices: impl Iterator<Item = u8>, with: impl Fn(&mut Self, u8)) {
        let before = self.s.clone();
        for choice in choices {
            self.s = before.clone();
            with(self, choice);
            self.others.push(self.s.clone());
        }
        self.s = self.others.pop().unwrap_or(before);
    }
    fn word(&mut self, d: Do) -> &mut u8 {
        &mut self.s.b(d.b).words[usize::from(d.w)]
    }
    fn lease(&mut self, d: Do) -> &mut u8 {
        &mut self.s.b(d.b).leases[usize::from(d.w)]
    }
    /// A block on a list of that holder.
    fn listed(&self, h: u8, state: State) -> impl Iterator<Item = u8> + use<> {
        let fits = |b: &Block| b.listed && b.tag == (state, h, false);
        let found: Vec<u8> = (0..).zip(&self.s.blocks).filter(|(_, b)| fits(b)).map(|(b, _)| b).collect();
        found.into_iter()
    }
    /// Whether a holder has frames to give, by a glance.
    fn glance(&self, h: u8) -> bool {
        self.s.blocks.iter().any(|b| b.inbox == h || b.listed && b.tag.1 == h && b.tag.0 == State::Split)
    }
    fn open_words(&mut self, b: u8) -> [u8; WORDS] {
        let block = *self.s.b(b);
        std::array::from_fn(|w| if leased(block.leases[w]) { 0 } else { block.words[w] })
    }

    /// Makes a step; `false` where it has to wait.
    fn run(&mut self, d: Do) -> bool {
        let (t, b) = (self.t, d.b);
        match d.kind {
            Enter => {
                if self.s.cpus[usize::from(d.c)].door != NONE {
                    return false;
                }
                self.s.cpus[usize::from(d.c)].door = t;
            }
            Leave => self.s.cpus[usize::from(d.c)].door = NONE,
            Lock => {
                if self.s.locks[usize::from(d.h)] != NONE {
                    return false;
                }
                self.s.locks[usize::from(d.h)] = t;
            }
            Unlock => self.s.locks[usize::from(d.h)] = NONE,
            Alloc | Hint | HintLook | Source | Pick | TakeOf | TakeWhole | AllocBlock | BlockFrom => self.alloc(d),
            Recall => self.recall(d),
            CollectAll => {
                let holders = self.s.groups() + 1;
                if d.n < 2 * holders {
                    let h = d.n % holders;
                    self.next(&[d.n(d.n + 1)]);
                    if self.s.blocks.iter().any(|block| block.inbox == h) {
                        self.next(&[Do::held(Lock, h), Do::held(Collect, h), Do::held(Unlock, h)]);
                    }
                }
            }
            Lease | LeaseCas | TakeWord | Look | LeaseBack | Replenish | SetEmpty | Revive | Revive2 => {
                self.lease_step(d)
            }
            EndLease | Close | Unname | EndTell | GiveBack => self.end(d),
            PutBack => {
                let old = *self.word(d);
                *self.word(d) |= d.bits;
                self.s.late(b, d.w, old & d.bits);
                self.next(&[Do::at(Tell, b, d.w).with(old | d.bits)]);
            }
            Tell | Queue | Route | Push | Unqueue | Again => self.announce(d),
            Collect | Accept | Relist | Accept2 => self.collect(d),
            File | FileWord | RetireLease | RetireTake | RetireEnd | FileEnd | FileIfOurs | Fill | SetSplit | List => {
                self.file(d)
            }
            FreeEnter | FreeHand | FreeTag | FreeSplit | FreeEmpty | FreeOpen | FreeChoose | FreeLook | FreePut
            | FreeBlock | FreeEnd => self.free(d),
            SetOnline | GroupGone | GiveAll | Give | LeaveToZone | LeaveToZone2 => self.hotplug(d),
            Isolate | Isolate2 | EndIsolatedLeases | AwaitLeases | Empty | Remove | RemoveWord | Add | Restore => {
                return self.isolate(d);
            }
        }
        true
    }

    fn alloc(&mut self, d: Do) {
        let (c, g) = (self.t, World::group(self.t));
        let mine = Do { c, ..d };
        match d.kind {
            Alloc => {
                if !self.s.cpus[usize::from(c)].online && !self.has(Defect::OfflineWithoutLook) {
                    return;
                }
                // A frame of the hand, if it is not in the word as well.
                for (b, w) in self.s.slots(c) {
                    let (hand, word) = (*self.s.hand(c, b, w), self.s.b(b).words[usize::from(w)]);
                    if hand & word != 0 && !self.has(Defect::NoLookAtTheWord) {
                        *self.s.hand(c, b, w) &= !word;
                        self.s.late(b, w, hand & word);
                        return self.next(&[d]);
                    }
                    if hand != 0 {
                        let frame = hand & hand.wrapping_neg();
                        *self.s.hand(c, b, w) ^= frame;
                        return self.s.hand_out(b, w, frame);
                    }
                    if self.s.b(b).leases[usize::from(w)] == c {
                        return self.next(&[Do { c, ..Do::at(Replenish, b, w) }, d]);
                    }
                }
                // A hint: any frame that was freed lately, which is any.
                for (b, block) in (0..).zip(self.s.blocks.clone()) {
                    for w in 0..WORDS as u8 {
                        let word = block.words[usize::from(w)];
                        let fits = block.tag.0 == State::Split && !block.tag.2 && !leased(block.leases[usize::from(w)]);
                        if self.settings.hints && fits && word != 0 {
                            self.or(&[Do::at(Hint, b, w).with(word & word.wrapping_neg()).n(d.n)]);
                        }
                    }
                }
                self.next(&[Do::cpu(Source, c).n(d.n)]);
            }
            Hint => {
                if *self.word(d) & d.bits == 0 {
                    return self.next(&[Do::cpu(Alloc, c).n(d.n)]);
                }
                *self.word(d) &= !d.bits;
                self.next(&[d.then(HintLook)]);
            }
            HintLook => {
                let open = self.s.b(d.b).tag.0 == State::Split && !leased(*self.lease(d));
                if open || self.has(Defect::HintWithoutLook) {
                    return self.s.hand_out(d.b, d.w, d.bits);
                }
                self.next(&[d.then(PutBack), Do::cpu(Alloc, c).n(d.n)]);
            }
            Source => {
                let other = 3 - g;
                let has_other = other <= self.s.groups();
                let partly = |h: u8| [Do::held(Lock, h), Do::held(Collect, h), Do { h, ..mine.then(Pick) }];
                let whole = |h: u8| [Do::held(Lock, h), Do::held(Collect, h), Do { h, ..mine.then(TakeWhole) }];
                let skip = d.n(d.n + 1);
                match d.n % SECOND {
                    0 => self.next(&partly(g)),
                    1 if self.glance(ZONE) => self.next(&partly(ZONE)),
                    2 if has_other && self.glance(other) => self.next(&partly(other)),
                    3 if self.listed(g, State::Whole).next().is_some() => self.next(&whole(g)),
                    4 => self.next(&whole(ZONE)),
                    5 if self.has(Defect::OthersKeepWholeBlocks) => self.next(&[skip]),
                    5 if has_other && self.listed(other, State::Whole).next().is_some() => self.next(&whole(other)),
                    6 if d.n < SECOND && !self.has(Defect::FailWithoutRecall) => self.next(&recalled(c, Alloc)),
                    6 => {}
                    _ => self.next(&[skip]),
                }
            }
            Pick => {
                let found: Vec<u8> = self.listed(d.h, State::Split).collect();
                if found.is_empty() {
                    return self.next(&[Do::held(Unlock, d.h), Do::cpu(Source, c).n(d.n + 1)]);
                }
                self.one_of(found.into_iter(), |making, b| making.picked(d, b, g));
            }
            TakeOf => {
                let tag = self.s.b(d.b).tag;
                let again = Do::cpu(Alloc, c).n(d.n / SECOND * SECOND);
                let words = if tag.0 == State::Split && !tag.2 { self.open_words(d.b) } else { [0; WORDS] };
                let leases = |w: u8| Do { c, h: tag.1, ..Do::at(Lease, d.b, w) };
                let fits = (0..WORDS as u8).filter(|&w| words[usize::from(w)] != 0);
                if words == [0; WORDS] {
                    return self.next(&[again]);
                }
                self.one_of(fits, |making, w| making.next(&[leases(w), again]));
            }
            TakeWhole => {
                let Some(b) = self.listed(d.h, State::Whole).next() else {
                    return self.next(&[Do::held(Unlock, d.h), Do::cpu(Source, c).n(d.n + 1)]);
                };
                self.s.b(b).listed = false;
                let take = Do { c, b, ..just(TakeOf).n(d.n) };
                self.next(&[Do::held(Unlock, g), take]);
                self.split(b, g);
                if d.h != g {
                    // On its way it is in this CPU's hand: the group would take it for one that was freed just now.
                    self.s.b(b).tag.1 = if self.has(Defect::TransitUnmarked) { g } else { HAND };
                    self.next(&[Do::held(Unlock, d.h), Do::held(Lock, g)]);
                }
            }
            AllocBlock => {
                if !self.s.cpus[usize::from(c)].online {
                    return;
                }
                let kept = std::mem::replace(&mut self.s.cpus[usize::from(c)].kept, NONE);
                if kept != NONE {
                    return self.take_block(kept, g);
                }
                self.next(&[Do::held(Lock, g), Do::held(Collect, g), Do { c, h: g, ..d.then(BlockFrom) }]);
            }
            _ => {
                if let Some(b) = self.listed(d.h, State::Whole).next() {
                    self.s.b(b).listed = false;
                    self.take_block(b, g);
                    return self.next(&[Do::held(Unlock, d.h)]);
                }
                self.next(&[Do::held(Unlock, d.h)]);
                let order = [g, ZONE, 3 - g];
                let at = order.iter().position(|&h| h == d.h).unwrap_or(2) + 1;
                match order.get(at).filter(|&&h| h <= self.s.groups()) {
                    Some(&h) => self.next_after(&[Do::held(Lock, h), Do::held(Collect, h), Do { h, ..d }]),
                    None if d.n < SECOND => self.next_after(&recalled(c, AllocBlock)),
                    None => {}
                }
            }
        }
    }

    /// A listed block of holder `d.h` was chosen: it may be of use, as it is or after it has become this group's.
    fn picked(&mut self, d: Do, b: u8, g: u8) {
        let words = self.open_words(b);
        let take = Do { b, ..d.then(TakeOf) };
        if words == [0; WORDS] || words == [FULL; WORDS] {
            self.next(&[Do { h: d.h, ..Do::block(File, b) }, d]);
        } else if d.h == g {
            self.next(&[Do::held(Unlock, d.h), take]);
        } else {
            self.s.b(b).listed = false;
            self.s.b(b).tag.1 = g;
            let file = Do { h: g, ..Do::block(FileIfOurs, b) };
            self.next(&[Do::held(Unlock, d.h), Do::held(Lock, g), file, Do::held(Unlock, g), take]);
        }
    }

    /// A whole block becomes a split one of holder `h`.
    fn split(&mut self, b: u8, h: u8) {
        self.next(&[Fill, SetSplit, List].map(|kind| Do { h, ..Do::block(kind, b) }));
    }

    /// These come after the one step that comes next.
    fn next_after(&mut self, steps: &[Do]) {
        let first = self.s.cpus[usize::from(self.t)].todo.pop();
        self.next(steps);
        self.next(first.as_slice());
    }

    fn take_block(&mut self, b: u8, g: u8) {
        for w in 0..WORDS as u8 {
            let strays = std::mem::take(self.word(Do::at(Alloc, b, w)));
            self.s.late(b, w, strays);
            self.s.hand_out(b, w, FULL);
        }
        self.s.b(b).tag = (State::Taken, g, false);
    }

    /// Knocks at CPU after CPU that has something, then ends the leases of each.
    fn recall(&mut self, d: Do) {
        let x = d.w;
        let all = d.h != NONE;
        if usize::from(x) == self.s.cpus.len() {
            for x in (0..x).rev().filter(|x| d.n >> x & 1 == 1) {
                self.next(&[Do::cpu(GiveBack, x), Do::cpu(Leave, x)]);
            }
            return;
        }
        let on = Do { w: x + 1, ..d };
        let only = |b: u8, slots: &[(u8, u8)]| b == NONE || slots.iter().any(|&(of, _)| of == b);
        let slots = self.s.slots(x);
        let has = !slots.is_empty() || self.s.cpus[usize::from(x)].kept != NONE && d.b == NONE;
        if all || has && only(d.b, &slots) && x != d.c {
            self.next(&[Do::cpu(Enter, x), on.n(d.n | 1 << x)]);
        } else {
            self.next(&[on]);
        }
    }

    fn lease_step(&mut self, d: Do) {
        let (c, w) = (d.c, d.w);
        let failed: &[Do] = if d.freed != 0 { &[Do { bits: 0, ..d.then(FreeLook) }] } else { &[] };
        match d.kind {
            Lease => {
                let lease = *self.lease(d);
                if *self.s.hand(c, d.b, w) != NONE {
                    return self.next(&[d.then(Revive)]);
                }
                if leased(lease) {
                    return self.next(failed);
                }
                self.next(&[d.then(LeaseCas).n(lease)]);
                let slots = self.s.slots(c);
                if slots.len() >= usize::from(self.settings.leases) {
                    self.next(&[Do { c, ..Do::at(EndLease, slots[0].0, slots[0].1) }]);
                }
            }
            LeaseCas if *self.lease(d) != d.n => self.next(failed),
            LeaseCas => {
                if d.n == NONE || !self.has(Defect::ThiefKeepsTheLease) {
                    *self.lease(d) = c;
                }
                self.next(&[d.then(TakeWord).n(0)]);
            }
            TakeWord => {
                let got = std::mem::take(self.word(d));
                self.next(&[d.then(Look).with(got)]);
            }
            Look => {
                let same = self.s.b(d.b).tag == (State::Split, d.h, false) || self.has(Defect::LeaseWithoutLook);
                if same && d.bits | d.freed != 0 && d.bits & d.freed == 0 {
                    *self.s.hand(c, d.b, w) = d.bits | d.freed;
                    return self.s.accept(d.b, w, d.freed);
                }
                self.next(&[d.then(LeaseBack)]);
            }
            LeaseBack => {
                *self.lease(d) = NONE;
                self.next(failed);
                self.next(&[Do { freed: 0, ..d.then(PutBack) }]);
            }
            Replenish if *self.word(d) != 0 => self.next(&[d.then(Revive)]),
            Replenish => self.next(&[d.then(SetEmpty)]),
            SetEmpty => {
                *self.lease(d) = c | EMPTY;
                self.next(&[d.then(EndTell)]);
            }
            Revive => {
                let lease = *self.lease(d);
                if lease == c || lease == c | EMPTY {
                    *self.lease(d) = c;
                    self.next(&[d.then(Revive2)]);
                } else {
                    *self.s.hand(c, d.b, w) = NONE;
                }
            }
            _ => {
                let got = std::mem::take(self.word(d));
                let hand = *self.s.hand(c, d.b, w);
                self.s.late(d.b, w, hand & got);
                *self.s.hand(c, d.b, w) = hand | got;
            }
        }
    }

    fn end(&mut self, d: Do) {
        let (c, w) = (d.c, d.w);
        match d.kind {
            EndLease if self.has(Defect::UnnamedBeforePutBack) => self.next(&[d.then(Unname), d.then(Close)]),
            EndLease => {
                let hand = *self.s.hand(c, d.b, w);
                let old = *self.word(d);
                *self.word(d) |= hand;
                self.s.late(d.b, w, old & hand);
                self.next(&[d.then(Close), d.then(Unname)]);
            }
            Close => {
                let hand = std::mem::replace(self.s.hand(c, d.b, w), NONE);
                if self.has(Defect::UnnamedBeforePutBack) {
                    *self.word(d) |= hand;
                }
            }
            Unname => {
                if [c, c | EMPTY].contains(self.lease(d)) {
                    *self.lease(d) = NONE;
                }
                self.next(&[d.then(EndTell)]);
            }
            EndTell => {
                let now = *self.word(d);
                self.next(&[Do::at(Tell, d.b, w).with(now)]);
            }
            _ => {
                let kept = std::mem::replace(&mut self.s.cpus[usize::from(c)].kept, NONE);
                if kept != NONE {
                    self.s.b(kept).tag.1 = World::group(c);
                    self.next(&[Do::block(Queue, kept)]);
                }
                for (b, w) in self.s.slots(c) {
                    self.next(&[Do { c, ..Do::at(EndLease, b, w) }]);
                }
            }
        }
    }

    fn announce(&mut self, d: Do) {
        let tag = self.s.b(d.b).tag;
        match d.kind {
            // Whether a run is complete that is larger than the lists know of.
            Tell => {
                let class = self.s.b(d.b).class;
                if d.bits != 0 && class != QUEUED && (class == 0 || d.bits == FULL) {
                    self.next(&[Do::block(Queue, d.b)]);
                }
            }
            Queue => {
                if std::mem::replace(&mut self.s.b(d.b).class, QUEUED) != QUEUED {
                    self.next(&[Do::block(Route, d.b)]);
                }
            }
            Route if tag.1 != HAND && matches!(tag.0, State::Split | State::Whole) => {
                self.next(&[Do { h: tag.1, ..d.then(Push) }]);
            }
            Route => self.next(&[Do { h: tag.1, n: tag.0 as u8, ..d.then(Unqueue) }]),
            Push => {
                let in_one = self.s.b(d.b).inbox != NONE;
                self.s.must(!in_one, "a block is in two inboxes");
                self.s.b(d.b).inbox = d.h;
            }
            Unqueue => {
                self.s.b(d.b).class = 0;
                self.next(&[d.then(Again)]);
            }
            _ => {
                if (tag.0 as u8, tag.1) != (d.n, d.h) {
                    self.next(&[Do::block(Queue, d.b)]);
                }
            }
        }
    }

    fn collect(&mut self, d: Do) {
        match d.kind {
            Collect => {
                if let Some(b) = (0..).zip(&self.s.blocks).find(|(_, block)| block.inbox == d.h).map(|(b, _)| b) {
                    self.s.b(b).inbox = NONE;
                    self.next(&[Do { b, ..d.then(Accept) }, d]);
                }
            }
            Accept => {
                let tag = self.s.b(d.b).tag;
                if tag.0 != State::Absent && tag.1 != HAND && tag.1 != d.h {
                    return self.next(&[Do { h: tag.1, ..d.then(Push) }]);
                }
                self.next(&[d.then(Relist)]);
            }
            // From here on it may be announced again.
            Relist => {
                self.s.b(d.b).class = 0;
                self.next(&[d.then(Accept2)]);
            }
            _ => {
                let (tag, listed) = (self.s.b(d.b).tag, self.s.b(d.b).listed);
                match tag.0 {
                    State::Split if tag.1 == d.h => self.next(&[d.then(File)]),
                    State::Whole if tag.1 == d.h && !listed => self.s.b(d.b).listed = true,
                    State::Split | State::Whole if tag.1 != HAND && tag.1 != d.h => self.next(&[d.then(Queue)]),
                    _ => {}
                }
            }
        }
    }

    /// Under the lock of holder `d.h`. `d.c` says whether the class is ours to set, `d.n` what the words so far amount to.
    fn file(&mut self, d: Do) {
        let failed = Do { n: 2, ..d.then(FileEnd) };
        match d.kind {
            FileIfOurs => {
                if self.s.b(d.b).tag.0 == State::Split && self.s.b(d.b).tag.1 == d.h {
                    self.next(&[d.then(File)]);
                }
            }
            File => {
                let late = self.has(Defect::ClassAfterWords);
                let block = self.s.b(d.b);
                block.listed = false;
                if block.tag.2 {
                    return;
                }
                let listing = block.class != QUEUED;
                if listing && !late {
                    block.class = 0;
                }
                self.next(&[Do { c: listing.into(), w: 0, ..d.then(FileWord) }]);
            }
            FileWord => {
                let word = self.open_words(d.b)[usize::from(d.w)];
                let n = d.n | word << (2 * d.w);
                if usize::from(d.w) + 1 < WORDS {
                    return self.next(&[Do { w: d.w + 1, ..d.n(n) }]);
                }
                match class_of([n & FULL, n >> 2]) {
                    CLASS_WHOLE => self.next(&[Do { w: 0, ..d.then(RetireLease).n(0) }]),
                    class => self.next(&[d.then(FileEnd).n(class)]),
                }
            }
            RetireLease => {
                let lease = *self.lease(d);
                if leased(lease) {
                    self.next(&[failed]);
                    return (0..d.w).for_each(|w| self.next(&[Do::at(PutBack, d.b, w).with(FULL)]));
                }
                if lease & EMPTY != 0 {
                    *self.lease(d) = NONE;
                }
                self.next(&[d.then(RetireTake)]);
            }
            RetireTake => {
                if *self.word(d) != FULL {
                    self.next(&[failed]);
                    return (0..d.w).for_each(|w| self.next(&[Do::at(PutBack, d.b, w).with(FULL)]));
                }
                *self.word(d) = 0;
                let last = usize::from(d.w) + 1 == WORDS;
                self.next(&[if last { d.then(RetireEnd) } else { Do { w: d.w + 1, ..d.then(RetireLease) } }]);
            }
            RetireEnd => {
                self.s.b(d.b).tag.0 = State::Whole;
                self.s.b(d.b).listed = true;
            }
            FileEnd => {
                let late = self.has(Defect::ClassAfterWords);
                let block = self.s.b(d.b);
                block.listed = d.n != 0;
                if d.c == 1 && (block.class == 0 || late && block.class != QUEUED) {
                    block.class = d.n;
                }
            }
            Fill => {
                for w in 0..WORDS as u8 {
                    let strays = std::mem::replace(self.word(Do { w, ..d }), FULL);
                    self.s.late(d.b, w, strays);
                }
            }
            SetSplit => self.s.b(d.b).tag = (State::Split, d.h, false),
            _ => {
                let block = self.s.b(d.b);
                block.listed = true;
                block.class = if block.class == QUEUED { QUEUED } else { 2 };
            }
        }
    }

    /// `d.n`: 1 inside the CPU's state, 2 inside but the CPU is offline, 0 not.
    fn free(&mut self, d: Do) {
        let (c, w, freed) = (self.t, d.w, d.freed);
        if d.kind == FreeEnd {
            if d.n != 0 {
                self.s.cpus[usize::from(c)].door = NONE;
            }
            return;
        }
        let hand = if d.w == NONE || d.n != 1 { NONE } else { *self.s.hand(c, d.b, w) };
        let block = *self.s.b(d.b);
        match d.kind {
            FreeEnter => {
                let cpu = &mut self.s.cpus[usize::from(c)];
                let n = match cpu.door {
                    NONE if cpu.online => 1,
                    NONE => 2,
                    _ => 0,
                };
                if n != 0 {
                    cpu.door = c;
                }
                let n = if n == 2 && self.has(Defect::OfflineWithoutLook) { 1 } else { n };
                let first = if w == NONE { FreeBlock } else { FreeHand };
                self.next(&[Do { c, ..d.then(first).n(n) }, just(FreeEnd).n(n)]);
            }
            FreeHand if hand == NONE || hand == 0 => self.next(&[d.then(FreeTag)]),
            FreeHand if (hand | *self.word(d)) & freed != 0 => self.s.refuse(d.b, w, freed),
            FreeHand | FreeOpen => {
                *self.s.hand(c, d.b, w) |= freed;
                self.s.accept(d.b, w, freed);
            }
            FreeTag => match block.tag.0 {
                State::Absent | State::Whole => self.s.refuse(d.b, w, freed),
                State::Taken => {
                    if block.class != QUEUED {
                        self.s.b(d.b).class = 0;
                    }
                    self.next(&[Do { h: block.tag.1, ..d.then(FreeSplit) }]);
                }
                State::Split => self.next(&[Do { h: block.tag.1, ..d.then(FreeEmpty) }]),
            },
            FreeSplit if block.tag != (State::Taken, d.h, false) => self.next(&[d.then(FreeTag)]),
            FreeSplit => {
                self.s.b(d.b).tag.0 = State::Split;
                for w in 0..WORDS as u8 {
                    let strays = std::mem::take(self.word(Do { w, ..d }));
                    self.s.late(d.b, w, strays);
                }
                self.next(&[d.then(FreeEmpty)]);
            }
            FreeEmpty if hand == NONE => self.next(&[d.then(FreeChoose)]),
            FreeEmpty if *self.word(d) & freed != 0 => self.s.refuse(d.b, w, freed),
            FreeEmpty if freed == FULL => self.next(&[d.then(EndLease), d.then(FreeLook)]),
            FreeEmpty => {
                let lease = *self.lease(d);
                if lease == c || lease == c | EMPTY {
                    *self.lease(d) = c;
                    return self.next(&[d.then(FreeOpen)]);
                }
                *self.s.hand(c, d.b, w) = NONE;
                self.next(&[d.then(FreeChoose)]);
            }
            FreeChoose => {
                let (lease, word) = (*self.lease(d), *self.word(d));
                if d.n == 1 && !block.tag.2 && freed != FULL && word & freed == 0 && !leased(lease) {
                    self.or(&[d.then(Lease)]);
                }
                self.next(&[d.then(FreeLook)]);
            }
            FreeLook if self.has(Defect::LookAfterPut) => self.next(&[d.then(FreePut)]),
            FreeLook => {
                let lease = *self.lease(d);
                if leased(lease) && self.shown(lease, d) & freed != 0 {
                    return self.s.refuse(d.b, w, freed);
                }
                self.next(&[d.then(FreePut)]);
                if self.has(Defect::AnnounceBeforePut) {
                    let now = *self.word(d) | freed;
                    self.next(&[Do::at(Tell, d.b, w).with(now)]);
                }
            }
            FreePut => {
                let old = *self.word(d);
                if old & freed != 0 {
                    return self.s.refuse(d.b, w, freed);
                }
                *self.word(d) |= freed;
                self.s.accept(d.b, w, freed);
                if !self.has(Defect::AnnounceBeforePut) {
                    self.next(&[Do::at(Tell, d.b, w).with(old | freed)]);
                }
                if self.has(Defect::LookAfterPut) {
                    self.next(&[Do { bits: freed, freed: 0, n: 9, ..d.then(FreeBlock) }]);
                }
            }
            // The look at the leaseholder's hand, planted in the wrong place.
            _ if d.n == 9 => {
                let lease = *self.lease(d);
                let seen = leased(lease) && self.shown(lease, d) & d.bits != 0;
                self.s.must(!seen || self.s.wronged, "a right free is refused");
            }
            _ => match block.tag.0 {
                State::Taken => {
                    (0..WORDS as u8).for_each(|w| self.s.accept(d.b, w, FULL));
                    self.s.b(d.b).tag.0 = State::Whole;
                    let cpu = &mut self.s.cpus[usize::from(c)];
                    if d.n == 1 && cpu.kept == NONE {
                        cpu.kept = d.b;
                        self.s.b(d.b).tag.1 = HAND;
                    } else {
                        self.next(&[Do::block(Queue, d.b)]);
                    }
                }
                State::Split => {
                    (0..WORDS as u8).rev().for_each(|w| self.next(&[Do { w, freed: FULL, ..d.then(FreeTag) }]));
                }
                _ => (0..WORDS as u8).for_each(|w| self.s.refuse(d.b, w, FULL)),
            },
        }
    }

    fn shown(&mut self, lease: u8, d: Do) -> u8 {
        match *self.s.hand(lease, d.b, d.w) {
            NONE => 0,
            hand => hand,
        }
    }

    fn hotplug(&mut self, d: Do) {
        let g = d.h;
        match d.kind {
            SetOnline => self.s.cpus[usize::from(d.c)].online = d.n == 1,
            GroupGone => {
                let gone = (0..).zip(&self.s.cpus).all(|(c, cpu)| World::group(c) != g || !cpu.online);
                if gone {
                    self.next(&[Do::held(Lock, g), Do::held(Collect, g), Do::held(Unlock, g)]);
                    (0..self.s.blocks.len() as u8).for_each(|b| self.next(&[Do { b, ..d.then(LeaveToZone) }]));
                    self.next(&[d.then(GiveAll)]);
                }
            }
            GiveAll => self.next(&[Do::held(Lock, g), Do::held(Collect, g), d.then(Give)]),
            Give => {
                let listed = self.listed(g, State::Whole).chain(self.listed(g, State::Split)).next();
                let Some(b) = listed else { return self.next(&[Do::held(Unlock, g)]) };
                if d.n == 0 {
                    // Groups before the zone: the order of locks everywhere.
                    return self.next(&[Do::held(Lock, ZONE), d.n(1)]);
                }
                self.next(&[Do::held(Unlock, ZONE), Do::held(Unlock, g), d.then(GiveAll).n(0)]);
                self.s.b(b).tag.1 = ZONE;
                if self.s.b(b).tag.0 == State::Split {
                    self.next(&[Do { h: ZONE, ..Do::block(File, b) }]);
                }
            }
            LeaveToZone => {
                let tag = self.s.b(d.b).tag;
                if tag.1 == g && matches!(tag.0, State::Split | State::Taken) {
                    self.next(&[Do::held(Lock, g), d.then(LeaveToZone2)]);
                }
            }
            _ => {
                self.next(&[Do::held(Unlock, g)]);
                let block = self.s.b(d.b);
                if block.tag.1 == g && matches!(block.tag.0, State::Split | State::Taken) {
                    block.listed = false;
                    block.tag.1 = ZONE;
                    self.next_after(&[Do::block(Queue, d.b)]);
                }
            }
        }
    }

    fn isolate(&mut self, d: Do) -> bool {
        let block = *self.s.b(d.b);
        let tag = block.tag;
        let reach = |c: u8| [Do::cpu(Enter, c), Do::cpu(GiveBack, c), Do::cpu(Leave, c), d];
        match d.kind {
            Isolate if tag.1 == HAND => match (0..).zip(&self.s.cpus).find(|(_, cpu)| cpu.kept == d.b) {
                Some((c, _)) => self.next(&reach(c)),
                None => return false,
            },
            Isolate => self.next(&[Do::held(Lock, tag.1), Do { h: tag.1, ..d.then(Isolate2) }]),
            Isolate2 if tag.1 != d.h => self.next(&[Do::held(Unlock, d.h), d.then(Isolate)]),
            Isolate2 if tag.0 == State::Whole && block.listed => {
                self.s.b(d.b).listed = false;
                self.next(&[d]);
                self.split(d.b, d.h);
            }
            Isolate2 if tag.0 == State::Whole => {
                self.next(&[Do::held(Collect, d.h), Do::held(Unlock, d.h), d.then(Isolate)]);
            }
            Isolate2 => {
                for w in (0..WORDS as u8).filter(|_| tag.0 == State::Taken) {
                    let strays = std::mem::take(self.word(Do { w, ..d }));
                    self.s.late(d.b, w, strays);
                }
                self.s.b(d.b).listed = false;
                self.s.b(d.b).tag = (State::Split, ZONE, true);
                self.next(&[Do::held(Unlock, d.h), d.then(EndIsolatedLeases)]);
            }
            EndIsolatedLeases => self.next(&[Do { w: 0, ..Do::block(Recall, d.b) }, d.then(AwaitLeases)]),
            AwaitLeases => match block.leases.iter().find(|&&lease| leased(lease)) {
                Some(&c) => self.next(&reach(c)),
                // Whoever takes a frame past the leases is inside its door for a few more steps.
                None if self.has(Defect::NoPassThroughTheDoors) => self.next(&[d.then(Empty)]),
                None => self.next(&[Do { w: 0, h: 0, ..just(Recall) }, d.then(Empty)]),
            },
            Empty => {
                let zones = Do::held(Lock, ZONE);
                let done = [Do::held(Unlock, ZONE), Do::held(Unlock, HOTPLUG)];
                if block.words == [FULL; WORDS] {
                    let add = d.then(Remove);
                    self.or(&[zones, add, done[0], zones, d.then(Add), done[0], done[1]]);
                }
                self.next(&[zones, Do { h: ZONE, ..d.then(Restore) }, done[0], done[1]]);
            }
            Remove => {
                self.s.must(block.used == [0; WORDS], "memory goes that is in use");
                self.s.b(d.b).tag = (State::Absent, ZONE, false);
                self.next(&[Do { w: 0, ..d.then(RemoveWord) }, Do { w: 1, ..d.then(RemoveWord) }]);
            }
            RemoveWord => {
                *self.word(d) = 0;
                self.s.b(d.b).owed[usize::from(d.w)] = 0;
            }
            Add => {
                self.s.b(d.b).tag = (State::Whole, ZONE, false);
                self.s.b(d.b).listed = true;
            }
            _ => {
                self.s.b(d.b).tag.2 = false;
                self.next(&[d.then(File)]);
            }
        }
        true
    }
}

/// Everything in hand goes back, here and elsewhere, and every holder looks at what was announced to it.
fn recalled(c: u8, then: Kind) -> [Do; 6] {
    let others = Do { c, w: 0, ..just(Recall) };
    let again = Do::cpu(then, c).n(SECOND);
    [Do::cpu(GiveBack, c), Do::cpu(Leave, c), others, just(CollectAll), Do::cpu(Enter, c), again]
}
