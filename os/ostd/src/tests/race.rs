//! Reclaim beside writers on other CPUs: not a write may be lost.
//!
//! ```text
//!   CPU 0                                   the others, each on pages of its own
//!   started += 1                            s = started, r = returned
//!   madvise_free(everything)                write a new number to a page (a fault makes the page)
//!   returned += 1                           read it back
//!   pageout(everything)                     started still s, and r == s?  then it must be there
//! ```
//!
//! Each writer keeps to a quarter of its pages for a while, so that reclaim finds some folios that
//! were written to and some that were not.
//!
//! A write that falls into a `madvise_free` may go; one that began after it had returned must stay
//! until the next one, however reclaim is just then taking the page's entry away and looking at its
//! dirty bit.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use freehold::Order;
use freehold_vm::{Access, VpnRange};
use ostd::prelude::ktest;

use super::space::{SPACE, with_space};
use super::team::{Failure, Team, at_least, same, say, succeeds, test};
use crate::machine::folios::{page, read, vm, write};
use crate::machine::{calls, cpu, spaces};

const ROUNDS: u64 = 150;
const PAGES_EACH: u64 = 128;
const FOLIO_ORDER: u8 = 4;

/// A small generator of numbers that look random (xorshift): the same ones in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[ktest]
fn lazyfree_against_writers_on_other_cpus() {
    test(race);
}

fn race() -> Result<(), Failure> {
    if cpu::count() < 2 {
        say(format_args!("    one CPU: there is nobody to race with"));
        return Ok(());
    }
    let (started, returned) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let (writes, certain, faults, made) =
        (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (before, sent) = (vm().stats(), calls::snapshot());
    let mut freed = 0;
    let total = AtomicU64::new(0);
    with_space(|| {
        Team::run(|member| {
            spaces::within(SPACE, || {
                if member.cpu == 0 {
                    let result = reclaimer(&started, &returned, &total);
                    // Release: the others stop after everything.
                    stop.store(true, Ordering::Release);
                    return result;
                }
                let mut random = Numbers(0x9e37_79b9_7f4a_7c15 ^ (member.cpu as u64) << 32);
                let first = (member.cpu as u64 - 1) * PAGES_EACH;
                let mut sequence = 0;
                while !stop.load(Ordering::Acquire) {
                    let numbers = random.next();
                    sequence += 1;
                    // Relaxed: which pages are in use just now need not be exact.
                    let quarter = returned.load(Ordering::Relaxed) / 4 % 4;
                    let vpn = page(first + quarter * (PAGES_EACH / 4) + numbers % (PAGES_EACH / 4));
                    let value = (member.cpu as u64) << 48 | sequence;
                    // SeqCst, here and in the reclaimer: the write comes after the one and the look
                    // after the other.
                    let (s, r) = (started.load(Ordering::SeqCst), returned.load(Ordering::SeqCst));
                    let (f, m) = succeeds("a page cannot be written", write(SPACE, vpn, value))?;
                    // Some time for reclaim to come by.
                    (0..numbers >> 32 & 7).for_each(|_| cpu::pause());
                    let (found, more) = succeeds("a page cannot be read", read(SPACE, vpn))?;
                    // Relaxed, here and below: statistics.
                    writes.fetch_add(1, Ordering::Relaxed);
                    faults.fetch_add(u64::from(f + more), Ordering::Relaxed);
                    made.fetch_add(u64::from(m), Ordering::Relaxed);
                    if r == s && started.load(Ordering::SeqCst) == s {
                        certain.fetch_add(1, Ordering::Relaxed);
                        same(
                            "a write after madvise_free has returned is lost",
                            found.unwrap_or(0),
                            value,
                        )?;
                    }
                    calls::poll();
                }
                Ok(())
            })
        })?;
        freed = total.into_inner();
        Ok(())
    })?;
    let (stats, now) = (vm().stats(), calls::snapshot());
    say(format_args!(
        "    {} writes, {} of them certain to stay, {} faults, {} pages made again",
        writes.load(Ordering::Relaxed),
        certain.load(Ordering::Relaxed),
        faults.load(Ordering::Relaxed),
        made.load(Ordering::Relaxed),
    ));
    say(format_args!(
        "    {freed} frames reclaimed; {} folios found written to; {} entries put back; {} shootdowns",
        stats.redirtied - before.redirtied,
        stats.entries_restored - before.entries_restored,
        now.shootdowns - sent.shootdowns,
    ));
    at_least("frames reclaimed", freed, 1)?;
    at_least("writes that were certain to stay", certain.into_inner(), 1)
}

fn reclaimer(started: &AtomicU64, returned: &AtomicU64, total: &AtomicU64) -> Result<(), Failure> {
    let frames = cpu::frames();
    let pages = (cpu::count() as u64 - 1) * PAGES_EACH;
    let all = VpnRange { start: page(0), end: page(pages) };
    for round in 0..ROUNDS {
        // Folios of 16 pages again where all 16 are free; single pages that writers have made stay
        // among them.
        if round % 8 == 0 {
            let order = Order::new(FOLIO_ORDER).unwrap_or(Order::ZERO);
            for i in (0..pages).step_by(1 << FOLIO_ORDER) {
                // Fails where a page is there.
                let _ = vm().map_new(frames, SPACE, page(i), order, Access::ReadWrite);
            }
        }
        // SeqCst: see the writers.
        started.fetch_add(1, Ordering::SeqCst);
        let advised = vm().madvise_free(frames, SPACE, all);
        returned.fetch_add(1, Ordering::SeqCst);
        succeeds("madvise_free", advised)?;
        // Time for writes that are certain to stay; under an emulator that runs one CPU after the
        // other, their turn.
        (0..20 * round % 97).for_each(|_| cpu::pause());
        let got = succeeds("reclaim", vm().madvise_pageout(frames, SPACE, all))?;
        // Relaxed: read after all are through.
        total.fetch_add(got, Ordering::Relaxed);
        calls::poll();
    }
    Ok(())
}
