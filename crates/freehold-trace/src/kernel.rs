//! Which kernel recorded a trace, and what its numbers mean.
//!
//! Names mean the same in every kernel, numbers do not. Two kinds of numbers stand in a trace, and
//! [`Event`](super::Event) holds both as Linux 6.18 has them:
//!
//! ```text
//!  migratetypes   0          1            2            3           4        5
//!  before 4.4     Unmovable  Reclaimable  Movable      Reserve     CMA      Isolate
//!  4.4 and later  Unmovable  Movable      Reclaimable  HighAtomic  CMA      Isolate
//!  Android's      Unmovable  Movable      Reclaimable  CMA         HighAtomic  Isolate
//!
//!  gfp_flags      see `GfpEra`: before 4.4, 4.4, 4.10, 4.18, and 5.1 and later
//! ```
//!
//! Without CMA in its configuration a kernel has no such number, and Isolate is one lower. The
//! order of the columns in `/proc/pagetypeinfo` is the order of the numbers, so a copy beside a
//! trace says what the version alone does not: see
//! [`PageTypeInfo::numbers`](super::buddyinfo::PageTypeInfo::numbers).

use std::fmt;

use freehold::Migratetype;

/// The version of a kernel, as far as the meaning of numbers depends on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Kernel {
    /// `6` of 6.18.
    pub major: u16,
    /// `18` of 6.18; of 2.6.32 it is 6.
    pub minor: u16,
    /// `32` of 2.6.32; 0 where it is not said.
    pub patch: u16,
    /// Android's own kernel, whose types have other numbers.
    pub android: bool,
}

impl Kernel {
    /// The kernel whose numbers [`Event`](super::Event) holds.
    pub const OWN: Self = Self { major: 6, minor: 18, patch: 0, android: false };

    /// A version without a patch level.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor, patch: 0, android: false }
    }

    /// Reads the version out of `4.18`, `4.18.0-513.el8.x86_64`, `Linux 6.18.1 #1 SMP` or
    /// `Linux version 5.10.107-android13-4 (...)`; `None` where there is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let words = text.split_whitespace().filter(|word| !matches!(*word, "Linux" | "version"));
        let release = words.into_iter().next()?;
        let release = release.strip_prefix('v').unwrap_or(release);
        let mut numbers = release.splitn(3, '.');
        let mut number = || {
            let part = numbers.next()?;
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse::<u16>().ok()
        };
        let (major, minor) = (number()?, number()?);
        let patch = number().unwrap_or(0);
        // Nothing before 2.6 had these events, and no kernel is anywhere near 100.
        if major < 2 || (major == 2 && minor < 6) || major > 99 {
            return None;
        }
        Some(Self { major, minor, patch, android: release.contains("android") })
    }

    fn before(self, major: u16, minor: u16) -> bool {
        (self.major, self.minor) < (major, minor)
    }

    /// Which numbering of [`gfp`](super::gfp) flags it has.
    pub(super) fn gfp_era(self) -> GfpEra {
        match (self.major, self.minor) {
            version if version < (4, 4) => GfpEra::Wait,
            version if version < (4, 10) => GfpEra::OtherNode,
            version if version < (4, 18) => GfpEra::Cold,
            version if version < (5, 1) => GfpEra::Write,
            _ => GfpEra::Zero,
        }
    }

    /// What its types' numbers are.
    #[must_use]
    pub fn numbers(self) -> TypeNumbers {
        if self.before(4, 4) {
            TypeNumbers::BEFORE_4_4
        } else if self.android {
            TypeNumbers::ANDROID
        } else {
            TypeNumbers::OWN
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 {
            write!(f, ".{}", self.patch)?;
        }
        f.write_str(if self.android { " (Android)" } else { "" })
    }
}

impl std::str::FromStr for Kernel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| {
            format!("`{text}` is not a version of Linux, as `uname -r` prints it (4.18, 6.1.0-rc3)")
        })
    }
}

/// The numberings that GFP flags have had, named after what sets each apart from the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GfpEra {
    /// Before 4.4: one bit, `__GFP_WAIT`, for both kinds of reclaim.
    Wait,
    /// 4.4 to 4.9: `__GFP_OTHER_NODE` among the reclaim bits.
    OtherNode,
    /// 4.10 to 4.17: bit 8 is `__GFP_COLD`, or nothing.
    Cold,
    /// 4.18 to 5.0: bit 8 is `__GFP_WRITE`.
    Write,
    /// 5.1 and later: bit 8 is `__GFP_ZERO`.
    Zero,
}

/// What a kernel's migratetype numbers are in [`Migratetype::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TypeNumbers {
    /// By the kernel's number.
    meaning: [Option<Migratetype>; 8],
}

impl TypeNumbers {
    /// Linux 4.4 and later.
    pub const OWN: Self = Self::of([
        Migratetype::Unmovable,
        Migratetype::Movable,
        Migratetype::Reclaimable,
        Migratetype::HighAtomic,
        Migratetype::Cma,
        Migratetype::Isolate,
    ]);
    /// Before 4.4. Reserve became HighAtomic: blocks kept for what may not wait.
    pub const BEFORE_4_4: Self = Self::of([
        Migratetype::Unmovable,
        Migratetype::Reclaimable,
        Migratetype::Movable,
        Migratetype::HighAtomic,
        Migratetype::Cma,
        Migratetype::Isolate,
    ]);
    /// Android's kernels, which keep CMA on the CPUs' lists.
    pub const ANDROID: Self = Self::of([
        Migratetype::Unmovable,
        Migratetype::Movable,
        Migratetype::Reclaimable,
        Migratetype::Cma,
        Migratetype::HighAtomic,
        Migratetype::Isolate,
    ]);

    const fn of(types: [Migratetype; 6]) -> Self {
        let mut meaning = [None; 8];
        let mut number = 0;
        while number < types.len() {
            meaning[number] = Some(types[number]);
            number += 1;
        }
        Self { meaning }
    }

    /// The numbering whose types are these, in rising order; `None` where they are too many.
    #[must_use]
    pub fn in_order(types: impl Iterator<Item = Migratetype>) -> Option<Self> {
        let mut meaning = [None; 8];
        for (number, migratetype) in types.enumerate() {
            *meaning.get_mut(number)? = Some(migratetype);
        }
        Some(Self { meaning })
    }

    /// What a number stands for; `None` where the kernel has no such number.
    #[inline]
    #[must_use]
    pub fn get(&self, number: u64) -> Option<Migratetype> {
        self.meaning.get(usize::try_from(number).ok()?).copied().flatten()
    }

    /// Whether Movable and Reclaimable have the numbers of kernels before 4.4.
    #[must_use]
    pub fn swaps(&self) -> bool {
        self.meaning[1] == Some(Migratetype::Reclaimable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_they_stand_in_headers() {
        for (text, expected) in [
            ("4.18", Some((4, 18, 0))),
            ("4.18.0-513.el8.x86_64", Some((4, 18, 0))),
            ("Linux 6.18.1 #1 SMP", Some((6, 18, 1))),
            ("Linux version 2.6.32-754.el6.x86_64 (mock@x)", Some((2, 6, 32))),
            ("v5.17-rc3", Some((5, 17, 0))),
            ("7.1.3+", Some((7, 1, 3))),
            ("", None),
            ("seven", None),
            ("6", None),
            ("1.2.3", None),
            ("2.4.20", None),
            ("6180.1", None),
        ] {
            let found =
                Kernel::parse(text).map(|kernel| (kernel.major, kernel.minor, kernel.patch));
            assert_eq!(found, expected, "{text}");
        }
        let phone = Kernel::parse("5.10.107-android13-4-00003-g1").unwrap();
        assert!(phone.android && phone.numbers() == TypeNumbers::ANDROID);
        assert_eq!(phone.to_string(), "5.10.107 (Android)");
        assert_eq!(Kernel::new(4, 18).to_string(), "4.18");
        assert!("soon".parse::<Kernel>().unwrap_err().contains("uname -r"));
    }

    #[test]
    fn numbers_change_their_meaning_where_the_kernel_changed_them() {
        let of = |major, minor, number| Kernel::new(major, minor).numbers().get(number);
        assert_eq!(of(4, 3, 1), Some(Migratetype::Reclaimable));
        assert_eq!(of(4, 4, 1), Some(Migratetype::Movable));
        assert_eq!(of(3, 10, 2), Some(Migratetype::Movable));
        assert_eq!(of(6, 18, 2), Some(Migratetype::Reclaimable));
        assert_eq!(of(6, 18, 6), None);
        assert_eq!(TypeNumbers::ANDROID.get(3), Some(Migratetype::Cma));
        let eras = [(4, 3), (4, 4), (4, 9), (4, 10), (4, 17), (4, 18), (5, 0), (5, 1), (7, 1)];
        let eras = eras.map(|(major, minor)| Kernel::new(major, minor).gfp_era());
        use GfpEra::{Cold, OtherNode, Wait, Write, Zero};
        assert_eq!(eras, [Wait, OtherNode, OtherNode, Cold, Cold, Write, Write, Zero, Zero]);
    }
}
