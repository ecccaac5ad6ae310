//! Freed blocks that may not be reused yet, because streams recorded for them may still use them or
//! because debugging holds them back.
//!
//! Such a block is *pending* and counts its outstanding waits. `order::PendingFrees` reports each
//! wait that is over; after the last, the block is free.

use super::lane::{Lane, LaneGuard, LaneState};
use super::state::DeviceHeap;
use crate::memory::{Slot, State};
use crate::observe::Action;
use crate::order::{EventCache, Recorded, Step};

/// After an event was found incomplete, a lane polls again on its hot path only after this many
/// allocations; a miss always polls.
const POLL_INTERVAL: u32 = 16;

impl DeviceHeap<'_> {
    /// Makes the block in `slot` of `lane`, just freed, wait for the streams recorded for it.
    ///
    /// The lock is released while the driver records an event, because that blocks while the
    /// stream's queue is full. All work that uses the block was queued before its free, so each
    /// event covers it. The waits for all streams are counted first: the block stays pending until
    /// the last event is recorded, and a pending block keeps its lane from being reassigned.
    pub(super) fn make_pending<'a>(self, lane: &'a Lane, mut state: LaneGuard<'a>, slot: Slot)
    where
        Self: 'a,
    {
        let contexts = &self.state.contexts;
        let LaneState { blocks, recorded, .. } = &mut *state;
        let block = blocks.get_mut(slot);
        block.state = State::Pending;
        block.outstanding += recorded.count(block.recorded);
        debug_assert!(block.outstanding > 0);
        let (address, class, bytes) = (block.address, block.class, block.bytes);
        lane.note(Action::Pending, address, bytes);
        state.note_watermark(lane.counters.on_pending(class, bytes));
        while let Some(used_by) = state.pop_recorded(slot) {
            let is_nameable = used_by.stream.key.is_nameable(used_by.stream.handle);
            if !is_nameable && Step::IdleWait.is_left_out() {
                lane.end_one_wait(&mut state, slot);
                continue;
            }
            let epoch = state.fence.epoch();
            if !is_nameable {
                state.pending.wait_for_idle(slot, epoch);
                continue;
            }
            let mut recording = state.pending.begin_recording(contexts, used_by);
            drop(state);
            let answer = recording.record(contexts.own());
            state = lane.lock();
            state.pending.end_recording(contexts.own(), recording, answer, (slot, epoch));
        }
        self.heap.let_go(lane, state);
    }

    /// Holds back the block in `slot` of `lane`, just freed, until [`Lane::end_one_wait`], and
    /// while it is pending for other reasons. Under a strategy that keeps no blocks the driver
    /// waits for other streams. Returns true if each of those streams had an event; one being
    /// captured has none.
    pub(super) fn hold_back<'a>(self, lane: &'a Lane, mut state: LaneGuard<'a>, slot: Slot) -> bool
    where
        Self: 'a,
    {
        if !lane.keeps_blocks(&state) {
            lane.forget_recorded(&mut state, slot);
        }
        state.blocks.get_mut(slot).outstanding += 1;
        self.make_pending(lane, state, slot);
        !lane.lock().pending.waits_for_idle(slot)
    }

    /// Frees the blocks of `lane` whose events have completed. Only while no stream is being captured.
    pub(super) fn poll_blocks(self, lane: &Lane) -> LaneGuard<'_> {
        let mut state = lane.lock();
        if state.pending.has_events() {
            lane.poll(&mut state, self.contexts.own());
        }
        state
    }
}

impl Lane {
    /// Frees the blocks whose events have completed.
    #[cold]
    pub(super) fn poll(&self, state: &mut LaneState, own: &EventCache) {
        let LaneState { pending, fence, complete, trough, .. } = state;
        let events = pending.events();
        pending.poll(own, fence.epoch(), |slot| complete.push(slot));
        trough.events_came(events - pending.events());
        let interval = if pending.has_events() { POLL_INTERVAL } else { 0 };
        state.poll_again_at = state.tick.wrapping_add(interval);
        self.end_complete_waits(state);
    }

    /// Called when all work queued before the lane's epoch ended at `epoch` has completed.
    pub(super) fn device_was_idle(&self, epoch: u32, own: &EventCache) {
        let mut state = self.lock();
        state.fence.was_idle(epoch);
        let LaneState { pending, complete, .. } = &mut *state;
        pending.device_was_idle(epoch, |slot| complete.push(slot));
        self.end_complete_waits(&mut state);
        self.poll(&mut state, own);
    }

    fn end_complete_waits(&self, state: &mut LaneState) {
        for index in 0..state.complete.len() {
            self.end_one_wait(state, state.complete[index]);
        }
        state.complete.clear();
    }

    /// Ends one wait of the pending block in `slot`; after the last, the block is free.
    pub(super) fn end_one_wait(&self, state: &mut LaneState, slot: Slot) {
        let block = state.blocks.get_mut(slot);
        block.outstanding -= 1;
        if block.outstanding > 0 {
            return;
        }
        let (address, class, bytes) = (block.address, block.class, block.bytes);
        state.note_watermark(self.counters.on_ready(class, bytes));
        self.note(Action::Ready, address, bytes);
        state.strategy.give(&mut state.blocks, slot);
    }

    /// Makes the pending block in `slot` also wait until the device is idle. Under a strategy that
    /// keeps no blocks the driver waits instead.
    pub(super) fn hold_until_idle(&self, slot: Slot) {
        let mut state = self.lock();
        if self.keeps_blocks(&state) {
            let epoch = state.fence.epoch();
            state.blocks.get_mut(slot).outstanding += 1;
            state.pending.wait_for_idle(slot, epoch);
        }
    }

    /// Drops the streams that were recorded for the block in `slot`.
    pub(super) fn forget_recorded(&self, state: &mut LaneState, slot: Slot) {
        while state.pop_recorded(slot).is_some() {}
    }
}

impl LaneState {
    /// Takes one of the streams that were recorded for the block in `slot`.
    fn pop_recorded(&mut self, slot: Slot) -> Option<Recorded> {
        let block = self.blocks.get_mut(slot);
        let (recorded, rest) = self.recorded.pop(block.recorded)?;
        block.recorded = rest;
        Some(recorded)
    }
}
