//! Who has each frame: exactly, of a thread that is alone, or as far as threads tell each other.

use std::sync::{Mutex, PoisonError};

use freehold::FrameRange;

use super::table::{State, Table};
use crate::exact::ledger::{Ledger, POOL};
use crate::exact::machine::Machine;

/// What a thread beside others knows.
pub(crate) struct Share {
    pub(crate) ledger: &'static Ledger,
    /// Frames that any thread may free.
    pub(crate) pool: &'static Mutex<Vec<FrameRange>>,
    /// Its name in the ledger.
    pub(crate) who: u32,
    /// It is the one that has CPUs and memory come and go.
    pub(crate) plugs: bool,
}

impl Share {
    /// Leaves frames for others to free.
    pub(super) fn leave(&self, range: FrameRange) {
        self.ledger.pass(range, self.who, POOL);
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).push(range);
    }

    /// Takes what another thread has left.
    pub(crate) fn take_over(&self) -> Option<FrameRange> {
        let range = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        self.ledger.pass(range, POOL, self.who);
        Some(range)
    }
}

/// See the module's documentation.
pub(crate) enum Books {
    Table(Table),
    Share(Share),
}

impl Books {
    /// Of a thread that has a machine for itself.
    pub(crate) fn table(machine: &Machine) -> Self {
        let span = machine.span();
        let mut table = Table::new(span.start.get(), span.end.get());
        for (number, zone) in machine.zones.iter().enumerate() {
            table.add_zone(number, zone.span, &zone.pieces, &zone.cma);
        }
        Self::Table(table)
    }

    pub(super) fn table_ref(&self) -> Option<&Table> {
        match self {
            Self::Table(table) => Some(table),
            Self::Share(_) => None,
        }
    }

    /// Frames are handed out to this thread; whether they were free. A ledger tells that itself.
    pub(super) fn take(&mut self, range: FrameRange) -> bool {
        match self {
            Self::Table(table) => {
                let is_right = table.all(range, State::Free);
                if is_right {
                    table.set(range, State::Used);
                }
                is_right
            }
            Self::Share(share) => {
                share.ledger.take(range, share.who);
                true
            }
        }
    }

    /// This thread is about to free frames.
    pub(super) fn give(&mut self, range: FrameRange) {
        match self {
            Self::Table(table) => table.set(range, State::Free),
            Self::Share(share) => share.ledger.give(range, share.who),
        }
    }
}
