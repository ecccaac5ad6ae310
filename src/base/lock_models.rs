//! Locks, and what is made by whoever comes first, under drawn schedules.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::*;
use crate::base::sync::{OnceCell, schedules};

/// Runs `act` in so many threads at once.
fn run_threads(count: u64, act: impl Fn(u64) + Clone + Send + 'static) {
    let run = |number| {
        let act = act.clone();
        shuttle::thread::spawn(move || act(number))
    };
    let threads: Vec<_> = (0..count).map(run).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// One thread at a time has the lock, whether it waits for it or tries; nobody waits for ever.
#[test]
fn one_thread_at_a_time_has_the_lock() {
    #[derive(Default)]
    struct Held {
        lock: Lock<u32, { rank::LANE }>,
        /// Seen from outside: these are no steps of the model.
        holders: AtomicU32,
        refused: AtomicU32,
    }
    schedules::explore(|seed| {
        let held = Arc::new(Held::default());
        let inside = Arc::clone(&held);
        let use_it = move |mut count: Guard<'_, u32, { rank::LANE }>| {
            assert_eq!(inside.holders.fetch_add(1, Relaxed), 0, "two threads have the lock");
            let before = *count;
            waiting::yield_now();
            *count = before + 1;
            inside.holders.fetch_sub(1, Relaxed);
        };
        let (threads, common) = (2 + seed % 2, Arc::clone(&held));
        run_threads(threads, move |number| {
            for round in 0..3 {
                if (seed >> (3 * number + round)) & 1 == 0 {
                    use_it(common.lock.lock());
                } else if let Some(count) = common.lock.try_lock() {
                    use_it(count);
                } else {
                    common.refused.fetch_add(1, Relaxed);
                }
            }
        });
        let done = *held.lock.lock();
        assert_eq!(u64::from(done + held.refused.load(Relaxed)), 3 * threads);
    });
}

/// Threads whose first calls come at once: one of them makes it, all get the same, and after a
/// failure the next one tries again.
#[test]
fn what_is_made_at_the_first_call_is_made_once() {
    schedules::explore(|seed| {
        let (cell, tries) = (Arc::new(OnceCell::new()), Arc::new(AtomicU32::new(0)));
        let made = Arc::clone(&cell);
        let fails = (seed % 3) as u32;
        run_threads(3, move |number| {
            loop {
                let made = made.get_or_try_init(|| {
                    let earlier = tries.fetch_add(1, Relaxed);
                    waiting::yield_now();
                    assert!(tries.load(Relaxed) == earlier + 1, "two threads make it at once");
                    if earlier < fails { Err(()) } else { Ok(number) }
                });
                if let Ok(first) = made {
                    assert_eq!(made, Ok(first));
                    assert_eq!(tries.load(Relaxed), fails + 1, "it was made again");
                    break;
                }
            }
        });
        assert!(cell.get().is_some());
    });
}
