//! Which thread has which CPU.
//!
//! ```text
//! CPU 0 .. E-1      exclusive: one thread each, which enters its state with plain stores and loads
//! CPU E .. E+S-1    shared: the threads beyond E, spread over them; an ordinary lock, no barrier
//! CPU E+S           the keeper: nobody's, for giving memory back and collecting what others freed
//! ```
//!
//! A thread's CPU is online only while it has one. A CPU that goes offline gives back all that it
//! has in hand, words of frames and whole blocks, so a thread that ends leaves nothing behind in a
//! slot that may never be used again; and slots that nobody uses count for nothing where the
//! allocator divides memory among CPUs. A program that makes a thread for each request pays for
//! that with every thread, some words given back; a pool of threads pays nothing.
//!
//! CPU `i` is on node `i % nodes`, and a thread gets a slot of the node that it runs on at its
//! first call.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold::{CpuId, NodeId};

use crate::host::Engine;
use crate::key::Own;
use crate::numa::Topology;
use crate::sys;

/// See the module's documentation.
pub(crate) struct Slots {
    table: Mutex<Table>,
    /// Exclusive slots not taken, for a glance without the lock.
    free: AtomicUsize,
    exclusive: u16,
    shared: u16,
    /// Node of each of the machine's CPUs, as an index into the arena's nodes.
    machine: Vec<u16>,
    nodes: u16,
}

struct Table {
    holders: Vec<Option<Holder>>,
    /// Failed requests to come before the next look for threads that ended without a word: one for
    /// each 16 slots, so that many threads without a slot do not look at each other all the time.
    until_look: usize,
    /// Threads on each shared CPU.
    users: Vec<u32>,
}

/// Who has an exclusive slot.
struct Holder {
    thread: i32,
    /// What it has boxed: for whoever has found that the thread is gone, or stops it.
    own: Option<NonNull<Own>>,
}

// SAFETY: the pointer is followed by nobody before its thread is gone, but to what is behind a
// barrier of its own (`Door::stopped`).
unsafe impl Send for Holder {}

impl Slots {
    pub(crate) fn new(exclusive: u16, shared: u16, topology: &Topology) -> Self {
        Self {
            table: Mutex::new(Table {
                holders: (0..exclusive).map(|_| None).collect(),
                until_look: 0,
                users: vec![0; usize::from(shared)],
            }),
            free: AtomicUsize::new(usize::from(exclusive)),
            exclusive,
            shared,
            machine: topology.node_of_each_cpu(),
            nodes: topology.node_count().max(1),
        }
    }

    /// How many CPUs the allocator must have.
    pub(crate) fn cpus(&self) -> u16 {
        self.exclusive + self.shared + 1
    }

    /// The node of each of them.
    pub(crate) fn cpu_nodes(&self) -> Vec<NodeId> {
        (0..self.cpus()).map(|cpu| NodeId::new((cpu % self.nodes) as u8)).collect()
    }

    /// The CPU that no thread has.
    pub(crate) fn keeper(&self) -> CpuId {
        CpuId::new(self.exclusive + self.shared)
    }

    /// Whether a shared thread could have a slot of its own now, as far as a glance can tell.
    pub(crate) fn has_free(&self) -> bool {
        // Relaxed: a hint; the table decides.
        self.free.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn exclusive(&self) -> u16 {
        self.exclusive
    }

    pub(crate) fn taken(&self) -> u16 {
        self.exclusive - self.free.load(Ordering::Relaxed).min(usize::from(self.exclusive)) as u16
    }

    /// Threads on shared CPUs.
    pub(crate) fn sharing(&self) -> u32 {
        self.table().users.iter().sum()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing that can panic is done half-way under this lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An exclusive slot for the calling thread, online; `None` where there is none.
    pub(crate) fn take(&self, engine: &Engine) -> Option<CpuId> {
        let here = self.here();
        let cpu = {
            let mut table = self.table();
            let near = |&i: &usize| (i as u16) % self.nodes == here;
            let free = || (0..table.holders.len()).filter(|&i| table.holders[i].is_none());
            let slot = free().find(near).or_else(|| free().next())?;
            table.holders[slot] = Some(Holder { thread: sys::thread_number(), own: None });
            // Relaxed: a hint, see `has_free`.
            self.free.fetch_sub(1, Ordering::Relaxed);
            CpuId::new(slot as u16)
        };
        if engine.on(cpu).online().is_err() {
            self.untake(cpu);
            return None;
        }
        Some(cpu)
    }

    /// The calling thread, which has that slot, has boxed this for it.
    pub(crate) fn boxed(&self, cpu: CpuId, own: NonNull<Own>) {
        if let Some(Some(holder)) = self.table().holders.get_mut(cpu.index()) {
            holder.own = Some(own);
        }
    }

    /// It is about to drop that. Before the table forgets it, `last` is called: whoever looks at
    /// [all of them](Self::each_own) finds that done, or it to be done.
    pub(crate) fn unboxed(&self, cpu: CpuId, last: impl FnOnce()) {
        let mut table = self.table();
        last();
        if let Some(Some(holder)) = table.holders.get_mut(cpu.index()) {
            holder.own = None;
        }
    }

    /// Calls `f` with what each thread has boxed, and the thread. No slot is given up meanwhile.
    pub(crate) fn each_own(&self, mut f: impl FnMut(i32, &Own)) {
        let table = self.table();
        for holder in table.holders.iter().flatten() {
            if let Some(own) = holder.own {
                // SAFETY: whoever drops it has the table forget it first, which waits for the lock.
                f(holder.thread, unsafe { own.as_ref() });
            }
        }
    }

    /// A request has failed: whether to look for slots whose threads are gone.
    pub(crate) fn is_look_due(&self) -> bool {
        let mut table = self.table();
        let due = table.until_look == 0;
        table.until_look = if due { table.holders.len() / 16 } else { table.until_look - 1 };
        due
    }

    /// The first slot from that number on whose thread is gone, with what that has left there. Told
    /// once: the caller gives it back. `last` is called with it as by [`unboxed`](Self::unboxed).
    ///
    /// One at a time, as nothing is to be allocated under the lock: that may be from this arena.
    pub(crate) fn left_behind(
        &self,
        from: usize,
        last: impl FnOnce(&mut Own),
    ) -> Option<(CpuId, NonNull<Own>)> {
        let mut table = self.table();
        let mut holders = table.holders.iter_mut().enumerate().skip(from);
        let (slot, mut own) = holders.find_map(|(slot, holder)| {
            let holder = holder.as_mut().filter(|holder| sys::is_gone(holder.thread))?;
            Some((slot, holder.own.take()?))
        })?;
        // SAFETY: its thread is gone, and has not dropped it; whoever else looks at it has the
        // table locked.
        last(unsafe { own.as_mut() });
        Some((CpuId::new(slot as u16), own))
    }

    /// Gives an exclusive slot back: what it holds goes to the zones, what waits in its buffers
    /// goes home.
    pub(crate) fn give(&self, engine: &Engine, cpu: CpuId) {
        // It fails only where the slot is not online or owned, neither of which can be here; it
        // would stay taken then rather than be handed out in a state nobody expects.
        if engine.on(cpu).offline().is_ok() {
            self.untake(cpu);
        }
    }

    fn untake(&self, cpu: CpuId) {
        let mut table = self.table();
        if let Some(holder) = table.holders.get_mut(cpu.index()) {
            *holder = None;
            self.free.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The shared CPU with the fewest threads, online.
    pub(crate) fn join(&self, engine: &Engine) -> CpuId {
        let here = self.here();
        let mut table = self.table();
        let far = |i: usize| (self.exclusive + i as u16) % self.nodes != here;
        let shared = (0..table.users.len()).min_by_key(|&i| (table.users[i], far(i))).unwrap_or(0);
        let cpu = CpuId::new(self.exclusive + shared as u16);
        if table.users[shared] == 0 {
            // Under the lock, so that nobody takes it offline in between. It exists, so this cannot
            // fail.
            let _ = engine.on(cpu).online();
        }
        table.users[shared] += 1;
        cpu
    }

    /// A thread leaves a shared CPU; the last one takes it offline.
    pub(crate) fn leave(&self, engine: &Engine, cpu: CpuId) {
        let mut table = self.table();
        let Some(users) = table.users.get_mut(cpu.index() - usize::from(self.exclusive)) else {
            return;
        };
        *users -= 1;
        if *users == 0 {
            let _ = engine.on(cpu).offline();
        }
    }

    /// The node that the calling thread runs on.
    fn here(&self) -> u16 {
        if self.nodes == 1 {
            return 0;
        }
        self.machine.get(sys::current_cpu()).copied().unwrap_or(0)
    }
}
