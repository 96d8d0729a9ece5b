//! A real allocator whose every step is judged while it is made.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold::conformance::{Op, Step, Witnessed};
use freehold::{Freehold, Platform};
use freehold_model::judge::{Call, Event, Judge, Task, What, Who};

use crate::work::Random;

/// Events shown where one is refused.
const SHOWN: usize = 60;

thread_local! {
    static WHO: Cell<Who> = const { Cell::new(0) };
}

/// This thread is the n-th one from now on.
pub fn i_am(who: Who) {
    WHO.set(who);
}

/// The judge and what it has heard.
pub struct Court {
    heard: Mutex<Heard>,
}

struct Heard {
    judge: Judge,
    refused: Option<String>,
    last: VecDeque<Event>,
    history: Option<Vec<Event>>,
    random: Random,
}

impl Court {
    /// Listens to all that the allocator does until the second part is dropped; notes it, if it is
    /// to be judged again.
    pub fn new<'a, P: Platform>(
        fh: &'a Freehold<'_, P>,
        noted: bool,
    ) -> (Arc<Self>, Witnessed<'a>) {
        let judge = Judge::new(&fh.shape());
        let history = noted.then(Vec::new);
        let heard =
            Heard { judge, refused: None, last: VecDeque::new(), history, random: Random(0x5eed) };
        let court = Arc::new(Self { heard: Mutex::new(heard) });
        let ears = Arc::clone(&court);
        let witnessed = fh.witnessed(Box::new(move |step: &Step| {
            ears.hear(What::Step(*step));
            ears.turns()
        }));
        (court, witnessed)
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the thread that has just made a step lets others go on: mostly not at all, and now
    /// and then a few times, so that what happens between two steps of a call is not only what the
    /// machine's clock makes happen.
    fn turns(&self) -> u32 {
        let random = &mut self.heard().random;
        match random.below(20_000) {
            0 => 1 + random.below(4) as u32,
            _ => 0,
        }
    }

    pub fn hear(&self, what: What) {
        let mut heard = self.heard();
        if heard.refused.is_some() {
            return;
        }
        let event = Event { who: WHO.get(), what };
        let verdict = heard.judge.event(&event);
        if let Some(history) = &mut heard.history {
            history.push(event.clone());
        }
        if heard.last.len() == SHOWN {
            heard.last.pop_front();
        }
        heard.last.push_back(event);
        if let Err(why) = verdict {
            let shown: Vec<String> = heard.last.iter().map(shown).collect();
            heard.refused = Some(format!("refused: {why}\n{}", shown.join("\n")));
        }
    }

    /// Makes a call: about which frames, and what it comes to.
    pub fn call<T>(
        &self,
        task: Task,
        frames: &[(u64, u64)],
        call: impl FnOnce() -> T,
        got: impl FnOnce(&T) -> (bool, Vec<(u64, u64)>),
    ) -> T {
        self.hear(What::Begin(Call { task, frames: frames.to_vec() }));
        let result = call();
        let (ok, got) = got(&result);
        self.hear(What::End(ok, got));
        result
    }

    /// No call runs now.
    pub fn quiet(&self) {
        self.hear(What::Quiet);
    }

    /// Whether there is no use in going on.
    pub fn has_refused(&self) -> bool {
        self.heard().refused.is_some()
    }

    /// Fails where a step was refused.
    pub fn accepted(&self) {
        if let Some(refused) = &self.heard().refused {
            panic!("{refused}");
        }
    }

    pub fn steps(&self) -> u64 {
        self.heard().judge.steps
    }

    /// What was judged, in a line.
    pub fn summary(&self) -> String {
        let heard = self.heard();
        let changes: u64 = heard.judge.kinds.values().sum();
        let (steps, beyond) = (heard.judge.steps, heard.judge.beyond);
        format!(
            "{steps} steps, {changes} of them changes, {beyond} frames beyond judgement; {:?}",
            heard.judge.kinds
        )
    }

    /// All that was heard.
    pub fn history(&self) -> Vec<Event> {
        self.heard().history.clone().unwrap_or_default()
    }
}

/// An event as it is shown.
pub fn shown(event: &Event) -> String {
    let who = event.who;
    match &event.what {
        What::Step(Step { cell, op: Op::Load, new, .. }) => format!("  {who} {cell:?} is {new:#x}"),
        What::Step(Step { cell, op, with, old, new }) => {
            format!("  {who} {cell:?} {op:?} {with:#x}: {old:#x} -> {new:#x}")
        }
        other => format!("  {who} {other:?}"),
    }
}
