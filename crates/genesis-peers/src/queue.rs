//! Work that counts and does not time, done side by side: as many pieces at once as there are
//! processors, each taken from one queue. The first error of a worker ends that worker; the others
//! finish the queue, and the error is returned.

use std::sync::Mutex;

use steps::Outcome;

/// Calls `work` with each of `items`.
pub(crate) fn side_by_side<T: Send>(items: Vec<T>, work: impl Fn(T) -> Outcome + Sync) -> Outcome {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let queue = Mutex::new(items.into_iter());
    let next = || queue.lock().ok()?.next();
    std::thread::scope(|scope| {
        let run = || {
            while let Some(item) = next() {
                work(item)?;
            }
            Ok(())
        };
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(run)).collect();
        let ended = running
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err("a worker panicked".to_owned())));
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::side_by_side;

    #[test]
    fn every_item_is_worked_on_once_and_an_error_is_returned() {
        let sum = AtomicU32::new(0);
        let add = |number| {
            sum.fetch_add(number, Ordering::Relaxed);
            if number == 7 { Err("seven".to_owned()) } else { Ok(()) }
        };
        assert_eq!(side_by_side((1..=6).collect(), add), Ok(()));
        assert_eq!(sum.load(Ordering::Relaxed), 21);
        assert_eq!(side_by_side(vec![7], add), Err("seven".to_owned()));
        assert_eq!(side_by_side(vec![], add), Ok(()));
    }
}
