//! Giving cached memory back: on request, by age, above the cache limit, and when memory is
//! short.
//!
//! Only whole free segments can go back. They are taken out of their lanes first, one at a
//! time and without a lock held while the driver is called; a segment that the driver does
//! not take back returns to its lane, so nothing is ever lost.

use std::ops::Range;

use super::Heap;
use super::device::DeviceHeap;
use super::lane::{Lane, LaneState};
use crate::base::{DeviceOrdinal, Result, blocking};
use crate::config::{LogLevel, PoolType};
use crate::driver;
use crate::memory::{Block, ExtentId, Segment, Slot, State};
use crate::observe::Action;

/// Which cached segments to release. None of a private pool that is held, and none at all
/// while a stream may be capturing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Choice {
    /// All of them.
    All,
    /// The ones unused for longest, until at least so many bytes have gone back.
    Oldest {
        /// How many bytes.
        bytes: u64,
    },
    /// Those unused for at least so long; with neither age set, those not used since the
    /// previous collection.
    Unused {
        /// In allocations on the same stream.
        allocations: Option<u64>,
        /// In seconds.
        seconds: Option<f64>,
    },
    /// Those of private pools that are not held any more.
    Orphaned,
    /// Those with bytes between two addresses.
    Within {
        /// The first byte.
        start: u64,
        /// Behind the last byte.
        end: u64,
    },
}

impl Choice {
    /// Whether `released_bytes` are enough.
    fn is_met(self, released_bytes: u64) -> bool {
        matches!(self, Self::Oldest { bytes } if bytes <= released_bytes)
    }

    /// The same after `released_bytes` have gone back.
    fn less(self, released_bytes: u64) -> Self {
        match self {
            Self::Oldest { bytes } => Self::Oldest { bytes: bytes.saturating_sub(released_bytes) },
            choice => choice,
        }
    }
}

/// Memory that may be released, as it was when its lane was looked at.
struct Candidate {
    age: u32,
    lane: u32,
    /// Of no private pool.
    is_common: bool,
    address: u64,
    piece: Piece,
}

/// What has been waited for before memory is released.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waited {
    No,
    ForDevice,
}

/// What the driver takes back as one.
#[derive(Clone, Copy)]
enum Piece {
    /// A whole free segment.
    Segment(Slot),
    /// An extent whose bytes are all free.
    Extent(ExtentId),
}

impl Heap {
    /// Gives everything cached on `device` back to the driver, after waiting for the device
    /// where freed blocks are still in use by other streams. Gives the bytes released.
    pub fn empty_cache(&self, device: DeviceOrdinal) -> Result<u64> {
        let device = self.device(device)?;
        self.note_of_device(Action::EmptyCache, device.ordinal, 0);
        self.look_for_ends(device);
        self.drain_quarantine(device);
        if self.lanes.of(device.ordinal).any(|lane| !lane.lock().pending.is_empty()) {
            self.wait_for_device(device);
        }
        let released = self.release(device, Choice::All);
        self.settle(device);
        Ok(released)
    }

    /// Gives cached memory of `device` back, the longest unused first, until at most
    /// `target_bytes` are reserved or nothing more can go. Does not wait for
    /// other streams that use a block.
    /// Gives the bytes released.
    pub fn trim(&self, device: DeviceOrdinal, target_bytes: u64) -> Result<u64> {
        let device = self.device(device)?;
        self.look_for_ends(device);
        self.drain_quarantine(device);
        self.poll_lanes(device);
        let bytes = device.supply.reserved_bytes().saturating_sub(target_bytes);
        let released = self.release(device, Choice::Oldest { bytes });
        self.settle(device);
        Ok(released)
    }

    /// Frees the block at `address`, and gives the memory that this leaves wholly free back to the
    /// driver at once, waiting for the device where it has to: for a block that nothing of its
    /// size will follow. Gives the bytes released; what shares a segment or an extent with live
    /// blocks stays cached, and so does what other streams still use. Linear in the number of
    /// segments.
    pub fn free_directly(&self, address: u64) -> Result<u64> {
        let found = self.find(address).and_then(|(lane, slot)| {
            let state = lane.lock();
            state.blocks.find(slot, address).map(|block| (lane.device, block.bytes))
        });
        self.free(address)?;
        let Some((ordinal, bytes)) = found else { return Ok(0) };
        let Some(device) = self.opened(ordinal) else { return Ok(0) };
        let released =
            self.release(device, Choice::Within { start: address, end: address + bytes });
        self.settle(device);
        Ok(released)
    }

    /// Gives back what `device` has cached and not used for as long as the settings
    /// `GENESIS_GC_AGE_*` say, or, where they say nothing, since the previous collection.
    /// Gives the bytes released.
    pub fn collect_garbage(&self, device: DeviceOrdinal) -> Result<u64> {
        let device = self.device(device)?;
        self.poll_lanes(device);
        let released = self.release(device, self.policy.unused());
        self.settle(device);
        for lane in self.lanes.of(device.ordinal) {
            let mut state = lane.lock();
            state.tick = state.tick.wrapping_add(1);
            state.collected_tick = state.tick;
        }
        Ok(released)
    }

    /// Makes the most of what is free on `device` without giving anything back: takes in
    /// freed blocks whose streams have finished, and joins free neighbours (which Caching
    /// and Elastic do at each free, Round and Exact never). Gives the bytes taken in.
    pub fn compact(&self, device: DeviceOrdinal) -> Result<u64> {
        let device = self.device(device)?;
        let inactive_bytes = || -> u64 {
            self.lanes.of(device.ordinal).map(|lane| lane.counters.inactive_bytes()).sum()
        };
        let before = inactive_bytes();
        self.poll_lanes(device);
        let taken_bytes = inactive_bytes().saturating_sub(before);
        self.settle(device);
        Ok(taken_bytes)
    }

    /// Takes in every block of the device whose events have completed.
    fn poll_lanes(&self, device: &DeviceHeap) {
        if device.pools.is_routing() {
            return;
        }
        for lane in self.lanes.of(device.ordinal) {
            let mut state = lane.lock();
            if state.pending.has_events() {
                let _ = lane.poll(&mut state, device.contexts.own());
            }
            if device.pages.is_some() {
                state.poll_fence(&device.contexts);
            }
        }
    }

    /// Waits until the device is idle, after which every freed block can be used by every
    /// stream. Says whether it came to that: not while a stream captures, for one.
    pub(super) fn wait_for_device(&self, device: &DeviceHeap) -> bool {
        !self.may_capture(device) && self.synchronize(device).is_ok()
    }

    /// Waits until the device is idle, and whatever else uses its memory. Not while a stream may be
    /// captured.
    pub(super) fn synchronize(&self, device: &DeviceHeap) -> driver::Result<()> {
        let lanes = || self.lanes.of(device.ordinal);
        let epochs: Vec<u32> = lanes().map(|lane| lane.lock().fence.end_epoch()).collect();
        self.wait_for_contexts(device)?;
        for (lane, epoch) in lanes().zip(epochs) {
            lane.device_was_idle(epoch, device.contexts.own());
        }
        Ok(())
    }

    /// What Naive could not give back during a capture goes back now.
    pub(super) fn release_kept(&self, device: &DeviceHeap) {
        if device.pool_type == PoolType::Naive {
            self.release(device, Choice::All);
        }
    }

    /// Before `segment_bytes` more are asked of the driver: what the user wants released.
    pub(super) fn make_room(&self, device: &DeviceHeap, segment_bytes: u64) {
        if self.would_touch_reserve(device, segment_bytes) {
            self.release(device, Choice::All);
        }
        if let Some(threshold) = self.policy.gc_threshold() {
            let threshold_bytes = (device.usable_bytes() as f64 * threshold) as u64;
            let wanted = device.supply.reserved_bytes().saturating_add(segment_bytes);
            if wanted > threshold_bytes {
                self.release(device, Choice::Oldest { bytes: wanted - threshold_bytes });
            }
        }
    }

    /// MXNet's reserve: whether less than its part of the device would remain free.
    fn would_touch_reserve(&self, device: &DeviceHeap, segment_bytes: u64) -> bool {
        let reserve_fraction = self.policy.reserve_fraction();
        if reserve_fraction == 0.0 {
            return false;
        }
        let reserve_bytes = device.supply.total_bytes() as f64 * reserve_fraction;
        let Ok(info) = device.driver.memory_info() else {
            return false;
        };
        (info.free_bytes.saturating_sub(segment_bytes) as f64) < reserve_bytes
    }

    /// Brings peaks up to date after segments have changed, and keeps the cache limit.
    #[cold]
    pub(super) fn settle(&self, device: &DeviceHeap) {
        let mut excess_bytes = device.refresh_peaks(&self.lanes);
        // Where that takes a wait, what waited for other streams becomes free, and there is more.
        while excess_bytes > 0 && self.release(device, Choice::Oldest { bytes: excess_bytes }) > 0 {
            excess_bytes = device.refresh_peaks(&self.lanes);
        }
    }

    /// Releases memory as `choice` says; gives the bytes released. What the device may still be
    /// using is waited for: by the driver when it takes a segment back, by the heap before it
    /// unmaps an extent.
    pub(super) fn release(&self, device: &DeviceHeap, choice: Choice) -> u64 {
        if self.may_capture(device) {
            return 0;
        }
        let mut released_bytes = self.release_idle(device, choice, Waited::No);
        if device.pages.is_some() {
            let choice = choice.less(released_bytes);
            if self.candidates(device, choice).next().is_some() && self.wait_for_device(device) {
                released_bytes += self.release_idle(device, choice, Waited::ForDevice);
            }
        }
        if released_bytes > 0 {
            self.note_of_device(Action::Trim, device.ordinal, released_bytes);
            let message =
                format_args!("device {}: released {released_bytes} bytes", device.ordinal);
            self.log.write(LogLevel::Info, &message);
        }
        released_bytes
    }

    /// Releases what `choice` says as far as the heap need not wait for it. What was a private
    /// pool's may be in use by a graph on any stream, of which no lane's fence tells: the driver
    /// waits for that when it takes a segment, but not when an extent is unmapped.
    fn release_idle(&self, device: &DeviceHeap, choice: Choice, waited: Waited) -> u64 {
        let mut released_bytes = 0;
        if let Some(pages) = &device.pages {
            released_bytes += self.release_resting(device, pages);
        }
        for candidate in self.candidates(device, choice) {
            if choice.is_met(released_bytes) {
                break;
            }
            let is_known_idle = candidate.is_common || waited == Waited::ForDevice;
            if is_known_idle || device.pages.is_none() {
                released_bytes += self.release_one(device, &candidate);
            }
        }
        if let Some(pages) = &device.pages {
            self.release_bare_areas(device, pages);
        }
        released_bytes
    }

    /// What `choice` may release, the longest unused first.
    fn candidates(
        &self,
        device: &DeviceHeap,
        choice: Choice,
    ) -> impl Iterator<Item = Candidate> + use<> {
        let mut candidates = Vec::new();
        if choice.is_met(0) {
            return candidates.into_iter();
        }
        for lane in self.lanes.of(device.ordinal) {
            let pool = lane.pool();
            let is_common = !pool.is_private();
            if choice == Choice::Orphaned && is_common || !is_common && device.pools.is_held(pool) {
                continue;
            }
            let state = lane.lock();
            let mut add = |state: &LaneState, block: &Block, range: Range<u64>, piece| {
                let address = range.start;
                if self.is_chosen(choice, state, block, &range) {
                    let age = state.tick.wrapping_sub(block.freed_tick);
                    let lane = lane.index;
                    candidates.push(Candidate { age, lane, is_common, address, piece });
                }
            };
            match &device.pages {
                None => {
                    for (slot, block) in state.free_segments() {
                        let range = block.address..block.address + block.bytes;
                        add(&state, block, range, Piece::Segment(slot));
                    }
                }
                Some(pages) => {
                    let extents = pages.extents();
                    let granule_bytes = pages.granule_bytes();
                    state.visit_free_extents(&extents, granule_bytes, |slot, address, id| {
                        let bytes = extents.get(id).map_or(0, |extent| extent.bytes);
                        let range = address..address + bytes;
                        add(&state, state.blocks.get(slot), range, Piece::Extent(id));
                    });
                }
            }
        }
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.age));
        candidates.into_iter()
    }

    /// Whether `choice` is for the memory at `range`, which is free in `block`.
    fn is_chosen(
        &self,
        choice: Choice,
        state: &LaneState,
        block: &Block,
        range: &Range<u64>,
    ) -> bool {
        match choice {
            Choice::Within { start, end } => range.start < end && range.end > start,
            Choice::All | Choice::Oldest { .. } | Choice::Orphaned => true,
            Choice::Unused { allocations: None, seconds: None } => {
                (state.collected_tick.wrapping_sub(block.freed_tick) as i32) > 0
            }
            Choice::Unused { allocations, seconds } => {
                let ticks = state.tick.wrapping_sub(block.freed_tick);
                let idle_seconds = self.seconds().wrapping_sub(block.freed_second);
                allocations.is_some_and(|age| u64::from(ticks) >= age)
                    || seconds.is_some_and(|age| f64::from(idle_seconds) >= age)
            }
        }
    }

    /// Releases a candidate if it is still what it was; gives the bytes released.
    fn release_one(&self, device: &DeviceHeap, candidate: &Candidate) -> u64 {
        let Some(lane) = self.lanes.get(candidate.lane) else {
            return 0;
        };
        let slot = match (candidate.piece, &device.pages) {
            (Piece::Segment(slot), _) => slot,
            (Piece::Extent(id), Some(pages)) => {
                return self.release_extent(device, pages, lane, id, candidate.address);
            }
            (Piece::Extent(_), None) => return 0,
        };
        let mut state = lane.lock();
        let found = state.blocks.find(slot, candidate.address);
        let is_free = found.is_some_and(|block| block.state == State::Free);
        if !is_free || !state.blocks.is_whole_segment(slot) {
            return 0;
        }
        let segment = lane.begin_leave(&mut state, slot);
        drop(state);
        match self.release_segment(device, lane, segment) {
            Ok(()) => segment.bytes,
            Err(_) => 0,
        }
    }

    /// Gives a segment that leaves `lane` back to the driver, or else to the lane.
    pub(super) fn release_segment(
        &self,
        device: &DeviceHeap,
        lane: &Lane,
        segment: Segment,
    ) -> Result<()> {
        let wait = self.begin_wait(device);
        let is_captured = wait.is_err();
        let released = wait.and_then(|_wait| {
            self.wait_for_other_contexts(device)?;
            blocking(|| device.supply.release(segment))
        });
        lane.end_leave(released.is_err().then_some(segment));
        released.map_err(|error| {
            if !error.is_shutdown() && !is_captured {
                let message =
                    format_args!("device {}: {error}; the memory is kept", device.ordinal);
                self.log.write(LogLevel::Error, &message);
            }
            error.into()
        })
    }
}
