//! Releases whole free segments to the driver.
//!
//! Each is first taken out of its lane, one at a time, and no lock is held while the driver is
//! called. A segment that the driver does not take back returns to its lane, so nothing is lost.

use super::super::choice::Choice;
use super::super::pool_memory::Segments;
use super::super::state::DeviceHeap;
use std::ops::Range;

use super::super::lane::{Lane, LaneState};
use super::super::release::Candidate;
use crate::base::blocking;
use crate::driver::{self, Code};
use crate::memory::{Block, Segment, Slot, State};

impl Segments {
    /// Releases what `choice` selects. The driver waits for work that may still use it.
    pub(in super::super) fn release(&self, device: DeviceHeap<'_>, choice: Choice) -> u64 {
        let mut released_bytes = 0;
        for candidate in device.candidates(choice, visit_free_segments) {
            if choice.is_met(released_bytes) {
                break;
            }
            released_bytes += self.release_one(device, &candidate);
        }
        released_bytes
    }

    /// Releases a candidate if it is still what it was; returns the bytes released.
    fn release_one(&self, device: DeviceHeap<'_>, candidate: &Candidate<Slot>) -> u64 {
        let Some(lane) = device.heap.lanes.get(candidate.lane) else {
            return 0;
        };
        let mut state = lane.lock();
        let slot = candidate.piece;
        let found = state.blocks.find(slot, candidate.address);
        let is_free = found.is_some_and(|block| block.state == State::Free);
        if !is_free || !state.blocks.is_whole_segment(slot) {
            return 0;
        }
        let pool = lane.pool();
        let segment = lane.begin_leave(&mut state, slot);
        drop(state);
        match self.release_segment(device, lane, segment) {
            Ok(()) => {
                device.refund_pool(pool, segment.bytes);
                segment.bytes
            }
            Err(_) => 0,
        }
    }

    /// Releases a segment that leaves `lane` to the driver; on an error it returns to the lane.
    pub(in super::super) fn release_segment(
        &self,
        device: DeviceHeap<'_>,
        lane: &Lane,
        segment: Segment,
    ) -> driver::Result<()> {
        let released = device.begin_wait().and_then(|_wait| {
            let own = device.pools.own(lane.pool());
            let store = own.as_ref().map_or(&self.store, |own| &own.segments.store);
            if store.has_source() {
                // Unlike the driver, it may not wait itself.
                device.wait_for_contexts()?;
            } else {
                device.wait_for_other_contexts()?;
            }
            blocking(|| store.release(&device.ledger, segment))
        });
        lane.end_leave(released.is_err().then_some(segment));
        released.inspect_err(|&error| {
            // During a capture nothing is wrong.
            if error.code != Code::STREAM_CAPTURE_UNSUPPORTED {
                device.log_kept_memory(error);
            }
        })
    }
}

/// Releases what `choice` selects of private pools with segments of their own, beside extents.
pub(in super::super) fn release_own(device: DeviceHeap<'_>, choice: Choice) -> u64 {
    if !device.pools.has_own() || !choice.may_wait() {
        return 0;
    }
    let mut released_bytes = 0;
    for candidate in device.candidates(choice, visit_free_segments) {
        let lane = device.heap.lanes.get(candidate.lane);
        let own = lane.and_then(|lane| device.pools.own(lane.pool()));
        if let Some(own) = own.filter(|_| !choice.is_met(released_bytes)) {
            released_bytes += own.segments.release_one(device, &candidate);
        }
    }
    released_bytes
}

/// Calls `add` with each whole free segment of a lane: its block, range and slot.
fn visit_free_segments(state: &LaneState, add: &mut dyn FnMut(&Block, Range<u64>, Slot)) {
    let free = state
        .blocks
        .iter()
        .filter(|&(slot, block)| block.state == State::Free && state.blocks.is_whole_segment(slot));
    for (slot, block) in free {
        add(block, block.address..block.address + block.bytes, slot);
    }
}
