//! How large a page is.
//!
//! No file of `/proc` says it. How many orders there are and the order of a pageblock follow from
//! the page size as architectures are configured:
//!
//! | largest order | pageblock | page | where |
//! |---|---|---|---|
//! | 10 | 9 | 4 KiB | x86, arm64 and others |
//! | 11 | 11 | 16 KiB | arm64, LoongArch |
//! | 13 | 13 | 64 KiB | arm64 |
//! | 8 | 8 or 5 | 64 KiB | ppc64 (hash or radix page tables) |
//!
//! A pageblock of another order beside orders 0 to 10 is a configuration of its own, with pages of
//! 4 KiB as far as can be told. Who knows better says so: [`Told::Given`].

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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// The user says so.
    Given,
    /// By the number of orders in the files.
    ByOrders,
    /// It is the usual one, and nothing speaks against it.
    Assumed,
}

impl PageSize {
    /// 4 KiB, where nothing is known.
    pub const ASSUMED: Self = Self { bytes: 4096, told: Told::Assumed };

    /// By the largest order and the order of a pageblock, where they are known.
    #[must_use]
    pub fn of(max_order: Option<Order>, pageblock: Option<Order>) -> Self {
        let told = |kib: u64| Self { bytes: kib << 10, told: Told::ByOrders };
        match (max_order.map(Order::get), pageblock.map(Order::get)) {
            (Some(13), _) | (Some(8), None | Some(5 | 8)) => told(64),
            (Some(11), _) => told(16),
            (Some(10), None | Some(9)) => told(4),
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
    fn the_orders_tell_the_size() {
        let of = |max: u8, block: Option<u8>| {
            PageSize::of(Order::new(max), block.and_then(Order::new)).bytes >> 10
        };
        assert_eq!(
            (of(10, Some(9)), of(10, None), of(10, Some(10)), of(10, Some(5))),
            (4, 4, 4, 4)
        );
        assert_eq!(
            (of(13, Some(13)), of(13, None), of(8, Some(5)), of(8, Some(8))),
            (64, 64, 64, 64)
        );
        assert_eq!((of(11, Some(11)), of(11, None)), (16, 16));
        assert_eq!(PageSize::of(None, None), PageSize::ASSUMED);
        let of_64 = PageSize { bytes: 65536, told: Told::Given };
        assert_eq!(
            (of_64.to_string().as_str(), of_64.usual_pageblock_order().get()),
            ("64 KiB", 13)
        );
    }
}
