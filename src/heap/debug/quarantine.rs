//! Quarantine: freed blocks that are held back from reuse, first in, first out.
//!
//! A block in quarantine is pending, and one of its `outstanding` counts is the quarantine's. The
//! oldest leave when there is more than the limit; all leave when memory is short, before the
//! cache is emptied or trimmed, and before a tag is paused. A poisoned block is checked when it
//! leaves: if its pattern has changed, something wrote to it after the free, which is reported.
//!
//! ```text
//! a block in the queue is pending, and outstanding ≥ 1
//! bytes = Σ bytes of the blocks in the queue
//! ```

use super::super::kept::{Held, Quarantine};
use super::super::state::{Climb, DeviceHeap};
use crate::base::lock::{Lock, rank};
use crate::config::PoolType;
use crate::memory::State;

impl Climb<'_> {
    /// Frees everything that is held back on the request's device; returns true if there was
    /// anything. Does nothing while the request's stream is captured.
    pub(in super::super) fn drain_quarantine(&self) -> bool {
        let quarantine = self.device.quarantine();
        let is_empty = quarantine.lock().queue.is_empty();
        !is_empty
            && self.device.driver.stream_is_capturing(self.stream) == Ok(false)
            && self.device.drain_quarantine()
    }
}

impl<'a> DeviceHeap<'a> {
    pub(super) fn quarantine(self) -> &'a Lock<Quarantine, { rank::LEAF }> {
        &self.heap.debugging.quarantines[self.state.ordinal.index()]
    }

    /// Frees everything that is held back on the device; returns true if there was anything.
    pub(in super::super) fn drain_quarantine(self) -> bool {
        // The driver would wait for the device, which it must not while a stream may be capturing.
        let may_release = self.pool_type != PoolType::Naive || !self.may_capture();
        may_release && self.shrink_quarantine(0, false)
    }

    /// Frees what is held back on the device beyond `kept_bytes`; returns true if there was
    /// anything. `is_idle`: the device has been waited for since.
    pub(super) fn shrink_quarantine(self, kept_bytes: u64, is_idle: bool) -> bool {
        let quarantine = self.quarantine();
        let leaving = quarantine.lock().pop_down_to(kept_bytes);
        let may_look =
            leaving.iter().any(|held| held.is_poisoned) && (is_idle || self.wait_for_user());
        for held in &leaving {
            if held.is_poisoned && may_look {
                self.check_freed(held);
            }
            self.let_go(held);
        }
        !leaving.is_empty()
    }

    /// Ends the quarantine of a block: it is free once no stream uses it any more.
    pub(super) fn let_go(self, held: &Held) {
        let Some(lane) = self.heap.lanes.get(held.lane) else { return };
        let mut guard = lane.lock();
        let state = &mut *guard;
        // The caller settles the device.
        lane.end_one_wait(state, held.slot);
        if lane.keeps_blocks(state) {
            return;
        }
        let segment = lane.begin_leave(state, held.slot);
        drop(guard);
        // A segment that the driver does not take back is logged, kept, and offered again.
        let _ = self.backing.release_segment(self, lane, segment);
    }

    /// Checks what is held back against the blocks.
    pub(in super::super) fn validate_quarantine(self) -> Result<(), String> {
        let (queue, bytes) = {
            let quarantine = self.quarantine().lock();
            (quarantine.queue.clone(), quarantine.bytes)
        };
        let mut held_bytes = 0;
        for held in queue {
            held_bytes += held.bytes;
            let is_pending = self.heap.lanes.get(held.lane).is_some_and(|lane| {
                let state = lane.lock();
                let block = state.blocks.find(held.slot, held.address);
                block.is_some_and(|block| {
                    (block.state, block.bytes) == (State::Pending, held.bytes)
                        && block.outstanding > 0
                })
            });
            if !is_pending {
                return Err(format!("device {}: not pending: {held:?}", self.ordinal));
            }
        }
        if held_bytes != bytes {
            return Err(format!("{held_bytes} bytes held back, {bytes} recorded"));
        }
        Ok(())
    }
}
