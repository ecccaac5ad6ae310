//! The ladder: what is tried, in order, for a request that its lane's own free blocks do not serve.
//!
//! | rung | costs |
//! |---|---|
//! | a window that the lane knows (`elastic::known`) | |
//! | what the backing can do without pressure (`segments`, `elastic`) | up to a driver allocation |
//! | release what debugging holds back, then the same again | a host wait |
//! | call the user's callbacks, then the same again | what they cost |
//! | wait for the device, so that any stream can use any free block | a host wait |
//! | release cached memory, then the same again | driver frees |
//! | the same once more while no other thread has memory under way (`attempts`) | a host wait |
//! | take free memory of a private pool that lends (`pool_blocks`) | |
//! | wait for the captures of other threads to end, then for the device, and release cached memory | a host wait |
//! | ask the processes that share the device for what they have cached, then the same again | what they take to give it |
//! | fail, with one line that has every figure | |
//!
//! No lock is held between rungs, so other threads continue; the next look at the lane finds any
//! block that they have freed.

use super::attempts::Attempted;
use super::lane::{Lane, LaneGuard, LaneState, NO_REQUEST};
use super::state::{Climb, Pressure, Rung};
use crate::base::{Result, blocking, host_memory};
use crate::driver::{self, Call, Code, DriverError, Event};
use crate::observe::{LaneCounters, Tallies};
use crate::order::Step;

/// How often a request that is about to be refused is tried at most, as long as other threads free blocks
/// meanwhile, or capture. They need no turn (`attempts`) for that.
const MOST_TRIES: u32 = 16;

impl Climb<'_> {
    /// Serves the request.
    #[cold]
    pub(super) fn serve(&self) -> Result<u64> {
        self.lane.callers.note();
        let served = match self.serve_as_known() {
            Some(address) => Ok(address),
            None => {
                let served = self.climb();
                self.end(served.is_ok());
                served
            }
        };
        self.device.watch_fragmentation();
        if let Ok(address) = served {
            self.climbed_with_extras(address);
        }
        served
    }

    /// The lane's live memory is at its usual low, and something is to be done then: brings its memory home,
    /// for example. Not a request.
    #[cold]
    pub(super) fn come_home(&self) {
        let held_bytes = self.lane.counters.held_bytes();
        let come_home = || self.device.backing.come_home(self);
        if self.device.attempts.attempt(come_home).result {
            self.end(false);
        } else {
            self.end_within_lane(held_bytes, false);
        }
    }

    /// Serves the request by a known window, if there is one.
    fn serve_as_known(&self) -> Option<u64> {
        // What is wrong, the climb tells.
        host_memory::require().ok()?;
        let held_bytes = self.lane.counters.held_bytes();
        let known = self.device.attempts.attempt(|| self.device.backing.serve_as_known(self));
        known.result.inspect(|_| self.end_within_lane(held_bytes, true))
    }

    /// Ends a climb.
    fn end(&self, served: bool) {
        self.lane.end_climb(served);
        self.device.settle();
    }

    /// Ends a climb that did nothing in other lanes but bring memory to its own, which held `held_bytes`
    /// before. If none came, no level has changed but by what crosses a watermark.
    fn end_within_lane(&self, held_bytes: u64, served: bool) {
        if self.lane.end_climb(served) || self.lane.counters.held_bytes() != held_bytes {
            self.device.settle();
        }
    }

    /// Tries one rung after another.
    fn climb(&self) -> Result<u64> {
        // Whatever serves it needs tables.
        host_memory::require()?;
        let rungs: [fn(&Self) -> Rung; 8] = [
            Self::without_pressure,
            Self::after_draining_quarantine,
            Self::after_asking_callbacks,
            Self::after_waiting,
            Self::after_releasing,
            Self::after_asking_pools,
            Self::after_captures,
            Self::after_asking_neighbours,
        ];
        self.look_for_capture();
        for rung in rungs {
            if let Some(address) = rung(self).map_err(|error| self.refused(error))? {
                return Ok(address);
            }
        }
        Tallies::count(&self.device.tallies.out_of_memory_events);
        if let Some(extents) = self.device.backing.extents()
            && self.is_free_in_pieces()
        {
            extents.note_in_pieces(self.device);
        }
        Err(self.out_of_memory())
    }

    fn without_pressure(&self) -> Rung {
        self.attempt(Pressure::None)
    }

    fn after_draining_quarantine(&self) -> Rung {
        if self.drain_quarantine() { self.without_pressure() } else { Ok(None) }
    }

    fn after_asking_callbacks(&self) -> Rung {
        Tallies::count(&self.device.tallies.retries);
        let has_freed = self.device.heap.callbacks.ask(self.device.ordinal, self.block_bytes);
        // Debugging may hold back what they have freed.
        if self.drain_quarantine() || has_freed { self.without_pressure() } else { Ok(None) }
    }

    fn after_waiting(&self) -> Rung {
        // Even trying to wait while a stream is captured would invalidate the capture.
        if self.device.may_capture() || !self.waiting_would_help() || !self.device.wait_for_device()
        {
            return Ok(None);
        }
        self.attempt(Pressure::Waited)
    }

    fn after_releasing(&self) -> Rung {
        self.attempt(Pressure::Releasing)
    }

    /// Serves the request as far as `pressure` allows. Before it is refused, for lack of memory or by a
    /// pool's limit, it waits for what other threads have under way and tries again.
    fn attempt(&self, pressure: Pressure) -> Rung {
        let is_last = pressure == Pressure::Releasing;
        let is_refused = |result: &Rung| match result {
            Ok(served) => served.is_none() && is_last,
            Err(error) => error.limit.is_some(),
        };
        let may_be_refused = is_last || self.pool_limit_bytes() != u64::MAX;
        let freed_bytes = || -> u64 {
            if !may_be_refused {
                return 0;
            }
            // At a pool's limit only the pool's own memory helps.
            let may_help = |lane: &&Lane| is_last || lane.pool() == self.lane.pool();
            let lanes = self.device.lanes().filter(may_help);
            lanes.map(|lane| lane.counters.freed_total()).sum()
        };
        let serve = || {
            let mut tries_left = MOST_TRIES;
            loop {
                let freed_before = freed_bytes();
                let result = self.device.backing.serve(self, pressure);
                tries_left -= 1;
                if !is_refused(&result) || tries_left == 0 || freed_bytes() == freed_before {
                    return result;
                }
            }
        };
        let Attempted { result, met_others } = self.device.attempts.attempt(serve);
        if !met_others || !is_refused(&result) {
            return result;
        }
        let is_enough = |result: &Rung| !is_refused(result);
        self.device.attempts.attempt_alone(serve, is_enough).unwrap_or(result)
    }

    /// Waits for captures of other threads to end, and does what they forbade, here or in callbacks; again
    /// if others have begun meanwhile.
    fn after_captures(&self) -> Rung {
        let mut before = self.captures_before;
        for _ in 0..MOST_TRIES {
            let is_worth_it = self.device.others_captured(before) && self.may_be_held_back();
            if !is_worth_it || !self.device.let_captures_end() {
                break;
            }
            before = self.device.captures_before();
            for rung in [Self::after_asking_callbacks, Self::after_waiting, Self::after_releasing] {
                if let Some(address) = rung(self)? {
                    return Ok(Some(address));
                }
            }
        }
        Ok(None)
    }

    /// Returns true if the request might be served if nothing were captured: because enough is not live,
    /// or because callbacks may free what is. Not if it may be part of a capture, which waits for it.
    fn may_be_held_back(&self) -> bool {
        let is_in_pool = self.lane.pool().is_private() && self.device.pools.is_routing();
        if is_in_pool || self.lane.was_capturing() {
            return false;
        }
        let live_bytes: u64 = self.device.counters().map(LaneCounters::allocated_bytes).sum();
        let cached_bytes = self.device.ledger.reserved_bytes().saturating_sub(live_bytes);
        self.device.heap.callbacks.is_any()
            || cached_bytes >= self.device.missing_bytes(self.block_bytes)
    }

    fn after_asking_neighbours(&self) -> Rung {
        let mut served = Ok(None);
        self.device.ask_neighbours(self.block_bytes, || {
            served = self.after_releasing();
            !matches!(served, Ok(None))
        });
        served
    }

    /// Returns true if an idle device would make memory available that the request can use.
    fn waiting_would_help(&self) -> bool {
        let lanes = || self.device.lanes();
        let siblings_bytes =
            lanes().filter(|lane| self.is_sibling(lane)).map(|lane| lane.counters.inactive_bytes());
        let is_cached = if self.device.backing.gathers() {
            // Free memory is put together with what the driver still has.
            let siblings_bytes: u64 = siblings_bytes.sum();
            let own_bytes = self.lane.counters.inactive_bytes();
            siblings_bytes > 0
                && siblings_bytes + own_bytes >= self.device.missing_bytes(self.block_bytes)
        } else {
            siblings_bytes.max() >= Some(self.block_bytes)
        };
        is_cached || lanes().any(|lane| !lane.lock().pending.is_empty())
    }

    /// Returns true if all that is free and may be lent would be enough for the request, in one piece.
    fn is_free_in_pieces(&self) -> bool {
        let may_use = |lane: &&Lane| lane.index == self.lane.index || self.is_sibling(lane);
        let lanes = self.device.lanes().filter(may_use);
        let free_bytes: u64 = lanes.map(|lane| lane.counters.inactive_bytes()).sum();
        !self.device.may_capture() && free_bytes >= self.device.missing_bytes(self.block_bytes)
    }

    /// Returns true if `lane` may lend to the request's lane: it is another lane of the same pool,
    /// or neither is of a private pool. Tags do not matter, because free memory has none.
    pub(super) fn is_sibling(&self, lane: &Lane) -> bool {
        let (own, other) = (self.lane.pool(), lane.pool());
        lane.index != self.lane.index && (own == other || !own.is_private() && !other.is_private())
    }

    /// Polls the lane's events and tries the lane once more.
    pub(super) fn serve_from_lane(&self) -> Option<u64> {
        let mut state = self.lane.lock();
        if !state.pending.is_empty() && !self.device.pools.is_routing() {
            self.lane.poll(&mut state, self.device.contexts.own());
        }
        self.take_from_lane(&mut state)
    }

    /// Serves the request from the free blocks of its lane, whose state is `state`.
    pub(super) fn take_from_lane(&self, state: &mut LaneState) -> Option<u64> {
        let slot = state.strategy.take(&mut state.blocks, self.block_bytes);
        slot.map(|slot| self.lane.hand_out(state, slot, self.requested_bytes))
    }

    /// Ends the lane's epoch with an event, unless the last one is still to come, so that views that
    /// blocks have left can soon be unmapped.
    pub(super) fn keep_fence(&self) {
        let Self { device, lane, stream, .. } = *self;
        if device.may_capture() {
            return;
        }
        let mut state = lane.lock();
        state.poll_fence(&device.contexts);
        if !state.fence.has_event() {
            drop(state);
            lane.want_fence(NO_REQUEST);
            device.renew_fence(lane, lane.key(), stream);
            lane.lock().poll_fence(&device.contexts);
        }
    }

    /// Makes the request's stream wait, on the GPU, for `event`, the fence of `donor`. Releases the
    /// lock of `donor` first, because this blocks while the queue of the request's stream is full.
    pub(super) fn order_after(
        &self,
        donor: &Lane,
        mut state: LaneGuard<'_>,
        event: Event,
    ) -> driver::Result<()> {
        donor.begin_wait(&mut state, event);
        drop(state);
        let ordered = self.wait_on_device(event);
        donor.end_wait(&mut donor.lock(), &self.device.contexts, event);
        ordered
    }

    /// The wait itself. A capturing stream must not wait for work outside its graph, so this fails
    /// there unless the event is already complete.
    fn wait_on_device(&self, event: Event) -> driver::Result<()> {
        let driver = &self.device.driver;
        if driver.event_query(event)? {
            return Ok(());
        }
        if driver.stream_is_capturing(self.stream)? {
            return Err(DriverError {
                call: Call::StreamWait,
                code: Code::STREAM_CAPTURE_UNSUPPORTED,
            });
        }
        if Step::StreamWait.is_left_out() {
            return Ok(());
        }
        blocking(|| driver.stream_wait(self.stream, event))
    }
}
