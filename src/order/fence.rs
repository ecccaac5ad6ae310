//! When a lane's free blocks may be used on another stream.
//!
//! Recording an event at every free would cost a driver call each, for blocks that nearly
//! always stay with their stream. Instead frees are counted in *epochs*: a block carries the
//! epoch it was freed in, and an event recorded on the lane's stream ends the epoch. The event
//! stands for every free of that epoch and the earlier ones, so one event serves all blocks.
//!
//! It is recorded only when another lane has missed what this one holds ([`Fence::renew`]), and
//! only inside a call that names the stream, when the stream certainly exists.
//!
//! To record an event, or to have a stream wait for one, blocks while that stream's queue is full,
//! so neither is done under the lane's lock. The epoch is ended first, under the lock, and the event
//! recorded then stands for all that was freed in it: each of these frees had begun, and so the work
//! before it was queued, when the epoch ended. An event that a stream is about to wait for is
//! *pinned*: nobody records it again until that wait is queued.
//!
//! ```text
//! block.freed_epoch ≤ idle_epoch      the device was idle since: use it, nothing to wait for
//! block.freed_epoch ≤ event's epoch   the other stream waits for the event first
//! otherwise                           not yet
//! ```

use super::EventPool;
use crate::driver::Event;

/// The epochs of one lane.
#[derive(Debug)]
pub struct Fence {
    epoch: u32,
    event: Option<(Event, u32)>,
    /// Events that streams are about to wait for, once for each.
    pinned: Vec<Event>,
    idle_epoch: u32,
}

/// What another stream must do before it uses a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Nothing.
    Ready,
    /// Wait for this event.
    After(Event),
    /// It may not use the block yet.
    NotYet,
}

impl Fence {
    /// A lane in its first epoch.
    pub fn new() -> Self {
        Self { epoch: 1, event: None, pinned: Vec::new(), idle_epoch: 0 }
    }

    /// The epoch that blocks freed now belong to.
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether a block freed in `epoch` may be used on another stream.
    pub fn readiness(&self, epoch: u32) -> Readiness {
        match self.event {
            _ if epoch <= self.idle_epoch => Readiness::Ready,
            Some((event, covered)) if epoch <= covered => Readiness::After(event),
            _ => Readiness::NotYet,
        }
    }

    /// `event`, recorded on the lane's own stream after the epoch `covered` was ended, stands for
    /// what was freed until then.
    pub fn renew(&mut self, events: &EventPool, event: Event, covered: u32) {
        // Another thread may have been faster, and with a later epoch.
        if self.event.is_some_and(|(_, newest)| covered <= newest) {
            return events.put(event);
        }
        // Streams that wait for the old event wait for what it stood for then; it may go.
        if let Some((old, _)) = self.event.replace((event, covered)) {
            self.put_unless_pinned(events, old);
        }
    }

    /// A stream is about to wait for `event`, which [`Self::readiness`] gave.
    pub fn pin(&mut self, event: Event) {
        self.pinned.push(event);
    }

    /// Undoes one [`Self::pin`]: the wait is queued, or will not be.
    pub fn unpin(&mut self, events: &EventPool, event: Event) {
        if let Some(index) = self.pinned.iter().position(|&pinned| pinned == event) {
            self.pinned.swap_remove(index);
        }
        if self.event.is_none_or(|(current, _)| current != event) {
            self.put_unless_pinned(events, event);
        }
    }

    fn put_unless_pinned(&self, events: &EventPool, event: Event) {
        if !self.pinned.contains(&event) {
            events.put(event);
        }
    }

    /// Ends the epoch because an event is about to be recorded, or the device waited for; gives the
    /// epoch to name in [`Self::renew`] or [`Self::device_was_idle`] afterwards.
    pub fn end_epoch(&mut self) -> u32 {
        self.epoch += 1;
        self.epoch - 1
    }

    /// The device has been idle since all frees up to `epoch`.
    pub fn device_was_idle(&mut self, epoch: u32) {
        self.idle_epoch = self.idle_epoch.max(epoch);
    }

    /// Whether all work queued on the stream before the end of `epoch` is known to be complete.
    #[inline]
    pub fn is_idle(&self, epoch: u32) -> bool {
        epoch <= self.idle_epoch
    }

    /// Asks whether the event is complete, and needs it no more if it is.
    pub fn poll(&mut self, events: &EventPool) {
        if let Some((event, covered)) = self.event
            && events.device().event_query(event) == Ok(true)
        {
            self.event = None;
            self.put_unless_pinned(events, event);
            self.device_was_idle(covered);
        }
    }

    /// Starts over for another stream; the lane has no block, and nobody is about to wait for it.
    pub fn reset(&mut self, events: &EventPool) {
        debug_assert!(self.pinned.is_empty());
        if let Some((event, _)) = self.event.take() {
            events.put(event);
        }
    }
}
