//! A fork at any step of threads that take locks, early ones and later ones, under drawn schedules:
//! the child is told if one of them may hold a lock, and only then.
//!
//! The marks of a fork are no steps of a model, so the forking thread sees all of them as they are at
//! one moment, as a child does. Steps are between them.

use std::sync::Arc;

use super::*;
use crate::base::lock::{Lock, rank};
use crate::base::sync::{schedules, waiting};

/// A process: its marks, a lock, and how many threads may hold it, seen from outside.
struct Process {
    forks: &'static Forks,
    lock: Lock<u32, { rank::LEAF }>,
    holders: AtomicU32,
}

impl Process {
    fn new() -> Arc<Self> {
        let forks = Box::leak(Box::new(Forks::new()));
        Arc::new(Self { forks, lock: Lock::new(0), holders: AtomicU32::new(0) })
    }

    /// Takes the lock for a moment, with steps before, inside and after.
    fn use_lock(&self) {
        self.holders.fetch_add(1, SeqCst);
        waiting::yield_now();
        *self.lock.lock() += 1;
        waiting::yield_now();
        self.holders.fetch_sub(1, SeqCst);
    }

    /// A call that needs no heap, such as setting an option.
    fn call_early(&self) {
        let call = self.forks.begin_call();
        waiting::yield_now();
        self.use_lock();
        waiting::yield_now();
        drop(call);
    }

    /// The first call that makes a heap, and the next, which is counted nowhere.
    fn begin(&self) {
        waiting::yield_now();
        self.forks.begin();
        waiting::yield_now();
        (0..2).for_each(|_| self.use_lock());
    }

    /// What a child would be told that is forked now.
    fn fork(&self) {
        let (is_told, holders) = (self.forks.may_be_held(), self.holders.load(SeqCst));
        assert!(is_told || holders == 0, "a child would wait for {holders} threads");
        let is_used = self.forks.has_begun.load(SeqCst) || self.forks.early.load(SeqCst) > 0;
        assert_eq!(is_told, is_used, "a child of a process that is not in use was refused");
    }
}

#[test]
fn a_child_is_told_whenever_a_lock_may_be_held() {
    schedules::explore(|seed| {
        let process = Process::new();
        let run = |act: fn(&Process)| {
            let process = Arc::clone(&process);
            shuttle::thread::spawn(move || act(&process))
        };
        let mut threads = vec![run(Process::call_early), run(Process::call_early)];
        if seed % 4 < 2 {
            threads.push(run(Process::begin));
        }
        for _ in 0..12 {
            process.fork();
            waiting::yield_now();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        process.fork();
        assert_eq!(process.holders.load(SeqCst), 0);
        assert_eq!(process.forks.early.load(SeqCst), 0);
        assert_eq!(*process.lock.lock(), if seed % 4 < 2 { 4 } else { 2 });
    });
}
