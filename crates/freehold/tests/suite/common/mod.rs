//! Small machines for the tests.
#![allow(dead_code, unreachable_pub)]

use std::io::Write;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub use freehold::*;

pub const MIB: u64 = 256;

pub fn range(start: u64, frames: u64) -> FrameRange {
    FrameRange::new(Pfn::new(start), frames).unwrap()
}

pub fn order(order: u8) -> Order {
    Order::new(order).unwrap()
}

pub fn cpu(cpu: u16) -> CpuId {
    CpuId::new(cpu)
}

pub fn movable(n: u8) -> Request {
    Request::new(order(n), Migratetype::Movable)
}

pub fn unmovable(n: u8) -> Request {
    Request::new(order(n), Migratetype::Unmovable)
}

/// Any host. The allocator is compiled for this type alone: once for each of a dozen hosts took
/// longer than all tests take to run.
pub type Any<'h> = &'h dyn Platform;

/// What all tests have: an allocator with a host that is called through a pointer.
pub type Alloc<'h> = Freehold<'static, Any<'h>>;

/// An allocator on the heap; the metadata is leaked, which is fine in a test.
pub fn build<'h>(config: &Config<'_>, host: &'h dyn Platform) -> Alloc<'h> {
    let size = config.metadata_size().unwrap();
    let metadata = Box::leak(vec![MaybeUninit::uninit(); size].into_boxed_slice());
    Freehold::new(config, metadata, host).unwrap()
}

/// One zone of this memory, nothing held back.
pub fn one_zone<'h>(cpus: u16, memory: &[FrameRange], host: &'h dyn Platform) -> Alloc<'h> {
    build(&Config::new(cpus, &[unmarked(memory)]), host)
}

/// One zone of this memory, with those marks: min, low and high.
pub fn marked<'h>(
    cpus: u16,
    memory: FrameRange,
    [min, low, high]: [u64; 3],
    host: &'h dyn Platform,
) -> Alloc<'h> {
    let watermarks = Watermarks::Frames { min, low, high };
    build(&Config::new(cpus, &[ZoneConfig { watermarks, ..ZoneConfig::new(&[memory]) }]), host)
}

/// One zone of `mib` MiB from frame 512 on, nothing held back.
pub fn machine(cpus: u16, mib: u64) -> Alloc<'static> {
    one_zone(cpus, &[range(512, mib * MIB)], &SingleCpu)
}

/// All that such requests get.
pub fn all(door: &dyn Frames, request: Request) -> Vec<Pfn> {
    std::iter::from_fn(|| door.alloc(request).ok()).collect()
}

/// Every invariant holds, and everything is free and merged once the CPUs are drained.
pub fn assert_all_free(fh: &Alloc<'_>) {
    fh.validate().unwrap();
    fh.drain_all();
    fh.validate().unwrap();
    for z in 0..fh.zone_count() {
        let stats = fh.zone_stats(z).unwrap();
        assert_eq!(stats.free, stats.managed, "zone {z}: frames lost");
        assert_eq!(stats.free_in_zone, stats.managed, "zone {z}: not all came home");
    }
}

pub fn is_no_memory(result: Result<Pfn, AllocError>) -> bool {
    matches!(result, Err(AllocError::NoMemory { .. }))
}

/// A host with `membarrier(2)`, so that owned CPUs take the biased path.
pub struct Membarrier {
    available: bool,
}

impl Membarrier {
    pub fn new() -> &'static Self {
        // SAFETY: MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED (16) takes no pointers and only
        // registers the process.
        let available =
            cfg!(not(miri)) && unsafe { libc::syscall(libc::SYS_membarrier, 16, 0, 0) } == 0;
        if !available {
            // Not `eprintln!`, which the test harness swallows: a skip has to be seen.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: no membarrier here; the ordinary lock is tested instead of the biased one"
            );
        }
        Box::leak(Box::new(Self { available }))
    }
}

impl Platform for Membarrier {
    fn has_heavy_barrier(&self) -> bool {
        self.available
    }

    fn heavy_barrier(&self) {
        // SAFETY: MEMBARRIER_CMD_PRIVATE_EXPEDITED (8) takes no pointers.
        let result = unsafe { libc::syscall(libc::SYS_membarrier, 8, 0, 0) };
        assert_eq!(result, 0, "membarrier failed after it was registered");
    }

    fn relax(&self) {
        // More threads than cores: a thread that is waited for needs the core.
        std::thread::yield_now();
    }
}

/// A zone that holds no frames back.
pub fn unmarked(memory: &[FrameRange]) -> ZoneConfig<'_> {
    ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(memory) }
}

/// What another CPU does at some moment.
type Then = Box<dyn FnOnce() + Send>;

/// One thread plays all CPUs: a heavy barrier has nothing to wait for, and is counted. In the middle
/// of one other CPUs may do something.
#[derive(Default)]
pub struct Barriers {
    barriers: AtomicU64,
    waits: AtomicU64,
    late: AtomicU64,
    then: Mutex<Option<Then>>,
}

impl Platform for Barriers {
    fn has_heavy_barrier(&self) -> bool {
        true
    }
    fn heavy_barrier(&self) {
        self.barriers.fetch_add(1, Ordering::Relaxed);
        let then = self.then.lock().unwrap().take();
        if let Some(then) = then {
            then();
        }
    }
    fn relax(&self) {
        // With one thread, a thread that waits once waits for ever.
        assert!(self.waits.fetch_add(1, Ordering::Relaxed) < 1000, "somebody waits");
    }
    fn late_double_free(&self, _: Pfn) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }
}

impl Barriers {
    pub fn count(&self) -> u64 {
        self.barriers.load(Ordering::Relaxed)
    }
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
    /// Double frees that it was told of late.
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }
    /// Has that be done in the middle of the next barrier.
    pub fn during_next(&self, then: impl FnOnce() + Send + 'static) {
        *self.then.lock().unwrap() = Some(Box::new(then));
    }
    /// Whether that has been done.
    pub fn is_done(&self) -> bool {
        self.then.lock().unwrap().is_none()
    }
}

/// One zone of `mib` MiB with that host, for good.
pub fn with_barriers(cpus: u16, mib: u64) -> (&'static Alloc<'static>, &'static Barriers) {
    let host: &Barriers = Box::leak(Box::default());
    (Box::leak(Box::new(one_zone(cpus, &[range(512, mib * MIB)], host))), host)
}

/// Is told of pressure.
#[derive(Default)]
pub struct Listening(pub Mutex<Vec<Pressure>>);

impl Platform for Listening {
    fn pressure(&self, pressure: Pressure) {
        self.0.lock().unwrap().push(pressure);
    }
}

impl Listening {
    /// The levels that were told since the last time.
    pub fn told(&self) -> Vec<PressureLevel> {
        std::mem::take(&mut *self.0.lock().unwrap()).iter().map(|told| told.level).collect()
    }
}
