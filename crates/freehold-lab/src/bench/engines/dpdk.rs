//! DPDK's mempool: a ring of pointers to objects of one size, and before it a cache for each CPU. What
//! a packet pipeline would take instead of an arena.
//!
//! A pool has objects of one size, so there is one for each order that a benchmark asks for, and none
//! for benchmarks that mix orders or free in parts. An object lies behind a header in memory of the
//! pool's own; its address stands for its frame. DPDK checks nothing: what is put back twice is
//! handed out twice.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{NonNull, with_exposed_provenance_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use freehold::{CpuId, Order, Pfn};

use crate::bench::calls::{Calls, Machine, Refused};
use crate::bench::kind::Kind;
use crate::bench::mapping::PAGE as FRAME;

#[repr(C)]
struct Mempool {
    _opaque: [u8; 0],
}

#[repr(C)]
struct MempoolCache {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn freehold_dpdk_start() -> c_int;
    fn freehold_dpdk_error(error: c_int) -> *const c_char;
    fn freehold_dpdk_pool(
        name: *const c_char,
        objects: c_uint,
        bytes: c_uint,
        error: *mut c_int,
    ) -> *mut Mempool;
    fn freehold_dpdk_pool_free(pool: *mut Mempool);
    fn freehold_dpdk_cache(objects: c_uint) -> *mut MempoolCache;
    fn freehold_dpdk_cache_free(cache: *mut MempoolCache);
    fn freehold_dpdk_flush(pool: *mut Mempool, cache: *mut MempoolCache);
    fn freehold_dpdk_get(pool: *mut Mempool, cache: *mut MempoolCache) -> *mut c_void;
    fn freehold_dpdk_put(pool: *mut Mempool, cache: *mut MempoolCache, object: *mut c_void);
    fn freehold_dpdk_get_bulk(
        pool: *mut Mempool,
        cache: *mut MempoolCache,
        objects: *mut *mut c_void,
        count: c_uint,
    ) -> c_int;
    fn freehold_dpdk_put_bulk(
        pool: *mut Mempool,
        cache: *mut MempoolCache,
        objects: *const *mut c_void,
        count: c_uint,
    );
    fn freehold_dpdk_available(pool: *const Mempool) -> c_uint;
}

/// Objects of a CPU's cache: the most that DPDK allows.
const CACHE: c_uint = 512;
/// What a cache may hold before it gives some back, and what it takes at once beside.
const IN_CACHE: u64 = 3 * CACHE as u64;
/// The orders that benchmarks ask for.
const ORDERS: usize = 10;

fn said(error: c_int) -> String {
    // SAFETY: DPDK's text, which lives until the thread's next.
    unsafe { CStr::from_ptr(freehold_dpdk_error(error)) }.to_string_lossy().into_owned()
}

/// Starts DPDK, once. On a thread of its own: DPDK binds the caller to a CPU.
fn start() -> Result<(), String> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    let started = || {
        // SAFETY: called once, before any other of DPDK's.
        let error = std::thread::spawn(|| unsafe { freehold_dpdk_start() }).join();
        match error {
            Ok(0) => Ok(()),
            Ok(error) => Err(format!("DPDK does not start: {}", said(error))),
            Err(_) => Err("DPDK does not start".to_owned()),
        }
    };
    STARTED.get_or_init(started).clone()
}

/// A pool of chunks of one order, with a cache for each CPU.
struct Pool {
    pool: NonNull<Mempool>,
    caches: Vec<NonNull<MempoolCache>>,
    objects: u64,
}

// SAFETY: a pool may be used by any thread, and a cache by one at a time: the one that plays its
// CPU (`Machine::cpu`), or whoever drains while nobody does.
unsafe impl Send for Pool {}
// SAFETY: as for `Send`.
unsafe impl Sync for Pool {}

impl Pool {
    fn new(order: usize, objects: u64, cpus: u16) -> Result<Self, String> {
        static POOLS: AtomicU32 = AtomicU32::new(0);
        // Relaxed: a number that nobody else has.
        let number = POOLS.fetch_add(1, Relaxed);
        let name = CString::new(format!("freehold-{number}")).map_err(|error| error.to_string())?;
        let mut error = 0;
        let bytes = (FRAME << order) as c_uint;
        // SAFETY: DPDK has been started; it copies the name.
        let pool =
            unsafe { freehold_dpdk_pool(name.as_ptr(), objects as c_uint, bytes, &raw mut error) };
        let pool = NonNull::new(pool).ok_or_else(|| said(error))?;
        let mut made = Self { pool, caches: Vec::new(), objects };
        for _ in 0..cpus {
            // SAFETY: DPDK has been started.
            let cache = NonNull::new(unsafe { freehold_dpdk_cache(CACHE) });
            made.caches.push(cache.ok_or("DPDK has no memory for a cache")?);
        }
        Ok(made)
    }

    fn flush(&self) {
        for cache in &self.caches {
            // SAFETY: both live as long as this; nobody plays a CPU meanwhile.
            unsafe { freehold_dpdk_flush(self.pool.as_ptr(), cache.as_ptr()) };
        }
    }

    /// Objects in use, those in caches among them.
    fn in_use(&self) -> u64 {
        // SAFETY: it lives as long as this.
        self.objects - u64::from(unsafe { freehold_dpdk_available(self.pool.as_ptr()) })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for cache in &self.caches {
            // SAFETY: made by `freehold_dpdk_cache`, used by nobody any more.
            unsafe { freehold_dpdk_cache_free(cache.as_ptr()) };
        }
        // SAFETY: made by `freehold_dpdk_pool`, used by nobody any more.
        unsafe { freehold_dpdk_pool_free(self.pool.as_ptr()) };
    }
}

pub struct DpdkMachine {
    pools: [Option<Pool>; ORDERS],
    cpus: u16,
}

impl DpdkMachine {
    /// For a benchmark: each object costs a page, its header's, so there are as many as are needed.
    pub fn new(kind: Kind, cpus: u16, frames: u64) -> Result<Self, String> {
        let single = match kind {
            Kind::Bulk | Kind::RandomFree => 1 << 18,
            Kind::RemoteFree | Kind::ProducerConsumer => 1 << 19,
            Kind::Churn | Kind::NearMark | Kind::Used => frames,
            Kind::Tails => 1 << 16,
            _ => 1 << 12,
        };
        let orders = match kind {
            Kind::Pair => vec![0, 9],
            Kind::Orders | Kind::Used => (0..ORDERS).collect(),
            _ => vec![0],
        };
        Self::with(&orders, single, cpus)
    }

    /// A pool for each of the orders, that of single frames with so many, and what caches hold
    /// besides.
    pub fn with(orders: &[usize], single: u64, cpus: u16) -> Result<Self, String> {
        /// Enough for what `orders` holds.
        const CHUNKS: u64 = 256;
        start()?;
        let mut pools = [const { None }; ORDERS];
        for &order in orders {
            let objects = if order == 0 { single } else { CHUNKS } + IN_CACHE * u64::from(cpus);
            pools[order] = Some(Pool::new(order, objects, cpus)?);
        }
        Ok(Self { pools, cpus })
    }
}

impl Machine for DpdkMachine {
    type Cpu<'a> = DpdkCpu<'a>;

    fn cpu(&self, cpu: CpuId) -> Result<DpdkCpu<'_>, Refused> {
        if cpu.get() >= self.cpus {
            return Err(Refused::NoSuchCpu);
        }
        let own = |pool: &Pool| (pool.pool, pool.caches[usize::from(cpu.get())]);
        let own = std::array::from_fn(|order| self.pools[order].as_ref().map(own));
        Ok(DpdkCpu { _machine: self, own })
    }

    fn drain(&self) {
        self.pools.iter().flatten().for_each(Pool::flush);
    }

    fn check(&self, live: u64) -> Result<(), String> {
        let in_use: u64 = (0..)
            .zip(&self.pools)
            .map(|(order, pool)| pool.as_ref().map_or(0, Pool::in_use) << order)
            .sum();
        if in_use == live { Ok(()) } else { Err(format!("{in_use} frames are in use, not {live}")) }
    }

    /// Of objects' addresses no two are the same.
    fn is_memory(&self) -> bool {
        true
    }

    fn unsuited(&self, kind: Kind) -> Option<&'static str> {
        match kind {
            Kind::Mixed => Some("the objects of a mempool have one size"),
            _ => None,
        }
    }
}

/// The pools with its own cache of each.
pub struct DpdkCpu<'a> {
    _machine: &'a DpdkMachine,
    own: [Option<(NonNull<Mempool>, NonNull<MempoolCache>)>; ORDERS],
}

impl DpdkCpu<'_> {
    #[inline(always)]
    fn of(&self, order: Order) -> Result<(*mut Mempool, *mut MempoolCache), Refused> {
        let own = self.own.get(usize::from(order.get())).copied().flatten();
        own.map(|(pool, cache)| (pool.as_ptr(), cache.as_ptr())).ok_or(Refused::NoSuchCall)
    }
}

impl Calls for DpdkCpu<'_> {
    #[inline(always)]
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused> {
        let (pool, cache) = self.of(order)?;
        // SAFETY: both live as long as the machine; this is the one that uses the cache.
        let object = unsafe { freehold_dpdk_get(pool, cache) };
        if object.is_null() {
            return Err(Refused::NoMemory);
        }
        Ok(Pfn::new(object.expose_provenance() as u64))
    }

    #[inline(always)]
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        let (pool, cache) = self.of(order)?;
        let object = with_exposed_provenance_mut(pfn.get() as usize);
        // SAFETY: as in `alloc`. Benchmarks free only what they were given, once and with the order
        // they asked for; the warm-up, which stamps every frame, has run the same loops.
        unsafe { freehold_dpdk_put(pool, cache, object) };
        Ok(())
    }

    #[inline(always)]
    fn alloc_bulk(&mut self, out: &mut [Pfn]) -> Result<(), Refused> {
        let (pool, cache) = self.of(Order::ZERO)?;
        let objects = out.as_mut_ptr().cast();
        // SAFETY: as in `alloc`. A number is as large as a pointer (below), and there are so many.
        let failed = unsafe { freehold_dpdk_get_bulk(pool, cache, objects, out.len() as c_uint) };
        if failed == 0 { Ok(()) } else { Err(Refused::NoMemory) }
    }

    #[inline(always)]
    fn free_bulk(&mut self, frames: &[Pfn]) -> Result<(), Refused> {
        let (pool, cache) = self.of(Order::ZERO)?;
        // SAFETY: as in `free` and `alloc_bulk`.
        unsafe {
            freehold_dpdk_put_bulk(pool, cache, frames.as_ptr().cast(), frames.len() as c_uint);
        }
        Ok(())
    }

    fn split(&mut self, _: Pfn, _: Order) -> Result<(), Refused> {
        Err(Refused::NoSuchCall)
    }
}

/// A frame's number is its object's address, also where DPDK reads and writes many of them.
const _: () = assert!(size_of::<Pfn>() == size_of::<*mut c_void>());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::engines::Stamped;
    use crate::bench::loops::{alloc_all, free_all, shuffle};

    /// Every object once, of either CPU; freed by the other, each comes back.
    #[test]
    fn objects_are_exclusive_and_come_back() {
        const SINGLE: u64 = 1 << 13;
        let machine = DpdkMachine::with(&[0], SINGLE, 2).expect("a pool");
        let stamped = Stamped::new(&machine, SINGLE);
        let [mut first, mut second] = [0, 1].map(|cpu| stamped.cpu(CpuId::new(cpu)).expect("one"));
        let mut objects = vec![Pfn::default(); SINGLE as usize];
        let (some, others) = objects.split_at_mut(SINGLE as usize / 3);
        alloc_all(&mut first, some).expect("objects");
        others.chunks_mut(64).for_each(|chunk| second.alloc_bulk(chunk).expect("objects"));
        assert_eq!((stamped.distinct(), stamped.in_use()), (SINGLE, SINGLE));
        shuffle(&mut objects, 1);
        let (some, others) = objects.split_at(SINGLE as usize / 2);
        free_all(&mut second, some.iter()).expect("frees");
        others.chunks(64).for_each(|chunk| first.free_bulk(chunk).expect("frees"));
        assert!(machine.check(0).is_err(), "caches hold some");
        machine.drain();
        assert_eq!((machine.check(0), stamped.in_use()), (Ok(()), 0));
    }

    /// One CPU gets all of them: the other's cache holds none.
    #[test]
    fn a_pool_is_used_up() {
        let machine = DpdkMachine::with(&[0, 3], 100, 2).expect("two pools");
        let mut cpu = machine.cpu(CpuId::new(0)).expect("one");
        let order = Order::new(3).expect("an order");
        let mut held = Vec::new();
        while let Ok(pfn) = cpu.alloc(order) {
            held.push(pfn);
        }
        assert_eq!(held.len() as u64, 256 + 2 * IN_CACHE);
        assert_eq!(machine.check(8 * held.len() as u64), Ok(()));
        held.sort_unstable();
        let apart = held.windows(2).all(|two| two[1].get() - two[0].get() >= 8 * FRAME as u64);
        assert!(apart, "none reaches into the next");
        held.iter().for_each(|&pfn| cpu.free(pfn, order).expect("frees"));
        let other = Order::new(2).expect("an order");
        assert_eq!(cpu.alloc(other), Err(Refused::NoSuchCall), "no pool");
        machine.drain();
        assert_eq!(machine.check(0), Ok(()));
        assert!(machine.cpu(CpuId::new(2)).is_err(), "there are two");
    }
}
