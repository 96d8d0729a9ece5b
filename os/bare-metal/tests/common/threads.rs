//! A process as the machine: threads are CPUs, a vector is memory.

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use freehold::{Config, CpuId, FrameRange, Freehold, Pfn, Threads, ZoneConfig};
use freehold_kernel::memory_map::ZONES;
use freehold_kernel::suite::{Frames, Machine};

/// See the module's documentation.
pub(crate) struct Process {
    freehold: &'static Freehold<'static, Threads>,
    memory: Vec<[AtomicU64; 512]>,
    cpus: usize,
    start: Instant,
    quiet: bool,
}

impl Process {
    /// So many threads over so many frames, in two zones as a PC has them.
    pub(crate) fn new(cpus: usize, frames: u64, quiet: bool) -> Self {
        let split = ZONES[0].end;
        let low = [FrameRange { start: Pfn::new(1), end: split }];
        let high = [FrameRange { start: split, end: Pfn::new(frames) }];
        let zones = [ZoneConfig::new(&low), ZoneConfig::new(&high)];
        let config = Config::new(cpus as u16, &zones);
        let size = Freehold::<Threads>::metadata_size(&config).unwrap();
        let metadata = vec![MaybeUninit::uninit(); size].leak();
        let freehold = Box::leak(Box::new(
            Freehold::new(&config, metadata, Threads::new(cpus as u16)).unwrap(),
        ));
        let memory = (0..frames).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect();
        Self { freehold, memory, cpus, start: Instant::now(), quiet }
    }
}

impl Machine for Process {
    type Platform = Threads;

    fn freehold(&self) -> &'static Freehold<'static, Threads> {
        self.freehold
    }
    fn cpus(&self) -> usize {
        self.cpus
    }
    fn on_all(&self, f: &(dyn Fn(usize, &Frames<Threads>) + Sync)) {
        std::thread::scope(|scope| {
            for cpu in 0..self.cpus {
                scope.spawn(move || f(cpu, &self.freehold.own(CpuId::new(cpu as u16)).unwrap()));
            }
        });
    }
    fn words(&self, pfn: Pfn) -> &[AtomicU64; 512] {
        &self.memory[pfn.get() as usize]
    }
    fn wait(&self, done: &dyn Fn() -> bool) {
        while !done() {
            std::thread::yield_now();
        }
    }
    fn set_online(&self, cpu: usize, online: bool) {
        let id = CpuId::new(cpu as u16);
        if online {
            self.freehold.cpu_online(id).unwrap()
        } else {
            self.freehold.cpu_offline(id).unwrap()
        }
    }
    fn nanoseconds(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
    fn heavy_barriers(&self) -> u64 {
        0
    }
    fn print(&self, line: std::fmt::Arguments<'_>) {
        if !self.quiet {
            println!("{line}");
        }
    }
}
