//! The arithmetic of page tables.

use freehold::Pfn;
use freehold_vm::{Access, Entry, Vpn};
use ostd::prelude::ktest;

use crate::machine::tables::{address, from_hardware, index, to_hardware};

#[ktest]
fn indices_are_the_address_bits() {
    let vpn = Vpn::new(0x0000_1080_4030_2000 >> 12);
    assert_eq!([4, 3, 2, 1].map(|level| index(vpn, level)), [33, 1, 1, 0x102]);
    assert_eq!(address(vpn), 0x0000_1080_4030_2000);
}

#[ktest]
fn entries_survive_the_way_there_and_back() {
    let entry = Entry::new(Pfn::new(0x1234), Access::ReadWrite).with(Entry::HARDWARE);
    assert_eq!(from_hardware(to_hardware(entry)), entry);
    assert_eq!(to_hardware(Entry::NONE), 0);
}
