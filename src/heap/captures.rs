//! Captures: while a stream of a device is captured, nothing there is waited for or given back.
//!
//! A wait for a context spoils every capture of its device, whatever thread or mode began it
//! (measured on NVIDIA hardware: ROCm/rocm-systems#4508), and so may `cuMemFree`, which waits. So
//! whoever waits, or gives memory back, asks here first. A capture is known of because
//!
//! | how | from when | until when |
//! |---|---|---|
//! | a private pool is begun (`super::pools`) | its begin | its end |
//! | it was told (`Heap::begin_capture`): by the preload library, or by a program | the same | the same |
//! | a request that missed named a stream that captures | that request | the stream's next call after its end, the next miss or request to empty the cache if the stream lasts, or [`SEEN_SECONDS`] without a call |
//! | the legacy stream says that one which synchronises with it captures | | |
//!
//! What is left: a capture that nobody told of, in a stream that does not synchronise with the
//! legacy one, none of whose requests missed.
//!
//! **Between the look and the wait** nobody begins a capture unnoticed: a wait under way is
//! counted before the look, and who begins a capture is counted before looking at the waits. One of
//! the two sees the other. A capture that begins lets a wait under way end first, for at most
//! [`MOST_PATIENCE`]: by then the driver has long looked for captures, which it does as a wait
//! begins, and what the wait is for may need the thread that begins the capture.
//!
//! No lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst, fence};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use crate::driver::{self, Call, Code, DriverError};

/// So long a capture that was only seen counts after the last call on its stream.
const SEEN_SECONDS: u32 = 10;
/// So long a capture waits at its beginning for waits under way.
const MOST_PATIENCE: Duration = Duration::from_millis(100);

/// What is known of the captures on one device.
#[derive(Debug, Default)]
pub(super) struct Captures {
    /// How many were told of and have not ended.
    told: AtomicU32,
    /// How many lanes' streams were seen to capture.
    pub(super) seen: AtomicU32,
    /// When one was seen last, in seconds since `start`.
    seen_second: AtomicU32,
    start: OnceCell<Instant>,
    /// How many waits and releases are under way.
    waits: AtomicU32,
}

/// While it lives, something that captures forbid is under way.
#[derive(Debug)]
pub(super) struct Wait(Arc<Captures>);

impl Captures {
    /// Whether any is under way, as far as is known.
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

    /// A lane's stream was found to be captured, or not. `set` keeps that with the lane and
    /// returns what was kept before.
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

    /// Lets waits under way end, if they do soon.
    pub(super) fn let_waits_end(&self) {
        let begin = Instant::now();
        while self.waits.load(SeqCst) != 0 && begin.elapsed() < MOST_PATIENCE {
            std::thread::yield_now();
        }
    }

    /// A capture begins.
    pub(super) fn begin(&self) {
        self.told.fetch_add(1, SeqCst);
        self.let_waits_end();
    }

    /// One has ended; says whether any was told of.
    pub(super) fn end(&self) -> bool {
        self.told.fetch_update(SeqCst, SeqCst, |told| told.checked_sub(1)).is_ok()
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, SeqCst);
    }
}

/// Counts a wait, unless a stream is captured.
pub(super) fn begin_wait(
    captures: &Arc<Captures>,
    is_captured: impl Fn() -> bool,
) -> driver::Result<Wait> {
    captures.waits.fetch_add(1, SeqCst);
    let wait = Wait(Arc::clone(captures));
    // After the count, so that a capture that begins now sees it, or is seen.
    fence(SeqCst);
    if is_captured() { Err(forbidden()) } else { Ok(wait) }
}

/// What the driver would answer.
pub(super) fn forbidden() -> DriverError {
    DriverError { call: Call::Synchronize, code: Code::STREAM_CAPTURE_UNSUPPORTED }
}
