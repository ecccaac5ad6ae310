//! A worker's streams: their order, their progress, their end; and devices that reach each other.

use genesis::base::{DeviceOrdinal, Status};
use genesis::config::StreamIds;

use super::{COMMON_STREAMS, Live, Place, Worker};

impl Worker {
    pub(super) fn advance(&self, place: Place, count: Option<u64>) {
        let (machine, stream) = (&self.rig.machine, self.handle(place).0);
        match count {
            None => machine.run_to_idle(place.0, stream).unwrap(),
            Some(count) => drop(machine.advance(place.0, stream, count).unwrap()),
        }
    }

    /// What is enqueued on `second` from now on comes after what is on `first`, if the driver does
    /// as it should: then it returns true.
    pub(super) fn order(&self, first: Place, second: Place) -> bool {
        if self.is_captured(first) || self.is_captured(second) {
            return false;
        }
        let (machine, event) = (&self.rig.machine, self.events[first.0 as usize]);
        let ordered = machine
            .event_record(first.0, event, self.handle(first).0)
            .and_then(|()| machine.stream_wait(second.0, self.handle(second).0, event));
        assert!(ordered.is_ok() || self.meets_faults, "{ordered:?}");
        ordered.is_ok()
    }

    /// Destroys one of the worker's own streams, of which the heap is `told` or not, and makes
    /// another, which may have the same handle.
    pub(super) fn renew_stream(&mut self, place: Place, told: bool) {
        let (device, stream) = place;
        if self.captured[device as usize].is_of_graph(stream) {
            return;
        }
        let handle = self.handle(place);
        // A recorded stream's end must be told, and if handles are taken for streams, every one's.
        let must_be_told = self.live.iter().any(|live| live.reader == Some(place))
            || self.rig.heap.settings().stream_ids == StreamIds::Off;
        if told || must_be_told {
            let forgotten = self.rig.heap.forget_stream(handle);
            forgotten.unwrap_or_else(|error| assert!(self.excuses(error.status), "{error}"));
        }
        let machine = &self.rig.machine;
        machine.stream_destroy(device, handle.0).unwrap();
        let own = stream as usize - COMMON_STREAMS.len();
        self.own_streams[device as usize][own] = machine.stream_create(device, false).unwrap();
        for live in &mut self.live {
            live.forget(place);
        }
    }

    pub(super) fn enable_peer(&mut self, device: u32, peer: u32) {
        match self.rig.heap.enable_peer_access(DeviceOrdinal(device), DeviceOrdinal(peer)) {
            Ok(()) => self.peers.push((device, peer)),
            Err(error) if error.status == Status::NotSupported => self.assert_not_elastic(),
            Err(error) => assert!(self.excuses(error.status), "{error}"),
        }
    }
}

impl Live {
    /// The stream is gone; nobody can use the block on it any more.
    fn forget(&mut self, (device, stream): Place) {
        if self.device == device && self.stream == Some(stream) {
            self.stream = None;
        }
        self.reader = self.reader.filter(|reader| *reader != (device, stream));
    }
}
