//! The events of a lane's own stream: a lane asks another for one, which is recorded at the next call
//! that names the stream, unless that is being captured. Before it asks, it looks whether the stream has
//! anything to do: what a stream leaves free that is not used for long would else be out of reach.
//!
//! What an event covers, [`crate::order::Fence`] knows.

use super::captures::Captures;
use super::lane::{Lane, LaneGuard, LaneState, NO_REQUEST};
use super::owner::LaneKey;
use super::state::DeviceHeap;
use crate::base::sync::atomic::Ordering::Relaxed;
use crate::base::{StreamHandle, blocking};
use crate::driver::Event;
use crate::order::{Contexts, OWN_CONTEXT, Step};

impl Lane {
    /// Asks for an event on the lane's stream, to be recorded at the next call that names it.
    /// Returns true if another asker is already waiting for one. `asker` is not 0.
    pub(super) fn want_fence(&self, asker: u64) -> bool {
        let first = self.fence_wanted.compare_exchange(0, asker, Relaxed, Relaxed);
        first.is_err_and(|first| first != asker)
    }

    /// Records whether the stream is captured; returns the previous value.
    pub(super) fn set_capturing(&self, is_capturing: bool) -> bool {
        // The next call on the stream looks again.
        if is_capturing {
            self.want_fence(NO_REQUEST);
        }
        self.is_capturing.swap(is_capturing, Relaxed)
    }

    /// Returns true if the stream was captured when it was last checked.
    pub(super) fn was_capturing(&self) -> bool {
        self.is_capturing.load(Relaxed)
    }

    /// Returns true if an allocation must call [`Self::renew_fence`] first. Not in the steady
    /// state.
    #[inline]
    pub(super) fn wants_fence(&self) -> bool {
        self.fence_wanted.load(Relaxed) != 0
    }

    /// Records the event that another lane wants, on the lane's stream, which the caller has named.
    /// The caller holds no lock.
    #[cold]
    pub(super) fn renew_fence(
        &self,
        key: LaneKey,
        contexts: &Contexts,
        captures: &Captures,
        stream: StreamHandle,
    ) {
        if self.was_capturing() {
            let is_capturing = contexts.own().driver().stream_is_capturing(stream) == Ok(true);
            captures.see(is_capturing, |now| self.set_capturing(now));
            if is_capturing {
                // No event can be recorded; the next call checks again.
                return;
            }
        }
        if let Some(state) = self.lock_for(key)
            && self.fence_wanted.swap(0, Relaxed) != 0
        {
            // Without the event the other lane misses again, and asks again.
            self.record_fence(state, contexts, stream);
        }
    }

    /// Ends the epoch with an event on the lane's own stream, if one can be recorded. The lock is
    /// released meanwhile: the epoch covers what was freed until now and nothing freed later,
    /// whenever the event is recorded.
    pub(super) fn record_fence(
        &self,
        mut state: LaneGuard<'_>,
        contexts: &Contexts,
        stream: StreamHandle,
    ) {
        let covered = state.fence.end_epoch();
        let events = contexts.get(state.context);
        state.under_way += 1;
        state.fencing += 1;
        drop(state);
        let event = events.record(stream);
        let mut state = self.lock();
        state.under_way -= 1;
        state.fencing -= 1;
        if let Ok(event) = event {
            state.fence.renew(&events, event, covered);
        }
    }

    /// Pins `event`, this lane's, while a stream is made to wait for it without the lock.
    pub(super) fn begin_wait(&self, state: &mut LaneState, event: Event) {
        state.under_way += 1;
        state.fence.pin(event);
    }

    /// Unpins `event`: the stream waits for it now, or never will.
    pub(super) fn end_wait(&self, state: &mut LaneState, contexts: &Contexts, event: Event) {
        state.under_way -= 1;
        let events = contexts.get(state.context);
        state.fence.unpin(&events, event);
    }
}

impl DeviceHeap<'_> {
    /// The handle of the stream of `lane`, if it certainly exists: it lasts, or the program says that it
    /// announces the end of each. Until an announced end is over, the lane must count the call that names
    /// the stream among its `fencing`.
    ///
    /// Of PyTorch's hooks alone that is not known: others make streams, and destroy them.
    pub(super) fn existing_stream(self, lane: &Lane) -> Option<StreamHandle> {
        match lane.lasting_stream() {
            None if self.heap.policy.trusts_streams() => lane.stream().lasting_handle(),
            lasting => lasting,
        }
    }

    /// Looks whether the stream of `lane`, another one's, has nothing to do: then all that is free there
    /// is ready for every stream. Returns true if so. Only if the stream certainly exists.
    pub(super) fn see_idle(self, lane: &Lane) -> bool {
        let key = lane.key();
        let Some(stream) = self.existing_stream(lane) else { return false };
        // To query a stream that is captured invalidates the capture.
        let Ok(_wait) = self.begin_wait() else { return false };
        // A program may destroy its own contexts, with their streams.
        let in_ours = |state: &LaneGuard<'_>| state.context == OWN_CONTEXT;
        let Some(mut state) = lane.lock_for(key).filter(in_ours) else { return false };
        // Every free of that epoch has begun, so the work before it is queued.
        let epoch = state.fence.end_epoch();
        state.under_way += 1;
        state.fencing += 1;
        drop(state);
        let is_idle = blocking(|| self.driver.stream_query(stream)) == Ok(true)
            || Step::StreamQuery.is_left_out();
        let mut state = lane.lock();
        state.under_way -= 1;
        state.fencing -= 1;
        if is_idle {
            state.fence.was_idle(epoch);
        }
        is_idle
    }
}

impl LaneState {
    /// Polls the fence's event.
    pub(super) fn poll_fence(&mut self, contexts: &Contexts) {
        match self.context {
            OWN_CONTEXT => self.fence.poll(contexts.own()),
            context => self.fence.poll(&contexts.get(context)),
        }
    }
}
