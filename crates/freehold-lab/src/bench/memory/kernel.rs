//! The system's own way: `MADV_FREE`, then `MADV_PAGEOUT`, as the proposal's program does it.

use std::fs;

use rustix::mm::Advice;

use super::rss;
use super::second::{Other, timed};
use crate::bench::clock::Cpus;
use crate::bench::mapping::{Mapping, PAGE};

const BYTES: usize = 128 << 20;
const BLOCK: usize = 2 << 20;
const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Nanoseconds for 64 KiB, or why there are none here.
pub(super) fn reclaim(page: usize, second: bool, cpus: &Cpus) -> Result<f64, String> {
    let refused = |errno| format!("madvise: {errno}");
    let mapping = Mapping::aligned(BYTES, BLOCK).map_err(|errno| format!("mmap: {errno}"))?;
    if page == PAGE {
        // A system without huge pages refuses, which is as good.
        let _ = mapping.advise(BYTES, Advice::LinuxNoHugepage);
        mapping.fill(BYTES);
    } else {
        let kib = page / 1024;
        if setting(&format!("{THP}/enabled")) == "never" || !allowed(kib) {
            return Err(format!(
                "the system offers no pages of {kib} KiB; as root: echo madvise > {THP}/hugepages-{kib}kB/enabled"
            ));
        }
        if page < BLOCK {
            // No larger ones: nothing of 2 MiB fits.
            mapping.cut(BLOCK / 2).map_err(refused)?;
        }
        mapping.advise(BYTES, Advice::LinuxHugepage).map_err(refused)?;
        let before = faults(kib);
        mapping.fill(BYTES);
        let (got, wanted) = (faults(kib) - before, (BYTES / page) as u64);
        if got < wanted * 9 / 10 {
            return Err(format!(
                "the system gave {got} pages of {kib} KiB where {wanted} were wanted"
            ));
        }
    }
    mapping.advise(BYTES, Advice::LinuxFree).map_err(refused)?;
    let resident = rss::resident()?;
    let mut spin = std::hint::spin_loop;
    let other = second.then_some(&mut spin as Other<'_>);
    let (time, done) = timed(cpus, other, || mapping.advise(BYTES, Advice::LinuxPageOut));
    done.map_err(refused)?;
    let gone = resident.saturating_sub(rss::resident()?);
    if gone < BYTES as u64 * 9 / 10 {
        return Err(format!("the system reclaimed {} MiB of {}", gone >> 20, BYTES >> 20));
    }
    Ok(time.as_nanos() as f64 / (BYTES >> 16) as f64)
}

/// The word in brackets.
fn setting(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split(['[', ']']).nth(1).unwrap_or("never").to_owned()
}

/// Whether memory that asks for huge pages gets some of that size.
fn allowed(kib: usize) -> bool {
    let path = format!("{THP}/hugepages-{kib}kB/enabled");
    // Before Linux 6.8 there is one size, and one setting.
    setting(&path) != "never" || (kib == BLOCK / 1024 && !fs::exists(&path).unwrap_or(false))
}

/// Pages of that size that faults have brought, in the whole system.
fn faults(kib: usize) -> u64 {
    let path = format!("{THP}/hugepages-{kib}kB/stats/anon_fault_alloc");
    let number = fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    let older = || {
        let text = fs::read_to_string("/proc/vmstat").ok()?;
        text.lines().find_map(|line| line.strip_prefix("thp_fault_alloc "))?.parse().ok()
    };
    number.or_else(older).unwrap_or(0)
}
