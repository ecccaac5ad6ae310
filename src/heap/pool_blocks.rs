//! The blocks of private pools, one by one: what they are, making free memory live again where it
//! was, and lending it.
//!
//! A captured graph writes to fixed addresses each time it runs. Whoever replays it and keeps its
//! results must have the blocks at these addresses live, although no request was made:
//! `Heap::pool_blocks` says which were live after the capture, and `Heap::place_in_pool` makes them
//! so again.
//!
//! A place may be a part of a free block. The rest stays free:
//!
//! ```text
//!   ────────────── free ──────────────
//!   ─ free ─┌──── place: live ────┐─ free ─
//! ```
//!
//! Memory may have moved to another stream of the pool since. A block placed there counts as used
//! by the stream of its place as well, so that its next user waits for both.

use std::collections::BTreeMap;
use std::ops::Range;

use super::description::{PartState, Region};
use super::lane::{Lane, LaneState};
use super::notes::Handed;
use super::owner::LaneKey;
use super::pools::{PoolId, PoolNumber};
use super::state::{Climb, DeviceHeap, Rung};
use crate::base::size::{ALIGNMENT_BYTES, SizeClass};
use crate::base::{Error, Result};
use crate::memory::{Slot, State};
use crate::order::StreamName;

/// A block of a private pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolBlock {
    /// First byte.
    pub address: u64,
    /// Size, in bytes.
    pub bytes: u64,
    /// Bytes asked for if it is live, otherwise 0.
    pub requested_bytes: u64,
    /// The stream it was allocated on.
    pub stream: StreamName,
    /// What it is; never `Unmapped`.
    pub state: PartState,
    /// The size class of its segment.
    pub class: SizeClass,
    /// The mapped memory around it: a segment, or contiguous extents.
    pub segment: Range<u64>,
}

/// Where a live block is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First byte.
    pub address: u64,
    /// Size, in bytes.
    pub bytes: u64,
    /// Bytes that count as asked for.
    pub requested_bytes: u64,
    /// The stream that uses it.
    pub stream: StreamName,
}

/// The free blocks of a lane, by address: end and slot.
type FreeBlocks = BTreeMap<u64, (u64, Slot)>;

impl<'a> DeviceHeap<'a> {
    fn lanes_of(self, number: PoolNumber) -> impl Iterator<Item = &'a Lane> {
        self.lanes().filter(move |lane| lane.pool() == number)
    }

    /// `Heap::pool_blocks` of the device.
    pub(super) fn pool_blocks(self, pool: PoolId) -> Result<Vec<PoolBlock>> {
        let number = self.pools.number_of(pool)?;
        let mut regions = Vec::new();
        for lane in self.lanes_of(number) {
            self.heap.add_regions(lane, &mut regions);
        }
        let mut blocks: Vec<PoolBlock> = regions.iter().flat_map(blocks_of).collect();
        blocks.sort_by_key(|block| block.address);
        Ok(blocks)
    }

    /// `Heap::place_in_pool` of the device.
    pub(super) fn place_in_pool(self, pool: PoolId, places: &[Place]) -> Result<()> {
        let number = self.pools.number_of(pool)?;
        let places = in_order(places)?;
        if self.lanes_of(number).any(|lane| !lane.lock().pending.is_empty()) {
            self.wait_for_device();
        }
        let mut placed = Vec::new();
        for lane in self.lanes_of(number) {
            placed.extend(place_in_lane(lane, &places));
        }
        for &(lane, place) in &placed {
            self.placed(lane, place);
        }
        self.settle();
        if placed.len() == places.len() {
            return Ok(());
        }
        for (_, place) in &placed {
            self.heap.free(place.address)?;
        }
        let is_missing = |place: &&Place| !placed.iter().any(|(_, other)| other == *place);
        let missing = places.iter().find(is_missing).map_or(0, |place| place.address);
        Err(Error::invalid_argument(format!(
            "the place at {missing:#x} is not free in the private pool ({}, {})",
            pool.0, pool.1
        )))
    }

    /// Records what follows from a block that was placed in `lane`.
    fn placed(self, lane: &Lane, place: Place) {
        let Place { address, bytes, requested_bytes, stream } = place;
        let handle = stream.handle();
        if self.heap.notes.is_on() {
            let handed = Handed { address, bytes, requested_bytes, is_miss: false };
            self.heap.notes.allocated(self.ordinal, handle, handed);
        }
        if self.heap.policy.is_debugging() {
            self.note_debugged(handle, address);
        }
        if lane.name() != stream {
            // Another thread may have freed it already; then it has no use to record.
            let _ = self.heap.record_lasting_stream(address, handle);
        }
    }
}

/// The places in the order of their addresses, if they can all be live at once.
fn in_order(places: &[Place]) -> Result<Vec<Place>> {
    let mut places = places.to_vec();
    places.sort_by_key(|place| place.address);
    let mut end = 0;
    for place in &places {
        let own_end = place.address.checked_add(place.bytes).filter(|_| place.bytes > 0);
        match own_end {
            Some(own_end) if place.address >= end => end = own_end,
            _ => {
                let message = format!("the place at {:#x} overlaps another", place.address);
                return Err(Error::invalid_argument(message));
            }
        }
    }
    Ok(places)
}

/// Makes live those of `places` that are free in `lane`.
fn place_in_lane<'a>(lane: &'a Lane, places: &[Place]) -> Vec<(&'a Lane, Place)> {
    let mut guard = lane.lock();
    let state = &mut *guard;
    let blocks = state.blocks.iter().filter(|(_, block)| block.state == State::Free);
    let mut free: FreeBlocks =
        blocks.map(|(slot, b)| (b.address, (b.address + b.bytes, slot))).collect();
    let mut placed = Vec::new();
    for &place in places {
        if let Some(slot) = cut_out(state, &mut free, place) {
            lane.hand_out(state, slot, place.requested_bytes);
            placed.push((lane, place));
        }
    }
    // The caller settles the device.
    state.has_crossed = false;
    placed
}

/// Takes the block of `place` out of the free block around it, if there is one.
fn cut_out(state: &mut LaneState, free: &mut FreeBlocks, place: Place) -> Option<Slot> {
    let place_end = place.address + place.bytes;
    let (&start, &(end, slot)) = free.range(..=place.address).next_back()?;
    let class = state.blocks.get(slot).class;
    let is_whole = (start, end) == (place.address, place_end);
    let is_aligned = (place.address | place.bytes).is_multiple_of(ALIGNMENT_BYTES);
    // The directory has no two large blocks within a mebibyte.
    let is_of_class = class == SizeClass::Small || SizeClass::of(place.bytes) == class;
    let fits = is_whole || is_aligned && is_of_class;
    if place_end > end || !fits {
        return None;
    }
    free.remove(&start);
    let LaneState { blocks, strategy, .. } = state;
    strategy.withdraw(blocks, slot);
    let mut placed = slot;
    if start < place.address {
        placed = blocks.split(slot, place.address - start);
        // Not free: the block in front is not joined with it again.
        blocks.get_mut(placed).state = State::Live;
        strategy.give(blocks, slot);
        free.insert(start, (place.address, slot));
    }
    blocks.get_mut(placed).state = State::Live;
    if place_end < end {
        let rest = blocks.split(placed, place.bytes);
        strategy.give(blocks, rest);
        free.insert(place_end, (end, rest));
    }
    Some(placed)
}

/// The blocks of a region, each with the mapped memory around it.
fn blocks_of(region: &Region) -> Vec<PoolBlock> {
    let is_mapped = |state: PartState| state != PartState::Unmapped;
    let runs = region.parts.chunk_by(|a, b| is_mapped(a.state) == is_mapped(b.state));
    let mut blocks = Vec::new();
    for run in runs.filter(|run| is_mapped(run[0].state)) {
        let last = run[run.len() - 1];
        let segment = run[0].address..last.address + last.bytes;
        blocks.extend(run.iter().map(|part| PoolBlock {
            address: part.address,
            bytes: part.bytes,
            requested_bytes: if part.state.is_live() { part.requested_bytes } else { 0 },
            stream: region.stream,
            state: part.state,
            class: region.class,
            segment: segment.clone(),
        }));
    }
    blocks
}

impl Climb<'_> {
    /// Takes a free block of a private pool that lends, on the request's own stream.
    pub(super) fn after_asking_pools(&self) -> Rung {
        let Self { device, .. } = *self;
        if self.lane.pool() != PoolNumber::COMMON {
            return Ok(None);
        }
        let lent = device.pools.lenders().into_iter().find_map(|pool| {
            let key = LaneKey { stream: self.lane.stream(), pool };
            let lane = device.lane_index.find(&device.heap.lanes, key)?;
            self.serve_from(lane, key)
        });
        Ok(lent)
    }

    fn serve_from(&self, lane: &Lane, key: LaneKey) -> Option<u64> {
        let mut guard = lane.lock_for(key)?;
        let state = &mut *guard;
        if !state.pending.is_empty() && !self.device.pools.is_routing() {
            lane.poll(state, self.device.contexts.own());
        }
        let slot = state.strategy.take(&mut state.blocks, self.block_bytes)?;
        Some(lane.hand_out(state, slot, self.requested_bytes))
    }
}
