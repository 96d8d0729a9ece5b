//! The machines that histories are played on.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use super::made_up::MadeUp;
use freehold::{Config, CpuId, FrameRange, NodeId, Pfn, Platform, Watermarks, ZoneConfig};

/// CPUs of every machine that is not made up.
pub const CPUS: u16 = 4;

/// How many machines there are that are not made up.
const MACHINES: u8 = 5;

/// Which machine.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    Number(u8),
    /// Made up from that number: zones, edges, holes, CPUs, groups, nodes, marks.
    MadeUp(u64),
}

impl Which {
    /// The machine of that byte, and of `more` where it is one that is made up.
    pub fn of(byte: u8, more: impl FnOnce() -> u64) -> Self {
        match byte {
            250..=254 => Self::MadeUp(more()),
            _ => Self::Number(byte % MACHINES),
        }
    }
}

/// The host: says what it was told to, and counts late double frees.
pub struct Host {
    pub current: AtomicU16,
    pub barrier: bool,
    pub late: AtomicU64,
}

impl Platform for Host {
    fn current_cpu(&self) -> CpuId {
        CpuId::new(self.current.load(Ordering::Relaxed))
    }

    /// With one thread there is nobody whose stores a heavy barrier would have to wait for.
    fn has_heavy_barrier(&self) -> bool {
        self.barrier
    }

    fn late_double_free(&self, _: Pfn) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }
}

fn range(start: u64, frames: u64) -> FrameRange {
    FrameRange::new(Pfn::new(start), frames).unwrap()
}

/// What the model has to know of a machine.
pub struct Machine {
    pub spans: Vec<FrameRange>,
    pub memory: Vec<FrameRange>,
    pub cma: Vec<FrameRange>,
    pub cpus: u16,
    /// CPUs online at first.
    pub online: u16,
    /// Something is held back: watermarks, CMA.
    pub reserves: bool,
}

/// Calls `f` with that machine.
///
/// ```text
///   0  one zone, CPUs hold blocks        3  the kernel's watermarks, 2 CPUs of 4 online, room for
///   1  small and holey, CPUs hold none      more memory
///   2  two nodes, CMA, watermarks        4  1 GiB and a bit: every order exists
/// ```
pub fn with_machine(which: Which, f: impl FnOnce(&Config<'_>, Machine)) {
    let nothing_back = |zone| ZoneConfig { watermarks: Watermarks::None, ..zone };
    let run = |config: Config<'_>| {
        let reserves =
            config.zones.iter().any(|z| z.watermarks != Watermarks::None || !z.cma.is_empty());
        let machine = Machine {
            spans: config.zones.iter().map(|z| z.span).collect(),
            memory: config.zones.iter().flat_map(|z| z.memory).copied().collect(),
            cma: config.zones.iter().flat_map(|z| z.cma).copied().collect(),
            cpus: config.cpus,
            online: config.online,
            reserves,
        };
        f(&config, machine);
    };
    let number = match which {
        Which::Number(number) => number,
        Which::MadeUp(seed) => return MadeUp::new(seed).with(run),
    };
    match number {
        0 => {
            let memory = [range(512, 48 * 512)];
            let zones = [nothing_back(ZoneConfig::new(&memory))];
            run(Config { extra_ranges: 3, ..Config::new(CPUS, &zones) });
        }
        1 => {
            let memory = [range(700, 3000), range(4100, 1000), range(8192, 2048)];
            let zones = [nothing_back(ZoneConfig::new(&memory))];
            run(Config { extra_ranges: 2, ..Config::new(CPUS, &zones) });
        }
        2 => {
            let (low, high) = ([range(512, 8 * 512)], [range(16 * 512, 40 * 512)]);
            let cma = [range(20 * 512, 4 * 512)];
            let marks = |min| Watermarks::Frames { min, low: min * 2, high: min * 3 };
            let zones = [
                ZoneConfig { watermarks: marks(60), ..ZoneConfig::new(&low) },
                ZoneConfig {
                    watermarks: marks(200),
                    cma: &cma,
                    node: NodeId::new(1),
                    ..ZoneConfig::new(&high)
                },
            ];
            let nodes = [NodeId::new(0), NodeId::new(1), NodeId::new(1)];
            run(Config { extra_ranges: 2, cpu_nodes: &nodes, ..Config::new(CPUS, &zones) });
        }
        3 => {
            let memory = [range(64 * 512, 40 * 512 + 77)];
            let zone = ZoneConfig {
                span: range(64 * 512, 160 * 512),
                spare_sections: 2,
                ..ZoneConfig::new(&memory)
            };
            let zones = [zone];
            run(Config { online: 2, extra_ranges: 4, ..Config::new(CPUS, &zones) });
        }
        _ => {
            let memory = [range(1 << 18, 1 << 18), range(2 << 18, 4 * 512)];
            let zones = [nothing_back(ZoneConfig::new(&memory))];
            run(Config::new(CPUS, &zones));
        }
    }
}
