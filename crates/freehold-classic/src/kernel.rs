//! Linux releases, and which switches each has.
//!
//! ```text
//!   5.17 5.18 5.19 | 6.0 6.1 ... 6.19 | 7.0 7.1 7.2 7.3
//!     ^ oldest here                                  ^ newest here, also named "vanilla"
//!
//!   switch   since 5.18, until 6.6:  on from 5.18 to 6.5
//! ```
//!
//! A release is what was first tagged with that name. What distributions and stable releases took
//! over from later ones is not in it; `6.1,+free-high-half` is.

use core::fmt;

use crate::switches::{Switch, Switches};

/// A release of Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Kernel {
    major: u16,
    minor: u16,
}

impl Kernel {
    /// The oldest one that is modelled.
    pub const OLDEST: Self = Self::new(5, 17);
    /// The newest one that is modelled.
    pub const NEWEST: Self = Self::new(7, 3);
    /// The last one of each major version, from the oldest one's on.
    const LAST: [Self; 3] = [Self::new(5, 19), Self::new(6, 19), Self::NEWEST];
    /// The first one whose CPUs keep more than single pages.
    const HIGH_ORDER_LISTS: Self = Self::new(5, 14);

    /// The release of that number, whether there was one or not.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Reads `MAJOR.MINOR`; anything else is no release.
    #[must_use]
    pub const fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        let (mut numbers, mut at, mut digits, mut i) = ([0u16; 2], 0, 0, 0);
        while i < text.len() {
            match text[i] {
                digit @ b'0'..=b'9' if digits < 4 => {
                    numbers[at] = numbers[at] * 10 + (digit - b'0') as u16;
                    digits += 1;
                }
                b'.' if at == 0 && digits > 0 => (at, digits) = (1, 0),
                _ => return None,
            }
            i += 1;
        }
        if at == 1 && digits > 0 { Some(Self::new(numbers[0], numbers[1])) } else { None }
    }

    const fn is_at_least(self, other: Self) -> bool {
        self.major > other.major || self.major == other.major && self.minor >= other.minor
    }

    /// Whether that release has a change. What was only posted no release has.
    #[must_use]
    pub const fn has(self, switch: Switch) -> bool {
        let Some(since) = Self::parse(switch.since()) else { return false };
        let dropped = match switch.until() {
            None => false,
            Some(until) => match Self::parse(until) {
                None => false,
                Some(until) => self.is_at_least(until),
            },
        };
        self.is_at_least(since) && !dropped
    }

    /// Every switch that it has, without asking whether it is modelled.
    pub(crate) const fn all_switches(self) -> Switches {
        let (mut switches, mut i) = (Switches::NONE, 0);
        while i < Switch::ALL.len() {
            if self.has(Switch::ALL[i]) {
                switches = switches.with(Switch::ALL[i]);
            }
            i += 1;
        }
        switches
    }

    /// The design of that release.
    ///
    /// ```
    /// use freehold_classic::{Kernel, Switch};
    ///
    /// let lts = Kernel::parse("6.12").unwrap().switches().unwrap();
    /// assert!(lts.has(Switch::AutoHigh) && !lts.has(Switch::ChunkedDrain));
    /// ```
    ///
    /// # Errors
    ///
    /// It is older than [`OLDEST`](Self::OLDEST), newer than [`NEWEST`](Self::NEWEST), or there
    /// was none of that number.
    pub fn switches(self) -> Result<Switches, KernelOutside> {
        let exists = Self::LAST.iter().any(|last| last.major == self.major && self <= *last);
        if self < Self::OLDEST || !exists {
            return Err(KernelOutside { kernel: self });
        }
        Ok(self.all_switches())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A release that is not modelled. Its text says which one is nearest, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelOutside {
    /// The release.
    pub kernel: Kernel,
}

impl fmt::Display for KernelOutside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kernel, oldest, newest) = (self.kernel, Kernel::OLDEST, Kernel::NEWEST);
        let lists = Kernel::HIGH_ORDER_LISTS;
        if kernel > newest {
            return write!(f, "Linux {kernel} is newer than {newest}, the newest engine there is");
        }
        if kernel >= oldest {
            return write!(f, "there is no Linux {kernel}; the engines are {oldest} to {newest}");
        }
        write!(f, "Linux {kernel} is older than {oldest}, the oldest engine there is; ")?;
        if kernel >= lists {
            write!(
                f,
                "{oldest} is the nearest: its CPUs keep pages of the orders kept since {lists}"
            )
        } else {
            let switch = Switch::HighOrderPcp;
            write!(
                f,
                "{oldest},-{switch} is the nearest: before {lists} CPUs kept single pages only"
            )
        }
    }
}

impl core::error::Error for KernelOutside {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_release_is_not_read_as_one() {
        assert_eq!(Kernel::parse("6.12"), Some(Kernel::new(6, 12)));
        for text in ["", "6", "6.", ".6", "6.1.2", "6,1", "v6.1", "6.1 ", "12345.1"] {
            assert_eq!(Kernel::parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_release_from_the_oldest_to_the_newest_is_a_design() {
        let minors = |major, to| (0..=to).map(move |minor| Kernel::new(major, minor));
        let all: Vec<_> = (17..=19)
            .map(|minor| Kernel::new(5, minor))
            .chain(minors(6, 19))
            .chain(minors(7, 3))
            .collect();
        assert_eq!((all[0], all[all.len() - 1]), (Kernel::OLDEST, Kernel::NEWEST));
        for kernel in all {
            let switches = kernel.switches().unwrap();
            assert!(switches.has(Switch::HighOrderPcp), "{kernel}");
            for switch in switches.iter() {
                assert!(
                    switch.needs().iter().all(|&needs| switches.has(needs)),
                    "{kernel} {switch}"
                );
            }
        }
    }

    #[test]
    fn a_switch_is_on_from_its_release_to_before_the_one_that_dropped_it() {
        let on = |kernel: &str, switch| Kernel::parse(kernel).unwrap().has(switch);
        assert!(!on("5.17", Switch::PindexRange) && on("5.18", Switch::PindexRange));
        assert!(on("6.1", Switch::PindexRange) && !on("6.6", Switch::PindexRange));
        assert!(!on("6.6", Switch::AutoHigh) && on("6.12", Switch::AutoHigh));
        assert!(!on("7.3", Switch::Route), "what was only posted is in no kernel");
        for switch in Switch::ALL {
            let dropped = switch.until().map(|until| Kernel::parse(until).unwrap());
            let since = Kernel::parse(switch.since());
            assert!(dropped.is_none_or(|dropped| Some(dropped) > since), "{switch}");
        }
    }

    #[test]
    fn a_release_that_is_not_here_says_which_one_is_nearest() {
        let message = |text| Kernel::parse(text).unwrap().switches().unwrap_err().to_string();
        assert_eq!(
            message("5.15"),
            "Linux 5.15 is older than 5.17, the oldest engine there is; 5.17 is the nearest: its \
             CPUs keep pages of the orders kept since 5.14"
        );
        assert!(message("4.19").contains("5.17,-high-order-pcp is the nearest"));
        assert_eq!(message("7.4"), "Linux 7.4 is newer than 7.3, the newest engine there is");
        assert_eq!(message("5.20"), "there is no Linux 5.20; the engines are 5.17 to 7.3");
        assert_eq!(message("6.20"), "there is no Linux 6.20; the engines are 5.17 to 7.3");
    }
}
