//! A page-fault handler: a process's memory comes into being where it is touched, frame by frame or
//! sixteen at a time.
//!
//! ```text
//! cargo run --release -p freehold-host --example fault-loop
//! cargo run --release -p freehold-host --example fault-loop -- --processes 50
//! ```
//!
//! Why so? It is what most of a kernel's frames are allocated for, and the faults are real:
//! `userfaultfd(2)` stops whoever touches a page that is not there, a handler allocates frames,
//! fills them, puts them into place and lets the thread go on. A handler that finds an aligned run
//! of 16 frames (a 64 KiB folio) serves sixteen pages by one fault; one that finds only single
//! frames, because memory is in pieces, must take sixteen. When the process ends its frames go home
//! by the run.
//!
//! ```text
//!   process   |....|....|####|....|  touches a page -> stopped          frames   the arena's, of a memfd
//!   handler   fault at page 9 -> alloc order 4 -> fill -> mmap the frames over pages 0..16 -> wake
//! ```
//!
//! Needs no privilege on Linux 5.11 or later; where a sandbox forbids it, says so and ends.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use freehold_host::freehold::{FrameRange, Migratetype, Order, Pfn};
use freehold_host::{Arena, Backing};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mm::{
    MapFlags, ProtFlags, UserfaultfdFlags, mmap, mmap_anonymous, munmap, userfaultfd,
};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

const PAGE: usize = 4096;
/// A fault's neighbourhood: 64 KiB.
const AROUND: Order = Order::new(4).unwrap();

/// How much is done.
pub(crate) struct Options {
    pub(crate) processes: u64,
    pub(crate) pages: u64,
    /// Serve the pages around a fault too.
    pub(crate) around: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { processes: 4, pages: 2048, around: true }
    }
}

/// What it came to.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// Faults that frames were allocated for, those of them that got sixteen at once, and those
    /// that somebody else's fault had already served.
    pub(crate) served: u64,
    pub(crate) folios: u64,
    pub(crate) late: u64,
    pub(crate) pages_mapped: u64,
    /// Runs of frames that were given back, and pages with other contents than the handler or the
    /// process wrote.
    pub(crate) runs_freed: u64,
    pub(crate) wrong: u64,
    pub(crate) frames_left: u64,
}

/// The part of `userfaultfd(2)` that is needed: `_IOWR(0xaa, number, structure)` and so on.
struct Userfault(OwnedFd);

impl Userfault {
    fn new() -> Result<Self, Failure> {
        const USER_MODE_ONLY: u32 = 1;
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        let flags = flags | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
        // SAFETY: the descriptor stays in this type, and is only used for mappings made here.
        let this = Self(unsafe { userfaultfd(flags) }?);
        this.ioctl(0xc018_aa3f, &mut [0xaa, 0, 0])?; // UFFDIO_API
        Ok(this)
    }

    fn ioctl<const N: usize>(&self, request: u64, words: &mut [u64; N]) -> Result<(), Failure> {
        // SAFETY: the structures of the three requests below are as long as the arrays given.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request as libc::Ioctl, words.as_mut_ptr()) }
        {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    }

    /// Faults of missing pages come here from now on.
    fn register(&self, base: usize, bytes: usize) -> Result<(), Failure> {
        self.ioctl(0xc020_aa00, &mut [base as u64, bytes as u64, 1, 0])
    }

    fn wake(&self, at: usize, bytes: usize) -> Result<(), Failure> {
        self.ioctl(0x8010_aa02, &mut [at as u64, bytes as u64])
    }

    /// The address of the next fault, within a millisecond.
    fn next(&self) -> Result<Option<usize>, Failure> {
        let wait = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        poll(&mut [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)], Some(&wait))?;
        let mut message = [0u8; 32];
        match rustix::io::read(&self.0, &mut message) {
            Ok(32) => Ok(Some(usize::from_ne_bytes(
                [0, 1, 2, 3, 4, 5, 6, 7].map(|i: usize| message[16 + i]),
            ))),
            Ok(_) | Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// What a page begins with, as if it had been read from a file.
fn contents(process: u64, page: u64) -> u64 {
    (process << 32 | page).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

struct Handler<'a> {
    arena: &'a Arena,
    faults: &'a Userfault,
    process: u64,
    base: usize,
    options: &'a Options,
    /// The process's page table: which frame each page has.
    table: BTreeMap<u64, Pfn>,
    report: Report,
}

impl Handler<'_> {
    fn fault(&mut self, address: usize) -> Result<(), Failure> {
        let page = ((address - self.base) / PAGE) as u64;
        if self.table.contains_key(&page) {
            // Two threads at the same folio: the first one's fault has served both.
            self.report.late += 1;
            return self.faults.wake(self.base + page as usize * PAGE, PAGE);
        }
        self.report.served += 1;
        let first = page & !(AROUND.frames() - 1);
        let clear = self.table.range(first..first + AROUND.frames()).next().is_none();
        if self.options.around && clear {
            if let Ok(start) = self.arena.alloc(AROUND, Migratetype::Movable) {
                self.report.folios += 1;
                return self.install(first, start, AROUND.frames());
            }
        }
        let frame = self.arena.alloc(Order::ZERO, Migratetype::Movable)?;
        self.install(page, frame, 1)
    }

    /// Fills frames, then puts them where the pages are: nobody sees them half filled.
    fn install(&mut self, page: u64, start: Pfn, count: u64) -> Result<(), Failure> {
        for i in 0..count {
            let at = self
                .arena
                .pointer(Pfn::new(start.get() + i))
                .ok_or("not of this arena")?
                .cast::<[u64; 512]>();
            // SAFETY: allocated just now and mapped nowhere else yet.
            unsafe { at.write([contents(self.process, page + i); 512]) };
            self.table.insert(page + i, Pfn::new(start.get() + i));
        }
        let (at, bytes) = (self.base + page as usize * PAGE, count as usize * PAGE);
        // SAFETY: the frames are the process's now, and only it and this handler know the file.
        let file = unsafe { self.arena.memfd() }.ok_or("the arena is of a memfd")?;
        let offset = self.arena.offset(start).ok_or("not of this arena")?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let place = std::ptr::with_exposed_provenance_mut(at);
        // SAFETY: the pages are within the process's range, and nothing is there but threads that
        // wait.
        unsafe { mmap(place, bytes, ProtFlags::READ | ProtFlags::WRITE, flags, file, offset) }?;
        self.report.pages_mapped += count;
        self.faults.wake(at, bytes)
    }

    /// The process has ended: its frames go home, a run of neighbours at a time.
    fn exit(&mut self) -> Result<(), Failure> {
        let mut run = FrameRange::default();
        for frame in std::mem::take(&mut self.table).into_values().chain([Pfn::new(u64::MAX)]) {
            if frame != run.end {
                if !run.is_empty() {
                    self.report.runs_freed += 1;
                    // SAFETY: the process's memory is unmapped; nobody else has these frames.
                    unsafe { self.arena.free_range(run) }?;
                }
                run.start = frame;
            }
            run.end = Pfn::new(frame.get().saturating_add(1));
        }
        Ok(())
    }
}

/// A process: two threads that read every page and write to it, from both ends. Returns how many
/// pages were wrong.
fn process(number: u64, base: usize, pages: u64) -> u64 {
    let wrong = AtomicU64::new(0);
    let touch = |page: u64| {
        let at = std::ptr::with_exposed_provenance::<AtomicU64>(base + page as usize * PAGE);
        // SAFETY: the page is the process's; where it is not there yet, the handler puts it there.
        // All accesses are atomic.
        let words = unsafe { std::slice::from_raw_parts(at, 512) };
        // Relaxed: each word by itself, and threads are joined before anybody else looks.
        let expected = contents(number, page);
        if words[7].load(Ordering::Relaxed) != expected
            || words[511].load(Ordering::Relaxed) != expected
        {
            wrong.fetch_add(1, Ordering::Relaxed);
        }
        words[8].fetch_add(1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (0..pages).for_each(touch));
        scope.spawn(|| (0..pages).rev().for_each(touch));
    });
    // Both have been everywhere, so each page has been written to twice.
    let twice = |page: &u64| {
        let at = std::ptr::with_exposed_provenance::<AtomicU64>(base + *page as usize * PAGE + 64);
        // SAFETY: the page is the process's; where it is not there yet, the handler puts it there.
        // All accesses are atomic.
        unsafe { &*at }.load(Ordering::Relaxed) == contents(number, *page).wrapping_add(2)
    };
    wrong.load(Ordering::Relaxed) + (0..pages).filter(|page| !twice(page)).count() as u64
}

/// `None` where the kernel does not let us handle faults.
pub(crate) fn run(options: &Options) -> Result<Option<Report>, Failure> {
    let faults = match Userfault::new() {
        Ok(faults) => faults,
        Err(error) => {
            // Straight to standard error, which a test harness does not keep to itself.
            writeln!(std::io::stderr(), "SKIPPED: page faults cannot be handled here: {error}")?;
            return Ok(None);
        }
    };
    let bytes = options.pages as usize * PAGE;
    let arena = Arena::builder(2 * bytes as u64).backing(Backing::Memfd).build()?;
    let mut report = Report::default();
    for number in 0..options.processes {
        // SAFETY: a fresh mapping wherever there is room.
        let base = unsafe {
            mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        let base = NonNull::new(base).ok_or("mapped at 0")?.as_ptr().expose_provenance();
        faults.register(base, bytes)?;
        let mut handler = Handler {
            arena: &arena,
            faults: &faults,
            process: number,
            base,
            options,
            table: BTreeMap::new(),
            report,
        };
        let ended = AtomicBool::new(false);
        let wrong = std::thread::scope(|scope| -> Result<u64, Failure> {
            let process = scope.spawn(|| {
                let wrong = process(number, base, options.pages);
                // Release and acquire: for the loop below only; the join orders everything else.
                ended.store(true, Ordering::Release);
                wrong
            });
            while !ended.load(Ordering::Acquire) {
                if let Some(address) = faults.next()? {
                    // Without the page nobody could go on: ending the program is all there is.
                    handler
                        .fault(address)
                        .unwrap_or_else(|error| panic!("a fault that cannot be served: {error}"));
                }
            }
            Ok(process.join().map_err(|_| "the process panicked")?)
        })?;
        // SAFETY: mapped above, and its threads have ended.
        unsafe { munmap(std::ptr::with_exposed_provenance_mut(base), bytes) }?;
        handler.exit()?;
        report = handler.report;
        report.wrong += wrong;
    }
    report.frames_left = arena.stats().frames - arena.free_frames();
    arena.validate()?;
    Ok(Some(report))
}

fn main() -> Result<(), Failure> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => {}
        (Some("--processes"), Some(n)) => options.processes = n.parse()?,
        _ => return Err("usage: fault-loop [--processes N]".into()),
    }
    println!(
        "{} processes of {} pages, touched by two threads each",
        options.processes, options.pages
    );
    for around in [false, true] {
        options.around = around;
        let start = std::time::Instant::now();
        let Some(report) = run(&options)? else { return Ok(()) };
        println!(
            "  {}: {} faults served ({} by a folio of 16), {} found served; {} pages, {:.1} us each; {} runs freed",
            if around { "64 KiB around a fault" } else { "a page for a fault   " },
            report.served,
            report.folios,
            report.late,
            report.pages_mapped,
            start.elapsed().as_micros() as f64 / report.pages_mapped as f64,
            report.runs_freed
        );
        if report.wrong + report.frames_left != 0 {
            return Err(format!(
                "{} pages were wrong, {} frames left behind",
                report.wrong, report.frames_left
            )
            .into());
        }
    }
    Ok(())
}
