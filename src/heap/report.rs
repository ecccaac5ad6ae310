//! Reports on the heap: statistics, live blocks, and why a request failed.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::lane::Lane;
use super::state::{Climb, DeviceHeap, Heap};
use crate::base::size::SizeClass;
use crate::base::{DeviceOrdinal, Error, Result, Shortage, Status, StreamHandle};
use crate::config::LogLevel;
use crate::driver::Call;
use crate::memory::{Block, NO_SLOT, State};
use crate::observe::{LaneCounters, PoolStatistics, Statistics, Tallies};
use crate::order::StreamName;
use crate::strategy::SplitFree;

/// A live block, described for its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// The pointer handed out.
    pub address: u64,
    /// What was asked for, in bytes.
    pub requested_bytes: u64,
    /// The size of the block, in bytes.
    pub allocated_bytes: u64,
    /// The device.
    pub device: DeviceOrdinal,
    /// The stream it was allocated on.
    pub stream: StreamName,
}

impl DeviceHeap<'_> {
    /// `Heap::statistics` of the device.
    pub(super) fn statistics(self) -> Statistics {
        let (now, peaks) = self.levels();
        let usage = self.driver.usage();
        let memory_calls =
            [Call::Allocate, Call::Free, Call::Create, Call::Release, Call::Map, Call::Unmap]
                .into_iter()
                .chain([Call::Reserve, Call::Unreserve, Call::SetAccess]);
        let mut statistics = Statistics {
            reserved_bytes: self.ledger.reserved(None),
            driver_calls: usage.total_calls(),
            driver_memory_calls: memory_calls.map(|call| usage.calls[call as usize]).sum(),
            driver_nanoseconds: usage.nanoseconds,
            retries: self.tallies.retries.load(Relaxed),
            out_of_memory_events: self.tallies.out_of_memory_events.load(Relaxed),
            cross_stream_reuses: self.tallies.cross_stream_reuses.load(Relaxed),
            cache_empties: self.tallies.cache_empties.load(Relaxed),
            ..Statistics::default()
        };
        let totals = self.totals(&SizeClass::ALL);
        let misses = self.counters().map(LaneCounters::misses).sum();
        statistics.set_levels(&now, &peaks, totals, misses);
        let largest_free_bytes = self.lanes().map(|lane| {
            let state = lane.lock();
            state.strategy.largest_free_bytes(&state.blocks)
        });
        statistics.finish(largest_free_bytes.max().unwrap_or(0))
    }

    /// The figures of a request that fails now.
    pub(super) fn shortage(self, requested_bytes: u64, block_bytes: u64) -> Shortage {
        let statistics = self.statistics();
        let limit_bytes = self.ledger.allowed_bytes();
        let driver = self.driver.memory_info().ok();
        Shortage {
            device: self.ordinal,
            requested_bytes,
            block_bytes,
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
        }
    }

    /// `Heap::pool_statistics` of the device.
    pub(super) fn pool_statistics(self, class: Option<SizeClass>) -> PoolStatistics {
        let (now, peaks) = self.levels();
        let classes = class.as_ref().map_or(&SizeClass::ALL[..], std::slice::from_ref);
        let totals = self.totals(classes);
        let mut statistics = match class.map(SizeClass::index) {
            Some(index) => PoolStatistics::new(&now.classes[index], &peaks.classes[index], totals),
            None => PoolStatistics::new(&now.all, &peaks.all, totals),
        };
        statistics.segment = self.ledger.segments(class);
        statistics.reserved_bytes = self.ledger.reserved(class);
        for lane in self.lanes() {
            let state = lane.lock();
            for class in classes {
                let SplitFree { blocks, bytes } = state.strategy.split(*class);
                statistics.inactive_split = statistics.inactive_split.plus(blocks);
                statistics.inactive_split_bytes = statistics.inactive_split_bytes.plus(bytes);
            }
        }
        statistics
    }

    /// `Heap::reset_peaks` of the device.
    pub(super) fn reset_peaks(self) {
        self.lanes().for_each(|lane| lane.lock().strategy.reset_peaks());
        self.ledger.reset_peak();
        self.peaks.lock().reset(self.counters(), self.cache_limit_bytes());
    }

    /// `Heap::largest_allocations` of the device.
    pub(super) fn largest_allocations(self, least_bytes: u64) -> Vec<LiveBlock> {
        let mut live = Vec::new();
        for lane in self.lanes() {
            let state = lane.lock();
            let chosen = state.blocks.iter().filter(|(_, block)| {
                matches!(block.state, State::Live | State::Paused)
                    && block.requested_bytes >= least_bytes
            });
            live.extend(chosen.map(|(_, block)| describe(lane, block)));
        }
        live.sort_by_key(|block| (Reverse(block.requested_bytes), block.address));
        live
    }
}

impl Heap {
    /// The live block that contains `address`. Linear in the number of blocks unless `address` is
    /// its start. `DoubleFree` if the heap holds memory there, but no live block.
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

    /// The addresses of the driver's allocation that holds the live block containing `address`.
    /// Linear in the number of its blocks; otherwise like [`Self::block_containing`].
    pub fn segment_containing(&self, address: u64) -> Result<Range<u64>> {
        let address = self.block_containing(address)?.address;
        let Some((lane, slot)) = self.find(address) else {
            return Err(self.not_live(address));
        };
        let state = lane.lock();
        // Since the first look the block may have been freed, and its slot reused.
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

    /// Counts, logs and returns the failure of a request on `device` that is larger than any
    /// device.
    pub fn too_large(&self, device: DeviceOrdinal, requested_bytes: u64) -> Result<Error> {
        let device = self.device(device)?;
        Tallies::count(&device.tallies.out_of_memory_events);
        let error = Error::from(device.shortage(requested_bytes, requested_bytes));
        let stream = StreamHandle::LEGACY;
        self.notes.out_of_memory(device.ordinal, stream, requested_bytes);
        self.log.write(LogLevel::Error, &error);
        Ok(error)
    }

    /// Logs and returns why `address` is not the start of a live block.
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
}

impl Climb<'_> {
    /// Logs and returns, in one line, why a request failed.
    pub(super) fn out_of_memory(&self) -> Error {
        let device = self.device;
        let error = Error::from(device.shortage(self.requested_bytes, self.block_bytes));
        device.heap.notes.out_of_memory(device.ordinal, self.stream, self.requested_bytes);
        device.heap.log.write(LogLevel::Error, &error);
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
