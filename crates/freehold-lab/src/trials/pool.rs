//! Many independent pieces of work on several threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

/// Does `work` for each of `places`, so many at a time, and hands what comes of it to `done` on
/// this thread, in the order in which they end. When `stop` is set or `done` says not to go on,
/// those under way are finished and no more are begun.
pub fn each<T: Send>(
    places: &[usize],
    jobs: usize,
    stop: &AtomicBool,
    work: impl Fn(usize) -> T + Sync,
    mut done: impl FnMut(usize, T) -> bool,
) {
    let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, places.len().max(1)) {
            let (sender, next, ended, work) = (sender.clone(), &next, &ended, &work);
            scope.spawn(move || {
                // Relaxed throughout: a counter and flags that carry nothing; the channel carries
                // the results.
                while !stop.load(Ordering::Relaxed) && !ended.load(Ordering::Relaxed) {
                    let Some(&place) = places.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        return;
                    };
                    // Nobody listens any more: the receiver has panicked.
                    if sender.send((place, work(place))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (place, result) in receiver {
            if !done(place, result) {
                ended.store(true, Ordering::Relaxed);
            }
        }
    });
}
