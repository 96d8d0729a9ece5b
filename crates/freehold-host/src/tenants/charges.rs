//! What tenants are charged, and who is told or refused when it is too much.

use std::sync::atomic::Ordering;

use super::{BATCH, Cause, Slot, TIGHT, Tenant, Tenants, Tree, in_stock};
use crate::Error;
use crate::arena::Handle;

/// Whether a charge has led, or left, a tenant or one above it beyond its soft limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Beyond {
    No,
    /// It has been told.
    Told,
    News,
}

impl<H: Handle> Tenants<H> {
    /// Charges frames to a tenant and all above it. Nothing is charged where one may not have them,
    /// which is returned. After a look: whoever is refused is not charged for a moment, for which
    /// others would be refused, but where somebody was faster.
    fn charge(&self, index: u32, frames: u64) -> Result<Beyond, u32> {
        let fits = |slot: &Slot, now: u64| {
            now.checked_add(frames).filter(|&now| now <= slot.hard.load(Ordering::Relaxed))
        };
        let refuses = |slot: &Slot| fits(slot, slot.charged.load(Ordering::Relaxed)).is_none();
        if let Some((at, _)) = self.upwards(index).find(|(_, slot)| refuses(slot)) {
            return Err(at);
        }
        let mut beyond = Beyond::No;
        for (at, slot) in self.upwards(index) {
            let relaxed = Ordering::Relaxed;
            let charged = slot.charged.fetch_update(relaxed, relaxed, |now| fits(slot, now));
            let Ok(before) = charged else {
                for (_, slot) in self.upwards(index).take_while(|(up, _)| *up != at) {
                    slot.charged.fetch_sub(frames, relaxed);
                }
                return Err(at);
            };
            #[cfg(test)]
            crate::meanwhile::happens();
            if before + frames > slot.soft.load(relaxed) {
                let told = slot.told.load(relaxed);
                beyond = beyond.max(if told { Beyond::Told } else { Beyond::News });
            }
        }
        Ok(beyond)
    }

    pub(super) fn uncharge(&self, index: u32, frames: u64) {
        for (_, slot) in self.upwards(index) {
            let now = slot.charged.fetch_sub(frames, Ordering::Relaxed) - frames;
            let soft = slot.soft.load(Ordering::Relaxed);
            if slot.told.load(Ordering::Relaxed) && now <= soft - soft / 8 {
                slot.told.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Has a tenant charged for frames that its stock did not have, of which it has taken them.
    #[cold]
    #[inline(never)]
    pub(super) fn pay(&self, tenant: Tenant, count: u64) -> Result<(), Error> {
        let (index, taken) = (tenant.index(), i64::from(count as u32));
        // From here on what is paid is for these alone.
        self.at(index).stock.fetch_add(taken, Ordering::Relaxed);
        let slot = self.slot(tenant)?;
        let (taken, ahead) = (taken as u64, (taken + BATCH) as u64);
        let hard = |slot: &Slot| slot.hard.load(Ordering::Relaxed);
        // Nothing that is freed makes room for more than it may have at all.
        if let Some((_, slot)) = self.upwards(index).find(|(_, slot)| hard(slot) < taken) {
            return Err(Error::TenantLimit { frames: hard(slot) });
        }
        let (mut drained, mut asked) = (false, false);
        loop {
            match self.charge(index, ahead) {
                Ok(Beyond::No) => {
                    let more = |stock| Some(in_stock(stock) + BATCH);
                    let _ = slot.stock.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
                    return Ok(());
                }
                Ok(_) => self.uncharge(index, ahead),
                Err(_) => {}
            }
            match self.charge(index, taken) {
                Ok(Beyond::News) => {
                    self.tell_soft(index);
                    return Ok(());
                }
                Ok(_) => return Ok(()),
                Err(at) => {
                    let hard = hard(self.at(at));
                    // It may have been lowered since.
                    if taken > hard || drained && asked {
                        return Err(Error::TenantLimit { frames: hard });
                    }
                    if !drained {
                        drained = true;
                        self.drain(&*self.tree()?, at);
                    } else {
                        (drained, asked) = (false, true);
                        let usage = self.usage_of(&*self.tree()?, at);
                        self.tell(self.at(at).tenant(), Cause::Hard, usage);
                    }
                }
            }
        }
    }

    /// Has a tenant, and all below it, give back what they have in stock.
    fn drain(&self, tree: &Tree, top: u32) {
        for index in self.below(tree, top) {
            let all = |stock| Some(TIGHT + in_stock(stock).min(0));
            let stock = &self.at(index).stock;
            if let Ok(had) = stock.fetch_update(Ordering::Relaxed, Ordering::Relaxed, all) {
                self.uncharge(index, in_stock(had).max(0) as u64);
            }
        }
    }

    /// Tells each tenant from that one upwards that is beyond its soft limit, and was not told.
    fn tell_soft(&self, index: u32) {
        for (at, slot) in self.upwards(index) {
            let soft = slot.soft.load(Ordering::Relaxed);
            if slot.told.load(Ordering::Relaxed) || slot.charged.load(Ordering::Relaxed) <= soft {
                continue;
            }
            let usage = {
                let Ok(tree) = self.tree() else { return };
                self.drain(&tree, at);
                self.usage_of(&tree, at)
            };
            if usage.frames > soft && !slot.told.swap(true, Ordering::Relaxed) {
                self.tell(slot.tenant(), Cause::Soft, usage);
            }
        }
    }
}
