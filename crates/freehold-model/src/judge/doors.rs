//! Who is inside a CPU's state, who has which lock, which CPUs are online.

use freehold::conformance::{LOCKED, NO_BLOCK, NO_KEY, OWNERLESS, Op, Step};

use super::{Judge, Verdict, Who};
use crate::Kind::*;

impl Judge {
    fn enter(&mut self, a: Who, c: u16) -> Verdict {
        let cpu = &mut self.cpus[usize::from(c)];
        if cpu.inside.is_some() {
            return Err("two are inside a CPU's state");
        }
        cpu.inside = Some(a);
        Ok(Some(Enter))
    }

    fn leave(&mut self, a: Who, c: u16) -> Verdict {
        let cpu = &mut self.cpus[usize::from(c)];
        if cpu.inside != Some(a) {
            return Ok(None);
        }
        cpu.inside = None;
        let has = cpu.slots.iter().any(|slot| slot.key != NO_KEY)
            || cpu.kept.iter().any(|&b| b != u64::from(NO_BLOCK));
        if cpu.online == 0 && has {
            return Err("an offline CPU has something");
        }
        if !self.actor(a).named.is_empty() {
            return Err("a lease names a CPU that has no slot for it");
        }
        self.actor(a).seen.clear();
        Ok(Some(Leave))
    }

    pub(super) fn busy(&mut self, a: Who, c: u16, step: &Step) -> Verdict {
        let cpu = &mut self.cpus[usize::from(c)];
        match (step.op, step.new) {
            (Op::Load, 0) if cpu.locked == Some(a) && cpu.inside != Some(a) => self.enter(a, c),
            (Op::Load, _) => Ok(None),
            (_, 1) if cpu.owner.is_none() => {
                cpu.owner = Some(a);
                Ok(None)
            }
            (_, 0) if cpu.owner == Some(a) => {
                cpu.owner = None;
                self.leave(a, c)
            }
            _ => Err("a CPU has two owners"),
        }
    }

    pub(super) fn intruder(&mut self, a: Who, c: u16, step: &Step) -> Verdict {
        let cpu = &mut self.cpus[usize::from(c)];
        match step.op {
            Op::Load if cpu.owner == Some(a) && step.new == 0 && cpu.inside.is_none() => {
                self.enter(a, c)
            }
            // It sees nobody, and somebody is there.
            Op::Load if cpu.owner == Some(a) && step.new == 0 && cpu.inside != Some(a) => {
                Err("two are inside a CPU's state")
            }
            Op::Load => Ok(None),
            Op::Exchange if step.new == step.old | LOCKED && step.old & LOCKED == 0 => {
                cpu.locked = Some(a);
                if step.old & OWNERLESS != 0 { self.enter(a, c) } else { Ok(None) }
            }
            _ if cpu.locked != Some(a) => Err("a door is opened by somebody else"),
            // An owner comes or goes; and out.
            Op::Store if step.new & LOCKED != 0 => Ok(None),
            Op::Store => {
                cpu.locked = None;
                self.leave(a, c)
            }
            _ => Err("no such step at a door"),
        }
    }

    pub(super) fn online(&mut self, a: Who, c: u16, step: &Step) -> Verdict {
        if step.op == Op::Load {
            return Ok(None);
        }
        if self.cpus[usize::from(c)].inside != Some(a) {
            return Err("a CPU goes or comes from outside its state");
        }
        if self.hotplug != Some(a) {
            Err("a CPU goes or comes without the lock")
        } else {
            Ok(Some(SetOnline))
        }
    }

    /// Anything else of a CPU's state.
    pub(super) fn may_change(&mut self, a: Who, c: u16, step: &Step) -> Verdict {
        let inside = step.op == Op::Load || self.cpus[usize::from(c)].inside == Some(a);
        if inside { Ok(None) } else { Err("a CPU's state is changed from outside") }
    }

    pub(super) fn lock(&mut self, a: Who, z: u8, g: u16, step: &Step) -> Verdict {
        let holder = &mut self.holders[usize::from(z)][usize::from(g)];
        match (step.op, step.old, step.new) {
            (Op::Exchange, 0, 1) if holder.by.is_none() => {
                holder.by = Some(a);
                Ok(Some(Lock))
            }
            (Op::Store, 1, 0) if holder.by == Some(a) => {
                holder.by = None;
                let actor = self.actor(a);
                actor.filled = None;
                match actor.popped {
                    Some(_) => Err("a block that was announced is not looked at"),
                    None => Ok(Some(Unlock)),
                }
            }
            _ => Err("a lock is not its holder's"),
        }
    }

    pub(super) fn hotplug_lock(&mut self, a: Who, step: &Step) -> Verdict {
        match (step.op, step.new, self.hotplug) {
            (Op::Exchange, 1, None) => self.hotplug = Some(a),
            (Op::Store, 0, Some(by)) if by == a => self.hotplug = None,
            _ => return Err("a lock is not its holder's"),
        }
        Ok(Some(if step.new == 1 { Lock } else { Unlock }))
    }
}
