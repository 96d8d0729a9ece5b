//! `exit-avalanche`: processes on all CPUs but one exit at once, and the one that goes on wants to
//! know nothing of it.
//!
//! Each worker frees a large set in page-table order, a folio batch a call, as exit does; all begin
//! at the same moment. What they do under the zone's lock a bystander that allocates has to wait
//! for, so its slowest allocations are the measure: the 99.9th percentile.
//!
//! ```text
//!   CPUs 1..N:  allocate set │ free 31, free 31, free 31 ...
//!   CPU 0:                   │ allocate 1,024 (each timed), free them, allocate 1,024 ... until all workers are done
//! ```

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use freehold::{CpuId, Order, Pfn};
use hdrhistogram::Histogram;

use super::Run;
use crate::bench::calls::{Calls, FOLIOS, Machine, Refused};
use crate::bench::figures::{Figures, Meter, latencies};
use crate::bench::loops::{alloc_all, per};
use crate::bench::metric::{About, THREADS, THREADS_METRIC, ns, with_locks};
use crate::bench::threads::{Rendezvous, on_cpus};

/// Frames that the bystander holds at most.
const BYSTANDER: usize = 1024;
/// Frames of a worker's set: 512 MiB, less where there are many workers.
const SET: u64 = 1 << 17;

pub const ABOUT: About = About {
    what: "Workers on all CPUs but one hold 131,072 single frames each (512 MiB; half of the \
           memory at most in all) and \
           free them at the same moment, 31 a call, while a bystander on the CPU left allocates \
           and frees. Each of the \
           bystander's allocations is timed, two looks at the clock included (some 50 ns).",
    source: "exit of large processes, as in the pcp-buddy proposal (2026) and in frees on another \
             CPU in recorded traces; \
             batches of 31 as the kernel's free_unref_folios",
    threads: 16,
    fewest_threads: 2,
    metrics: with_locks![
        ns("ns_per_frame_freed", "a frame of a worker's set, freed; the slowest worker by the wall \
                                  clock"),
        ns("bystander_p50_ns", "an allocation of the bystander's, the median of all in a run"),
        ns("bystander_p999_ns", "an allocation of the bystander's, 99.9th percentile of all in a \
                                  run");
        THREADS_METRIC
    ],
};

pub fn measure<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let workers = run.threads - 1;
    let set = SET.min(run.frames / 2 / u64::from(workers));
    let (mut meter, mut time, mut latencies) = (Meter::default(), Duration::ZERO, latencies());
    for _ in 0..run.scale.avalanches {
        let (slowest, found) =
            avalanche(run.drained(machine), run, workers, set as usize, &mut meter)?;
        time += slowest;
        // All histograms have the same bounds: nothing falls out.
        latencies.add(found).unwrap_or_default();
    }
    let mut figures = Figures::default()
        .with("ns_per_frame_freed", per(time, set * run.scale.avalanches))
        .with_zone_lock(&meter)
        .with(THREADS, f64::from(run.threads));
    // An avalanche may be over before the bystander has allocated anything.
    if !latencies.is_empty() {
        figures = figures
            .with("bystander_p50_ns", latencies.value_at_quantile(0.5) as f64)
            .with("bystander_p999_ns", latencies.value_at_quantile(0.999) as f64);
    }
    Ok(figures)
}

/// Returns what the slowest worker took, and each of the bystander's allocations.
fn avalanche<M: Machine>(
    machine: &M,
    run: &Run<'_>,
    workers: u16,
    set: usize,
    meter: &mut Meter,
) -> Result<(Duration, Histogram<u64>), Refused> {
    let start = Rendezvous::new(workers + 1);
    // Relaxed throughout: a count that carries nothing.
    let done = AtomicU32::new(0);
    let work = |index: u16| {
        let mut pages = vec![Pfn::default(); set];
        let ready = machine.cpu(CpuId::new(index)).and_then(|mut cpu| {
            alloc_all(&mut cpu, &mut pages)?;
            Ok(cpu)
        });
        start.wait();
        let began = Instant::now();
        let mut cpu = ready?;
        pages.chunks(FOLIOS).try_for_each(|folios| cpu.free_folios(folios))?;
        let time = began.elapsed();
        done.fetch_add(1, Ordering::Relaxed);
        Ok((time, None))
    };
    let bystand = || {
        let mut latencies = latencies();
        let cpu = machine.cpu(CpuId::new(0));
        start.wait();
        let mut cpu = cpu?;
        let mut held = Vec::with_capacity(BYSTANDER);
        while done.load(Ordering::Relaxed) < u32::from(workers) {
            let began = Instant::now();
            held.push(cpu.alloc(Order::ZERO)?);
            latencies.saturating_record(began.elapsed().as_nanos() as u64);
            if held.len() == BYSTANDER {
                held.chunks(FOLIOS).try_for_each(|folios| cpu.free_folios(folios))?;
                held.clear();
            }
        }
        held.chunks(FOLIOS).try_for_each(|folios| cpu.free_folios(folios))?;
        Ok((Duration::ZERO, Some(latencies)))
    };
    let give_up = || _ = done.fetch_add(workers.into(), Ordering::Relaxed);
    let one = |index| if index == 0 { bystand() } else { work(index) };
    // The sets' allocation is in the meter too, and what the bystander does; each frame is counted
    // once.
    let sets = u64::from(workers) * set as u64;
    meter.part_of(machine, || {
        let (times, found): (Vec<_>, Vec<_>) =
            on_cpus(run.cpus, workers + 1, give_up, one)?.into_iter().unzip();
        let latencies = found.into_iter().flatten().next().ok_or(Refused::Abandoned)?;
        let frames = sets + latencies.len();
        Ok(((times.into_iter().max().unwrap_or_default(), latencies), frames))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::clock::Cpus;
    use crate::bench::engines::ClassicMachine;
    use crate::bench::metric::ZONE_LOCKS;
    use crate::bench::scale::Scale;

    #[test]
    fn the_bystanders_frames_are_in_what_locks_are_divided_by() {
        let machine = ClassicMachine::new("vanilla", 2, 1 << 16).unwrap();
        let cpus = Cpus::allowed();
        let run = Run { cpus: &cpus, threads: 2, scale: &Scale::QUICK, number: 0, frames: 1 << 16 };
        let (mut meter, set) = (Meter::default(), 1 << 15);
        // Until the bystander has done something; an avalanche may be over before.
        let (mut avalanches, mut allocated) = (0, 0);
        while allocated == 0 && avalanches < 100 {
            allocated = avalanche(&machine, &run, 1, set, &mut meter).unwrap().1.len();
            avalanches += 1;
        }
        let taken = machine.shared_locks().unwrap()[0];
        let rate = Figures::default().with_zone_lock(&meter).get(ZONE_LOCKS).unwrap();
        let frames = (set * avalanches) as u64 + allocated;
        assert!(allocated > 0 && taken > 0, "{avalanches} avalanches and no bystander");
        assert!(
            (rate * frames as f64 / 1000.0 - taken as f64).abs() < 0.5,
            "{rate} of {frames} frames, {taken} locks"
        );
    }
}
