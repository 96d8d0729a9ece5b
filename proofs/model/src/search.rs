//! Every interleaving of the threads' calls, breadth first.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use crate::access::{Stop, run};
use crate::calls::Call;
use crate::machine::{Machine, World};

/// What a search came to.
#[derive(Debug)]
pub struct Outcome {
    /// How many worlds there are, the failing one included.
    pub worlds: usize,
    /// What is wrong, and the way there: each step's thread and the call it was in.
    pub wrong: Option<(String, Vec<String>)>,
}

/// Searches all worlds of a machine, until one is wrong.
///
/// A world is remembered by 64 bits of its hash: of n worlds about n² / 2⁶⁵ are left out because
/// another has the same.
#[must_use]
pub fn search(machine: &Machine) -> Outcome {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let first = World::first(machine);
    // By hash: the world before, and the step from it.
    let mut known: HashMap<u64, (u64, Step)> = HashMap::new();
    let origin = hasher.hash_one(&first);
    known.insert(origin, (origin, (0, None)));
    let mut layer = vec![first];
    while !layer.is_empty() {
        let mut next = Vec::new();
        for world in layer {
            let before = hasher.hash_one(&world);
            for step in steps(machine, &world) {
                let mut after = world.clone();
                let result = make(machine, &mut after, step);
                if matches!(result, Err(Stop::Blocked)) {
                    continue;
                }
                let hash = hasher.hash_one(&after);
                let wrong = match result {
                    Err(Stop::Wrong(what)) => Some(what),
                    _ => match known.entry(hash) {
                        Entry::Occupied(_) => continue,
                        Entry::Vacant(vacant) => {
                            vacant.insert((before, step));
                            after.check(machine).err()
                        }
                    },
                };
                if let Some(what) = wrong {
                    let mut way = way_to(&known, origin, before);
                    way.push(step);
                    let way = way.iter().map(|step| format!("{step:?}")).collect();
                    return Outcome { worlds: known.len(), wrong: Some((what, way)) };
                }
                next.push(after);
            }
        }
        layer = next;
    }
    Outcome { worlds: known.len(), wrong: None }
}

/// A thread, and the call and its argument if it begins one.
type Step = (usize, Option<(Call, u8)>);

fn steps(machine: &Machine, world: &World) -> Vec<Step> {
    let mut steps = Vec::new();
    for (t, thread) in world.threads.iter().enumerate() {
        if thread.call.is_some() {
            steps.push((t, None));
        } else if thread.left > 0 {
            let calls = machine.menu.iter();
            steps.extend(calls.flat_map(|call| call.choices(world)).map(|call| (t, Some(call))));
        }
    }
    steps
}

/// One access of a thread.
fn make(machine: &Machine, world: &mut World, (t, begins): Step) -> Result<(), Stop> {
    if let Some((call, argument)) = begins {
        world.held &= !call.gives(argument);
        world.threads[t].call = Some((call, argument));
        world.threads[t].left -= 1;
    }
    run(machine, world, t, 1)
}

fn way_to(known: &HashMap<u64, (u64, Step)>, origin: u64, mut hash: u64) -> Vec<Step> {
    let mut way = Vec::new();
    while hash != origin {
        let (before, step) = known[&hash];
        way.push(step);
        hash = before;
    }
    way.reverse();
    way
}
