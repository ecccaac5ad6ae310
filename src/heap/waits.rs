//! What a lane does with freed blocks that may still be in use: by streams that were recorded for
//! them, or because debugging holds them back.
//!
//! Such a block is *pending*, and counts how many waits are outstanding for it; each comes out of
//! `order::PendingFrees` once it is over, and with the last the block is free.

use super::lane::{Lane, LaneState};
use crate::base::lock::{Guard, rank};
use crate::memory::{Slot, State};
use crate::observe::{Action, Watermark};
use crate::order::{Contexts, EventCache, Recorded};

/// After an event was found not complete, this many allocations go by before a lane asks
/// again on its hot path; a miss always asks.
const POLL_INTERVAL: u32 = 16;

impl Lane {
    /// Frees the blocks whose events have completed.
    #[cold]
    pub(super) fn poll(&self, state: &mut LaneState, own: &EventCache) -> Watermark {
        let LaneState { pending, fence, complete, .. } = state;
        pending.poll(own, fence.epoch(), |slot| complete.push(slot));
        state.poll_again_at = state.tick.wrapping_add(POLL_INTERVAL);
        self.take_in_complete(state)
    }

    /// All work queued before the lane's epoch ended at `epoch` has completed.
    pub(super) fn device_was_idle(&self, epoch: u32, own: &EventCache) {
        let mut state = self.lock();
        state.fence.device_was_idle(epoch);
        let LaneState { pending, complete, .. } = &mut *state;
        pending.device_was_idle(epoch, |slot| complete.push(slot));
        // Whoever waited brings the watermarks up to date.
        let _ = self.take_in_complete(&mut state);
        let _ = self.poll(&mut state, own);
    }

    /// Counts off the waits that are over.
    fn take_in_complete(&self, state: &mut LaneState) -> Watermark {
        let mut watermark = Watermark::Within;
        for index in 0..state.complete.len() {
            if self.one_wait_less(state, state.complete[index]) == Watermark::Crossed {
                watermark = Watermark::Crossed;
            }
        }
        state.complete.clear();
        watermark
    }

    /// One of what the pending block in `slot` waits for is over.
    pub(super) fn one_wait_less(&self, state: &mut LaneState, slot: Slot) -> Watermark {
        let block = state.blocks.get_mut(slot);
        block.outstanding -= 1;
        if block.outstanding > 0 {
            return Watermark::Within;
        }
        let watermark = self.counters.on_ready(block.class, block.bytes);
        let (address, bytes) = (block.address, block.bytes);
        self.note(Action::Ready, address, bytes);
        state.strategy.give(&mut state.blocks, slot);
        watermark
    }

    /// The block in `slot`, just freed, is kept from being used again until somebody says so by
    /// [`Self::one_wait_less`], and besides as [`Self::make_pending`] does; a strategy that keeps
    /// nothing has the driver wait for other streams. Says whether an event could be had of each
    /// stream: one that is being captured has none.
    pub(super) fn hold_back(
        &self,
        mut state: Guard<'_, LaneState, { rank::LANE }>,
        contexts: &Contexts,
        slot: Slot,
    ) -> bool {
        if !self.keeps_blocks(&state) {
            self.forget_recorded(&mut state, slot);
        }
        state.blocks.get_mut(slot).outstanding += 1;
        // Whoever holds it back settles the device.
        let _ = self.make_pending(state, contexts, slot);
        !self.lock().pending.waits_for_idle(slot)
    }

    /// The pending block in `slot` waits until the device is idle, besides; the driver does that
    /// itself for a strategy that keeps nothing.
    pub(super) fn hold_until_idle(&self, slot: Slot) {
        let mut state = self.lock();
        if self.keeps_blocks(&state) {
            let epoch = state.fence.epoch();
            state.blocks.get_mut(slot).outstanding += 1;
            state.pending.wait_for_idle(slot, epoch);
        }
    }

    /// The block in `slot`, just freed, waits for the streams that were recorded for it.
    ///
    /// The lock is let go while the driver records an event, which blocks while the stream's queue
    /// is full. Whatever work uses the block was queued before it was freed, so before this call,
    /// and each event stands for it. Until the last is there the block has one wait more, which
    /// keeps it pending, and a pending block keeps its lane.
    pub(super) fn make_pending<'a>(
        &'a self,
        mut state: Guard<'a, LaneState, { rank::LANE }>,
        contexts: &Contexts,
        slot: Slot,
    ) -> Watermark {
        let block = state.blocks.get_mut(slot);
        block.state = State::Pending;
        block.outstanding += 1;
        self.note(Action::Pending, block.address, block.bytes);
        let crossed = self.counters.on_pending(block.class, block.bytes);
        while let Some(used_by) = state.pop_recorded(slot) {
            let state_ref = &mut *state;
            state_ref.blocks.get_mut(slot).outstanding += 1;
            let epoch = state_ref.fence.epoch();
            if !used_by.stream.key.is_nameable(used_by.stream.handle) {
                state_ref.pending.wait_for_idle(slot, epoch);
                continue;
            }
            let mut recording = state_ref.pending.begin_recording(contexts, used_by);
            drop(state);
            let answer = recording.record(contexts.own());
            state = self.lock();
            state.pending.end_recording(contexts.own(), recording, answer, (slot, epoch));
        }
        match self.one_wait_less(&mut state, slot) {
            Watermark::Within => crossed,
            Watermark::Crossed => Watermark::Crossed,
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
