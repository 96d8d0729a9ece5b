//! The arithmetic of page tables.

use freehold::Pfn;
use freehold_vm::{Access, Entry, Vpn, VpnRange};
use ostd::prelude::ktest;

use crate::machine::tables::{address, entry_end, from_hardware, index, parts, to_hardware};

#[ktest]
fn indices_are_the_address_bits() {
    let vpn = Vpn::new(0x0000_1080_4030_2000 >> 12);
    assert_eq!([4, 3, 2, 1].map(|level| index(vpn, level)), [33, 1, 1, 0x102]);
    assert_eq!(address(vpn), 0x0000_1080_4030_2000);
    assert_eq!(entry_end(vpn, 1).get(), vpn.get() + 1);
    assert_eq!(address(entry_end(vpn, 2)), 0x0000_1080_4040_0000);
}

#[ktest]
fn entries_survive_the_way_there_and_back() {
    let entry = Entry::new(Pfn::new(0x1234), Access::ReadWrite).with(Entry::HARDWARE);
    assert_eq!(from_hardware(to_hardware(entry)), entry);
    assert_eq!(to_hardware(Entry::NONE), 0);
}

#[ktest]
fn parts_cover_every_page_once_and_never_cross_a_table() {
    for (at, len) in (0..1100).flat_map(|at| [0, 1, 411, 512, 1300].map(|len| (at, len))) {
        let mut next = at;
        for part in parts(VpnRange { start: Vpn::new(at), end: Vpn::new(at + len) }) {
            assert_eq!(part.start.get(), next);
            assert!(!part.is_empty());
            assert_eq!(part.start.get() >> 9, (part.end.get() - 1) >> 9);
            next = part.end.get();
        }
        assert_eq!(next, at + len);
    }
}
