//! A worker's pinned host memory: a heap of its own, whose blocks streams of device 0 copy from.

use std::sync::Arc;

use genesis::base::{DeviceOrdinal, StreamHandle};
use genesis::config::PoolType;
use genesis::driver;
use genesis::driver::host::{Gate, HostMemory};
use genesis::driver::simulated::SimulatedDevice;
use genesis::heap::{Heap, Stream, StreamKey};
use simgpu::{Access, Work};

use super::{COMMON_STREAMS, Filled, Worker};
use crate::support::{Rig, heap_over};

/// The only device of a host heap, and the one whose driver locks the pages.
const DEVICE: DeviceOrdinal = DeviceOrdinal(0);
/// The order of the host.
const ORDER: Stream = Stream { handle: StreamHandle::LEGACY, key: StreamKey::HOST };
/// No more blocks are live.
const MOST_LIVE: usize = 16;

/// A heap of pinned memory, and its live blocks.
pub(super) struct Pinned {
    heap: Heap,
    live: Vec<Filled>,
}

/// The captures of the devices.
#[derive(Debug)]
struct OfDevices(Arc<Heap>);

impl Gate for OfDevices {
    fn pass(
        &self,
        device: DeviceOrdinal,
        wait: &mut dyn FnMut() -> driver::Result<()>,
    ) -> driver::Result<()> {
        self.0.wait_outside_captures(device, wait)
    }
}

impl Pinned {
    pub(super) fn new(rig: &Rig) -> Self {
        let device = Arc::new(SimulatedDevice::new(Arc::clone(&rig.machine), DEVICE.0));
        let memory = HostMemory::pinned(device, Arc::new(OfDevices(Arc::clone(&rig.heap))));
        Self { heap: heap_over(Arc::new(memory), PoolType::Caching), live: Vec::new() }
    }
}

impl Worker {
    /// Allocates pinned memory, which the host writes to.
    pub(super) fn take_pinned(&mut self, bytes: u64) {
        if self.pinned.live.len() == MOST_LIVE {
            return;
        }
        match self.pinned.heap.allocate_on(bytes, DEVICE, ORDER) {
            Ok(address) => {
                self.marks += 1;
                let filled = Filled { address, bytes, mark: self.marks as u8 };
                let overlaps = |other: &Filled| {
                    address < other.address + other.bytes && other.address < address + bytes
                };
                assert!(!self.pinned.live.iter().any(overlaps), "{filled:x?} overlaps another");
                self.rig.machine.host_touch(address, bytes, Access::Write, "the host");
                self.write_mark(&filled);
                self.pinned.live.push(filled);
            }
            Err(error) => assert!(self.may_be_busy(error.status), "{error}"),
        }
    }

    /// A stream copies from a block.
    pub(super) fn copy_pinned(&mut self, which: u64, stream: u64) {
        let place = (DEVICE.0, stream % COMMON_STREAMS.len() as u64);
        let Some(filled) = self.pick_pinned(which).map(|index| self.pinned.live[index]) else {
            return;
        };
        if self.is_captured(place) {
            return;
        }
        self.check_mark(&filled);
        let stream = self.handle(place);
        if let Err(error) = self.pinned.heap.record_stream(filled.address, stream) {
            assert!(self.excuses(error.status), "{error}");
            return;
        }
        let work = Work::read(filled.address, filled.bytes, "");
        self.rig.machine.copy_touch(DEVICE.0, stream.0, work).unwrap();
    }

    pub(super) fn free_pinned(&mut self, which: u64) {
        let Some(index) = self.pick_pinned(which) else { return };
        let filled = self.pinned.live.swap_remove(index);
        self.check_mark(&filled);
        self.pinned.heap.free(filled.address).unwrap();
    }

    /// Gives back what is cached, as far as it is not in use.
    pub(super) fn trim_pinned(&self) {
        if let Err(error) = self.pinned.heap.empty_cache(DEVICE) {
            assert!(self.may_be_busy(error.status), "{error}");
        }
    }

    fn pick_pinned(&self, which: u64) -> Option<usize> {
        let count = self.pinned.live.len() as u64;
        (count > 0).then(|| (which % count) as usize)
    }

    pub(super) fn check_pinned(&self) {
        self.pinned.heap.validate().unwrap();
        let statistics = self.pinned.heap.statistics(DEVICE).unwrap();
        let bytes: u64 = self.pinned.live.iter().map(|filled| filled.bytes).sum();
        assert_eq!(statistics.requested_bytes.current, bytes);
    }

    /// All goes back; no stream is captured, and the driver is well.
    pub(super) fn drop_pinned(&mut self) {
        while !self.pinned.live.is_empty() {
            self.free_pinned(0);
        }
        self.check_pinned();
        self.trim_pinned();
        let statistics = self.pinned.heap.statistics(DEVICE).unwrap();
        let in_use = (statistics.reserved_bytes.current, statistics.active_bytes.current);
        // Among others a capture of theirs may be in the way.
        assert!(in_use == (0, 0) || !self.conduct.is_alone, "{statistics:?}");
    }
}
