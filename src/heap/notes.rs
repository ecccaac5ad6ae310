//! What the heap tells the stream of events of the calls it serves. What becomes of memory is
//! told where it does: by `memory::Supply` and `memory::Pages`, and by a lane of its blocks.
//!
//! Call sites are looked for here, in the thread that made the call and with no lock held: to
//! find one may take a lock of somebody else's, such as an interpreter's.

use super::Heap;
use crate::base::{DeviceOrdinal, StreamHandle};
use crate::observe::{Action, Event, EventStream};
use crate::order::StreamName;

impl Heap {
    /// The stream of events that the heap tells.
    pub fn events(&self) -> &'static EventStream {
        self.events
    }

    /// A request was served by `bytes` at `address`.
    #[inline(never)]
    pub(super) fn note_allocated(
        &self,
        device: DeviceOrdinal,
        stream: StreamHandle,
        requested_bytes: u64,
        (address, bytes): (u64, u64),
        is_miss: bool,
    ) {
        let stream = StreamName::of(stream).0;
        let (amount, site) = (requested_bytes, self.events.site());
        let event = Event::new(Action::Allocate, device);
        self.events.note(Event { stream, address, amount, bytes, is_miss, site, ..event });
    }

    /// A request was served by a block that its lane did not have free.
    #[cold]
    pub(super) fn note_miss(
        &self,
        device: DeviceOrdinal,
        stream: StreamHandle,
        requested_bytes: u64,
        address: u64,
    ) {
        let found = self.find(address).and_then(|(lane, slot)| {
            lane.lock().blocks.find(slot, address).map(|block| block.bytes)
        });
        let block = (address, found.unwrap_or(requested_bytes));
        self.note_allocated(device, stream, requested_bytes, block, true);
    }

    /// The block at `address` is about to be freed.
    #[inline(never)]
    pub(super) fn note_freeing(&self, address: u64) {
        // Where it is freed nobody asks but debugging, which looks for itself.
        let event = Event::new(Action::Free, DeviceOrdinal(0));
        self.events.note(Event { address, ..event });
    }

    /// The block at `address` is about to be used on another stream.
    #[cold]
    pub(super) fn note_stream(&self, address: u64, stream: StreamHandle) {
        let event = Event::new(Action::RecordStream, DeviceOrdinal(0));
        self.events.note(Event { address, stream: StreamName::of(stream).0, ..event });
    }

    /// Something happened on `device` to so many bytes of it.
    pub(super) fn note_of_device(&self, action: Action, device: DeviceOrdinal, bytes: u64) {
        if self.events.is_on() {
            self.events.note(Event { bytes, ..Event::new(action, device) });
        }
    }

    /// A request of `amount` bytes on `stream` failed for want of memory.
    pub(super) fn note_out_of_memory(
        &self,
        device: DeviceOrdinal,
        stream: StreamHandle,
        amount: u64,
    ) {
        if self.events.is_on() {
            let (stream, site) = (StreamName::of(stream).0, self.events.site());
            let event = Event::new(Action::OutOfMemory, device);
            self.events.note(Event { stream, amount, site, ..event });
        }
    }

    /// The memory of the tag `name` was taken away, or came back.
    pub(super) fn note_tag(&self, action: Action, name: &str) {
        if self.events.is_on() {
            let name = self.events.names().number(name);
            self.events.note(Event { name, ..Event::new(action, DeviceOrdinal(0)) });
        }
    }
}
