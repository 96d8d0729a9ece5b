//! Many independent pieces of work on several threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use crate::cli::{output, progress, stop};

#[derive(Debug)]
pub struct Done<T> {
    /// Of those that are done, in the order of `all`.
    pub results: Vec<T>,
    /// It was stopped before its end.
    pub interrupted: bool,
}

/// Does `work` for each of `all`, so many at a time, begun in the order of `places`. `progress` is
/// told after each with how many are done, on this thread. When `stop` is set or one fails, those
/// under way are finished and no more are begun.
///
/// # Errors
///
/// The first that failed, by the order of `all`.
pub fn each<I: Sync, T: Send, E: Send>(
    all: &[I],
    places: &[usize],
    jobs: usize,
    stop: &AtomicBool,
    work: impl Fn(&I) -> Result<T, E> + Sync,
    mut progress: impl FnMut(usize, &I),
) -> Result<Done<T>, E> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut slots: Vec<Option<Result<T, E>>> = all.iter().map(|_| None).collect();
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, places.len().max(1)) {
            let (sender, next, failed, work) = (sender.clone(), &next, &failed, &work);
            scope.spawn(move || {
                // Relaxed throughout: a counter and flags that carry nothing; the channel carries
                // the results.
                while !stop.load(Ordering::Relaxed) && !failed.load(Ordering::Relaxed) {
                    let Some(&place) = places.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        return;
                    };
                    // Nobody listens any more: the receiver has panicked.
                    if sender.send((place, work(&all[place]))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (done, (place, result)) in receiver.into_iter().enumerate() {
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            slots[place] = Some(result);
            progress(done + 1, &all[place]);
        }
    });
    let interrupted = slots.iter().any(Option::is_none);
    let results = slots.into_iter().flatten().collect::<Result<_, _>>()?;
    Ok(Done { results, interrupted })
}

/// Does so many pieces of `work` with a bar until all are done or the user stops it, and says on
/// standard error what was left undone. Fails where the work does.
pub fn watched<T, E>(
    (what, pieces): (&str, &str),
    all: usize,
    quiet: bool,
    work: impl FnOnce(&AtomicBool, &mut dyn FnMut(usize, String)) -> Result<Done<T>, E>,
) -> Result<Done<T>, E> {
    let stop = stop::on_signals(true);
    let bar = progress::turns(what, all, quiet);
    let done = work(&stop, &mut |done, message| {
        bar.set_position(done as u64);
        bar.set_message(message);
    });
    bar.finish_and_clear();
    let done = done?;
    if done.interrupted {
        let n = done.results.len();
        output::complain(&format!("interrupted: {n} of {all} {pieces} are done"));
    }
    Ok(done)
}
