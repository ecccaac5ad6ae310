//! Events of one context, kept for reuse: creating one is slow, above all from several threads.
//!
//! **Events are created ahead of need.** While any thread waits for room in a stream's full queue, the
//! driver makes every thread wait that creates an event, and what that queue needs to go on may be
//! just such a thread. So each new lane finds [`BATCH`] idle events; when none is left, as many are
//! created as there are.
//!
//! Idle events lie in the context's [`EventCache`]. A lane that needs an event for every free
//! keeps a few more in an [`EventStock`] of its own, which has no lock. Events go between a stock
//! and the cache [`BATCH`] at a time, so threads that record for each free rarely meet at the
//! cache's lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::omission::Step;
use crate::base::StreamHandle;
use crate::base::blocking;
use crate::base::lock::{Lock, rank};
use crate::driver::{self, Device, Event};

/// How many events at once go from the cache to a stock or back.
const BATCH: usize = 16;
/// The most that are created at once.
const MOST_CREATED: usize = 16 * BATCH;
/// The most that a stock keeps.
const MOST_STOCKED: usize = 2 * BATCH;

/// The idle events of one context: no work is being waited for by them.
#[derive(Debug)]
pub struct EventCache {
    driver: Arc<dyn Device>,
    idle: Lock<Vec<Event>, { rank::DEVICE }>,
    /// How many were created.
    created: AtomicUsize,
}

/// The idle events of one lane, at most [`MOST_STOCKED`].
#[derive(Debug, Default)]
pub(super) struct EventStock(Vec<Event>);

impl EventCache {
    /// An empty cache. Events are never destroyed: at exit the driver may be gone.
    pub fn new(driver: Arc<dyn Device>) -> Self {
        Self { driver, idle: Lock::new(Vec::new()), created: AtomicUsize::new(0) }
    }

    /// Sees to it that a new lane finds [`BATCH`] idle events, as far as the driver makes any. May
    /// block: the caller holds no lock.
    pub fn stock_up(&self) {
        let missing = BATCH.saturating_sub(self.idle.lock().len());
        if missing > 0 {
            // What cannot be created now will be when it is needed, or is an error then.
            let _ = self.create(missing);
        }
    }

    /// How many are idle here.
    #[cfg(test)]
    pub(super) fn idle_count(&self) -> usize {
        self.idle.lock().len()
    }

    /// Creates `count` events. Those made before a failure are kept.
    fn create(&self, count: usize) -> driver::Result<()> {
        let mut made = Vec::with_capacity(count);
        let answer = blocking(|| {
            (0..count).try_for_each(|_| self.driver.event_create().map(|event| made.push(event)))
        });
        self.created.fetch_add(made.len(), Relaxed);
        self.idle.lock().extend(made);
        answer
    }

    /// A new event. As many more are made as there are, which failing does no harm.
    fn create_for_use(&self) -> driver::Result<Event> {
        let event = blocking(|| self.driver.event_create())?;
        let known = self.created.fetch_add(1, Relaxed);
        let _ = self.create(known.clamp(BATCH, MOST_CREATED) - 1);
        Ok(event)
    }

    /// The driver that made these events.
    pub fn driver(&self) -> &dyn Device {
        &*self.driver
    }

    /// Records an event on `stream`, which completes with the work queued there up to now.
    ///
    /// Fails with `STREAM_CAPTURE_UNSUPPORTED` while the stream is capturing: an event recorded
    /// there would belong to the graph and never complete.
    ///
    /// Blocks while the stream's queue is full: the caller holds no lock.
    pub fn record(&self, stream: StreamHandle) -> driver::Result<Event> {
        let mut idle = self.idle.lock().pop();
        self.record_with(&mut idle, stream).inspect_err(|_| {
            if let Some(event) = idle {
                self.put(event);
            }
        })
    }

    /// Takes back an event that is no longer needed.
    pub fn put(&self, event: Event) {
        self.idle.lock().push(event);
    }

    /// [`Self::record`] with the event in `idle`, or with a new one if there is none. An event
    /// that could not be recorded is in `idle` afterwards.
    pub(super) fn record_with(
        &self,
        idle: &mut Option<Event>,
        stream: StreamHandle,
    ) -> driver::Result<Event> {
        let event = idle.take().map_or_else(|| self.create_for_use(), Ok)?;
        if Step::RecordedEvent.is_left_out() {
            return Ok(event);
        }
        let recorded = blocking(|| self.driver.event_record_outside_capture(event, stream));
        recorded.inspect_err(|_| *idle = Some(event)).map(|()| event)
    }
}

impl EventStock {
    /// An idle event, from the stock or else from `cache`; `None` if both are empty.
    pub(super) fn take(&mut self, cache: &EventCache) -> Option<Event> {
        if self.0.is_empty() {
            let mut idle = cache.idle.lock();
            let rest = idle.len().saturating_sub(BATCH);
            self.0.extend(idle.drain(rest..));
        }
        self.0.pop()
    }

    /// Takes back an event that is no longer needed.
    pub(super) fn put(&mut self, cache: &EventCache, event: Event) {
        if self.0.len() == MOST_STOCKED {
            cache.idle.lock().extend(self.0.drain(BATCH..));
        }
        self.0.push(event);
    }
}
