//! How large a page is.
//!
//! Evidence, the best first: what the user says; what a recording or a `Mem-Info` report says of
//! itself; `MemTotal` of a meminfo against the pages that zoneinfo counts; the architecture that
//! `uname` names. Without any the size is assumed, by how many orders there are:
//!
//! | largest order | pageblock | page | where |
//! |---|---|---|---|
//! | 10 | 9 | 4 KiB | x86, arm64 and others |
//! | 11 | 11 | 16 KiB | arm64, LoongArch |
//! | 13 | 13 | 64 KiB | arm64 |
//! | 8 | 8 or 5 | 64 KiB | ppc64 (hash or radix page tables) |
//!
//! Orders are no evidence: s390x and riscv have as many orders as others of other pages, and all of
//! them are configured.

use std::fmt;

use freehold::Order;

/// A page's bytes, and how they are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageSize {
    /// Bytes of a page.
    pub bytes: u64,
    /// How that is known.
    pub told: Told,
}

/// How a page size is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Told {
    /// The user says so.
    Given,
    /// The recording or the report itself.
    Said,
    /// `MemTotal` beside as many pages.
    ByMemTotal,
    /// The architecture, which has pages of one size only.
    ByArchitecture,
    /// Nothing: it is that of most machines with as many orders.
    #[default]
    Assumed,
}

impl Told {
    /// Its name in `--json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Said => "said",
            Self::ByMemTotal => "mem_total",
            Self::ByArchitecture => "architecture",
            Self::Assumed => "assumed",
        }
    }
}

impl PageSize {
    /// 4 KiB, where nothing is known.
    pub const ASSUMED: Self = Self { bytes: 4096, told: Told::Assumed };

    /// By all memory in KiB and how many pages that is: the power of two that it is nearest to,
    /// where it is near one.
    #[must_use]
    pub fn of_total(kib: u64, pages: u64) -> Option<Self> {
        let near = |of: &u64| kib.abs_diff(pages.saturating_mul(*of)) <= kib / 10;
        let found = [4, 8, 16, 32, 64].into_iter().find(near).filter(|_| pages > 0 && kib > 0)?;
        Some(Self { bytes: found << 10, told: Told::ByMemTotal })
    }

    /// By the architecture named in what `uname -a` or `/proc/version` says, where that has pages
    /// of one size only.
    #[must_use]
    pub fn of_architecture(about: &str) -> Option<Self> {
        const OF_4: [&str; 10] = [
            "x86_64", "amd64", "i386", "i486", "i586", "i686", "s390x", "riscv64", "armv7l",
            "armhf",
        ];
        let is = |word: &str, names: &[&str]| names.iter().any(|name| word.ends_with(name));
        // Of `/proc/version` the release alone, of `uname -a` all but the machine's name: who built
        // a kernel, and what a machine is called, says nothing.
        let told = about.lines().flat_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["Linux", "version", release, ..] => vec![release],
                ["Linux", _, _, ..] => words[2..].to_vec(),
                _ => words,
            }
        });
        let is_part = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let kib = told.flat_map(|word| word.split(is_part)).find_map(|word| match word {
            word if is(word, &OF_4) => Some(4),
            word if is(word, &["sparc64"]) => Some(8),
            _ => None,
        })?;
        Some(Self { bytes: kib << 10, told: Told::ByArchitecture })
    }

    /// By the largest order and the order of a pageblock, where they are known: no more than a
    /// guess.
    #[must_use]
    pub fn assumed(max_order: Option<Order>, pageblock: Option<Order>) -> Self {
        let told = |kib: u64| Self { bytes: kib << 10, told: Told::Assumed };
        match (max_order.map(Order::get), pageblock.map(Order::get)) {
            (Some(13), _) | (Some(8), None | Some(5 | 8)) => told(64),
            (Some(11), Some(11)) => told(16),
            _ => Self::ASSUMED,
        }
    }

    /// The order of a pageblock on machines with such pages.
    #[must_use]
    pub fn usual_pageblock_order(self) -> Order {
        match self.bytes >> 10 {
            64 => Order::new(13),
            16 => Order::new(11),
            _ => None,
        }
        .unwrap_or(Order::PAGEBLOCK)
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB", self.bytes >> 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_most_machines_with_such_orders() {
        let of = |max: u8, block: Option<u8>| {
            PageSize::assumed(Order::new(max), block.and_then(Order::new)).bytes >> 10
        };
        assert_eq!(
            (of(10, Some(9)), of(10, None), of(10, Some(10)), of(10, Some(5))),
            (4, 4, 4, 4)
        );
        assert_eq!(
            (of(13, Some(13)), of(13, None), of(8, Some(5)), of(8, Some(8))),
            (64, 64, 64, 64)
        );
        assert_eq!((of(11, Some(11)), of(11, None)), (16, 4));
        assert_eq!(PageSize::assumed(None, None), PageSize::ASSUMED);
        let of_64 = PageSize { bytes: 65536, told: Told::Given };
        assert_eq!(
            (of_64.to_string().as_str(), of_64.usual_pageblock_order().get()),
            ("64 KiB", 13)
        );
    }

    #[test]
    fn evidence_and_none() {
        let total = |kib, pages| PageSize::of_total(kib, pages).map(|size| size.bytes >> 10);
        assert_eq!((total(4_194_304, 1_048_576), total(4_000_000, 62_000)), (Some(4), Some(64)));
        assert_eq!((total(16_000_000, 1_000_100), total(12_000_000, 1_000_000)), (Some(16), None));
        assert_eq!((total(0, 7), total(7, 0)), (None, None));
        let named = |about| PageSize::of_architecture(about).map(|size| size.bytes >> 10);
        assert_eq!(named("Linux host 6.4.0-default #1 SMP s390x GNU/Linux"), Some(4));
        assert_eq!(named("Linux version 5.14.0-503.el9.x86_64 (builder@host)"), Some(4));
        assert_eq!(named("Linux a 6.1.0 #1 SMP sparc64 GNU/Linux"), Some(8));
        let of_64 = "Linux build-x86_64-3 5.14.0-427.el9.aarch64+64k #1 SMP aarch64 GNU/Linux";
        assert_eq!(named(of_64), None, "a name says nothing");
        assert_eq!(named("Linux version 6.1.0-arm64 (builder@x86_64)"), None);
        assert_eq!(named("Linux a 6.1.0-13-arm64 #1 SMP aarch64 GNU/Linux"), None);
    }
}
