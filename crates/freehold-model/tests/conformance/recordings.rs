//! What a recording of Linux's page allocator asked for and gave back, asked of the real allocator
//! again on threads, and judged.
//!
//! Each thread has the recording's CPUs of the same number but for a multiple of the threads', and
//! makes their calls in their order. Whoever is to free what another thread has not been given yet
//! waits for it. The calls are the recording's, then; which of them overlap is the machine's doing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use freehold::{Config, CpuId, Freehold, Migratetype, Order, Owned, Pfn, Request, ZoneConfig};
use freehold_model::judge::Task;
use freehold_trace::{EventKind, OpenOptions, Source, TraceReader};

use crate::court::{Court, i_am};
use crate::work::{Host, range};

const THREADS: u16 = 4;
/// Calls between two looks at everything.
const PART: usize = 50_000;
/// What was asked for could not be had; nothing has been asked for yet is 0, anything else a frame
/// and 2.
const FAILED: u64 = 1;

/// A call of a recording.
#[derive(Clone, Copy)]
enum Call {
    Alloc(Order, Migratetype),
    /// Of what that call, by its place in the recording, was given.
    Free(usize),
}

/// The calls of a recording, each with its thread.
struct Recording {
    calls: Vec<(u16, Call)>,
    /// Most frames in use at a time.
    most: u64,
}

impl Recording {
    /// The first `events` of a file. What was in use before it began, and what is freed in parts,
    /// is left out.
    fn read(path: &Path, events: usize) -> Self {
        let mut reader =
            TraceReader::open(&Source::from_arg(path), OpenOptions::default()).unwrap();
        let (mut this, mut left, mut batch) =
            (Self { calls: Vec::new(), most: 0 }, events, Vec::new());
        let (mut live, mut in_use) = (HashMap::new(), 0);
        while left != 0 && reader.next_batch(&mut batch).unwrap() {
            for event in batch.iter().take(left) {
                let thread = event.cpu.index() as u16 % THREADS;
                match event.kind {
                    EventKind::Alloc { pfn: Some(pfn), order, migratetype, .. } => {
                        let kind = Migratetype::PCP.get(usize::from(migratetype)).copied();
                        let kind = kind.unwrap_or(Migratetype::Movable);
                        // That it was freed before was not recorded.
                        if let Some((at, order)) = live.insert(pfn, (this.calls.len(), order)) {
                            live.insert(pfn, (this.calls.len() + 1, order));
                            this.calls.push((thread, Call::Free(at)));
                            in_use -= Order::frames(order);
                        }
                        this.calls.push((thread, Call::Alloc(order, kind)));
                        in_use += order.frames();
                        this.most = this.most.max(in_use);
                    }
                    EventKind::Free { pfn, order }
                        if live.get(&pfn).is_some_and(|&(_, of)| of == order) =>
                    {
                        let (at, _) = live.remove(&pfn).unwrap();
                        this.calls.push((thread, Call::Free(at)));
                        in_use -= order.frames();
                    }
                    _ => {}
                }
            }
            left = left.saturating_sub(batch.len());
        }
        let rest: Vec<_> =
            live.into_values().map(|(at, _)| ((at as u16) % THREADS, Call::Free(at))).collect();
        this.calls.extend(rest);
        this
    }

    /// Makes the calls of one thread among those from `first` on.
    fn run(
        &self,
        t: u16,
        part: &[(u16, Call)],
        first: usize,
        court: &Court,
        cpu: &Owned<'_, '_, Host>,
        got: &[AtomicU64],
    ) {
        i_am(t + 1);
        for (at, &(_, call)) in (first..).zip(part).filter(|(_, (thread, _))| *thread == t) {
            match call {
                Call::Alloc(order, kind) => {
                    let frames = order.frames();
                    let told = |result: &Result<Pfn, _>| {
                        (
                            result.is_ok(),
                            result.iter().map(|pfn: &Pfn| (pfn.get(), frames)).collect(),
                        )
                    };
                    let result =
                        court.call(Task::Alloc, &[], || cpu.alloc(Request::new(order, kind)), told);
                    // Release, and acquire below: who frees it has heard of its end.
                    got[at].store(result.map_or(FAILED, |pfn| pfn.get() + 2), Ordering::Release);
                }
                Call::Free(of) => {
                    let Call::Alloc(order, _) = self.calls[of].1 else {
                        unreachable!("a free of a free")
                    };
                    let pfn = loop {
                        match got[of].load(Ordering::Acquire) {
                            0 if court.has_refused() => return,
                            0 => std::thread::yield_now(),
                            pfn => break pfn,
                        }
                    };
                    if pfn != FAILED {
                        let pfn = Pfn::new(pfn - 2);
                        let told = |result: &Result<(), _>| (result.is_ok(), vec![]);
                        let free = || cpu.free(pfn, order);
                        let result =
                            court.call(Task::Free, &[(pfn.get(), order.frames())], free, told);
                        assert!(result.is_ok() || court.has_refused(), "{pfn:?}: {result:?}");
                    }
                }
            }
            if at % 1000 == 0 {
                let _ = court.call(Task::Other, &[], || cpu.tick(), |_| (true, vec![]));
            }
        }
    }

    /// All of it, with a tenth more memory than it had in use at a time. Steps that were judged.
    fn judged(&self, name: &str) -> u64 {
        let memory = [range(512, (self.most / 512 * 11 / 10 + 16) * 512)];
        let zones = [ZoneConfig::new(&memory)];
        let config = Config { group: Some(2), ..Config::new(THREADS, &zones) };
        let fh: Freehold<'static, Host> = Freehold::leaked(&config, Host).unwrap();
        i_am(0);
        let (court, witnessed) = Court::new(&fh, false);
        let got: Vec<AtomicU64> = self.calls.iter().map(|_| AtomicU64::new(0)).collect();
        for (n, part) in self.calls.chunks(PART).enumerate() {
            std::thread::scope(|scope| {
                for t in 0..THREADS {
                    let (fh, court, got) = (&fh, &court, &got);
                    scope.spawn(move || {
                        i_am(t + 1);
                        let cpu = fh.own(CpuId::new(t)).unwrap();
                        self.run(t, part, n * PART, court, &cpu, got);
                    });
                }
            });
            court.quiet();
            court.accepted();
        }
        fh.drain_all();
        court.quiet();
        court.accepted();
        let failed = got.iter().filter(|got| got.load(Ordering::Relaxed) == FAILED).count();
        println!(
            "{name}: {} calls, {failed} without success, of {} frames; {}",
            self.calls.len(),
            self.most,
            court.summary()
        );
        let (steps, stats) = (court.steps(), fh.zone_stats(0).unwrap());
        assert_eq!(stats.free, stats.managed, "frames are lost");
        drop(witnessed);
        steps
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The beginning of the sample.
#[test]
fn a_recording_on_threads_is_accepted() {
    let path = repository().join("data/page-cache-churn.parquet");
    let recording = Recording::read(&path, 40_000);
    assert!(recording.calls.len() > 20_000, "{} calls", recording.calls.len());
    assert!(recording.judged("page-cache-churn") > 100_000);
}

/// All that there are, or those whose name has `FREEHOLD_RECORDING`, each to its end.
#[test]
#[ignore = "takes minutes"]
fn all_recordings_on_threads_are_accepted() {
    let wanted = std::env::var("FREEHOLD_RECORDING").unwrap_or_default();
    let folders =
        ["data", "data/recorded", "../shared/traces"].map(|folder| repository().join(folder));
    let (mut all, mut n) = (0, 0);
    for folder in folders {
        let Ok(files) = std::fs::read_dir(&folder) else {
            eprintln!("SKIPPED: no recordings in {}", folder.display());
            continue;
        };
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        for path in
            files.into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "parquet"))
        {
            let name = path.display().to_string();
            if name.contains(&wanted) {
                all += Recording::read(&path, usize::MAX)
                    .judged(path.file_stem().unwrap().to_str().unwrap());
                n += 1;
            }
        }
    }
    println!("{all} steps of {n} recordings accepted");
    assert!(n != 0, "no recording's name has {wanted:?}");
}
