//! What the heap says of itself: statistics, live blocks, and why a request failed.

use std::ops::Range;

use super::Heap;
use super::device::DeviceHeap;
use super::ladder::Request;
use super::lane::Lane;
use crate::base::size::SizeClass;
use crate::base::{DeviceOrdinal, Error, Result, Shortage, Status};
use crate::config::LogLevel;
use crate::memory::{Block, NO_SLOT, State};
use crate::observe::{PoolStatistics, Statistics};
use crate::order::StreamName;

/// A live block, as its holder may want to see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// The pointer handed out.
    pub address: u64,
    /// What was asked for, in bytes.
    pub requested_bytes: u64,
    /// The extent of the block, in bytes.
    pub allocated_bytes: u64,
    /// The device.
    pub device: DeviceOrdinal,
    /// The stream it was allocated on.
    pub stream: StreamName,
}

impl Heap {
    /// The statistics of `device`.
    pub fn statistics(&self, device: DeviceOrdinal) -> Result<Statistics> {
        Ok(self.statistics_of(self.device(device)?))
    }

    pub(super) fn statistics_of(&self, device: &DeviceHeap) -> Statistics {
        let statistics = device.statistics(&self.lanes);
        let largest = self.lanes.of(device.ordinal).map(|lane| {
            let state = lane.lock();
            state.strategy.largest_free_bytes(&state.blocks)
        });
        statistics.finish(largest.max().unwrap_or(0))
    }

    /// The statistics of the blocks and segments of `device`: of one size class, or of all.
    pub fn pool_statistics(
        &self,
        device: DeviceOrdinal,
        class: Option<SizeClass>,
    ) -> Result<PoolStatistics> {
        Ok(self.device(device)?.pool_statistics(&self.lanes, class))
    }

    /// Makes the peaks of `device` what is there now.
    pub fn reset_peaks(&self, device: DeviceOrdinal) -> Result<()> {
        self.device(device)?.reset_peaks(&self.lanes);
        Ok(())
    }

    /// The live blocks of `device` asked for with at least `least_bytes`, largest first.
    pub fn largest_allocations(
        &self,
        device: DeviceOrdinal,
        least_bytes: u64,
    ) -> Result<Vec<LiveBlock>> {
        let device = self.device(device)?;
        let mut live = Vec::new();
        for lane in self.lanes.of(device.ordinal) {
            let state = lane.lock();
            let chosen = state.blocks.iter().filter(|(_, block)| {
                matches!(block.state, State::Live | State::Paused)
                    && block.requested_bytes >= least_bytes
            });
            live.extend(chosen.map(|(_, block)| describe(lane, block)));
        }
        live.sort_by_key(|block| (std::cmp::Reverse(block.requested_bytes), block.address));
        Ok(live)
    }

    /// The live block that contains `address`. Linear in the number of blocks unless `address`
    /// is its start. `DoubleFree` where memory is held that no live block has.
    pub fn block_containing(&self, address: u64) -> Result<LiveBlock> {
        match self.locate(address) {
            Some((State::Live | State::Paused, block)) => Ok(block),
            Some(_) => Err(Error::new(Status::DoubleFree, format!("{address:#x} is free"))),
            None => Err(Error::new(
                Status::ForeignPointer,
                format!("{address:#x} is not in memory that genesis has handed out"),
            )),
        }
    }

    /// The driver's allocation that holds the live block containing `address`. Linear in the
    /// number of its blocks, and else like [`Self::block_containing`].
    pub fn segment_containing(&self, address: u64) -> Result<Range<u64>> {
        let address = self.block_containing(address)?.address;
        let Some((lane, slot)) = self.find(address) else {
            return Err(self.not_live(address));
        };
        let state = lane.lock();
        // Between the two looks the block may have been freed, and its slot reused.
        let Some(block) = state.blocks.find(slot, address) else {
            drop(state);
            return Err(self.not_live(address));
        };
        let (mut first, mut last) = (block, block);
        while first.before != NO_SLOT && state.blocks.get(first.before).state.is_backed() {
            first = state.blocks.get(first.before);
        }
        while last.after != NO_SLOT && state.blocks.get(last.after).state.is_backed() {
            last = state.blocks.get(last.after);
        }
        Ok(first.address..last.address + last.bytes)
    }

    /// The block of any state that contains `address`.
    fn locate(&self, address: u64) -> Option<(State, LiveBlock)> {
        if let Some((lane, slot)) = self.find(address)
            && let Some(block) = lane.lock().blocks.find(slot, address)
        {
            return Some((block.state, describe(lane, block)));
        }
        self.lanes.iter().find_map(|lane| {
            let state = lane.lock();
            let blocks = state.blocks.iter().map(|(_, block)| block);
            let mut blocks = blocks.filter(|block| block.state != State::Unmapped);
            let found = blocks
                .find(|block| (block.address..block.address + block.bytes).contains(&address));
            found.map(|block| (block.state, describe(lane, block)))
        })
    }

    /// Why `address` is not the start of a live block.
    #[cold]
    pub(super) fn not_live(&self, address: u64) -> Error {
        let located = self.locate(address);
        let around = located.and_then(|(state, block)| {
            matches!(state, State::Live | State::Paused).then_some(block.address)
        });
        let mut error = match located {
            None => Error::new(
                Status::ForeignPointer,
                format!(
                    "{address:#x} was not allocated by genesis, or its memory has been released"
                ),
            ),
            Some((State::Live | State::Paused, block)) => Error::new(
                Status::ForeignPointer,
                format!(
                    "{address:#x} points into the block at {:#x}, not to its start",
                    block.address
                ),
            ),
            Some(_) => Error::new(Status::DoubleFree, format!("{address:#x} is already free")),
        };
        if self.policy.is_debugging() {
            self.add_history(&mut error, address, around);
        }
        self.log.write(LogLevel::Error, &error);
        error
    }

    /// Says in one line why a request failed, to the log and as the error.
    pub(super) fn out_of_memory(&self, request: &Request<'_>) -> Error {
        let device = request.device;
        let statistics = self.statistics_of(device);
        let limit_bytes = device.supply.allowed_bytes();
        let driver = device.driver.memory_info().ok();
        let error = Error::from(Shortage {
            device: device.ordinal,
            requested_bytes: request.requested_bytes,
            block_bytes: request.block_bytes,
            live_bytes: statistics.allocated_bytes.current,
            live_blocks: statistics.allocations.saturating_sub(statistics.frees),
            cached_bytes: statistics.free_bytes,
            largest_free_bytes: statistics.largest_free_bytes,
            pending_bytes: statistics.active_bytes.current - statistics.allocated_bytes.current,
            reserved_bytes: statistics.reserved_bytes.current,
            limit_bytes: (limit_bytes != u64::MAX).then_some(limit_bytes),
            driver_free_bytes: driver.map(|info| info.free_bytes),
            driver_total_bytes: driver.map(|info| info.total_bytes),
            fragmentation_index: statistics.fragmentation_index,
        });
        self.note_out_of_memory(device.ordinal, request.stream, request.requested_bytes);
        self.log.write(LogLevel::Error, &error);
        error
    }
}

pub(super) fn describe(lane: &Lane, block: &Block) -> LiveBlock {
    LiveBlock {
        address: block.address,
        requested_bytes: block.requested_bytes,
        allocated_bytes: block.bytes,
        device: lane.device,
        stream: lane.name(),
    }
}
