//! The second pass: decodes a trace once and lets every engine have it, each on its own thread.
//!
//! ```text
//!  this thread: decode, map ──> channel of 4 batches ──> thread of engine A ┐
//!                          └──> channel of 4 batches ──> thread of engine B ┴─ at most `jobs` at work at a time
//! ```
//!
//! Channels are short, so memory does not grow when an engine is slower than the reader.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use super::Beginning;
use super::driver::Driver;
use super::mapper::{Mapper, MapperOptions};
use super::op::Batch;
use super::outcome::EngineOutcome;
use super::source::{SourceError, Trace};
use super::{NamedEngine, ReplayOptions};

/// Batches that may wait for an engine.
const CHANNEL: usize = 4;
/// Operations after which a batch is handed on.
const BATCH_OPS: usize = 32 * 1024;

/// Replays `trace` through all `engines`: the mapper at its end, and what came of each engine.
pub(super) fn broadcast(
    trace: &dyn Trace,
    engines: &[NamedEngine],
    mapper: MapperOptions,
    options: ReplayOptions,
    beginning: &Beginning,
    progress: &mut dyn FnMut(u64, (u64, u64)),
) -> Result<(Mapper, Vec<EngineOutcome>), SourceError> {
    let permits = Permits::new(options.jobs);
    thread::scope(|scope| {
        let (senders, threads): (Vec<_>, Vec<_>) = engines
            .iter()
            .map(|engine| {
                let (sender, receiver) = sync_channel(CHANNEL);
                let permits = &permits;
                (
                    sender,
                    scope.spawn(move || run_engine(engine, options, beginning, &receiver, permits)),
                )
            })
            .unzip();

        let decoded = decode(trace, mapper, &senders, progress);
        // Closing the channels lets the engines finish, also where the trace turned out to be
        // broken.
        drop(senders);
        let results: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let mapper = decoded?;
        let outcomes = engines
            .iter()
            .zip(results)
            .map(|(engine, result)| match result {
                Ok(Ok(driver)) => catch_unwind(AssertUnwindSafe(|| driver.finish(&engine.name)))
                    .unwrap_or_else(|panic| EngineOutcome::crashed(&engine.name, &*panic)),
                Ok(Err(panic)) | Err(panic) => EngineOutcome::crashed(&engine.name, &*panic),
            })
            .collect();
        Ok((mapper, outcomes))
    })
}

type Panic = Box<dyn std::any::Any + Send>;

fn run_engine<'a>(
    engine: &'a NamedEngine,
    options: ReplayOptions,
    beginning: &Beginning,
    batches: &Receiver<Arc<Batch>>,
    permits: &Permits,
) -> Result<Driver<'a>, Panic> {
    let mut driver = Driver::new(&*engine.engine);
    driver.watch_cma(&beginning.cma);
    if let Some(layout) = &beginning.layout {
        let _permit = permits.take();
        catch_unwind(AssertUnwindSafe(|| driver.fill(layout, options.cpus)))?;
    }
    for batch in batches {
        let _permit = permits.take();
        // One engine that crashes must not take the others' results with it.
        catch_unwind(AssertUnwindSafe(|| driver.apply(&batch)))?;
    }
    Ok(driver)
}

fn decode(
    trace: &dyn Trace,
    options: MapperOptions,
    senders: &[SyncSender<Arc<Batch>>],
    progress: &mut dyn FnMut(u64, (u64, u64)),
) -> Result<Mapper, SourceError> {
    let mut reader = trace.open()?;
    let mut mapper = Mapper::new(options);
    let mut events = Vec::new();
    let mut batch = Batch::default();
    while reader.next_batch(&mut events)? {
        for event in &events {
            mapper.event(event, &mut batch.ops, &mut batch.samples);
            if batch.ops.len() >= BATCH_OPS {
                send(&mut batch, senders);
            }
        }
        progress(mapper.facts.events, reader.progress());
    }
    mapper.finish(&mut batch.ops, &mut batch.samples);
    send(&mut batch, senders);
    Ok(mapper)
}

fn send(batch: &mut Batch, senders: &[SyncSender<Arc<Batch>>]) {
    let next = Batch { ops: Vec::with_capacity(BATCH_OPS + BATCH_OPS / 8), ..Batch::default() };
    let shared = Arc::new(std::mem::replace(batch, next));
    for sender in senders {
        // An engine that has crashed no longer listens; its thread says why when it is joined.
        let _ = sender.send(Arc::clone(&shared));
    }
}

/// How many threads may be at work at once.
struct Permits {
    left: Mutex<usize>,
    returned: Condvar,
}

impl Permits {
    fn new(permits: usize) -> Self {
        Self { left: Mutex::new(permits.max(1)), returned: Condvar::new() }
    }

    fn take(&self) -> Permit<'_> {
        // A count is valid whatever its holder was doing when it panicked.
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.returned.wait_while(left, |left| *left == 0);
        *left.unwrap_or_else(PoisonError::into_inner) -= 1;
        Permit(self)
    }
}

struct Permit<'a>(&'a Permits);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.left.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.returned.notify_one();
    }
}
