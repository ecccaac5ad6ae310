//! Threads that do the same thing at the same moment, again and again.
//!
//! They live for all turns, as a program's threads do: each stays on its processor, its data in
//! that processor's caches. Before each turn they meet, *spinning*, until all were seen to run at
//! once. Threads that wake from sleep may share a processor for milliseconds while another one is
//! idle: they would then run in turns, and what they cost each other would not be measured. Where there
//! are more threads than processors they run in turns anyway, and one that waits lets others run.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Scope, available_parallelism};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Threads that each have a processor meet again within this time.
const AT_ONCE: Duration = Duration::from_micros(20);
/// How often they try; each try takes milliseconds if other programs keep the processors busy.
const MOST_TRIES: usize = 3;

/// The threads, each with work of its own, which makes an answer `A` of a `T`.
#[derive(Debug)]
pub(crate) struct Crew<T, A> {
    hands: Vec<(Sender<T>, Receiver<A>)>,
}

impl<T: Copy + Send, A: Send> Crew<T, A> {
    /// A thread for each of `work`, to be called once a turn. They end with the crew.
    pub(crate) fn new<'scope, 'env, W>(
        scope: &'scope Scope<'scope, 'env>,
        meeting: &'env Meeting,
        work: impl Iterator<Item = W>,
    ) -> Self
    where
        T: 'scope,
        A: 'scope,
        W: FnMut(T) -> A + Send + 'scope,
    {
        let hire = |mut work: W| {
            let (tell, told) = channel::<T>();
            let (answer, answers) = channel();
            scope.spawn(move || {
                let _leaving = Leaving(meeting);
                for what in told {
                    meeting.meet();
                    // The receiver is gone only if another thread has failed.
                    let _ = answer.send(work(what));
                }
            });
            (tell, answers)
        };
        Self { hands: work.map(hire).collect() }
    }

    /// One turn of every thread at once; returns their answers.
    pub(crate) fn turn(&self, what: T) -> Result<Vec<A>> {
        let failed = || Error::failed("a thread of the replay failed");
        for (tell, _) in &self.hands {
            tell.send(what).map_err(|_| failed())?;
        }
        self.hands.iter().map(|(_, answers)| answers.recv().map_err(|_| failed())).collect()
    }
}

/// A meeting point of a known number of threads.
#[derive(Debug)]
pub(crate) struct Meeting {
    threads: usize,
    /// Each thread can have a processor.
    is_spinning: bool,
    arrivals: AtomicUsize,
    /// How often a thread has found that it waited long.
    late: AtomicUsize,
    /// True once a thread has panicked and comes no more.
    is_broken: AtomicBool,
}

/// Tells the meeting when its thread panics.
struct Leaving<'a>(&'a Meeting);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_broken.store(true, Ordering::SeqCst);
        }
    }
}

impl Meeting {
    pub(crate) fn new(threads: usize) -> Self {
        let is_spinning = available_parallelism().is_ok_and(|count| threads <= count.get());
        let none = || AtomicUsize::new(0);
        let is_broken = AtomicBool::new(false);
        Self { threads, is_spinning, arrivals: none(), late: none(), is_broken }
    }

    /// Waits for the others, until all run at once or the tries are over.
    fn meet(&self) {
        if !self.is_spinning {
            return self.gather();
        }
        for _ in 0..MOST_TRIES {
            let late_before = self.late.load(Ordering::SeqCst);
            self.gather();
            let started = Instant::now();
            self.gather();
            if started.elapsed() > AT_ONCE {
                self.late.fetch_add(1, Ordering::SeqCst);
            }
            // After this all read the same number.
            self.gather();
            if self.late.load(Ordering::SeqCst) == late_before {
                return;
            }
            self.gather();
        }
    }

    /// Waits until every thread has come here as often as the caller, or one has panicked.
    fn gather(&self) {
        let arrival = self.arrivals.fetch_add(1, Ordering::SeqCst);
        let all = (arrival / self.threads + 1) * self.threads;
        while self.arrivals.load(Ordering::SeqCst) < all && !self.is_broken.load(Ordering::SeqCst) {
            if self.is_spinning {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_does_its_own_work_once_a_turn_and_with_the_others() {
        const THREADS: usize = 3;
        let meeting = Meeting::new(THREADS);
        let together = std::sync::Barrier::new(THREADS);
        std::thread::scope(|scope| {
            let work = (0..THREADS).map(|number| {
                let (mut turns, together) = (0, &together);
                move |told: usize| {
                    together.wait();
                    turns += 1;
                    (number, told, turns)
                }
            });
            let crew = Crew::new(scope, &meeting, work);
            for turn in 1..=20 {
                let expected: Vec<_> = (0..THREADS).map(|number| (number, 7, turn)).collect();
                assert_eq!(crew.turn(7).unwrap(), expected);
            }
        });
    }

    #[test]
    fn a_thread_that_panics_does_not_keep_the_others() {
        let meeting = Meeting::new(2);
        let outcome = std::panic::catch_unwind(|| {
            std::thread::scope(|scope| {
                let work = (0..2).map(|number| move |turn| assert_ne!((number, turn), (1, 0)));
                let crew = Crew::new(scope, &meeting, work);
                (crew.turn(0).is_err(), crew.turn(1).is_err())
            })
        });
        assert!(outcome.is_err(), "the panic goes on");
    }
}
