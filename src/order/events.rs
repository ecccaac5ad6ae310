//! Events of one context, kept for reuse: creating one is slow, above all from several threads.
//!
//! Idle events lie in the context's [`EventCache`]. A lane that needs an event for every free
//! keeps a few more in an [`EventStock`] of its own, which has no lock. Events go between a stock
//! and the cache [`BATCH`] at a time, so threads that record for each free rarely meet at the
//! cache's lock.

use std::sync::Arc;

use super::omission::Step;
use crate::base::StreamHandle;
use crate::base::blocking;
use crate::base::lock::{Lock, rank};
use crate::driver::{self, Device, Event};

/// How many events at once go from the cache to a stock or back.
const BATCH: usize = 16;
/// The most that a stock keeps.
const MOST_STOCKED: usize = 2 * BATCH;

/// The idle events of one context: no work is being waited for by them.
#[derive(Debug)]
pub struct EventCache {
    driver: Arc<dyn Device>,
    idle: Lock<Vec<Event>, { rank::DEVICE }>,
}

/// The idle events of one lane, at most [`MOST_STOCKED`].
#[derive(Debug, Default)]
pub(super) struct EventStock(Vec<Event>);

impl EventCache {
    /// An empty cache. Events are created when they are needed and never destroyed: at exit the
    /// driver may be gone.
    pub fn new(driver: Arc<dyn Device>) -> Self {
        Self { driver, idle: Lock::new(Vec::new()) }
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
        let event = idle.take().map_or_else(|| self.driver.event_create(), Ok)?;
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
