//! Events of one device, kept for reuse: creating one is slow, above all from several threads.

use std::sync::Arc;

use crate::base::StreamHandle;
use crate::base::lock::{Lock, rank};
use crate::driver::{self, Device, Event};

/// The events of one device that nothing stands for at the moment.
#[derive(Debug)]
pub struct EventPool {
    device: Arc<dyn Device>,
    idle: Lock<Vec<Event>, { rank::DEVICE }>,
}

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
    pub fn record(&self, stream: StreamHandle) -> driver::Result<Event> {
        let idle = self.idle.lock().pop();
        let event = idle.map_or_else(|| self.device.event_create(), Ok)?;
        let recorded = self.device.event_record_outside_capture(event, stream);
        recorded.inspect_err(|_| self.put(event))?;
        Ok(event)
    }

    /// Takes back an event that is not needed any more.
    pub fn put(&self, event: Event) {
        self.idle.lock().push(event);
    }
}
