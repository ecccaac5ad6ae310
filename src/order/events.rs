//! Events of one device, kept for reuse: creating one is slow, above all from several threads.
//!
//! What nothing stands for at the moment lies in the device's pool, and a few in the stocks of
//! those who need one for every free. A stock has no lock of its own: it meets the pool once in
//! [`BATCH`] events, so that threads which record for each free do not meet there.

use std::sync::Arc;

use crate::base::StreamHandle;
use crate::base::blocking;
use crate::base::lock::{Lock, rank};
use crate::driver::{self, Device, Event};

/// So many events at once go from the pool to a stock or back.
const BATCH: usize = 16;
/// The most that a stock keeps.
const MOST_STOCKED: usize = 2 * BATCH;

/// The events of one device that nothing stands for at the moment.
#[derive(Debug)]
pub struct EventPool {
    device: Arc<dyn Device>,
    idle: Lock<Vec<Event>, { rank::DEVICE }>,
}

/// Some of them, in one owner's hands. At most [`MOST_STOCKED`].
#[derive(Debug, Default)]
pub(super) struct EventStock(Vec<Event>);

impl EventPool {
    /// An empty pool; events are created as they are needed and never destroyed: at exit the
    /// driver may be gone.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self { device, idle: Lock::new(Vec::new()) }
    }

    /// The device whose events these are.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// An event that stands for the work queued on `stream` up to now.
    ///
    /// `STREAM_CAPTURE_UNSUPPORTED` when the stream is capturing: an event recorded there
    /// would belong to the graph and never complete.
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

    /// Takes back an event that is not needed any more.
    pub fn put(&self, event: Event) {
        self.idle.lock().push(event);
    }

    /// The same with `idle`, or a new event where that is none; one that could not be recorded is in
    /// `idle` afterwards.
    pub(super) fn record_with(
        &self,
        idle: &mut Option<Event>,
        stream: StreamHandle,
    ) -> driver::Result<Event> {
        let event = idle.take().map_or_else(|| self.device.event_create(), Ok)?;
        let recorded = blocking(|| self.device.event_record_outside_capture(event, stream));
        recorded.inspect_err(|_| *idle = Some(event)).map(|()| event)
    }
}

impl EventStock {
    /// An event to be recorded, of the stock or else of `pool`; if there is none, a new one is made.
    pub(super) fn take(&mut self, pool: &EventPool) -> Option<Event> {
        if self.0.is_empty() {
            let mut idle = pool.idle.lock();
            let rest = idle.len().saturating_sub(BATCH);
            self.0.extend(idle.drain(rest..));
        }
        self.0.pop()
    }

    /// Takes back an event that is not needed any more.
    pub(super) fn put(&mut self, pool: &EventPool, event: Event) {
        if self.0.len() == MOST_STOCKED {
            pool.idle.lock().extend(self.0.drain(BATCH..));
        }
        self.0.push(event);
    }
}
