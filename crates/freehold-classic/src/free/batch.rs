//! Freeing many chunks at once: references are dropped of all or of none, and a PCP's lock is held
//! over neighbours that go there.

use freehold::{CpuId, FreeError, Order, Pfn};
use std::collections::HashMap;

use super::{FOLIO_BATCH, Loose};
use crate::Classic;
use crate::page::Put;
use crate::pcp::Held;

impl Classic {
    /// Frees chunks as reclaim, munmap and exit do: in batches of at most [`FOLIO_BATCH`], each
    /// taking a PCP lock once as long as the CPU (with ownership, the owner) stays the same.
    /// Source: Linux, `free_unref_folios`.
    ///
    /// Returns how many chunks were freed; the others were kept because of further references.
    ///
    /// # Errors
    ///
    /// The first wrong chunk's error; then none of `chunks` has been freed, nor has any lost a
    /// reference. (Where another thread, by mistake, drops the caller's reference of a chunk in the
    /// middle of this call, references of other chunks that are shared may be gone.)
    pub fn free_folios(&self, cpu: CpuId, chunks: &[(Pfn, Order)]) -> Result<usize, FreeError> {
        self.check_cpu(cpu).map_err(|cpu| FreeError::CpuOffline { cpu })?;
        let loose = self.drop_references(chunks.iter().copied())?;
        let mut freed = 0;
        let mut batch = [Loose { frame: 0, order: 0 }; FOLIO_BATCH];
        let mut filled = 0;
        for (put, chunk) in loose {
            freed += usize::from(put == Put::Freed);
            if let Some(chunk) = self.prepare(put, chunk) {
                // What no list keeps goes before those that share one hold of a PCP lock.
                if !self.layout.keeps(chunk.order) {
                    self.free_to_zone(chunk);
                    continue;
                }
                batch[filled] = chunk;
                filled += 1;
                if filled == FOLIO_BATCH {
                    self.free_batch(cpu, &batch);
                    filled = 0;
                }
            }
        }
        self.free_batch(cpu, &batch[..filled]);
        Ok(freed)
    }

    /// Drops one reference of each chunk, or of none if any of them is wrong.
    ///
    /// Two rounds. In the first, chunks with one reference are seized, which can be taken back;
    /// those that others hold too are only looked at, because what keeps them from going away
    /// meanwhile is the very reference that is to be dropped. In the second, when all is known to
    /// be right, those are put.
    pub(crate) fn drop_references(
        &self,
        chunks: impl Iterator<Item = (Pfn, Order)>,
    ) -> Result<Vec<(Put, Loose)>, FreeError> {
        let mut dropped = Vec::new();
        let result = self.seize_all(chunks, &mut dropped).and_then(|()| {
            dropped.iter_mut().filter(|(put, _)| *put == Put::Kept).try_for_each(|(put, loose)| {
                *put = self.zone.frames.put(loose.frame, loose.order)?;
                Ok(())
            })
        });
        if let Err(error) = result {
            for (_, loose) in dropped.iter().filter(|(put, _)| *put == Put::Freed) {
                self.zone.frames.let_go(loose.frame);
            }
            return Err(error);
        }
        Ok(dropped)
    }

    /// The first round: `dropped` tells the chunks seized from those to be put later
    /// ([`Put::Kept`]).
    fn seize_all(
        &self,
        chunks: impl Iterator<Item = (Pfn, Order)>,
        dropped: &mut Vec<(Put, Loose)>,
    ) -> Result<(), FreeError> {
        // How often a shared chunk occurs: not more often than it has references.
        let mut shared: HashMap<Pfn, u32> = HashMap::new();
        for (pfn, order) in chunks {
            let loose = self.locate(pfn, order)?;
            let references = self.zone.frames.seize(loose.frame, loose.order)?;
            if references > 1 {
                let wanted = shared.entry(pfn).or_default();
                *wanted += 1;
                if *wanted > references {
                    return Err(FreeError::DoubleFree { pfn });
                }
            }
            dropped.push((if references > 1 { Put::Kept } else { Put::Freed }, loose));
        }
        Ok(())
    }

    /// Frees a batch of prepared chunks, keeping the PCP lock over neighbours that go to the same
    /// PCP.
    fn free_batch(&self, cpu: CpuId, batch: &[Loose]) {
        let mut held: Option<(u32, Held<'_>)> = None;
        for &loose in batch {
            let Some(target) = self.target(cpu, loose) else {
                held = None;
                self.free_to_zone(loose);
                continue;
            };
            if self.leave_to_owner(cpu, target, loose) {
                continue;
            }
            let same = matches!(&held, Some((c, _)) if *c == target.cpu);
            let inner = match held.take() {
                Some((_, inner)) if same => inner,
                other => {
                    // Never two PCP locks at once.
                    drop(other);
                    let Some(inner) = self.lock_for(cpu, target) else {
                        self.free_to_zone(loose);
                        continue;
                    };
                    inner
                }
            };
            held = self.commit(cpu, target, inner, loose).map(|inner| (target.cpu, inner));
        }
    }
}
