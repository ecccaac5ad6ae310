//! What an allocation also does if asked to: it reports to the stream of events, keeps notes for
//! debugging, ages the cache, and looks whether the host has memory for its tables. One test of
//! `Heap::heeded` covers these, and tags, which a free looks for (`accounts`); if none is on, that test
//! is the whole cost.

use super::lane::{Lane, LaneGuard};
use super::notes::Handed;
use super::policy::{AGING, DEBUGGING, HOST_SHORT, LISTENING};
use super::state::{Climb, DeviceHeap, Heap};
use crate::base::{Result, StreamHandle, host_memory};
use crate::memory::Slot;

/// Allocations of a lane between two searches for aged segments.
const AGING_INTERVAL: u32 = 256;

impl DeviceHeap<'_> {
    /// Does the extras for the block in `slot`, just handed out on `stream`; returns its address. If the
    /// host has no memory left, the block is freed again.
    #[cold]
    #[inline(never)]
    pub(super) fn allocated_with_extras(
        self,
        lane: &Lane,
        state: LaneGuard<'_>,
        slot: Slot,
        stream: StreamHandle,
    ) -> Result<u64> {
        let heeded = self.heap.heeded();
        let block = state.blocks.get(slot);
        let (address, bytes, requested_bytes) = (block.address, block.bytes, block.requested_bytes);
        let tick = state.tick;
        self.heap.let_go(lane, state);
        if heeded & HOST_SHORT != 0
            && let Err(error) = self.heap.check_host_memory()
        {
            // Nobody was told of it yet.
            self.heap.free_block(address)?;
            return Err(error);
        }
        if heeded & LISTENING != 0 {
            let handed = Handed { address, bytes, requested_bytes, is_miss: false };
            self.heap.notes.allocated(self.ordinal, stream, handed);
        }
        if heeded & DEBUGGING != 0 {
            self.note_debugged(stream, address);
        }
        if heeded & AGING != 0 && tick.is_multiple_of(AGING_INTERVAL) {
            self.release(self.heap.policy.unused());
        }
        Ok(address)
    }
}

impl Heap {
    /// The host's own memory has become short: from now on each allocation looks at what is left of
    /// it, until it is there again. Any thread may call this with any lock held.
    pub fn heed_host_memory(&self) {
        self.policy.heed_host_memory();
    }

    fn check_host_memory(&self) -> Result<()> {
        host_memory::require_room()?;
        if !host_memory::is_short() {
            self.policy.ignore_host_memory();
        }
        Ok(())
    }
}

impl Climb<'_> {
    /// Does the extras for `address`, just handed out after a miss.
    #[cold]
    pub(super) fn climbed_with_extras(&self, address: u64) {
        let Climb { device, stream, requested_bytes, .. } = *self;
        if device.heap.notes.is_on() {
            let found = device.heap.find(address).and_then(|(lane, slot)| {
                lane.lock().blocks.find(slot, address).map(|block| block.bytes)
            });
            let bytes = found.unwrap_or(requested_bytes);
            let handed = Handed { address, bytes, requested_bytes, is_miss: true };
            device.heap.notes.allocated(device.ordinal, stream, handed);
        }
        if device.heap.policy.is_debugging() {
            device.note_debugged(stream, address);
        }
    }
}
