//! Streams that wait for each other, for callers that pass blocks from one to another.

use super::{Heap, StreamKey};
use crate::base::{DeviceOrdinal, Result, StreamHandle};

impl Heap {
    /// Work queued on `stream` from now on waits for the work queued on `other` until now, on the
    /// device; the host does not wait. `DriverFailed` while `other` is captured.
    pub fn make_stream_wait(
        &self,
        device: DeviceOrdinal,
        stream: StreamHandle,
        other: StreamHandle,
    ) -> Result<()> {
        if StreamKey::of(stream) == StreamKey::of(other) {
            return Ok(());
        }
        let events = &self.device(device)?.events;
        let event = events.record(other)?;
        let waiting = events.device().stream_wait(stream, event);
        // A stream that waits for the event waits for what it stands for now; it may go.
        events.put(event);
        Ok(waiting?)
    }
}
