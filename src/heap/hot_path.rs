//! Allocating and freeing.
//!
//! ```text
//! allocate:  device → size of the block → lane of the stream → lock → strategy → block
//!                                                               └ a miss → ladder
//! free:      directory → lane → lock → its record → strategy, or pending on other streams
//! ```
//!
//! In the steady state each is one uncontended lock and some arithmetic: no driver call, no system
//! call, no host allocation, no formatting. Both are compiled once for each size class, so hardly
//! anything branches on it.

use super::choice::Choice;
use super::lane::{Lane, LaneGuard, LaneState};
use super::owner::LaneKey;
use super::policy::{DEBUGGING, LISTENING, SHARING, TAGGED, TIMING};
use super::pools::{PoolId, PoolNumber};
use super::state::{Climb, DeviceHeap, Heap};
use crate::base::size::SizeClass;
use crate::base::{DeviceOrdinal, Error, Result, Status, StreamHandle};
use crate::driver::Code;
use crate::memory::{Slot, State};
use crate::order::{RecordedStreams, Stream};

impl Heap {
    /// Allocates `requested_bytes` on `device` for use on `stream`; returns address 0 for 0 bytes.
    ///
    /// The address is a multiple of 512. Work queued on `stream` from now on may use the memory;
    /// its contents are undefined. The default streams are those of `device`. `OutOfMemory` is
    /// returned only after all cached memory that could help has been tried.
    #[inline]
    pub fn allocate(
        &self,
        requested_bytes: u64,
        device: DeviceOrdinal,
        stream: StreamHandle,
    ) -> Result<u64> {
        if requested_bytes == 0 {
            return Ok(self.notes.allocated_nothing(device, stream));
        }
        let stream = self.identify(device, stream)?;
        self.allocate_on(requested_bytes, device, stream)
    }

    /// [`Self::allocate`] on a stream that is identified already.
    #[inline(always)]
    pub fn allocate_on(
        &self,
        requested_bytes: u64,
        device: DeviceOrdinal,
        stream: Stream,
    ) -> Result<u64> {
        if requested_bytes == 0 {
            return Ok(self.notes.allocated_nothing(device, stream.handle));
        }
        let device = self.device(device)?;
        let Some(block_bytes) = device.sizing.block_bytes(requested_bytes) else {
            return Err(too_large(requested_bytes));
        };
        if device.pools.is_plain() {
            device.allocate_in(PoolNumber::COMMON, stream, (requested_bytes, block_bytes), false)
        } else {
            let number = device.pool_for(stream.handle);
            device.allocate_apart(number, stream, (requested_bytes, block_bytes), false)
        }
    }

    /// [`Self::allocate_on`] of a block that has its memory, one handle of the driver's, to itself, so
    /// that it can be paused alone ([`Self::pause_block`]). `requested_bytes` are rounded up to whole
    /// granules. It belongs to no private pool. `NotSupported` unless the memory is Elastic's.
    pub fn allocate_alone(
        &self,
        requested_bytes: u64,
        device: DeviceOrdinal,
        stream: Stream,
    ) -> Result<u64> {
        if requested_bytes == 0 {
            return Ok(self.notes.allocated_nothing(device, stream.handle));
        }
        self.require_elastic()?;
        let device = self.device(device)?;
        let Some(extents) = device.state.backing.extents() else {
            return Err(device.no_virtual_memory());
        };
        let Some(bytes) = device.sizing.block_bytes(extents.charged_bytes(requested_bytes)) else {
            return Err(too_large(requested_bytes));
        };
        device.allocate_apart(device.current_tags(), stream, (bytes, bytes), true)
    }

    /// [`Self::allocate_on`] from the private pool `pool`, which is held, whatever the thread has begun.
    #[cold]
    pub fn allocate_from(
        &self,
        pool: PoolId,
        requested_bytes: u64,
        device: DeviceOrdinal,
        stream: Stream,
    ) -> Result<u64> {
        if requested_bytes == 0 {
            return Ok(self.notes.allocated_nothing(device, stream.handle));
        }
        let device = self.device(device)?;
        let Some(block_bytes) = device.sizing.block_bytes(requested_bytes) else {
            return Err(too_large(requested_bytes));
        };
        let number = device.pools.number_of(pool)?;
        device.allocate_apart(number, stream, (requested_bytes, block_bytes), false)
    }

    /// Frees the block at `address`; does nothing for address 0.
    ///
    /// `ForeignPointer` and `DoubleFree` change nothing. `DriverFailed` (Naive only): the driver
    /// refused to take the memory back; the heap keeps it and tries again later.
    #[inline(always)]
    pub fn free(&self, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        if self.has_extras() {
            return self.free_with_extras(address);
        }
        self.free_block(address)
    }

    /// Releases the lock of `lane`, and updates the device's peaks if a watermark was crossed.
    #[inline]
    pub(super) fn let_go(&self, lane: &Lane, state: LaneGuard<'_>) {
        let has_crossed = state.has_crossed;
        drop(state);
        if has_crossed {
            self.settle_after(lane);
        }
    }

    #[cold]
    fn settle_after(&self, lane: &Lane) {
        lane.lock().has_crossed = false;
        if let Some(device) = self.opened(lane.device) {
            device.settle();
        }
    }

    /// Frees the block at `address`, without the extras of `heeded`.
    #[inline(always)]
    pub(super) fn free_block(&self, address: u64) -> Result<()> {
        match self.find(address) {
            Some((lane, slot)) => self.free_found(lane, slot, address),
            None => Err(self.not_live(address)),
        }
    }

    /// Frees the block at `address`, which the directory has in `slot` of `lane`.
    #[inline(always)]
    fn free_found(&self, lane: &Lane, slot: Slot, address: u64) -> Result<()> {
        let state = lane.lock();
        let is_live =
            state.blocks.find(slot, address).is_some_and(|block| block.state == State::Live);
        if !is_live {
            return self.free_unusual(lane, state, slot, address);
        }
        self.free_live(lane, state, slot)
    }

    /// Frees the live block in `slot`.
    #[inline(always)]
    pub(super) fn free_live(&self, lane: &Lane, state: LaneGuard<'_>, slot: Slot) -> Result<()> {
        match state.blocks.get(slot).class {
            SizeClass::Small => self.free_live_of(SizeClass::Small, lane, state, slot),
            SizeClass::Large => self.free_live_of(SizeClass::Large, lane, state, slot),
        }
    }

    /// [`Self::free_live`] of a block of `class`, compiled for each.
    #[inline(always)]
    fn free_live_of(
        &self,
        class: SizeClass,
        lane: &Lane,
        mut state: LaneGuard<'_>,
        slot: Slot,
    ) -> Result<()> {
        let recorded = lane.count_free_of(class, &mut state, slot);
        if recorded != RecordedStreams::NONE || !lane.keeps_blocks(&state) {
            return self.free_slow(lane, state, slot);
        }
        let LaneState { strategy, blocks, .. } = &mut *state;
        strategy.give_of(class, blocks, slot);
        self.let_go(lane, state);
        Ok(())
    }

    /// Frees the block at `address`, with the extras of `heeded`.
    #[cold]
    #[inline(never)]
    pub(super) fn free_with_extras(&self, address: u64) -> Result<()> {
        let heeded = self.heeded();
        if heeded & SHARING != 0 && self.keep_for_others(address)? {
            return Ok(());
        }
        if heeded & LISTENING != 0 {
            self.notes.freeing(address);
        }
        if heeded & (DEBUGGING | TIMING | TAGGED) == 0 {
            return self.free_block(address);
        }
        let Some((lane, slot)) = self.find(address) else {
            return Err(self.not_live(address));
        };
        if heeded & DEBUGGING != 0 {
            return self.free_debugged(lane, slot, address);
        }
        if heeded & TIMING != 0 {
            let mut state = lane.lock();
            if state.blocks.find(slot, address).is_some_and(|block| block.state == State::Live) {
                // Read only once the block is free.
                state.blocks.get_mut(slot).freed_second = self.seconds();
            }
        }
        if lane.pool().is_tagged() {
            self.device(lane.device)?.free_tagged(lane, slot, address)
        } else {
            self.free_found(lane, slot, address)
        }
    }

    /// Handles a free of anything but a live block: frees a paused block, else returns the error.
    #[cold]
    pub(super) fn free_unusual(
        &self,
        lane: &Lane,
        state: LaneGuard<'_>,
        slot: Slot,
        address: u64,
    ) -> Result<()> {
        match state.blocks.find(slot, address) {
            Some(block) if block.state == State::Paused => self.free_paused(lane, state, slot),
            _ => {
                drop(state);
                Err(self.not_live(address))
            }
        }
    }

    /// The rest of a free that needs the driver, because other streams used the block or because
    /// the strategy keeps no blocks.
    #[cold]
    pub(super) fn free_slow(
        &self,
        lane: &Lane,
        mut state: LaneGuard<'_>,
        slot: Slot,
    ) -> Result<()> {
        let Some(device) = self.opened(lane.device) else {
            return Err(Error::new(Status::Internal, "a block of a device never opened"));
        };
        if lane.keeps_blocks(&state) {
            // Counted as freed, the block is still in use: only what it does as pending matters.
            state.forget_crossing();
            device.make_pending(lane, state, slot);
            return Ok(());
        }
        // The driver waits for all streams itself.
        lane.forget_recorded(&mut state, slot);
        let LaneState { strategy, blocks, .. } = &mut *state;
        strategy.give(blocks, slot);
        let segment = lane.begin_leave(&mut state, slot);
        drop(state);
        let freed = if device.may_capture() {
            lane.end_leave(Some(segment));
            Ok(())
        } else {
            device.backing.release_segment(device, lane, segment)
        };
        device.settle();
        match freed {
            // The driver would wait: the segment is released when the capture has ended, which may
            // have begun a moment ago.
            Err(error) if error.code == Code::STREAM_CAPTURE_UNSUPPORTED => Ok(()),
            freed => freed.map_err(Error::from),
        }
    }

    /// Frees the block at `address` and releases the memory that is then wholly free to the driver
    /// at once, waiting for the device if it must. Meant for a block that none of its size will
    /// follow. Returns the bytes released. Memory that shares a segment or an extent with live
    /// blocks stays cached, and so does memory that other streams still use. Linear in the number
    /// of segments.
    pub fn free_directly(&self, address: u64) -> Result<u64> {
        let found = self.find(address).and_then(|(lane, slot)| {
            let state = lane.lock();
            state.blocks.find(slot, address).map(|block| (lane.device, block.bytes))
        });
        self.free(address)?;
        let Some((ordinal, bytes)) = found else { return Ok(0) };
        let Some(device) = self.opened(ordinal) else { return Ok(0) };
        Ok(device.release_and_settle(Choice::Within { start: address, end: address + bytes }))
    }
}

impl DeviceHeap<'_> {
    /// The lane's live memory is at its usual low, or what was pending then is free now. Returns true
    /// if something is to be done then.
    #[cold]
    fn must_come_home(self, lane: &Lane, state: &mut LaneState) -> bool {
        let is_trough = state.trough.take(|| lane.counters.live_peak());
        if is_trough {
            state.moves.end_cycle();
        }
        if !self.backing.has_work_at_trough(self, lane, state) {
            return false;
        }
        if state.pending.has_events() && !self.pools.is_routing() {
            lane.poll(state, self.contexts.own());
        }
        if is_trough {
            let events = state.pending.events();
            state.trough.wait_for(events);
        }
        true
    }

    /// Allocates from the lane of `stream` and `pool`; a block that is to be alone is always a miss.
    #[inline(always)]
    pub(super) fn allocate_in(
        self,
        pool: PoolNumber,
        stream: Stream,
        (requested_bytes, block_bytes): (u64, u64),
        is_alone: bool,
    ) -> Result<u64> {
        let bytes = (requested_bytes, block_bytes);
        match SizeClass::of(block_bytes) {
            SizeClass::Small => self.allocate_of(SizeClass::Small, pool, stream, bytes, is_alone),
            SizeClass::Large => self.allocate_of(SizeClass::Large, pool, stream, bytes, is_alone),
        }
    }

    /// [`Self::allocate_in`] of a block of `class`, compiled for each.
    #[inline(always)]
    fn allocate_of(
        self,
        class: SizeClass,
        pool: PoolNumber,
        stream: Stream,
        (requested_bytes, block_bytes): (u64, u64),
        is_alone: bool,
    ) -> Result<u64> {
        let key = LaneKey { stream: stream.key, pool };
        loop {
            let (lane, mut state) = self.enter(key, stream.handle)?;
            if state.trough.is_due() && self.must_come_home(lane, &mut state) {
                let bytes = (requested_bytes, block_bytes);
                self.climb((lane, state), stream.handle, bytes, is_alone).come_home();
                continue;
            }
            let found = if is_alone { None } else { self.take(lane, &mut state, block_bytes) };
            let Some(slot) = found else {
                let bytes = (requested_bytes, block_bytes);
                return self.climb((lane, state), stream.handle, bytes, is_alone).serve();
            };
            let address = lane.hand_out_of(class, &mut state, slot, requested_bytes);
            if self.heap.has_extras() {
                return self.allocated_with_extras(lane, state, slot, stream.handle);
            }
            self.heap.let_go(lane, state);
            return Ok(address);
        }
    }

    /// The request begins to climb. A function, so that its parts are in registers until then.
    #[cold]
    #[inline(never)]
    fn climb<'a>(
        self,
        (lane, mut state): (&'a Lane, LaneGuard<'a>),
        stream: StreamHandle,
        (requested_bytes, block_bytes): (u64, u64),
        is_alone: bool,
    ) -> Climb<'a>
    where
        Self: 'a,
    {
        let number = lane.begin_climb(&mut state);
        drop(state);
        let captures_before = self.captures_before();
        let device = self;
        Climb {
            device,
            lane,
            stream,
            requested_bytes,
            block_bytes,
            is_alone,
            captures_before,
            number,
        }
    }
}

#[cold]
fn too_large(requested_bytes: u64) -> Error {
    let message = format!("a request of {requested_bytes} bytes is larger than any device");
    Error::new(Status::OutOfMemory, message)
}
