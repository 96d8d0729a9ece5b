//! An allocator for tests within the crate, which the suite's own helpers do not reach.

extern crate std;

use core::mem::MaybeUninit;
use std::boxed::Box;
use std::vec;

use crate::block::Block;
use crate::block::WORDS;
use crate::{Config, FrameRange, Freehold, Pfn, Platform, SingleCpu, Watermarks, ZoneConfig};

/// Any host. The allocator is compiled for this type alone: each type more is one more copy of it
/// to compile.
pub(crate) type Host = &'static dyn Platform;

/// The allocator of all tests within the crate.
pub(crate) type Machine = Freehold<'static, Host>;

/// One zone of that many frames from 0 on, and so many CPUs; the metadata is leaked.
pub(crate) fn machine(cpus: u16, frames: u64) -> Machine {
    machine_on(&SingleCpu, cpus, frames)
}

/// A machine for tests on a platform of the caller's.
pub(crate) fn machine_on(platform: Host, cpus: u16, frames: u64) -> Machine {
    machine_with(platform, cpus, frames, Watermarks::Kernel)
}

/// A machine for tests that holds frames back as that says.
pub(crate) fn machine_with(
    platform: Host,
    cpus: u16,
    frames: u64,
    watermarks: Watermarks,
) -> Machine {
    let memory = [FrameRange::new(Pfn::new(0), frames).unwrap()];
    let zones = [ZoneConfig { watermarks, ..ZoneConfig::new(&memory) }];
    machine_of(platform, &Config::new(cpus, &zones))
}

/// A machine of any configuration.
pub(crate) fn machine_of(platform: Host, config: &Config<'_>) -> Machine {
    let size = Machine::metadata_size(config).unwrap();
    let region = Box::leak(vec![MaybeUninit::uninit(); size].into_boxed_slice());
    Freehold::new(config, region, platform).unwrap()
}

/// Two zones of that many frames each, 16 GiB apart; a CPU's home is the upper one.
pub(crate) fn two_zones(cpus: u16, frames: u64) -> Machine {
    let memory = [0, 1 << 22].map(|start| [FrameRange::new(Pfn::new(start), frames).unwrap()]);
    let zones = [ZoneConfig::new(&memory[0]), ZoneConfig::new(&memory[1])];
    machine_of(&SingleCpu, &Config { extra_ranges: 4, ..Config::new(cpus, &zones) })
}

/// A frame's block, and which word of it.
pub(crate) fn place(fh: &Machine, pfn: Pfn) -> (Block<'static>, usize) {
    (fh.map.locate(pfn.get()).unwrap(), (pfn.get() / 64) as usize % WORDS)
}

/// A machine whose first blocks' metadata is set up, 64 of them.
pub(crate) fn set_up() -> &'static Machine {
    let fh: &Machine = Box::leak(Box::new(machine(1, 1 << 15)));
    assert!(fh.map.set_up(0, || true));
    fh
}
