//! Reports on a device: statistics, its largest live blocks, and why a request failed.

use std::cmp::Reverse;
use std::sync::atomic::Ordering::Relaxed;

use super::description::LiveBlock;
use super::state::{Climb, DeviceHeap};
use crate::base::size::SizeClass;
use crate::base::{Error, Shortage, Status, StreamHandle};
use crate::config::LogLevel;
use crate::driver::Call;
use crate::memory::State;
use crate::observe::{LaneCounters, PoolStatistics, Statistics, Tallies, Turn};
use crate::strategy::SplitFree;

impl DeviceHeap<'_> {
    /// `Heap::statistics` of the device.
    pub(super) fn statistics(self) -> Statistics {
        let (now, peaks) = self.levels();
        let usage = self.driver.usage();
        let reserved = self.ledger.reserved(None);
        let beyond = |bytes: u64| bytes.saturating_sub(self.ledger.total_bytes());
        let memory_calls =
            [Call::Allocate, Call::Free, Call::Create, Call::Release, Call::Map, Call::Unmap]
                .into_iter()
                .chain([Call::Reserve, Call::Unreserve, Call::SetAccess, Call::AllocateManaged]);
        let mut statistics = Statistics {
            reserved_bytes: reserved,
            managed_bytes: if self.is_managed() { reserved.current } else { 0 },
            oversubscribed_bytes: beyond(reserved.current),
            peak_oversubscribed_bytes: beyond(reserved.peak),
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
            finer: self.backing.finer_setting(),
        }
    }

    /// `Heap::too_large` on the device.
    pub(super) fn too_large(self, requested_bytes: u64) -> Error {
        Tallies::count(&self.tallies.out_of_memory_events);
        let error = Error::from(self.shortage(requested_bytes, requested_bytes));
        self.heap.notes.out_of_memory(self.ordinal, StreamHandle::LEGACY, requested_bytes);
        self.heap.log.write(LogLevel::Error, &error);
        error
    }

    /// The error of what needs virtual memory management.
    pub(super) fn no_virtual_memory(self) -> Error {
        let message = format!("device {} has no virtual memory management", self.ordinal);
        Error::new(Status::NotSupported, message)
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
        self.with_peaks(|peaks| {
            peaks.forget();
            self.add_up(peaks, Turn::Alone);
        });
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
            live.extend(chosen.map(|(_, block)| LiveBlock::of(lane, block)));
        }
        live.sort_by_key(|block| (Reverse(block.requested_bytes), block.address));
        live
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
