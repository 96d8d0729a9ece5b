//! Small machines on real memory, and processes that may end by a signal.
#![allow(dead_code, unreachable_pub)]

pub mod child;
#[path = "../../../freehold-vm/tests/suite/common/hooks.rs"]
pub mod hooks;
#[path = "../../../freehold-vm/tests/suite/common/small.rs"]
pub mod small;

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;

use freehold_host::freehold_vm::{SpaceId, TABLE_ENTRIES, Vm, Vpn};
use freehold_host::{Arena, Error, HostMmu};

use hooks::Hooked;
pub use small::*;

pub type Machine = Vm<'static, HostMmu>;

/// Mappings of every machine.
const MAPPINGS: usize = 8192;

/// Whether each of these bytes is `byte`. By memcmp(3), which is fast without optimisation as well.
pub fn all_are(bytes: &[u8], byte: u8) -> bool {
    let Some((&first, rest)) = bytes.split_first() else { return true };
    first == byte && rest == &bytes[..rest.len()]
}

/// All of an arena's frames are free, and nobody has freed any wrongly.
pub fn all_free(arena: &Arena) {
    arena.validate().unwrap();
    let stats = arena.stats();
    assert_eq!(arena.free_frames(), stats.frames);
    assert_eq!((stats.refused_drops, stats.late_double_frees), (0, 0));
}

/// Not `eprintln!`, which the test harness swallows when the test passes: a skip has to be seen.
pub fn skipped(test: &str, why: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// Folios of so many frames, in address spaces of so many page tables each, on real pages. No VMAs
/// yet.
pub fn machine(count: u64, spaces: u16, tables: u64) -> Result<Machine, Error> {
    let mmu = HostMmu::new(spaces, pages(0, tables * TABLE_ENTRIES))?;
    Ok(folios(mmu, count, spaces, tables, MAPPINGS))
}

/// [`machine`]; `None`, and says so, where the kernel has no userfaultfd for us.
pub fn machine_or_skip(test: &str, count: u64, spaces: u16, tables: u64) -> Option<Machine> {
    machine(count, spaces, tables).map_err(|error| skipped(test, &error)).ok()
}

/// [`machine_or_skip`] of one address space, with the hook.
pub fn hooked_or_skip(test: &str, count: u64, tables: u64) -> Option<Vm<'static, Hooked<HostMmu>>> {
    let mmu = HostMmu::new(1, pages(0, tables * TABLE_ENTRIES))
        .map_err(|error| skipped(test, &error))
        .ok()?;
    Some(folios(Hooked::new(mmu), count, 1, tables, MAPPINGS))
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
