//! Small machines on real memory, and processes that may end by a signal.
#![allow(dead_code, unreachable_pub)]

pub mod child;

use std::cell::RefCell;
use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;

use freehold::{Config, FrameRange, Freehold, Order, Pfn, Platform, Watermarks, ZoneConfig};
use freehold_host::freehold_vm::{
    Access, Entry, Flush, Frame, IntervalNode, MapError, Mapping, Mmu, PageTable, Slots, Space,
    SpaceId, TABLE_ENTRIES, Vm, Vma, Vpn, VpnRange,
};
use freehold_host::{Error, HostMmu};

/// The first frame of every machine.
pub const FIRST: u64 = 512;
/// The first page of every address space: the start of a page table.
pub const BASE: u64 = 512 * 16;

pub const RW: Vma = Vma { access: Access::ReadWrite, droppable: false };

pub type Machine = Vm<'static, HostMmu>;

pub fn order(order: u8) -> Order {
    Order::new(order).unwrap()
}

pub fn pages(start: u64, len: u64) -> VpnRange {
    VpnRange::new(Vpn::new(BASE + start), len).unwrap()
}

pub fn vpn(page: u64) -> Vpn {
    Vpn::new(BASE + page)
}

pub fn space(id: u16) -> SpaceId {
    SpaceId::new(id)
}

fn leak<T>(n: usize, make: impl FnMut() -> T) -> &'static mut [T] {
    Vec::leak(std::iter::repeat_with(make).take(n).collect())
}

/// Whether each of these bytes is `byte`. By memcmp(3), which is fast without optimisation as well.
pub fn all_are(bytes: &[u8], byte: u8) -> bool {
    let Some((&first, rest)) = bytes.split_first() else { return true };
    first == byte && rest == &bytes[..rest.len()]
}

/// Not `eprintln!`, which the test harness swallows when the test passes: a skip has to be seen.
pub fn skipped(test: &str, why: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// A page allocator over so many frames, nothing held back. Leaked, which is fine in a test.
pub fn frames<P: Platform>(count: u64, cpus: u16, platform: P) -> Freehold<'static, P> {
    let memory = [FrameRange::new(Pfn::new(FIRST), count).unwrap()];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    Freehold::leaked(&Config::new(cpus, &[zone]), platform).unwrap()
}

pub fn assert_all_free<P: Platform>(frames: &Freehold<'_, P>) {
    frames.drain_all();
    frames.validate().unwrap();
    let stats = frames.zone_stats(0).unwrap();
    assert_eq!(stats.free, stats.managed, "frames lost");
}

/// Folios of so many frames, in address spaces of so many page tables each, on real pages. No VMAs
/// yet.
pub fn machine(count: u64, spaces: u16, tables: u64) -> Result<Machine, Error> {
    Ok(machine_on(HostMmu::new(spaces, pages(0, tables * TABLE_ENTRIES))?, count, spaces, tables))
}

pub fn machine_on<M: Mmu>(mmu: M, count: u64, spaces: u16, tables: u64) -> Vm<'static, M> {
    let mut ids = 0..spaces;
    let spaces = leak(spaces.into(), || {
        Space::new(
            space(ids.next().unwrap()),
            Vpn::new(BASE),
            leak(tables as usize, PageTable::new),
            leak(256, IntervalNode::<Vma>::new),
        )
    });
    Vm::new(
        mmu,
        Pfn::new(FIRST),
        leak(count as usize, Frame::new),
        leak(8192, Mapping::new),
        spaces,
    )
}

/// [`machine`]; `None`, and says so, where the kernel has no userfaultfd for us.
pub fn machine_or_skip(test: &str, count: u64, spaces: u16, tables: u64) -> Option<Machine> {
    machine(count, spaces, tables).map_err(|error| skipped(test, &error)).ok()
}

/// Where another CPU could be doing something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    BeforeClearing,
    /// Entries are taken: what becomes of their pages is not decided.
    Cleared,
}

type Hook = Box<dyn FnMut(When)>;

thread_local! {
    /// What [`Hooked`] calls in this thread.
    pub static MEANWHILE: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// The host's Mmu, with a hook in the middle of things.
pub struct Hooked(pub HostMmu);

fn meanwhile(when: When) {
    let hook = MEANWHILE.with_borrow_mut(Option::take);
    if let Some(mut hook) = hook {
        hook(when);
        MEANWHILE.with_borrow_mut(|place| *place = Some(hook));
    }
}

impl Mmu for Hooked {
    fn flush(&self, batch: &[Flush]) {
        self.0.flush(batch);
    }
    fn relax(&self) {
        self.0.relax();
    }
    fn load(&self, slots: Slots<'_>) -> Entry {
        self.0.load(slots)
    }
    fn map_entries(&self, slots: Slots<'_>, first: Entry) -> Result<(), MapError> {
        self.0.map_entries(slots, first)
    }
    fn restore(&self, slots: Slots<'_>, first: Entry) {
        self.0.restore(slots, first);
    }
    fn get_and_clear(&self, slots: Slots<'_>) -> Entry {
        meanwhile(When::BeforeClearing);
        let merged = self.0.get_and_clear(slots);
        meanwhile(When::Cleared);
        merged
    }
    fn clear_bits(&self, slots: Slots<'_>, bits: Entry) -> Entry {
        self.0.clear_bits(slots, bits)
    }
    fn replace(&self, slots: Slots<'_>, old: Entry, new: Entry) -> Result<(), Entry> {
        self.0.replace(slots, old, new)
    }
}

/// [`machine_or_skip`] of one address space, with the hook.
pub fn hooked_or_skip(test: &str, count: u64, tables: u64) -> Option<Vm<'static, Hooked>> {
    let mmu = HostMmu::new(1, pages(0, tables * TABLE_ENTRIES))
        .map_err(|error| skipped(test, &error))
        .ok()?;
    Some(machine_on(Hooked(mmu), count, 1, tables))
}

/// From one word to the next of a page that was stamped with a value. Zero is a page of zeroes.
fn step(value: u64) -> u64 {
    if value == 0 { 0 } else { 0x9e37_79b9_7f4a_7c15 }
}

/// A stamped page's bytes.
pub fn stamped(value: u64) -> [u64; 512] {
    std::array::from_fn(|i| value.wrapping_add(step(value).wrapping_mul(i as u64)))
}

/// Stamps all of a page, by plain stores.
///
/// Like [`read_stamp`] a loop that is fast without optimisation, which these tests are compiled
/// without.
pub fn stamp(vm: &Machine, id: SpaceId, at: Vpn, value: u64) {
    let words = vm.mmu().words(id, at).unwrap();
    let (mut i, mut word, step) = (0, value, step(value));
    while i < words.len() {
        // Relaxed: threads that share pages are joined, or meet at something else, before anything
        // is compared.
        words[i].store(word, Relaxed);
        (i, word) = (i + 1, word.wrapping_add(step));
    }
}

/// The value that all of a page is stamped with; `Err` says which word does not fit.
pub fn read_stamp(vm: &Machine, id: SpaceId, at: Vpn) -> Result<u64, String> {
    let words = vm.mmu().words(id, at).unwrap();
    let value = words[0].load(Relaxed);
    let (mut i, mut word, step) = (0, value, step(value));
    while i < words.len() {
        let found = words[i].load(Relaxed);
        if found != word {
            return Err(format!(
                "{at}: word 0 says {value:#x}, word {i} holds {found:#x}, not {word:#x}"
            ));
        }
        (i, word) = (i + 1, word.wrapping_add(step));
    }
    Ok(value)
}

/// `read(2)` of eight bytes into a page; what it returns and the error number.
pub fn read_into(vm: &Machine, page: u64) -> (isize, i32) {
    let mut fds = [0; 2];
    let at = vm.mmu().words(space(0), vpn(page)).unwrap()[3].as_ptr();
    // SAFETY: a pipe of our own; the kernel writes to a page of the machine or says that it may
    // not.
    unsafe {
        assert_eq!(libc::pipe(fds.as_mut_ptr()), 0);
        assert_eq!(libc::write(fds[1], 77u64.to_ne_bytes().as_ptr().cast(), 8), 8);
        let read = libc::read(fds[0], at.cast(), 8);
        (read, std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

/// How a forked child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Before it came to what was to be tried: a setup that failed.
    Early,
    /// What was tried went through.
    Survived,
    /// What was tried got it this signal.
    Signal(i32),
}

/// Says in the child that what is to be tried comes now.
pub struct Trying(*mut u32);

impl Trying {
    pub fn now(&self) {
        // SAFETY: a shared page that `try_in_a_child` made for this.
        unsafe { self.0.write_volatile(1) }
    }
}

/// Forks; the child prepares, calls [`Trying::now`], tries something, and returns where it
/// survives.
pub fn try_in_a_child(child: impl FnOnce(&Trying)) -> Ended {
    use rustix::mm::{MapFlags, ProtFlags};
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: fresh memory, shared with the child.
    let page =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4096, prot, MapFlags::SHARED) }
            .unwrap();
    let trying = Trying(page.cast());
    // SAFETY: the child runs `child` and leaves by `_exit` or a signal. What it uses of the
    // standard library takes no lock that another thread could have held at this moment: glibc
    // makes `malloc` safe after a fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| child(&trying)));
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(done.is_err())) }
    }
    let status = child::wait(pid);
    // SAFETY: the page made above, used by nobody any more.
    let tried = unsafe { trying.0.read_volatile() } == 1;
    // SAFETY: the page made above, used by nobody any more.
    unsafe { rustix::mm::munmap(page, 4096) }.unwrap();
    match () {
        () if !tried => Ended::Early,
        () if libc::WIFSIGNALED(status) => Ended::Signal(libc::WTERMSIG(status)),
        () if libc::WEXITSTATUS(status) == 0 => Ended::Survived,
        () => Ended::Early,
    }
}
