//! Queues are finite: a thread that finds one full waits for room.
//!
//! A real driver's launch, event record or wait returns at once until about a thousand operations
//! wait in the stream; from then on, only as the device takes one out. Here the caller runs the
//! queues itself, as if that time passed. Where that cannot help, because a test holds the stream
//! or one it comes after, the calling thread sleeps without the machine's lock until another
//! thread has completed something. If none ever does, it sleeps for ever, as on a real driver.
//!
//! **Meanwhile** other threads' calls go on, but for those that create, destroy or allocate
//! ([`crate::Call`]): driver 580 has them wait until the queue has room (docs/benchmarks,
//! "While one thread blocks on a full queue"). That page asked about creating events and streams,
//! destroying events, `cuMemAlloc` and `cuMemAllocHost`; the calls that undo these wait here, too.
//! Only launches fill a queue there; here all that is enqueued does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Where threads wait until anything has been completed.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Changed under the machine's lock only, like what the threads wait for.
    waiting: AtomicUsize,
    /// Those of them that wait for room in a queue, and not for another thread.
    full: AtomicUsize,
    /// How often something was completed while a thread waited.
    turn: Mutex<u64>,
    has_turned: Condvar,
}

impl Room {
    /// Something was completed. Called with the machine's lock.
    pub(crate) fn tell(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            *self.turn.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            self.has_turned.notify_all();
        }
    }

    /// Returns true if a thread waits for room. Called with the machine's lock.
    pub(crate) fn is_any_queue_full(&self) -> bool {
        self.full.load(Ordering::Relaxed) > 0
    }

    /// A thread begins to wait for room. Called with the machine's lock.
    pub(crate) fn begin(&self) {
        self.full.fetch_add(1, Ordering::Relaxed);
    }

    /// It has found room, and those that waited for that go on. Called with the machine's lock.
    pub(crate) fn end(&self) {
        self.full.fetch_sub(1, Ordering::Relaxed);
        self.tell();
    }

    /// A thread is going to wait; returns the turn to pass to [`Self::wait`]. Called with the
    /// machine's lock.
    pub(crate) fn enter(&self) -> u64 {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until something was completed after `before`. Called without the machine's lock.
    pub(crate) fn wait(&self, before: u64) {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.has_turned.wait_while(turn, |turn| *turn == before));
    }

    /// The thread has waited. Called with the machine's lock.
    pub(crate) fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
