//! Captures: while a stream of a device is captured, nothing there is waited for or released.
//!
//! A wait for a context invalidates every capture on its device, whichever thread or mode began it
//! (measured on NVIDIA hardware: ROCm/rocm-systems#4508). `cuMemFree` may do so too, because it
//! waits. So every wait and every release asks here first. How a capture becomes known:
//!
//! | how | from when | until when |
//! |---|---|---|
//! | a private pool is begun for a capture (`super::pools`) | its begin | its end |
//! | a program or the preload library announced it | `Heap::begin_capture` | `Heap::end_capture` |
//! | the stream of a request that may need the driver captures | that request | see below |
//! | the legacy stream reports a capture that synchronises with it | asked at each wait | |
//!
//! Below: the stream's next call after the capture; or, if the stream lasts, the next such request, or
//! one to empty the cache; or [`SEEN_SECONDS`] without a call.
//!
//! Not noticed: an unannounced capture whose stream neither made such a request nor synchronises with
//! the legacy one.
//!
//! A request that would be refused for what captures hold back waits until they end (`ladder`), unless
//! its own thread has begun one.
//!
//! **No capture slips in between check and wait**: a wait is counted before the check for captures,
//! and a capture is counted before the check for waits, so one of the two sees the other. A capture
//! that begins lets waits under way end first, for at most [`MOST_WAIT`]. By then the driver
//! has long checked for captures, which it does as a wait begins; and the work waited for may need
//! the thread that begins the capture. No lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::lock::{Lock, rank};
use crate::base::sync::atomic::{AtomicU32, Ordering::SeqCst, fence};
use crate::base::sync::{IS_MODEL, OnceCell, waiting};
use crate::base::thread;
use crate::driver::{self, Call, Code, DriverError};

/// How long a capture that was only seen counts after the last call on its stream.
const SEEN_SECONDS: u32 = 10;
/// How long a capture that begins waits, at most, for waits under way. In a model time stands still.
const MOST_WAIT: Duration = if IS_MODEL { Duration::MAX } else { Duration::from_millis(100) };

/// What is known of the captures on one device.
#[derive(Debug, Default)]
pub(super) struct Captures {
    /// Captures announced and not ended.
    told: AtomicU32,
    /// The numbers of the threads that have begun those captures, and private pools for captures; the oldest
    /// first.
    begun_by: Lock<Vec<u64>, { rank::LEAF }>,
    /// How often one became known; wraps around.
    known: AtomicU32,
    /// Lanes whose stream was seen capturing.
    pub(super) seen: AtomicU32,
    /// When one was seen last, in seconds since `start`.
    seen_second: AtomicU32,
    start: OnceCell<Instant>,
    /// Waits and releases under way.
    waits: AtomicU32,
}

/// While this value lives, a wait or a release is under way.
#[derive(Debug)]
pub(super) struct Wait(Arc<Captures>);

impl Captures {
    /// Returns true if a capture is known to be under way.
    pub(super) fn is_any(&self) -> bool {
        let is_seen = self.seen.load(SeqCst) != 0
            && self.second().wrapping_sub(self.seen_second.load(SeqCst)) < SEEN_SECONDS;
        self.is_told() || is_seen
    }

    pub(super) fn is_told(&self) -> bool {
        self.told.load(SeqCst) != 0
    }

    fn second(&self) -> u32 {
        self.start.get_or_init(Instant::now).elapsed().as_secs() as u32
    }

    /// Records whether a lane's stream was found capturing. `set` stores that in the lane and
    /// returns the previous value.
    pub(super) fn see(&self, is_capturing: bool, set: impl FnOnce(bool) -> bool) {
        if is_capturing {
            self.seen_second.store(self.second(), SeqCst);
        }
        match (set(is_capturing), is_capturing) {
            (false, true) => self.seen.fetch_add(1, SeqCst),
            (true, false) => self.seen.fetch_sub(1, SeqCst),
            _ => 0,
        };
    }

    /// How often a capture became known; wraps around.
    pub(super) fn known(&self) -> u32 {
        self.known.load(SeqCst)
    }

    /// Called once a capture counts: lets waits under way end, for at most [`MOST_WAIT`].
    pub(super) fn become_known(&self) {
        self.known.fetch_add(1, SeqCst);
        let begin = Instant::now();
        while self.waits.load(SeqCst) != 0 && begin.elapsed() < MOST_WAIT {
            waiting::yield_now();
        }
    }

    /// The calling thread begins a capture.
    pub(super) fn begin_here(&self) {
        self.begun_by.lock().push(thread::number());
    }

    /// The calling thread ends a capture: one of its own, or else another thread's oldest.
    pub(super) fn end_here(&self) {
        let here = thread::number();
        let mut begun_by = self.begun_by.lock();
        let index = begun_by.iter().position(|&begun_by| begun_by == here).unwrap_or(0);
        if index < begun_by.len() {
            begun_by.remove(index);
        }
    }

    /// Whether the calling thread has begun a capture that has not ended.
    pub(super) fn is_begun_here(&self) -> bool {
        self.begun_by.lock().contains(&thread::number())
    }

    /// Counts a capture that the calling thread begins, and lets waits under way end.
    pub(super) fn begin(&self) {
        self.begin_here();
        self.told.fetch_add(1, SeqCst);
        self.become_known();
    }

    /// Counts the end of a capture; returns true if one was announced.
    pub(super) fn end(&self) -> bool {
        let is_told = self.told.fetch_update(SeqCst, SeqCst, |told| told.checked_sub(1)).is_ok();
        if is_told {
            self.end_here();
        }
        is_told
    }
}

#[cfg(test)]
impl Captures {
    /// As if nobody had called for as long as a capture counts that was only seen.
    pub(super) fn grow_old(&self) {
        self.seen_second.fetch_sub(SEEN_SECONDS, SeqCst);
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, SeqCst);
    }
}

/// Begins a wait; fails if a stream is captured.
pub(super) fn begin_wait(
    captures: &Arc<Captures>,
    is_captured: impl Fn() -> bool,
) -> driver::Result<Wait> {
    captures.waits.fetch_add(1, SeqCst);
    let wait = Wait(Arc::clone(captures));
    // After the count: a capture that begins now sees the wait, or is seen by it.
    fence(SeqCst);
    if is_captured() { Err(forbidden()) } else { Ok(wait) }
}

/// The error that the driver would return.
pub(super) fn forbidden() -> DriverError {
    DriverError { call: Call::Synchronize, code: Code::STREAM_CAPTURE_UNSUPPORTED }
}

#[cfg(all(test, feature = "shuttle"))]
#[path = "captures_models.rs"]
mod models;
