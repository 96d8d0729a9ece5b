//! Taking all entries of folios away whose contents are elsewhere too, or are on their way there:
//! of a file, or of a place in swap.
//!
//! ```text
//!            lazyfree (`unmap_folio`)               backed (here)
//!   cleared  written to, or pinned: put back        dirty: noted in the folio, and on
//!   told     nobody                                 `keep`, each batch: where the contents are
//!   after    no reference but reclaim's: free       the caller has a reference, writes what is dirty, and lets go
//! ```
//!
//! The page cache and the swap are the caller, who has a reference to each folio. What a kernel does
//! with swap entries is `keep`'s: it is told of each batch of entries under the lock of their table,
//! so that whoever faults afterwards finds what it noted. Nothing is ever put back: a pin keeps the
//! folio, as any reference does, and not its entries.

use crate::folio::flag;
use crate::stats::count;
use crate::{Folio, Mmu, SpaceId, Vm, VmError, Vpn};

/// Neighbouring entries of one folio that are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Gone {
    /// The folio.
    pub folio: Folio,
    /// The address space.
    pub space: SpaceId,
    /// The page of the first entry.
    pub vpn: Vpn,
    /// The number of the frame in its folio that the first one showed; the others' follow.
    pub first: u32,
    /// How many entries.
    pub pages: u32,
    /// One of them at least was written through. The folio is dirty.
    pub dirty: bool,
}

impl<'m, M: Mmu> Vm<'m, M> {
    /// Makes a folio that of a file: its contents are there, so that [`Vm::madvise_free`] leaves it
    /// alone, and no deferred split waits for it when part of it is unmapped. To be called before it
    /// is mapped.
    ///
    /// # Errors
    ///
    /// [`VmError::NotAFolio`].
    pub fn set_file(&self, folio: Folio) -> Result<(), VmError> {
        self.set_flag(folio, flag::FILE, true)
    }

    /// Takes all entries away that show these folios, in whatever way
    /// [`Vm::set_unmap_path`] says, and calls `keep` for each batch that was cleared. The caller has
    /// a reference to each. When the call returns, no CPU has a translation of what is gone, so
    /// that the contents may be written out; one flush serves up to [`BATCH`](crate::BATCH) ranges. Returns of how
    /// many folios no entry is left.
    ///
    /// Folios that are mlocked or poisoned are left as they are. So is what somebody else is just
    /// unmapping.
    ///
    /// `keep` is called with the folio and a page table locked: it must neither call back nor wait
    /// for a caller that does.
    ///
    /// # Errors
    ///
    /// [`VmError::NotAFolio`] where one is none, or no folio's first frame any more; those before it
    /// have been dealt with.
    pub fn unmap_backed(&self, folios: &[Folio], keep: impl Fn(Gone)) -> Result<usize, VmError> {
        let mut unmapped = 0;
        let mut result = Ok(());
        for &folio in folios {
            let index = match self.index(folio.0) {
                Ok(index) if self.folios.head(index) == Some(index) => index,
                _ => {
                    result = Err(VmError::NotAFolio { pfn: folio.0 });
                    break;
                }
            };
            let head = self.folios.lock(index, || self.mmu.relax());
            let frame = self.folios.frame(head);
            if !frame.has(flag::MLOCKED) && !frame.has(flag::POISONED) {
                let all = self.take_all(head, true, &|cleared| {
                    let dirty = cleared.entry.is_dirty();
                    if dirty {
                        frame.set_flags(flag::DIRTY);
                    }
                    let (space, vpn) = (cleared.space, cleared.vpn);
                    let (first, pages) = (cleared.first, cleared.pages);
                    keep(Gone { folio, space, vpn, first, pages, dirty });
                    Ok(())
                });
                unmapped += usize::from(all.is_ok());
            }
            frame.unlock();
        }
        self.flush_pending();
        count(&self.counters.unmapped_backed, unmapped as u64);
        result.map(|()| unmapped)
    }
}
