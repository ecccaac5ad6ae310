//! What operations do beside serving the caller: tell the stream of events, debug the program,
//! age the cache. All of it hangs on one test, of [`Heap::heeded`]; with nothing wanted, that is
//! all it costs.

use super::Heap;
use super::device::DeviceHeap;
use super::ladder::Climb;
use super::lane_guard::LaneGuard;
use super::notes::Handed;
use super::policy::{AGING, DEBUGGING, LISTENING, TIMING};
use crate::base::{DeviceOrdinal, Result, StreamHandle};
use crate::memory::{Slot, State};

/// Lanes look for aged segments once in so many allocations.
const AGING_INTERVAL: u32 = 256;

impl Heap {
    /// What operations must do at the moment, as bits of `policy`; 0: nothing.
    #[inline]
    pub(super) fn heeded(&self) -> u8 {
        let listening = if self.notes.is_on() { LISTENING } else { 0 };
        self.policy.heeded() | listening
    }

    /// The block in `slot` was handed out on `stream`; returns its address.
    #[cold]
    #[inline(never)]
    pub(super) fn allocated_with_extras(
        &self,
        device: DeviceHeap<'_>,
        state: LaneGuard<'_>,
        slot: Slot,
        stream: StreamHandle,
    ) -> u64 {
        let heeded = self.heeded();
        let block = state.blocks.get(slot);
        let (address, bytes, requested_bytes) = (block.address, block.bytes, block.requested_bytes);
        let tick = state.tick;
        drop(state);
        if heeded & LISTENING != 0 {
            let handed = Handed { address, bytes, requested_bytes, is_miss: false };
            self.notes.allocated(device.ordinal, stream, handed);
        }
        if heeded & DEBUGGING != 0 {
            device.note_debugged(stream, address);
        }
        if heeded & AGING != 0 && tick.is_multiple_of(AGING_INTERVAL) {
            device.release(self.policy.unused());
        }
        address
    }

    /// A request was served by `address`, which its lane did not have free.
    #[cold]
    pub(super) fn climbed_with_extras(&self, climb: &Climb<'_>, address: u64) {
        let Climb { device, stream, requested_bytes, .. } = *climb;
        if self.notes.is_on() {
            let found = self.find(address).and_then(|(lane, slot)| {
                lane.lock().blocks.find(slot, address).map(|block| block.bytes)
            });
            let bytes = found.unwrap_or(requested_bytes);
            let handed = Handed { address, bytes, requested_bytes, is_miss: true };
            self.notes.allocated(device.ordinal, stream, handed);
        }
        if self.policy.is_debugging() {
            device.note_debugged(stream, address);
        }
    }

    /// A request for 0 bytes was served, by no block.
    #[cold]
    pub(super) fn allocated_nothing(&self, device: DeviceOrdinal, stream: StreamHandle) -> u64 {
        if self.notes.is_on() {
            let handed = Handed { address: 0, bytes: 0, requested_bytes: 0, is_miss: false };
            self.notes.allocated(device, stream, handed);
        }
        0
    }

    /// Frees the block at `address`.
    #[cold]
    #[inline(never)]
    pub(super) fn free_with_extras(&self, address: u64) -> Result<()> {
        let heeded = self.heeded();
        if heeded & LISTENING != 0 {
            self.notes.freeing(address);
        }
        if heeded & (DEBUGGING | TIMING) == 0 {
            return self.free_block(address);
        }
        let Some((lane, slot)) = self.find(address) else {
            return Err(self.not_live(address));
        };
        if heeded & DEBUGGING != 0 {
            return self.free_debugged(lane, slot, address);
        }
        let mut state = lane.lock();
        if state.blocks.find(slot, address).is_some_and(|block| block.state == State::Live) {
            // Heeded only once the block is free.
            state.blocks.get_mut(slot).freed_second = self.seconds();
        }
        drop(state);
        self.free_block(address)
    }
}
