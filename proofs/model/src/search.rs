//! The search through all interleavings, by stateright.

use stateright::{Checker, Model, Property};

use crate::Kind::*;
use crate::protocol::*;
use crate::{Defect, Settings};

/// Wrong frees, hotplugs, isolations and preemptions left, as places in [`World::left`].
const WRONG: usize = 0;
const HOTPLUGS: usize = 1;
const ISOLATIONS: usize = 2;
pub(crate) const PREEMPTIONS: usize = 3;

/// One way to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// The thread that goes on.
    pub t: u8,
    /// The call that it begins, if it begins one.
    pub call: Option<Do>,
    /// Which of the worlds that may come of it.
    pub n: u8,
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
        for (b, block) in (0..).zip(s.blocks.iter()) {
            let freeing = |w: u8| {
                let of = s.todo().filter(|d| {
                    d.b == b && (d.w == w || matches!((d.kind, d.w), (FreeEnter | FreeBlock, NONE)))
                });
                of.fold(0, |bits, d| bits | if d.w == w { d.freed } else { FULL })
            };
            for w in 0..WORDS as u8 {
                for bits in [1, 2] {
                    let used = block.used[usize::from(w)] & bits != 0;
                    let right = used && freeing(w) & bits == 0;
                    if right || s.left[WRONG] > 0 && block.tag.0 != State::Absent {
                        out.push(Do {
                            freed: bits,
                            n: u8::from(!right),
                            ..Do::at(FreeEnter, b, w)
                        });
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
            for (c, cpu) in (0..).zip(s.cpus.iter()) {
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
                    _ => s.begin(
                        t,
                        &[hot[0], enter, call, Do::cpu(GiveBack, call.c), leave, gone, hot[1]],
                    ),
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

    /// Counts a preemption where thread `t` goes on while the last one could have; `None` where
    /// there is none left.
    fn switched(&self, s: &World, t: u8) -> Option<World> {
        let mut next = *s;
        let last = s.last;
        if last != NONE && last != t && next.left[PREEMPTIONS] != 255 && !s.waits(last, self) {
            next.left[PREEMPTIONS] = next.left[PREEMPTIONS].checked_sub(1)?;
        }
        next.last = t;
        Some(next)
    }

    /// Adds the worlds that may come next where thread `t` goes on: by the call that it begins, or
    /// by its next step.
    fn after(&self, s: &World, t: u8, call: Option<Do>, out: &mut Vec<World>) {
        let Some(s) = self.switched(s, t) else { return };
        let first = out.len();
        match call {
            Some(call) => self.ahead(self.begun(&s, t, call), t, out),
            None if s.waits(t, self) => {}
            None => self.ahead(s, t, out),
        }
        for next in &mut out[first..] {
            if next.left[PREEMPTIONS] == 255 || next.rests(t) {
                next.last = NONE;
            }
        }
    }

    /// Every way to go on: a thread, and the call that it begins where it rests.
    fn each_way(&self, s: &World, mut see: impl FnMut(u8, Option<Do>)) {
        let mut calls = Vec::new();
        for t in 0..s.cpus.len() as u8 {
            if s.rests(t) {
                self.calls(s, t, &mut calls);
                calls.drain(..).for_each(|call| see(t, Some(call)));
            } else {
                see(t, None);
            }
        }
    }

    /// Adds all worlds that may come next.
    pub(crate) fn all_after(&self, s: &World, out: &mut Vec<World>) {
        self.each_way(s, |t, call| self.after(s, t, call, out));
    }

    /// The world after a call on thread `t` alone; `None` where it never ends.
    fn run(&self, mut s: World, t: u8) -> Option<World> {
        let mut others = Vec::new();
        for _ in 0..2000 {
            if s.rests(t) {
                return Some(s);
            }
            s.step(t, self, &mut others).then_some(())?;
            others.clear();
        }
        None
    }

    /// From a world in which no call runs: each call that may begin ends with nobody else there who
    /// does anything, a request has what is free, and if nothing is in use a drain brings
    /// everything home.
    ///
    /// That every CPU can have *all* that is free, and that all comes home from everywhere,
    /// follows: the world after such a request, and after such a free, is searched too.
    fn each_call_ends(&self, s: &World) -> Result<(), &'static str> {
        let used =
            |s: &World| s.blocks.iter().flat_map(|b| b.used).map(u8::count_ones).sum::<u32>();
        let (before, frames) = (used(s), (s.blocks.len() * WORDS * 2) as u32);
        let mut calls = Vec::new();
        for t in 0..s.cpus.len() as u8 {
            self.calls(s, t, &mut calls);
            // Without preemptions the search itself runs each call alone: see `ahead`.
            for call in
                calls.drain(..).filter(|call| s.left[PREEMPTIONS] != 0 || call.kind == Alloc)
            {
                let after = self
                    .run(self.begun(s, t, call), t)
                    .ok_or("a call waits for what nobody is about to do")?;
                if call.kind == Alloc && used(&after) == before && before < frames {
                    return Err("a request fails although memory is free");
                }
            }
        }
        if before == 0 { self.comes_home(s) } else { Ok(()) }
    }

    /// Nothing is in use: after a drain every block is whole and the zone's.
    fn comes_home(&self, s: &World) -> Result<(), &'static str> {
        let t = s.cpus.iter().position(|cpu| cpu.online).map_or(0, |t| t as u8);
        let endless = "a drain never ends";
        let drained = [Do { w: 0, h: 0, ..just(Recall) }, just(CollectAll)];
        let mut home = self.run(s.begin(t, &drained), t).ok_or(endless)?;
        for h in 1..=home.groups() {
            home = self.run(home.begin(t, &[Do::held(GiveAll, h).n(0)]), t).ok_or(endless)?;
        }
        home.check()?;
        let whole =
            |b: &Block| b.tag == (State::Whole, ZONE, false) && b.listed && b.owed == [0; WORDS];
        if home.blocks.iter().all(whole) { Ok(()) } else { Err("not everything comes home") }
    }

    /// What is wrong with a world, if anything is.
    pub(crate) fn verdict(&self, s: &World) -> Result<(), &'static str> {
        s.check()?;
        if s.quiet() {
            s.check_places()?;
            return self.each_call_ends(s);
        }
        // Somebody can go on.
        let running = || (0..s.cpus.len() as u8).filter(|&t| !s.rests(t));
        if running().all(|t| s.waits(t, self)) {
            return Err("everybody waits for ever");
        }
        Ok(())
    }

    /// Runs the search on that many threads; what was found wrong, with the steps that lead there.
    pub fn search(&self, threads: usize) -> Found {
        let start = std::time::Instant::now();
        let checker = self.clone().checker().threads(threads);
        let checker = if self.depth == 0 { checker } else { checker.target_max_depth(self.depth) };
        let checker = checker.spawn_bfs().join();
        let wrong = checker.discovery("sound").map(|path| {
            let what = self.verdict(path.last_state()).unwrap_err();
            let show = |(s, action): (World, Option<Action>)| {
                let Action { t, call, .. } = action?;
                Some(match call {
                    Some(call) => format!("CPU {t} begins {call:?}"),
                    None => format!("CPU {t} {:?}", s.todo[usize::from(t)].last()?),
                })
            };
            let steps = path.into_vec().into_iter().filter_map(show).collect();
            (what, steps)
        });
        let (states, unique) = (checker.state_count(), checker.unique_state_count());
        Found {
            states,
            unique,
            depth: checker.max_depth(),
            seconds: start.elapsed().as_secs_f64(),
            wrong,
        }
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
        let mut after = Vec::new();
        self.each_way(s, |t, call| {
            after.clear();
            self.after(s, t, call, &mut after);
            out.extend((0..after.len() as u8).map(|n| Action { t, call, n }));
        });
    }

    fn next_state(&self, s: &World, action: Action) -> Option<World> {
        let mut after = Vec::new();
        self.after(s, action.t, action.call, &mut after);
        after.into_iter().nth(action.n.into()).map(World::named_anew)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("sound", |model: &Self, s: &World| model.verdict(s).is_ok())]
    }

    fn within_boundary(&self, s: &World) -> bool {
        !s.beyond
    }
}

/// Every defect that the search finds. One more can be planted that it does not: see
/// `docs/model.md`.
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
