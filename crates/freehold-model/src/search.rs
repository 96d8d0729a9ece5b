//! The search through all interleavings, by stateright.

use stateright::{Checker, Model, Property};

use crate::Kind::*;
use crate::protocol::*;
use crate::{Defect, Settings};

/// Wrong frees, hotplugs, isolations and preemptions left, as places in [`World::left`].
const WRONG: usize = 0;
const HOTPLUGS: usize = 1;
const ISOLATIONS: usize = 2;
const PREEMPTIONS: usize = 3;

/// One way to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The thread begins a call whose first steps these are (the hotplug lock is [`Do`] of its own).
    Begin(u8, Do),
    /// The thread makes its next step, the n-th of what may come of it.
    Step(u8, u8),
}

impl Settings {
    /// 2 CPUs and a block, and nothing but allocations and frees.
    pub fn small() -> Self {
        Self {
            cpus: 2,
            blocks: 1,
            budget: [0, 0, 0, 255],
            leases: 1,
            hints: true,
            whole: false,
            depth: 0,
            defect: None,
        }
    }

    /// What thread `t` may begin.
    fn calls(&self, s: &World, t: u8, out: &mut Vec<Do>) {
        let online = s.cpus[usize::from(t)].online;
        if !online {
            return;
        }
        out.push(Do::cpu(Alloc, t));
        if self.whole {
            out.push(Do::cpu(AllocBlock, t));
        }
        for (b, block) in (0..).zip(&s.blocks) {
            let freeing = |w: u8| {
                let of = s
                    .todo()
                    .filter(|d| d.b == b && (d.w == w || matches!((d.kind, d.w), (FreeEnter | FreeBlock, NONE))));
                of.fold(0, |bits, d| bits | if d.w == w { d.freed } else { FULL })
            };
            for w in 0..WORDS as u8 {
                for bits in [1, 2] {
                    let used = block.used[usize::from(w)] & bits != 0;
                    let right = used && freeing(w) & bits == 0;
                    if right || s.left[WRONG] > 0 && block.tag.0 != State::Absent {
                        out.push(Do { freed: bits, n: u8::from(!right), ..Do::at(FreeEnter, b, w) });
                    }
                }
            }
            let all = block.used == [FULL; WORDS] && (0..WORDS as u8).all(|w| freeing(w) == 0);
            if self.whole && all && block.tag.0 == State::Taken {
                out.push(Do::block(FreeEnter, b));
            }
            if s.left[ISOLATIONS] > 0 {
                out.push(Do::block(Isolate, b));
            }
        }
        if s.left[HOTPLUGS] > 0 {
            for (c, cpu) in (0..).zip(&s.cpus) {
                let others = s.cpus.iter().filter(|cpu| cpu.online).count();
                if !cpu.online || c != t && others > 1 {
                    out.push(Do::cpu(SetOnline, c).n(u8::from(!cpu.online)));
                }
            }
        }
    }

    /// The world after thread `t` has begun that call.
    fn begun(&self, s: &World, t: u8, call: Do) -> World {
        let hot = [Do::held(Lock, HOTPLUG), Do::held(Unlock, HOTPLUG)];
        let mut spent = None;
        let mut next = match call.kind {
            Alloc | AllocBlock => s.begin(t, &[Do::cpu(Enter, t), call, Do::cpu(Leave, t)]),
            Isolate => {
                spent = Some(ISOLATIONS);
                s.begin(t, &[hot[0], call])
            }
            SetOnline => {
                spent = Some(HOTPLUGS);
                let (enter, leave) = (Do::cpu(Enter, call.c), Do::cpu(Leave, call.c));
                let gone = Do::held(GroupGone, World::group(call.c));
                match call.n {
                    1 => s.begin(t, &[hot[0], enter, call, leave, hot[1]]),
                    _ => s.begin(t, &[hot[0], enter, call, Do::cpu(GiveBack, call.c), leave, gone, hot[1]]),
                }
            }
            _ => {
                spent = (call.n == 1).then_some(WRONG);
                let mut next = s.begin(t, &[call.n(0)]);
                next.wronged |= call.n == 1;
                next
            }
        };
        if let Some(spent) = spent {
            next.left[spent] -= 1;
        }
        next
    }

    /// Counts a preemption where thread `t` goes on while the last one could have; `None` where there is none left.
    fn switched(&self, s: &World, t: u8) -> Option<World> {
        let mut next = s.clone();
        let last = s.last;
        if last != NONE && last != t && !s.step(last, self).is_empty() && next.left[PREEMPTIONS] != 255 {
            next.left[PREEMPTIONS] = next.left[PREEMPTIONS].checked_sub(1)?;
        }
        next.last = t;
        Some(next)
    }

    fn after(&self, s: &World, action: Action) -> Option<World> {
        let (Action::Begin(t, _) | Action::Step(t, _)) = action;
        let s = self.switched(s, t)?;
        let mut next = match action {
            Action::Begin(_, call) => self.begun(&s, t, call),
            Action::Step(_, n) => s.step(t, self).into_iter().nth(n.into())?,
        };
        if next.left[PREEMPTIONS] == 255 || next.cpus[usize::from(t)].todo.is_empty() {
            next.last = NONE;
        }
        Some(next)
    }

    /// Runs a call on thread `t` alone to its end; `None` where it waits for ever.
    fn run(&self, s: &World, t: u8, steps: &[Do]) -> Option<World> {
        self.run_on(s.begin(t, steps), t)
    }

    /// The same for the call that it has begun.
    fn run_on(&self, mut s: World, t: u8) -> Option<World> {
        for _ in 0..2000 {
            if s.cpus[usize::from(t)].todo.is_empty() {
                return Some(s);
            }
            s = s.step(t, self).pop()?;
        }
        None
    }

    /// From a world in which no call runs: every CPU that is online can have all that is free, and everything comes home.
    pub fn way_home(&self, s: &World) -> Result<(), &'static str> {
        let frames = (s.blocks.len() * WORDS * 2) as u32;
        let used = |s: &World| s.blocks.iter().flat_map(|b| b.used).map(u8::count_ones).sum::<u32>();
        let mut home = s.clone();
        for t in (0..s.cpus.len() as u8).filter(|&t| s.cpus[usize::from(t)].online) {
            let mut all = s.clone();
            while used(&all) < frames {
                let before = used(&all);
                let call = [Do::cpu(Enter, t), Do::cpu(Alloc, t), Do::cpu(Leave, t)];
                all = self.run(&all, t, &call).ok_or("an allocation never ends")?;
                all.check()?;
                if used(&all) == before {
                    return Err("a request fails although memory is free");
                }
            }
            home = all;
        }
        let t = (0..).zip(&home.cpus).find(|(_, cpu)| cpu.online).map_or(0, |(t, _)| t);
        for b in 0..home.blocks.len() as u8 {
            for w in 0..WORDS as u8 {
                for bits in [1, 2] {
                    let free = Do { freed: bits, ..Do::at(FreeEnter, b, w) };
                    home = self.run(&home, t, &[free]).ok_or("a free never ends")?;
                    home.check()?;
                }
            }
        }
        let drained = [Do { w: 0, h: 0, ..just(Recall) }, just(CollectAll)];
        home = self.run(&home, t, &drained).ok_or("a drain never ends")?;
        for h in 1..=home.groups() {
            home = self.run(&home, t, &[Do::held(GiveAll, h).n(0)]).ok_or("a drain never ends")?;
        }
        home.check()?;
        let whole = |b: &Block| b.tag == (State::Whole, ZONE, false) && b.listed && b.owed == [0; WORDS];
        if home.blocks.iter().all(whole) { Ok(()) } else { Err("not everything comes home") }
    }

    /// From a world in which no call runs: each call that may begin ends, with nobody else there who does anything.
    fn every_call_ends(&self, s: &World) -> Result<(), &'static str> {
        let mut calls = Vec::new();
        for t in 0..s.cpus.len() as u8 {
            calls.clear();
            self.calls(s, t, &mut calls);
            for &call in &calls {
                self.run_on(self.begun(s, t, call), t).ok_or("a call waits for what nobody is about to do")?;
            }
        }
        Ok(())
    }

    /// What is wrong with a world, if anything is.
    fn verdict(&self, s: &World) -> Result<(), &'static str> {
        s.check()?;
        if s.quiet() {
            s.check_places()?;
            self.every_call_ends(s)?;
            return self.way_home(s);
        }
        // Somebody can go on, and who frees always can.
        let waits = |t: u8| s.step(t, self).is_empty();
        let running = || (0..s.cpus.len() as u8).filter(|&t| !s.cpus[usize::from(t)].todo.is_empty());
        if running().all(waits) {
            return Err("everybody waits for ever");
        }
        let frees = |t: u8| s.cpus[usize::from(t)].todo.iter().any(|d| d.kind == FreeEnd);
        if running().any(|t| frees(t) && waits(t)) { Err("a free waits") } else { Ok(()) }
    }

    /// Runs the search on that many threads; what was found wrong, with the steps that lead there.
    pub fn search(&self, threads: usize) -> Found {
        let start = std::time::Instant::now();
        let checker = self.clone().checker().threads(threads);
        let checker = if self.depth == 0 { checker } else { checker.target_max_depth(self.depth) };
        let checker = checker.spawn_bfs().join();
        let wrong = checker.discovery("sound").map(|path| {
            let what = self.verdict(path.last_state()).unwrap_err();
            let show = |(s, action): (World, Option<Action>)| match action? {
                Action::Begin(t, call) => Some(format!("CPU {t} begins {call:?}")),
                Action::Step(t, _) => Some(format!("CPU {t} {:?}", s.cpus[usize::from(t)].todo.last()?)),
            };
            let steps = path.into_vec().into_iter().filter_map(show).collect();
            (what, steps)
        });
        let (states, unique) = (checker.state_count(), checker.unique_state_count());
        Found { states, unique, depth: checker.max_depth(), seconds: start.elapsed().as_secs_f64(), wrong }
    }
}

/// What a search came to.
#[derive(Debug)]
pub struct Found {
    /// Worlds come by, and how many of them differ.
    pub states: usize,
    /// See `states`.
    pub unique: usize,
    /// The most steps from the start.
    pub depth: usize,
    /// Time.
    pub seconds: f64,
    /// What is wrong, and the steps that lead there.
    pub wrong: Option<(&'static str, Vec<String>)>,
}

impl Model for Settings {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.cpus, self.blocks, self.budget)]
    }

    fn actions(&self, s: &World, out: &mut Vec<Action>) {
        if !s.broken.is_empty() {
            return;
        }
        let mut calls = Vec::new();
        for t in 0..s.cpus.len() as u8 {
            if s.cpus[usize::from(t)].todo.is_empty() {
                calls.clear();
                self.calls(s, t, &mut calls);
                out.extend(calls.iter().map(|&call| Action::Begin(t, call)));
            } else {
                let ways = s.step(t, self).len() as u8;
                out.extend((0..ways).map(|n| Action::Step(t, n)));
            }
        }
    }

    fn next_state(&self, s: &World, action: Action) -> Option<World> {
        self.after(s, action).map(World::named_anew)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("sound", |model: &Self, s: &World| model.verdict(s).is_ok())]
    }

    fn within_boundary(&self, s: &World) -> bool {
        !s.beyond
    }
}

/// Every defect that the search finds. One more can be planted that it does not: see `docs/model.md`.
pub const DEFECTS: [Defect; 14] = [
    Defect::OfflineWithoutLook,
    Defect::ThiefKeepsTheLease,
    Defect::AnnounceBeforePut,
    Defect::ClassAfterWords,
    Defect::LookAfterPut,
    Defect::UnnamedBeforePutBack,
    Defect::HintWithoutLook,
    Defect::NoLookAtTheWord,
    Defect::FailWithoutRecall,
    Defect::OthersKeepWholeBlocks,
    Defect::NoPassThroughTheDoors,
    Defect::IsolationWaitsForALook,
    Defect::LeaseWithoutLook,
    Defect::AnnounceLooksOnce,
];
