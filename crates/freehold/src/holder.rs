//! Who has a pageblock.

use crate::CpuId;

/// The holder of a pageblock, as stored in its metadata. Exactly one at any moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct Holder(u32);

impl Holder {
    /// There is no memory, or it was removed.
    pub(crate) const NOBODY: Self = Self(0);
    /// The zone: on its lists, full, or isolated.
    pub(crate) const ZONE: Self = Self(1);

    #[inline(always)]
    pub(crate) const fn cpu(cpu: CpuId) -> Self {
        Self(cpu.get() as u32 + 2)
    }

    #[inline(always)]
    pub(crate) const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    #[inline(always)]
    pub(crate) const fn raw(self) -> u32 {
        self.0
    }

    /// The CPU, if it is one.
    #[inline(always)]
    pub(crate) const fn as_cpu(self) -> Option<CpuId> {
        if self.0 >= 2 { Some(CpuId::new((self.0 - 2) as u16)) } else { None }
    }
}
