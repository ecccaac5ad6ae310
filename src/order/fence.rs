//! When a lane's free blocks may be used on another stream.
//!
//! Recording an event at every free would cost a driver call each, for blocks that nearly always
//! stay with their stream. Instead a lane counts *epochs*, and a free stamps the block with the
//! current epoch. To *fence* the lane is to end the epoch and to record one event on the lane's
//! stream. The fence is known by the number of the epoch that it ended: its event stands for
//! every block stamped with that epoch or an earlier one.
//!
//! A lane is fenced only when another lane has missed what this one holds, and only inside a
//! call that names the stream, when the stream certainly exists.
//!
//! Recording an event, or making a stream wait for one, blocks while that stream's queue is full,
//! so neither is done under the lane's lock:
//!
//! 1. Under the lock, [`Fence::end_epoch`]. Every free of that epoch has begun, so the work before
//!    it is queued.
//! 2. Without the lock, the event is recorded.
//! 3. Under the lock, [`Fence::renew`] with the event and the epoch that was ended.
//!
//! An event that a stream is about to wait for is *pinned*: it is not recorded again until that
//! wait is queued.
//!
//! ```text
//! block.freed_epoch ≤ idle_epoch           use it: the stream was idle after the free
//! block.freed_epoch ≤ epoch of the event   the other stream waits for the event first
//! otherwise                                not yet
//! ```

use super::EventCache;
use super::omission::Step;
use crate::driver::Event;

/// Once another stream has waited for an event, so many are recorded ahead of need.
const MOST_UNUSED: u32 = 64;

/// The epochs of one lane, and its latest fence.
#[derive(Debug)]
pub struct Fence {
    epoch: u32,
    /// The event of the latest fence, and the epoch that it ended.
    event: Option<(Event, u32)>,
    /// Events that streams are about to wait for, once for each wait.
    pinned: Vec<Event>,
    /// The stream was idle after all frees up to this epoch.
    idle_epoch: u32,
    /// How many events were taken in since another stream has waited for one.
    unused: u32,
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
        Self { epoch: 1, event: None, pinned: Vec::new(), idle_epoch: 0, unused: MOST_UNUSED }
    }

    /// The epoch that blocks are freed in now.
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// What another stream must do before it uses a block freed in `epoch`.
    pub fn readiness(&self, epoch: u32) -> Readiness {
        match self.event {
            _ if epoch <= self.idle_epoch => Readiness::Ready,
            Some((event, covered)) if epoch <= covered || Step::CoveredEpoch.is_left_out() => {
                Readiness::After(event)
            }
            _ if Step::NoFence.is_left_out() => Readiness::Ready,
            _ => Readiness::NotYet,
        }
    }

    /// Takes in `event`, recorded on the lane's own stream after the epoch `covered` was ended.
    pub fn renew(&mut self, events: &EventCache, event: Event, covered: u32) {
        self.unused = self.unused.saturating_add(1);
        // Another thread may have fenced a later epoch meanwhile.
        if self.event.is_some_and(|(_, newest)| covered <= newest) {
            return events.put(event);
        }
        // A wait that is queued keeps its meaning when the old event is recorded again.
        if let Some((old, _)) = self.event.replace((event, covered)) {
            self.put_unless_pinned(events, old);
        }
    }

    /// A stream is about to wait for `event`, which [`Self::readiness`] returned.
    pub fn pin(&mut self, event: Event) {
        self.unused = 0;
        self.pinned.push(event);
    }

    /// Undoes one [`Self::pin`]: the wait is queued, or has failed.
    pub fn unpin(&mut self, events: &EventCache, event: Event) {
        if let Some(index) = self.pinned.iter().position(|&pinned| pinned == event) {
            self.pinned.swap_remove(index);
        }
        if self.event.is_none_or(|(current, _)| current != event) {
            self.put_unless_pinned(events, event);
        }
    }

    fn put_unless_pinned(&self, events: &EventCache, event: Event) {
        if !self.pinned.contains(&event) {
            events.put(event);
        }
    }

    /// Ends the epoch before an event is recorded or the device waited for. Returns the epoch to
    /// name afterwards in [`Self::renew`] or [`Self::was_idle`].
    pub fn end_epoch(&mut self) -> u32 {
        if Step::EndOfEpoch.is_left_out() {
            return self.epoch;
        }
        self.epoch += 1;
        self.epoch - 1
    }

    /// Returns true if other streams wait for the lane's events now and then, so that one should be
    /// recorded ahead of need.
    #[inline]
    pub fn is_in_demand(&self) -> bool {
        self.unused < MOST_UNUSED
    }

    /// Returns true if there is an event that is not known to be complete.
    pub fn has_event(&self) -> bool {
        self.event.is_some()
    }

    /// The stream was idle after all frees up to `epoch`.
    pub fn was_idle(&mut self, epoch: u32) {
        self.idle_epoch = self.idle_epoch.max(epoch);
    }

    /// Returns true if all work queued on the stream before the end of `epoch` is known to be
    /// complete.
    #[inline]
    pub fn is_idle(&self, epoch: u32) -> bool {
        epoch <= self.idle_epoch || Step::IdleEpoch.is_left_out()
    }

    /// Queries the event, and lets go of it if it is complete.
    pub fn poll(&mut self, events: &EventCache) {
        if let Some((event, covered)) = self.event
            && (events.driver().event_query(event) == Ok(true) || Step::FenceQuery.is_left_out())
        {
            self.event = None;
            self.put_unless_pinned(events, event);
            self.was_idle(covered);
        }
    }

    /// Starts over for another stream. The lane has no block, and no stream is about to wait for
    /// its event.
    pub fn reset(&mut self, events: &EventCache) {
        debug_assert!(self.pinned.is_empty());
        self.unused = MOST_UNUSED;
        if let Some((event, _)) = self.event.take() {
            events.put(event);
        }
    }
}
