//! Memory in segments, each one allocation of the driver: the backing of every strategy but
//! Elastic. Blocks are cut from them; a whole free one may move to another lane or be released.
//!
//! | rung | costs |
//! |---|---|
//! | the lane again: blocks whose events have completed meanwhile | event queries |
//! | a free segment of another stream, behind that stream's fence | a stream wait, on the GPU |
//! | if idle streams hold much (`super::idle`): wait, and try both again | a host wait |
//! | a new segment, after releasing old ones if the user wants that | a driver allocation |
//! | memory is short: release cached segments, as many as needed, then a new one | driver frees |
//! | release everything cached, then the smallest segment that is large enough | driver frees |

mod ready;
mod release;

pub(super) use release::release_own;

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::choice::Choice;
use super::lane::{Lane, LaneState};
use super::pool_memory::Segments;
use super::state::{Climb, Pressure, Rung};
use crate::base::blocking;
use crate::base::size::{MIB, SizeClass};
use crate::config::LogLevel;
use crate::driver::Device;
use crate::memory::{Refusal, Segment, SegmentStore, Slot};
use crate::observe::Tallies;
use crate::order::Readiness;
use crate::strategy::Sizing;

/// In a pool with a limit, a segment is larger than needed only up to this part of the limit.
const LIMIT_PART: u64 = 8;

/// Which segments of other streams a request may take.
#[derive(Clone, Copy)]
enum Reach {
    /// Those that fit well: their stream loses about as much as this one gains.
    Fitting,
    /// All that are large enough.
    Any,
}

impl Segments {
    /// The segments of the device behind `driver`, in managed memory or not: none yet.
    pub(super) fn new(driver: Arc<dyn Device>, is_managed: bool) -> Self {
        let store = if is_managed { SegmentStore::managed } else { SegmentStore::new };
        Self { store: store(driver) }
    }

    /// How many bytes of the device a segment of `bytes` takes.
    pub(super) fn charged_bytes(&self, bytes: u64) -> u64 {
        self.store.charged_bytes(bytes)
    }

    pub(super) fn serve(&self, climb: &Climb<'_>, pressure: Pressure) -> Rung {
        match pressure {
            Pressure::None => self.serve_without_pressure(climb),
            Pressure::Waited => Ok(serve_from_lanes(climb, Reach::Any)),
            Pressure::Releasing => self.serve_after_releasing(climb),
        }
    }

    fn serve_without_pressure(&self, climb: &Climb<'_>) -> Rung {
        if let Some(address) = serve_from_lanes(climb, Reach::Fitting) {
            return Ok(Some(address));
        }
        let smallest_bytes = smallest_segment_bytes(climb);
        if climb.pool_room_bytes() < smallest_bytes
            && let Some(address) = serve_from_lanes(climb, Reach::Any)
        {
            return Ok(Some(address));
        }
        climb.make_pool_room(smallest_bytes)?;
        if climb.wait_before_growing()
            && let Some(address) = serve_from_lanes(climb, Reach::Any)
        {
            return Ok(Some(address));
        }
        let segment_bytes = segment_bytes(climb);
        climb.device.make_room(segment_bytes);
        climb.device.stay_on_device(segment_bytes);
        self.serve_from_driver(climb, segment_bytes)
    }

    fn serve_after_releasing(&self, climb: &Climb<'_>) -> Rung {
        let device = climb.device;
        let segment_bytes = segment_bytes(climb);
        let missing_bytes = device.missing_bytes(segment_bytes);
        if device.release(Choice::LeastNeeded { bytes: missing_bytes }) > 0
            && let Some(address) = self.serve_from_driver(climb, segment_bytes)?
        {
            return Ok(Some(address));
        }
        device.release(Choice::All);
        if let Some(address) = self.serve_from_driver(climb, segment_bytes)? {
            return Ok(Some(address));
        }
        let smallest_bytes = smallest_segment_bytes(climb);
        if smallest_bytes < segment_bytes {
            return self.serve_from_driver(climb, smallest_bytes);
        }
        Ok(None)
    }

    /// Asks the driver for a segment; `None` when memory is short.
    fn serve_from_driver(&self, climb: &Climb<'_>, segment_bytes: u64) -> Rung {
        let device = climb.device;
        let class = SizeClass::of(climb.block_bytes);
        device.heap.log.write(
            LogLevel::Debug,
            &format_args!("device {}: {segment_bytes} bytes more", device.ordinal),
        );
        let wanted = (segment_bytes, class);
        let charge = climb.charge_pool(segment_bytes)?;
        match blocking(|| self.store.acquire(&device.ledger, wanted, climb.stream)) {
            Ok(segment) => {
                charge.keep();
                let device_bytes = device.ledger.total_bytes();
                blocking(|| self.store.bring(segment, device_bytes, climb.stream));
                Ok(Some(hand_out_segment(climb, segment)))
            }
            Err(Refusal::Limit) => Ok(None),
            Err(Refusal::Driver(error)) if error.is_out_of_memory() => Ok(None),
            Err(Refusal::Driver(error) | Refusal::AddressSpace(error)) => Err(error.into()),
        }
    }
}

/// The sizes of the segments that the request's lane has.
fn sizing(climb: &Climb<'_>) -> Sizing {
    let own = climb.device.pools.own(climb.lane.pool());
    own.map_or(climb.device.sizing, |own| own.sizing(climb.device.sizing))
}

/// The segment to ask for: of the usual size, or the smallest if the usual one would take more than
/// a small part of a pool's limit.
fn segment_bytes(climb: &Climb<'_>) -> u64 {
    let usual_bytes = sizing(climb).segment_bytes(climb.block_bytes);
    let most_bytes = climb.pool_room_bytes().min(climb.pool_limit_bytes() / LIMIT_PART);
    if most_bytes < usual_bytes { smallest_segment_bytes(climb) } else { usual_bytes }
}

/// The smallest segment that serves the request.
fn smallest_segment_bytes(climb: &Climb<'_>) -> u64 {
    let usual_bytes = sizing(climb).segment_bytes(climb.block_bytes);
    climb.block_bytes.next_multiple_of(2 * MIB).min(usual_bytes)
}

/// Serves from a block of the lane, or from a whole free segment of another lane.
fn serve_from_lanes(climb: &Climb<'_>, reach: Reach) -> Option<u64> {
    climb.serve_from_lane().or_else(|| serve_from_siblings(climb, reach))
}

/// Takes a whole free segment from another lane of the device.
fn serve_from_siblings(climb: &Climb<'_>, reach: Reach) -> Option<u64> {
    let Climb { device, block_bytes, .. } = *climb;
    let largest = match reach {
        Reach::Fitting => sizing(climb).segment_bytes(block_bytes),
        Reach::Any => device.sizing.largest_usable_bytes(block_bytes),
    };
    for sibling in device.lanes().filter(|sibling| climb.is_sibling(sibling)) {
        if sibling.counters.inactive_bytes() < block_bytes {
            continue;
        }
        if let Some(segment) = withdraw_from(sibling, climb, &(block_bytes..=largest)) {
            Tallies::count(&device.tallies.cross_stream_reuses);
            return Some(hand_out_segment(climb, segment));
        }
    }
    None
}

/// Takes a segment of `sibling` that the request's stream may use from now on.
fn withdraw_from(
    sibling: &Lane,
    climb: &Climb<'_>,
    bytes: &RangeInclusive<u64>,
) -> Option<Segment> {
    let mut state = sibling.lock();
    let (found, unfenced) = find_for_sibling(&state, bytes);
    let Some((slot, readiness)) = found else {
        if unfenced {
            sibling.want_fence(climb.number);
        }
        return None;
    };
    let epoch = state.blocks.get(slot).freed_epoch;
    let segment = sibling.withdraw_segment(&mut state, slot);
    let Readiness::After(event) = readiness else {
        return Some(segment);
    };
    // No lane has it until the wait is queued, so none can use it before.
    let ordered = climb.order_after(sibling, state, event);
    if ordered.is_err() {
        sibling.put_back_segment(&mut sibling.lock(), segment, epoch);
    }
    ordered.is_ok().then_some(segment)
}

/// Of the whole free segments with a size in `bytes`, returns the smallest that another stream may
/// use; also returns true if there is one that it may not use yet.
fn find_for_sibling(
    state: &LaneState,
    bytes: &RangeInclusive<u64>,
) -> (Option<(Slot, Readiness)>, bool) {
    let mut smallest = u64::MAX;
    let mut found = None;
    let mut unfenced = false;
    state.strategy.visit(&state.blocks, bytes, &mut |slot, block| {
        if block.bytes >= smallest || !state.blocks.is_whole_segment(slot) {
            return;
        }
        match state.fence.readiness(block.freed_epoch) {
            Readiness::NotYet => unfenced = true,
            readiness => {
                smallest = block.bytes;
                found = Some((slot, readiness));
            }
        }
    });
    (found, unfenced)
}

/// Adds a segment that no lane holds to the lane, and hands out a block at its start.
fn hand_out_segment(climb: &Climb<'_>, segment: Segment) -> u64 {
    let Climb { lane, block_bytes, requested_bytes, .. } = *climb;
    let mut guard = lane.lock();
    let state = &mut *guard;
    let slot = state.blocks.insert(segment);
    state.strategy.cut(&mut state.blocks, slot, block_bytes);
    lane.count_held(&state.blocks);
    lane.hand_out(state, slot, requested_bytes)
}
