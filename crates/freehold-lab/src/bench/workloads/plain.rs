//! The benchmarks that are loops of [`loops`] and [`threads`] and nothing besides.

use super::Run;
use crate::bench::calls::{Machine, Refused};
use crate::bench::figures::Figures;
use crate::bench::kind::Kind;
use crate::bench::metric::THREADS;
use crate::bench::threads::RING;
use crate::bench::{loops, threads};

/// Frames that each of two churning threads holds: 256 MiB.
const CHURNED: u64 = 1 << 16;

/// Each part begins with nothing in the CPUs' stocks.
pub(super) fn measure<M: Machine>(
    machine: &M,
    kind: Kind,
    run: &Run<'_>,
) -> Result<Figures, Refused> {
    let (scale, cpus) = (run.scale, run.cpus);
    // Each run another order, the same for every engine.
    let seed = 0x9e37_79b9_7f4a_7c15 ^ (run.number + 1);
    let drained = || run.drained(machine);
    let remote =
        |scattered, bulk| threads::remote_free(drained(), cpus, scale.remote, scattered, bulk);
    let sampled = match kind {
        Kind::Pair => {
            vec![
                loops::pair::<_, 0>(drained(), scale.pairs)?,
                loops::pair::<_, 9>(drained(), scale.block_pairs)?,
            ]
        }
        Kind::Bulk => loops::bulk(drained(), scale.frames)?.to_vec(),
        Kind::RandomFree => vec![loops::random_free(drained(), scale.frames, seed)?],
        Kind::Order9Split => vec![loops::groups_single(drained(), scale.batches)?],
        Kind::Contig => vec![loops::groups_range(drained(), scale.batches)?],
        Kind::RemoteFree => {
            vec![remote(None, false)?, remote(Some(seed), false)?, remote(Some(seed), true)?]
        }
        _ => Vec::new(),
    };
    let values = match kind {
        Kind::TwoThreads => {
            let (alone, slower) = threads::independent(drained(), cpus, 2, scale.pairs)?;
            vec![slower, alone, threads::churning(drained(), cpus, CHURNED, scale.churn_steps)?]
        }
        Kind::SixteenThreads => return sixteen_threads(machine, run),
        _ => Vec::new(),
    };
    let metrics = kind.about().metrics;
    Ok(Figures::default().with_all_sampled(metrics, sampled).with_all(metrics, values))
}

fn sixteen_threads<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    // As many pairs in all as two threads run: behind one lock for all of them they take long.
    let pairs = (run.scale.pairs * 2 / u64::from(run.threads)).max(1);
    let (alone, slowest) =
        threads::independent(run.drained(machine), run.cpus, run.threads, pairs)?;
    let messages = run.scale.messages;
    let freed_by = |freers| {
        threads::through_rings(run.drained(machine), run.cpus, messages, (freers, RING), false)
    };
    let values = [slowest, alone, freed_by(run.threads - 1)?, freed_by(1)?];
    Ok(Figures::default()
        .with_all(Kind::SixteenThreads.about().metrics, values)
        .with(THREADS, f64::from(run.threads)))
}
