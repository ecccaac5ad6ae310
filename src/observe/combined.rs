//! Work under a lock for which nobody waits: a thread that finds the lock taken leaves its work to
//! the owner ("flat combining", with one kind of work: Hendler, Incze, Shavit, Tzafrir, "Flat
//! Combining and the Synchronization-Parallelism Tradeoff", SPAA 2010).

use crate::base::lock::{Guard, Lock, rank};
use crate::base::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, fence};

/// A thread works for others so often at most. What is left then is done by the next that comes.
const MOST_ROUNDS: u32 = 16;

/// A lock of a device around a `T`, and whether work on it is wanted.
#[derive(Debug, Default)]
pub struct Combined<T> {
    value: Lock<T, { rank::DEVICE }>,
    is_wanted: AtomicBool,
}

/// Whether threads are in each other's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// One after another they do their own work.
    Alone,
    /// Another came while this one worked.
    Crowded,
}

impl<T> Combined<T> {
    /// Waits until the lock is free and takes it. Afterwards the caller asks [`Self::is_wanted`].
    pub fn lock(&self) -> Guard<'_, T, { rank::DEVICE }> {
        self.value.lock()
    }

    /// Returns true if work is wanted that nobody does: call [`Self::work`].
    pub fn is_wanted(&self) -> bool {
        // An owner ends its lock before it asks.
        fence(SeqCst);
        self.is_wanted.load(Relaxed)
    }

    /// Sees to it that `work` begins after this call did: here, or in the thread that has the lock,
    /// perhaps after this call has ended. `work` is called with the lock, and ends it.
    pub fn work(&self, mut work: impl FnMut(Guard<'_, T, { rank::DEVICE }>, Turn)) {
        self.is_wanted.store(true, Relaxed);
        let mut turn = Turn::Alone;
        for _ in 0..MOST_ROUNDS {
            if !self.is_wanted() {
                return;
            }
            let Some(value) = self.value.try_lock() else { return };
            self.is_wanted.store(false, Relaxed);
            fence(SeqCst);
            work(value, turn);
            turn = Turn::Crowded;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_the_lock_taken_leaves_its_work() {
        let combined = Combined::<u32>::default();
        let mut turns = Vec::new();
        combined.work(|mut value, turn| {
            *value += 1;
            turns.push(turn);
            if *value < 3 {
                // As another thread would, which may not take a second lock of this rank here.
                combined.is_wanted.store(true, Relaxed);
            }
        });
        assert_eq!(turns, [Turn::Alone, Turn::Crowded, Turn::Crowded]);
    }

    #[test]
    fn no_thread_works_for_others_for_ever() {
        let combined = Combined::<u32>::default();
        let ask_again = |mut value: Guard<'_, u32, { rank::DEVICE }>| {
            *value += 1;
            combined.is_wanted.store(true, Relaxed);
        };
        combined.work(|value, _| ask_again(value));
        assert_eq!(*combined.lock(), MOST_ROUNDS);
        assert!(combined.is_wanted());
        combined.work(|mut value, _| *value += 1);
        assert_eq!(*combined.lock(), MOST_ROUNDS + 1, "what was left is done once");
        assert!(!combined.is_wanted());
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod models {
    use std::sync::Arc;

    use super::*;
    use crate::base::sync::atomic::AtomicU32;
    use crate::base::sync::schedules;

    /// Work that was left to another thread sees what was done before it was asked for; the first
    /// thread has the lock for something else.
    #[test]
    fn no_work_is_lost() {
        schedules::explore(|_| {
            let both = Arc::new((AtomicU32::new(0), Combined::<u32>::default()));
            let threads: Vec<_> = (0..3)
                .map(|number| {
                    let both = Arc::clone(&both);
                    shuttle::thread::spawn(move || {
                        let (done, seen) = &*both;
                        done.fetch_add(1, Relaxed);
                        if number == 0 {
                            let mut seen = seen.lock();
                            *seen = done.load(Relaxed);
                        }
                        if number > 0 || seen.is_wanted() {
                            seen.work(|mut seen, _| *seen = done.load(Relaxed));
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(*both.1.lock(), 3);
        });
    }
}
