//! What is tried, in order, for a request that the lane's own free blocks do not serve.
//!
//! | rung | costs |
//! |---|---|
//! | blocks whose events have completed meanwhile | event queries |
//! | a free segment of another stream, behind that stream's fence | a stream wait, on the GPU |
//! | where much is left behind by streams that do not call (`super::idle`): wait, and look again | a host wait |
//! | a new segment, after releasing old ones if the user wants that | a driver allocation |
//! | — memory is short — | |
//! | what debugging holds back, then the rungs above again | a host wait |
//! | the user's callbacks, then the rungs above again | theirs |
//! | wait for the device: all free blocks of all streams can be used | a host wait |
//! | release as many cached segments as are missing, then a new one | driver frees |
//! | release everything cached, then the smallest segment that will do | driver frees |
//! | fail, with one line that says why | |
//!
//! No lock is held from rung to rung, so other threads go on; a block freed by one of them at
//! any time is found by the next look at the lane.

use std::ops::RangeInclusive;

use super::Heap;
use super::device::DeviceHeap;
use super::lane::{Lane, LaneState};
use super::release::Choice;
use crate::base::lock::{Guard, rank};
use crate::base::size::{MIB, SizeClass};
use crate::base::{Result, StreamHandle, blocking};
use crate::config::LogLevel;
use crate::driver::{self, Call, Code, DriverError, Event};
use crate::memory::{Refusal, Segment};
use crate::observe::Tallies;
use crate::order::Readiness;

/// A request on its way up the ladder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) device: &'a DeviceHeap,
    pub(super) lane: &'a Lane,
    pub(super) stream: StreamHandle,
    pub(super) requested_bytes: u64,
    pub(super) block_bytes: u64,
    /// Not 0, and no other's, but perhaps that of one that was refused before.
    pub(super) number: u64,
}

impl Request<'_> {
    /// Whether `lane` may lend to the request's: another one of the same pool, or none of a
    /// private pool on either side. What is free has no tag.
    pub(super) fn is_sibling(&self, lane: &Lane) -> bool {
        let (own, other) = (self.lane.pool(), lane.pool());
        lane.index != self.lane.index && (own == other || !own.is_private() && !other.is_private())
    }
}

/// Which segments of other streams a request may take.
#[derive(Clone, Copy)]
enum Reach {
    /// Those that fit well: what their stream loses is about what this one gains.
    Fitting,
    /// All that are large enough.
    Any,
}

/// A rung that has not served the request says `None`; an error ends the climb.
pub(super) type Rung = Result<Option<u64>>;

impl Heap {
    /// Serves a request that its lane has just missed.
    #[cold]
    pub(super) fn allocate_slow(&self, request: &Request<'_>) -> Result<u64> {
        let served = self.climb(request);
        request.lane.end_climb(served.is_ok());
        self.settle(request.device);
        if let Ok(address) = served
            && self.events.is_on()
        {
            let Request { device, stream, requested_bytes, .. } = *request;
            self.note_miss(device.ordinal, stream, requested_bytes, address);
        }
        if let Ok(address) = served
            && self.policy.is_debugging()
        {
            self.note_debugged(request.device, request.stream, address);
        }
        served
    }

    fn climb(&self, request: &Request<'_>) -> Result<u64> {
        self.look_for_capture(request);
        if let Some(address) = self.without_pressure(request)? {
            return Ok(address);
        }
        if self.drain_quarantine_for(request)
            && let Some(address) = self.without_pressure(request)?
        {
            return Ok(address);
        }
        Tallies::count(&request.device.tallies.retries);
        let has_freed = self.callbacks.ask(request.device.ordinal, request.block_bytes);
        // What they have freed may be held back as well.
        if (self.drain_quarantine_for(request) || has_freed)
            && let Some(address) = self.without_pressure(request)?
        {
            return Ok(address);
        }
        if let Some(address) = self.after_waiting(request)? {
            return Ok(address);
        }
        if let Some(address) = self.after_releasing(request)? {
            return Ok(address);
        }
        Tallies::count(&request.device.tallies.out_of_memory_events);
        Err(self.out_of_memory(request))
    }

    /// The rungs that neither wait nor release what is not old.
    fn without_pressure(&self, request: &Request<'_>) -> Rung {
        if let Some(pages) = &request.device.pages {
            return self.serve_from_extents(request, pages);
        }
        if let Some(address) = self.serve_from_lane(request) {
            return Ok(Some(address));
        }
        if let Some(address) = self.serve_from_siblings(request, Reach::Fitting) {
            return Ok(Some(address));
        }
        if self.wait_before_growing(request) {
            if let Some(address) = self.serve_from_lane(request) {
                return Ok(Some(address));
            }
            if let Some(address) = self.serve_from_siblings(request, Reach::Any) {
                return Ok(Some(address));
            }
        }
        let segment_bytes = request.device.sizing.segment_bytes(request.block_bytes);
        self.make_room(request.device, segment_bytes);
        self.serve_from_driver(request, segment_bytes)
    }

    fn after_waiting(&self, request: &Request<'_>) -> Rung {
        // To try to wait while a stream is captured would spoil the capture.
        if self.may_capture(request.device)
            || !self.waiting_would_help(request)
            || !self.wait_for_device(request.device)
        {
            return Ok(None);
        }
        if let Some(pages) = &request.device.pages {
            return self.serve_from_extents(request, pages);
        }
        if let Some(address) = self.serve_from_lane(request) {
            return Ok(Some(address));
        }
        Ok(self.serve_from_siblings(request, Reach::Any))
    }

    /// Whether there is something that only an idle device makes available to the request.
    fn waiting_would_help(&self, request: &Request<'_>) -> bool {
        let device = request.device;
        let lanes = || self.lanes.of(device.ordinal);
        let siblings_bytes = lanes()
            .filter(|lane| request.is_sibling(lane))
            .map(|lane| lane.counters.inactive_bytes());
        let is_cached = match device.pages {
            // What is free is put together, whichever lane has it, with what the driver still has.
            Some(_) => {
                let siblings_bytes: u64 = siblings_bytes.sum();
                let own_bytes = request.lane.counters.inactive_bytes();
                siblings_bytes > 0
                    && siblings_bytes + own_bytes >= self.missing_bytes(device, request.block_bytes)
            }
            None => siblings_bytes.max() >= Some(request.block_bytes),
        };
        is_cached || lanes().any(|lane| !lane.lock().pending.is_empty())
    }

    fn after_releasing(&self, request: &Request<'_>) -> Rung {
        let device = request.device;
        let segment_bytes = device.sizing.segment_bytes(request.block_bytes);
        if let Some(pages) = &device.pages {
            // What other pools have left, and nobody may take before it went back.
            self.release(device, Choice::All);
            return self.serve_from_extents(request, pages);
        }
        let missing_bytes = self.missing_bytes(device, segment_bytes);
        if self.release(device, Choice::Oldest { bytes: missing_bytes }) > 0
            && let Some(address) = self.serve_from_driver(request, segment_bytes)?
        {
            return Ok(Some(address));
        }
        self.release(device, Choice::All);
        if let Some(address) = self.serve_from_driver(request, segment_bytes)? {
            return Ok(Some(address));
        }
        let smallest_bytes = request.block_bytes.next_multiple_of(2 * MIB).min(segment_bytes);
        if smallest_bytes < segment_bytes {
            return self.serve_from_driver(request, smallest_bytes);
        }
        Ok(None)
    }

    /// How much must be given back before the device can hold `segment_bytes` more.
    fn missing_bytes(&self, device: &DeviceHeap, segment_bytes: u64) -> u64 {
        // A driver that does not answer is taken to have nothing.
        let free = device.driver.memory_info().map_or(0, |info| info.free_bytes);
        let wanted = device.supply.claim_bytes(segment_bytes);
        wanted.saturating_sub(device.supply.room_bytes().min(free))
    }

    /// Polls the lane's events and looks once more.
    pub(super) fn serve_from_lane(&self, request: &Request<'_>) -> Option<u64> {
        let mut state = request.lane.lock();
        if !state.pending.is_empty() && !request.device.pools.is_routing() {
            let _ = request.lane.poll(&mut state, request.device.contexts.own());
        }
        let state = &mut *state;
        let slot = state.strategy.take(&mut state.blocks, request.block_bytes);
        slot.map(|slot| request.lane.hand_out(state, slot, request.requested_bytes).0)
    }

    /// Takes a whole free segment from another lane of the device.
    fn serve_from_siblings(&self, request: &Request<'_>, reach: Reach) -> Option<u64> {
        let block_bytes = request.block_bytes;
        let largest = match reach {
            Reach::Fitting => request.device.sizing.segment_bytes(block_bytes),
            Reach::Any => request.device.sizing.largest_usable_bytes(block_bytes),
        };
        let siblings = self.lanes.of(request.device.ordinal);
        for sibling in siblings.filter(|sibling| request.is_sibling(sibling)) {
            if sibling.counters.inactive_bytes() < block_bytes {
                continue;
            }
            if let Some(segment) = self.withdraw_from(sibling, request, &(block_bytes..=largest)) {
                Tallies::count(&request.device.tallies.cross_stream_reuses);
                return Some(self.hand_out_segment(request, segment));
            }
        }
        None
    }

    /// A segment of `sibling` that the request's stream may use from now on.
    fn withdraw_from(
        &self,
        sibling: &Lane,
        request: &Request<'_>,
        bytes: &RangeInclusive<u64>,
    ) -> Option<Segment> {
        let mut state = sibling.lock();
        let (found, unfenced) = state.find_for_sibling(bytes);
        let Some((slot, readiness)) = found else {
            if unfenced {
                sibling.want_fence(request.number);
            }
            return None;
        };
        let epoch = state.blocks.get(slot).freed_epoch;
        let segment = sibling.withdraw_segment(&mut state, slot);
        let Readiness::After(event) = readiness else {
            return Some(segment);
        };
        // It is nobody's until the wait is queued, so nobody uses it before.
        let ordered = self.order_after(request, sibling, state, event);
        if ordered.is_err() {
            sibling.put_back_segment(&mut sibling.lock(), segment, epoch);
        }
        ordered.is_ok().then_some(segment)
    }

    /// Makes the request's stream wait for `event`, on the GPU: the fence of `donor`, whose lock is
    /// let go, since this blocks while the queue of the request's stream is full.
    pub(super) fn order_after(
        &self,
        request: &Request<'_>,
        donor: &Lane,
        mut state: Guard<'_, LaneState, { rank::LANE }>,
        event: Event,
    ) -> driver::Result<()> {
        donor.begin_wait(&mut state, event);
        drop(state);
        let ordered = self.wait_on_device(request, event);
        donor.end_wait(&mut donor.lock(), &request.device.contexts, event);
        ordered
    }

    /// A capturing stream must not wait for what lies outside of its graph: there the event has to be
    /// complete already.
    fn wait_on_device(&self, request: &Request<'_>, event: Event) -> driver::Result<()> {
        let driver = &request.device.driver;
        if driver.event_query(event)? {
            return Ok(());
        }
        if driver.stream_is_capturing(request.stream)? {
            return Err(DriverError {
                call: Call::StreamWait,
                code: Code::STREAM_CAPTURE_UNSUPPORTED,
            });
        }
        blocking(|| driver.stream_wait(request.stream, event))
    }

    /// Asks the driver for a segment; `None` when memory is short.
    fn serve_from_driver(&self, request: &Request<'_>, segment_bytes: u64) -> Rung {
        let class = SizeClass::of(request.block_bytes);
        let message = format_args!("device {}: {segment_bytes} bytes more", request.device.ordinal);
        self.log.write(LogLevel::Debug, &message);
        match blocking(|| request.device.supply.acquire(segment_bytes, class)) {
            Ok(segment) => Ok(Some(self.hand_out_segment(request, segment))),
            Err(Refusal::Limit) => Ok(None),
            Err(Refusal::Driver(error)) if error.is_out_of_memory() => Ok(None),
            Err(Refusal::Driver(error) | Refusal::AddressSpace(error)) => Err(error.into()),
        }
    }

    /// Gives the lane a segment that no lane holds, and the caller a block of it.
    fn hand_out_segment(&self, request: &Request<'_>, segment: Segment) -> u64 {
        let Request { lane, block_bytes, requested_bytes, .. } = *request;
        let mut state = lane.lock();
        lane.hand_out_segment(&mut state, segment, block_bytes, requested_bytes)
    }
}
