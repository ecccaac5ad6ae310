//! Reports the calls that the heap serves to the stream of events. Changes to memory are reported
//! where they happen: by `memory::Ledger`, by `memory::ExtentStore`, and by each lane for its
//! blocks.
//!
//! Call sites are looked up here, in the calling thread and with no lock held, because the lookup
//! may take a lock of other code, such as an interpreter's.

use crate::base::{DeviceOrdinal, StreamHandle, thread};
use crate::observe::{Action, Event, EventStream};
use crate::order::StreamName;

/// The heap's access to the stream of events.
#[derive(Debug)]
pub(super) struct Notes {
    pub(super) events: &'static EventStream,
}

/// A block just handed out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handed {
    pub(super) address: u64,
    /// The bytes of the block; `requested_bytes` are those asked for.
    pub(super) bytes: u64,
    pub(super) requested_bytes: u64,
    /// Whether the request missed.
    pub(super) is_miss: bool,
}

impl Notes {
    /// Returns true if there is a listener.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.events.is_on()
    }

    /// Reports that a request on `stream` was served.
    #[inline(never)]
    pub(super) fn allocated(&self, device: DeviceOrdinal, stream: StreamHandle, handed: Handed) {
        let Handed { address, bytes, requested_bytes: amount, is_miss } = handed;
        let (stream, site) = (StreamName::of(stream).0, self.events.site());
        let event = Event::new(Action::Allocate, device);
        self.events.note(Event { stream, address, amount, bytes, is_miss, site, ..event });
    }

    /// Reports a request for 0 bytes, which has no block; returns its address.
    #[cold]
    pub(super) fn allocated_nothing(&self, device: DeviceOrdinal, stream: StreamHandle) -> u64 {
        if self.is_on() {
            let handed = Handed { address: 0, bytes: 0, requested_bytes: 0, is_miss: false };
            self.allocated(device, stream, handed);
        }
        0
    }

    /// Reports that the block at `address` is about to be freed.
    #[inline(never)]
    pub(super) fn freeing(&self, address: u64) {
        // Debugging looks the call site up itself.
        let (site, event) = (self.events.free_site(), Event::new(Action::Free, DeviceOrdinal(0)));
        self.events.note(Event { address, site, ..event });
    }

    /// Reports that the block at `address` is about to be used on another stream.
    pub(super) fn recording(&self, address: u64, stream: StreamHandle) {
        if self.is_on() {
            let event = Event::new(Action::RecordStream, DeviceOrdinal(0));
            self.events.note(Event { address, stream: StreamName::of(stream).0, ..event });
        }
    }

    /// Reports `action` on `device`, of this many bytes.
    pub(super) fn of_device(&self, action: Action, device: DeviceOrdinal, bytes: u64) {
        if self.is_on() {
            self.events.note(Event { bytes, ..Event::new(action, device) });
        }
    }

    /// Marks this moment as `name`.
    pub(super) fn marked(&self, name: &str) {
        if self.is_on() {
            let name = self.events.names().number(name);
            let event = Event::new(Action::Mark, DeviceOrdinal(0));
            self.events.note(Event { name, stream: thread::number(), ..event });
        }
    }

    /// Reports that a request of `amount` bytes on `stream` failed because memory is short.
    pub(super) fn out_of_memory(&self, device: DeviceOrdinal, stream: StreamHandle, amount: u64) {
        if self.is_on() {
            let (stream, site) = (StreamName::of(stream).0, self.events.site());
            let event = Event::new(Action::OutOfMemory, device);
            self.events.note(Event { stream, amount, site, ..event });
        }
    }

    /// Reports that the memory of the tag `name` was released, or came back.
    pub(super) fn of_tag(&self, action: Action, name: &str) {
        if self.is_on() {
            let name = self.events.names().number(name);
            self.events.note(Event { name, ..Event::new(action, DeviceOrdinal(0)) });
        }
    }
}
