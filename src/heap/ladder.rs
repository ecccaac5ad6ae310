//! What is tried, in order, for a request that the lane's own free blocks do not serve.
//!
//! | rung | costs |
//! |---|---|
//! | what the backing can do without pressure (`segments`, `elastic`) | up to a driver allocation |
//! | release what debugging holds back, then the same again | a host wait |
//! | ask the user's callbacks, then the same again | what they cost |
//! | wait for the device: all free blocks of all streams can be used | a host wait |
//! | give cached memory back, then the same again | driver frees |
//! | fail, with one line that has every figure | |
//!
//! No lock is held from rung to rung, so other threads go on; a block freed by one of them at
//! any time is found by the next look at the lane.

use super::lane::{Lane, LaneGuard};
use super::state::{Climb, Pressure, Rung};
use crate::base::{Result, blocking};
use crate::driver::{self, Call, Code, DriverError, Event};
use crate::observe::Tallies;

impl Climb<'_> {
    /// Serves the request.
    #[cold]
    pub(super) fn serve(&self) -> Result<u64> {
        let served = self.climb();
        self.lane.end_climb(served.is_ok());
        self.device.settle();
        if let Ok(address) = served {
            self.climbed_with_extras(address);
        }
        served
    }

    fn climb(&self) -> Result<u64> {
        let rungs: [fn(&Self) -> Rung; 5] = [
            Self::without_pressure,
            Self::after_draining_quarantine,
            Self::after_asking_callbacks,
            Self::after_waiting,
            Self::after_releasing,
        ];
        self.look_for_capture();
        for rung in rungs {
            if let Some(address) = rung(self)? {
                return Ok(address);
            }
        }
        Tallies::count(&self.device.tallies.out_of_memory_events);
        Err(self.out_of_memory())
    }

    fn without_pressure(&self) -> Rung {
        self.device.backing.serve(self, Pressure::None)
    }

    fn after_draining_quarantine(&self) -> Rung {
        if self.drain_quarantine() { self.without_pressure() } else { Ok(None) }
    }

    fn after_asking_callbacks(&self) -> Rung {
        Tallies::count(&self.device.tallies.retries);
        let has_freed = self.device.heap.callbacks.ask(self.device.ordinal, self.block_bytes);
        // What they have freed may be held back as well.
        if self.drain_quarantine() || has_freed { self.without_pressure() } else { Ok(None) }
    }

    fn after_waiting(&self) -> Rung {
        // To try to wait while a stream is captured would spoil the capture.
        if self.device.may_capture() || !self.waiting_would_help() || !self.device.wait_for_device()
        {
            return Ok(None);
        }
        self.device.backing.serve(self, Pressure::Waited)
    }

    fn after_releasing(&self) -> Rung {
        self.device.backing.serve(self, Pressure::Releasing)
    }

    /// Whether there is something that only an idle device makes available to the request.
    fn waiting_would_help(&self) -> bool {
        let lanes = || self.device.lanes();
        let siblings_bytes =
            lanes().filter(|lane| self.is_sibling(lane)).map(|lane| lane.counters.inactive_bytes());
        let is_cached = if self.device.backing.gathers() {
            // What is free is put together, with what the driver still has.
            let siblings_bytes: u64 = siblings_bytes.sum();
            let own_bytes = self.lane.counters.inactive_bytes();
            siblings_bytes > 0
                && siblings_bytes + own_bytes >= self.device.missing_bytes(self.block_bytes)
        } else {
            siblings_bytes.max() >= Some(self.block_bytes)
        };
        is_cached || lanes().any(|lane| !lane.lock().pending.is_empty())
    }

    /// Whether `lane` may lend to the request's: another one of the same pool, or of no private
    /// pool on either side. What is free has no tag.
    pub(super) fn is_sibling(&self, lane: &Lane) -> bool {
        let (own, other) = (self.lane.pool(), lane.pool());
        lane.index != self.lane.index && (own == other || !own.is_private() && !other.is_private())
    }

    /// Polls the lane's events and looks once more.
    pub(super) fn serve_from_lane(&self) -> Option<u64> {
        let mut state = self.lane.lock();
        if !state.pending.is_empty() && !self.device.pools.is_routing() {
            self.lane.poll(&mut state, self.device.contexts.own());
        }
        let state = &mut *state;
        let slot = state.strategy.take(&mut state.blocks, self.block_bytes);
        slot.map(|slot| self.lane.hand_out(state, slot, self.requested_bytes))
    }

    /// Makes the request's stream wait for `event`, on the GPU: the fence of `donor`, whose lock is
    /// released, because this blocks while the queue of the request's stream is full.
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

    /// A capturing stream must not wait for what lies outside of its graph: there the event has to
    /// be complete already.
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
        blocking(|| driver.stream_wait(self.stream, event))
    }
}
