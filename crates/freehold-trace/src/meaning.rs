//! What the numbers of one trace mean: by its kernel, and by what the trace itself shows.
//!
//! A version is what somebody says; vendors carry changes back, and options are mistyped. So where
//! requests name their flags in words, the beginning of the trace is asked which numbering of
//! migratetypes agrees with them. Where all of it agrees with one, that one is used, and said if it
//! is not the kernel's. From then on a line whose type and flags contradict each other is bad.

use freehold::Migratetype;

use super::gfp::{self, Translation};
use super::kernel::{GfpEra, Kernel, TypeNumbers};
use super::line::request_numbers;

/// What numbers mean.
#[derive(Clone, Debug)]
pub(super) struct Meaning {
    pub(super) numbers: TypeNumbers,
    pub(super) flags: Flags,
    /// The file names its own bits and is protected by sums: whoever wrote it has seen to it that
    /// types and flags agree, as far as they did in the kernel.
    pub(super) is_told: bool,
}

/// What numeric GFP flags mean.
#[derive(Clone, Debug)]
pub(super) enum Flags {
    /// They are 6.18's.
    Own,
    /// They are another kernel's.
    Other(Box<Translation>),
    /// Nobody knows.
    Unknown,
}

impl Flags {
    /// A number here; `None` where nobody knows.
    pub(super) fn apply(&self, number: u32) -> Option<u32> {
        match self {
            Self::Own => Some(number),
            Self::Other(translation) => Some(translation.apply(number)),
            Self::Unknown => None,
        }
    }

    pub(super) fn of(kernel: Option<Kernel>) -> Self {
        match kernel.map(Kernel::gfp_era) {
            None => Self::Unknown,
            Some(GfpEra::Zero) => Self::Own,
            Some(era) => Self::Other(Box::new(gfp::bits_of(era))),
        }
    }
}

impl Default for Meaning {
    /// That of 6.18.
    fn default() -> Self {
        Self { numbers: TypeNumbers::OWN, flags: Flags::Own, is_told: false }
    }
}

impl Meaning {
    /// By the kernel, where it is known, and the types of its pagetypeinfo, where that is there.
    pub(super) fn of(kernel: Option<Kernel>, types: Option<TypeNumbers>) -> Self {
        let numbers = kernel.map_or(TypeNumbers::OWN, Kernel::numbers);
        Self { numbers: types.unwrap_or(numbers), flags: Flags::of(kernel), is_told: false }
    }

    /// By those, and by the requests at the beginning of a text; what to say of it.
    pub(super) fn of_text(
        kernel: Option<Kernel>,
        types: Option<TypeNumbers>,
        head: &[u8],
    ) -> (Self, Option<String>) {
        let mut meaning = Self::of(kernel, types);
        let flags = meaning.flags.clone();
        let lines = head.split(|&byte| byte == b'\n');
        let requests = lines.filter_map(|line| request_numbers(line, &flags));
        let note = meaning.settle(requests, kernel.is_some() || types.is_some());
        (meaning, note)
    }

    /// Takes the numbering that requests show, if they all show one; what to say of it.
    ///
    /// `requests`: type numbers and flags of requests in the trace.
    fn settle(
        &mut self,
        requests: impl Iterator<Item = (u64, u32)>,
        known: bool,
    ) -> Option<String> {
        let (mut own, mut swapped, mut android) = (0u64, 0u64, 0u64);
        for (number, flags) in requests {
            let Some(wanted) = told_by(flags) else { continue };
            own += u64::from(number < 3 && TypeNumbers::OWN.get(number) == Some(wanted));
            swapped += u64::from(number < 3 && TypeNumbers::BEFORE_4_4.get(number) == Some(wanted));
            android += u64::from(number == 3 && wanted == Migratetype::Movable);
        }
        let (shown, whose) = match (own, swapped, android) {
            (1.., 0, 0) => (TypeNumbers::OWN, "Linux 4.4 or later"),
            (_, 0, 1..) => (TypeNumbers::ANDROID, "Android's kernel"),
            (0, 1.., 0) => (TypeNumbers::BEFORE_4_4, "Linux before 4.4"),
            _ => return None,
        };
        let agrees = match (own, swapped, android) {
            (_, _, 1..) => self.numbers.get(3) == Some(Migratetype::Cma),
            _ => self.numbers.swaps() == shown.swaps(),
        };
        if agrees {
            return None;
        }
        self.numbers = shown;
        let but = if known { ", though its kernel numbers them otherwise" } else { "" };
        Some(format!("migratetypes are read as {whose} numbers them, since its requests do{but}"))
    }

    /// The type of a request, by the kernel's number and what its flags say; in words why it can be
    /// none.
    pub(super) fn request(&self, number: u64, flags: u32) -> Result<u8, String> {
        let migratetype = match self.numbers.get(number) {
            // Android's requests for CMA are movable ones.
            Some(Migratetype::Cma) if number < 4 => Migratetype::Movable,
            Some(migratetype) if Migratetype::PCP.contains(&migratetype) => migratetype,
            _ => return Err(format!("migratetype `{number}` is not a type (0 to 2)")),
        };
        match told_by(flags) {
            _ if self.is_told => Ok(migratetype as u8),
            // With grouping by mobility switched off, everything is unmovable.
            Some(wanted) if wanted != migratetype && migratetype != Migratetype::Unmovable => {
                Err(format!(
                    "migratetype {number} is {} and its flags, {}, say {}: a kernel whose types \
                     have other numbers is named with --kernel VERSION",
                    migratetype.name(),
                    gfp::format(flags),
                    wanted.name()
                ))
            }
            None if migratetype != Migratetype::Unmovable && flags & BOTH != BOTH => Err(format!(
                "migratetype {number} is {} and its flags, {}, say {}: is the line damaged?",
                migratetype.name(),
                gfp::format(flags),
                Migratetype::Unmovable.name()
            )),
            _ => Ok(migratetype as u8),
        }
    }
}

const BOTH: u32 = gfp::GFP_MOVABLE | gfp::GFP_RECLAIMABLE;

/// The type that flags alone name; `None` for Unmovable, which says nothing, and for both bits at
/// once, of which the kernel only warns.
fn told_by(flags: u32) -> Option<Migratetype> {
    match flags & BOTH {
        0 | BOTH => None,
        _ => Some(gfp::migratetype(flags)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: u32 = 0x10_0cca;
    const SLAB: u32 = gfp::GFP_KERNEL | gfp::GFP_RECLAIMABLE;

    #[test]
    fn the_numbering_that_all_requests_show_is_used() {
        let settled = |kernel: Option<Kernel>, requests: &[(u64, u32)]| {
            let mut meaning = Meaning::of(kernel, None);
            let said = meaning.settle(requests.iter().copied(), kernel.is_some());
            (meaning.numbers, said.is_some())
        };
        let (old, new) = (Some(Kernel::new(3, 10)), Some(Kernel::new(6, 18)));
        let own = [(1, FAULT), (2, SLAB), (0, gfp::GFP_KERNEL)];
        let swapped = [(2, FAULT), (1, SLAB), (0, gfp::GFP_KERNEL)];
        assert_eq!(settled(None, &own), (TypeNumbers::OWN, false));
        assert_eq!(settled(None, &swapped), (TypeNumbers::BEFORE_4_4, true));
        assert_eq!(settled(old, &swapped), (TypeNumbers::BEFORE_4_4, false));
        assert_eq!(settled(old, &own), (TypeNumbers::OWN, true));
        assert_eq!(settled(new, &swapped), (TypeNumbers::BEFORE_4_4, true));
        assert_eq!(settled(None, &[(3, FAULT), (1, FAULT)]), (TypeNumbers::ANDROID, true));
        // Nothing, or both.
        assert_eq!(settled(old, &[(0, gfp::GFP_KERNEL)]), (TypeNumbers::BEFORE_4_4, false));
        assert_eq!(settled(None, &[(1, FAULT), (2, FAULT)]), (TypeNumbers::OWN, false));
    }

    #[test]
    fn contradictions_are_refused() {
        let meaning = Meaning::default();
        assert_eq!(meaning.request(1, FAULT), Ok(1));
        assert_eq!(meaning.request(0, FAULT), Ok(0), "grouping may be off");
        assert_eq!(meaning.request(2, FAULT | SLAB), Ok(2));
        assert!(meaning.request(2, FAULT).unwrap_err().contains("--kernel VERSION"));
        assert!(meaning.request(1, gfp::GFP_KERNEL).unwrap_err().contains("damaged"));
        assert!(meaning.request(3, FAULT).is_err() && meaning.request(9, FAULT).is_err());
        let android = Meaning { numbers: TypeNumbers::ANDROID, ..Meaning::default() };
        assert_eq!(android.request(3, FAULT), Ok(1));
    }
}
