//! What the heap tells the stream of events of the calls it serves. What becomes of memory is
//! told where it happens: by `memory::Ledger` and `memory::ExtentStore`, and by a lane of its
//! blocks.
//!
//! Call sites are looked for here, in the thread that made the call and with no lock held: to
//! find one may take a lock of other code, such as an interpreter's.

use crate::base::{DeviceOrdinal, StreamHandle};
use crate::observe::{Action, Event, EventStream};
use crate::order::StreamName;

/// The stream of events, as the heap speaks to it.
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
    /// Whether its lane did not have it free.
    pub(super) is_miss: bool,
}

impl Notes {
    /// Whether anything listens.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.events.is_on()
    }

    /// A request on `stream` was served.
    #[inline(never)]
    pub(super) fn allocated(&self, device: DeviceOrdinal, stream: StreamHandle, handed: Handed) {
        let Handed { address, bytes, requested_bytes: amount, is_miss } = handed;
        let (stream, site) = (StreamName::of(stream).0, self.events.site());
        let event = Event::new(Action::Allocate, device);
        self.events.note(Event { stream, address, amount, bytes, is_miss, site, ..event });
    }

    /// A request for 0 bytes was served, by no block; returns its address.
    #[cold]
    pub(super) fn allocated_nothing(&self, device: DeviceOrdinal, stream: StreamHandle) -> u64 {
        if self.is_on() {
            let handed = Handed { address: 0, bytes: 0, requested_bytes: 0, is_miss: false };
            self.allocated(device, stream, handed);
        }
        0
    }

    /// The block at `address` is about to be freed.
    #[inline(never)]
    pub(super) fn freeing(&self, address: u64) {
        // Only debugging wants to know where, and looks for itself.
        let event = Event::new(Action::Free, DeviceOrdinal(0));
        self.events.note(Event { address, ..event });
    }

    /// The block at `address` is about to be used on another stream.
    pub(super) fn recording(&self, address: u64, stream: StreamHandle) {
        if self.is_on() {
            let event = Event::new(Action::RecordStream, DeviceOrdinal(0));
            self.events.note(Event { address, stream: StreamName::of(stream).0, ..event });
        }
    }

    /// Something happened on `device` to so many bytes of it.
    pub(super) fn of_device(&self, action: Action, device: DeviceOrdinal, bytes: u64) {
        if self.is_on() {
            self.events.note(Event { bytes, ..Event::new(action, device) });
        }
    }

    /// A request of `amount` bytes on `stream` failed because memory is short.
    pub(super) fn out_of_memory(&self, device: DeviceOrdinal, stream: StreamHandle, amount: u64) {
        if self.is_on() {
            let (stream, site) = (StreamName::of(stream).0, self.events.site());
            let event = Event::new(Action::OutOfMemory, device);
            self.events.note(Event { stream, amount, site, ..event });
        }
    }

    /// The memory of the tag `name` was taken away, or came back.
    pub(super) fn of_tag(&self, action: Action, name: &str) {
        if self.is_on() {
            let name = self.events.names().number(name);
            self.events.note(Event { name, ..Event::new(action, DeviceOrdinal(0)) });
        }
    }
}
