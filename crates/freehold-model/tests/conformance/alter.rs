//! A history with one event altered is refused.

use std::collections::BTreeMap;

use freehold::conformance::record::Record;
use freehold::conformance::{Cell, Op, Shape, Step, TagView};
use freehold::{FrameRange, Pfn};
use freehold_model::judge::{Event, Judge, What, Who};

use crate::court::shown;
use crate::work::Random;

/// What is done to an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Alteration {
    Dropped,
    Twice,
    /// Another thread has done it.
    OtherThread,
    /// A bit, a state or a name is another one.
    OtherValue,
    /// It is about the block, CPU or holder behind it.
    OtherPlace,
}

const ALL: [Alteration; 5] = [
    Alteration::Dropped,
    Alteration::Twice,
    Alteration::OtherThread,
    Alteration::OtherValue,
    Alteration::OtherPlace,
];

/// What an event is about; `None` for those that change nothing, and for the start.
fn subject(event: &Event) -> Option<&'static str> {
    Some(match &event.what {
        What::Begin(_) => "begin",
        What::End(..) => "end",
        What::Quiet => return None,
        What::Step(Step { op: Op::Initial | Op::Load, .. }) => return None,
        What::Step(step) if step.old == step.new => return None,
        What::Step(step) => match step.cell {
            Cell::Tag(_) => "tag",
            Cell::Class(_) => "class",
            Cell::Lease(..) => "lease",
            Cell::Word(..) => "word",
            Cell::List(_) => "list",
            Cell::Next(_) => "link of an inbox",
            Cell::Busy(_) => "door, owner's",
            Cell::Intruder(_) => "door, intruders'",
            Cell::Online(_) => "online",
            Cell::Kept(..) => "kept block",
            Cell::Key(..) => "key",
            Cell::Mask(..) => "hand",
            Cell::At(..) => "slot's place",
            Cell::Lock(..) => "lock",
            Cell::Head(..) => "inbox, pushed",
            Cell::Rest(..) => "inbox, taken",
            Cell::Bits(..) => "bitmap",
            Cell::Section(_) => "section",
            Cell::Hotplug => "hotplug lock",
        },
    })
}

fn elsewhere(cell: Cell) -> Cell {
    match cell {
        Cell::Tag(b) => Cell::Tag(b ^ 1),
        Cell::Class(b) => Cell::Class(b ^ 1),
        Cell::Lease(b, w) => Cell::Lease(b, w ^ 1),
        Cell::Word(b, w) => Cell::Word(b, w ^ 1),
        Cell::List(b) => Cell::List(b ^ 1),
        Cell::Next(b) => Cell::Next(b ^ 1),
        Cell::Busy(c) => Cell::Busy(c ^ 1),
        Cell::Intruder(c) => Cell::Intruder(c ^ 1),
        Cell::Online(c) => Cell::Online(c ^ 1),
        Cell::Kept(c, k) => Cell::Kept(c ^ 1, k),
        Cell::Key(c, slot) => Cell::Key(c, slot ^ 1),
        Cell::Mask(c, slot) => Cell::Mask(c, slot ^ 1),
        Cell::At(c, slot) => Cell::At(c, slot ^ 1),
        Cell::Lock(z, g) => Cell::Lock(z, g ^ 1),
        Cell::Head(z, g) => Cell::Head(z, g ^ 1),
        Cell::Rest(z, g) => Cell::Rest(z, g ^ 1),
        Cell::Bits(z, w) => Cell::Bits(z, w ^ 1),
        Cell::Section(s) => Cell::Section(s ^ 1),
        Cell::Hotplug => Cell::Hotplug,
    }
}

/// The event as it should not be; none where it stays what it is.
fn altered(
    event: &Event,
    alteration: Alteration,
    threads: Who,
    random: &mut Random,
) -> Option<Vec<Event>> {
    let mut other = event.clone();
    match (alteration, &mut other.what) {
        (Alteration::Dropped, _) => return Some(vec![]),
        (Alteration::Twice, _) => return Some(vec![event.clone(), other]),
        (Alteration::OtherThread, _) => {
            other.who = (event.who + 1 + random.below(u64::from(threads)) as Who) % (threads + 1);
        }
        (Alteration::OtherPlace, What::Step(step)) => step.cell = elsewhere(step.cell),
        (Alteration::OtherValue, What::Step(step)) => {
            let bits = match step.cell {
                Cell::Word(..) | Cell::Mask(..) | Cell::Bits(..) | Cell::Key(..) => 64,
                Cell::Busy(_) | Cell::Online(_) | Cell::Lock(..) | Cell::Hotplug => 1,
                Cell::Intruder(_) => 2,
                Cell::Tag(_) => 2,
                Cell::Class(_) => 4,
                Cell::Lease(..) | Cell::List(_) => 16,
                _ => 5,
            };
            step.new ^= 1 << random.below(bits);
        }
        (_, What::Begin(call)) => call.frames.first_mut()?.0 ^= 1,
        (_, What::End(_, got)) => got.first_mut()?.0 ^= 1,
        (_, What::Quiet) => return None,
    }
    (other != *event).then(|| vec![other])
}

/// Whether what is altered can matter: a cell that nobody comes back to may be anything; and of two
/// who free the same frame at once one is refused, which he would be for another frame that is free
/// as well.
fn matters(history: &[Event], at: usize, alteration: Alteration) -> bool {
    let later = &history[at + 1..];
    match &history[at].what {
        // Storing what is there already may be done twice.
        What::Step(step) if alteration == Alteration::Twice => step.old != step.new,
        What::Step(step) if alteration != Alteration::OtherThread => {
            let same =
                |event: &Event| matches!(&event.what, What::Step(other) if other.cell == step.cell);
            later.iter().any(same)
        }
        What::Begin(_) => {
            let end = later
                .iter()
                .find(|event| event.who == history[at].who && matches!(event.what, What::End(..)));
            end.is_some_and(|end| matches!(end.what, What::End(true, _)))
        }
        _ => true,
    }
}

/// How often each alteration of each kind of event was tried, and how often it was refused.
type Tried = BTreeMap<(&'static str, Alteration), (u32, u32)>;

/// Alters events at random, one a time.
fn tried(
    shape: &Shape,
    history: &[Event],
    each: u32,
    seed: u64,
    blind: bool,
) -> (Tried, Vec<String>) {
    let mut subjects: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, event) in history.iter().enumerate() {
        subjects.entry(subject(event).unwrap_or_default()).or_default().push(at);
    }
    subjects.remove("");
    let threads = history.iter().map(|event| event.who).max().unwrap_or(0);
    let (mut random, mut tried, mut accepted) = (Random(seed), Tried::new(), Vec::new());
    for (subject, places) in subjects {
        for alteration in ALL {
            for _ in 0..each {
                let at = places[random.below(places.len() as u64) as usize];
                if !matters(history, at, alteration) {
                    continue;
                }
                let Some(new) = altered(&history[at], alteration, threads, &mut random) else {
                    continue;
                };
                let before = shown(&history[at]);
                let after: Vec<String> = new.iter().map(shown).collect();
                let mut other = history.to_vec();
                other.splice(at..=at, new);
                let (n, refused) = tried.entry((subject, alteration)).or_default();
                *n += 1;
                match Judge::of(shape, &other, blind) {
                    Err(_) => *refused += 1,
                    Ok(_) => accepted.push(format!(
                        "{subject}, {alteration:?}, event {at}: {before} => {after:?}"
                    )),
                }
            }
        }
    }
    (tried, accepted)
}

fn print_tally(what: &str, tried: &Tried) -> (u32, u32) {
    let all = tried.values().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    println!("{what}: {} of {} refused", all.1, all.0);
    for (kind, (n, refused)) in tried.iter().filter(|(_, (n, refused))| n != refused) {
        println!("  {kind:?}: {refused} of {n}");
    }
    all
}

/// What a machine without files writes down is the history.
#[test]
fn a_history_as_words_is_the_same() {
    let (_, history) = crate::recorded(4, 300, 5);
    for Event { who, what } in history {
        if let What::Step(step) = what {
            let record = Record::Step(who, step);
            assert_eq!(Record::decode(record.encode()), Some(record));
        }
    }
    let range = crate::range(77, 5);
    for record in [
        Record::Machine(4, 8, 64),
        Record::Zone(range, 3, 2),
        Record::Memory(range),
        Record::Begin(3, range),
        Record::End(3, true, range),
        Record::End(3, false, FrameRange { start: Pfn::new(0), end: Pfn::new(0) }),
        Record::Quiet(1),
    ] {
        assert_eq!(Record::decode(record.encode()), Some(record));
    }
    assert_eq!(Record::decode([0x7f, 0, 0, 0, 0]), None);
    assert_eq!(Record::decode([0x82, 0, 5, 4, 0]), None);
}

/// In a history of one thread: whoever else might reset a class, or end a lease that is marked
/// empty, frees nothing of the block and has seen nothing of it, even if it has the lock that a
/// lister needs.
#[test]
fn what_only_some_may_do_is_refused_of_others() {
    let (shape, history) = crate::recorded(1, 3000, 1);
    Judge::of(&shape, &history, false).map(drop).unwrap();
    let by = |what| Event { who: 9, what };
    let (mut classes, mut leases) = (0, 0);
    let mut tags = BTreeMap::new();
    for (at, event) in history.iter().enumerate() {
        let What::Step(step) = event.what else { continue };
        let with = |new: Vec<Event>| {
            let mut other = history.clone();
            other.splice(at..=at, new);
            Judge::of(&shape, &other, false).map(drop).unwrap_err().0
        };
        match step.cell {
            Cell::Tag(b) => drop(tags.insert(b, TagView::of(step.new))),
            Cell::Class(_)
                if step.op == Op::Exchange && step.new == 0 && step.old != 0 && classes < 20 =>
            {
                with(vec![by(event.what.clone())]);
                classes += 1;
            }
            Cell::Lease(b, _) if step.op == Op::Exchange && step.new == 0 && leases < 20 => {
                let cell = Cell::Lock(tags[&b].zone, tags[&b].group);
                let lock = |op, old, new| by(What::Step(Step { cell, op, with: new, old, new }));
                let new =
                    vec![lock(Op::Exchange, 0, 1), by(event.what.clone()), lock(Op::Store, 1, 0)];
                // Where the lock is not free the lock itself is refused.
                leases += u32::from(with(new) != at);
            }
            _ => {}
        }
    }
    assert!(classes > 10 && leases > 3, "{classes} classes, {leases} leases");
}

/// Every single alteration of what changes anything is refused; without a look at the values most
/// are.
#[test]
fn a_history_with_one_event_altered_is_refused() {
    let each = std::env::var("FREEHOLD_ALTERED")
        .map_or(8, |n| n.parse().expect("FREEHOLD_ALTERED is a number"));
    for seed in [crate::seed(), crate::seed() + 1] {
        let (shape, history) = crate::recorded(3, 100, seed);
        Judge::of(&shape, &history, false).map(drop).unwrap();
        let (all, accepted) = tried(&shape, &history, each, seed, false);
        print_tally(&format!("of {} events one altered", history.len()), &all);
        let (blind, _) = tried(&shape, &history, 4, seed, true);
        print_tally("the same without a look at the values", &blind);
        assert_eq!(accepted, Vec::<String>::new());
    }
}
