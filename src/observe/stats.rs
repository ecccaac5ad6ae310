//! The statistics of a device. Both structs are those of the C interface.

use super::levels::{Levels, Snapshot, Totals};
use crate::base::Gauge;
use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counts of a device that its slow paths make.
#[derive(Debug, Default)]
pub struct Tallies {
    /// Requests repeated after memory was short.
    pub retries: AtomicU64,
    /// Requests that failed because memory was short.
    pub out_of_memory_events: AtomicU64,
    /// Segments that moved from one stream to another.
    pub cross_stream_reuses: AtomicU64,
    /// How often the cache was emptied on request.
    pub cache_empties: AtomicU64,
}

impl Tallies {
    /// Adds 1 to `tally`.
    pub fn count(tally: &AtomicU64) {
        tally.fetch_add(1, Relaxed);
    }
}

/// The statistics of one device.
///
/// Set `struct_size` to `sizeof(genesis_stats)` before the call: as many bytes are written, so a
/// program keeps working with a library whose struct has grown.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// The size of the struct as the caller knows it, in bytes.
    pub struct_size: usize,
    /// Live bytes as requested.
    pub requested_bytes: Gauge,
    /// Bytes of live blocks.
    pub allocated_bytes: Gauge,
    /// Physical bytes held from the driver.
    pub reserved_bytes: Gauge,
    /// Bytes of blocks that are live, or freed while another stream may still use them.
    pub active_bytes: Gauge,
    /// Bytes reserved and not active: cached, ready for reuse.
    pub inactive_bytes: Gauge,
    /// The number of allocations.
    pub allocations: u64,
    /// The number of frees.
    pub frees: u64,
    /// Allocations served from free blocks of their own stream.
    pub hits: u64,
    /// All other allocations.
    pub misses: u64,
    /// Calls to the driver.
    pub driver_calls: u64,
    /// The driver calls that allocate, free, create, map or reserve memory.
    pub driver_memory_calls: u64,
    /// Time in the driver, in nanoseconds: measured, or virtual on a simulated device. Of the calls
    /// that record events, or ask about events and streams, an eighth is measured, for all of them.
    pub driver_nanoseconds: u64,
    /// Requests repeated after memory was short.
    pub retries: u64,
    /// Requests that failed because memory was short.
    pub out_of_memory_events: u64,
    /// Segments that moved from one stream to another.
    pub cross_stream_reuses: u64,
    /// Free bytes in the cache.
    pub free_bytes: u64,
    /// The largest free block in the cache, in bytes.
    pub largest_free_bytes: u64,
    /// hits / allocations; 0 before the first allocation.
    pub hit_rate: f64,
    /// (reserved − allocated) / reserved: the part of reserved memory that is not in use.
    pub fragmentation_ratio: f64,
    /// 1 − largest free block / free bytes: how scattered free memory is.
    pub fragmentation_index: f64,
    /// How often the cache was emptied on request.
    pub cache_empties: u64,
    /// Reserved bytes that are managed memory: all of them, or 0.
    pub managed_bytes: u64,
    /// Reserved bytes beyond the memory of the device: so many, at least, are in the host's memory.
    pub oversubscribed_bytes: u64,
    /// The most that these were.
    pub peak_oversubscribed_bytes: u64,
}

impl Statistics {
    /// Fills in the counts of the lanes: present levels, their peaks, and totals.
    pub fn set_levels(&mut self, now: &Snapshot, peaks: &Snapshot, totals: Totals, misses: u64) {
        let of_blocks = PoolStatistics::new(&now.all, &peaks.all, totals);
        self.requested_bytes = of_blocks.requested_bytes;
        self.allocated_bytes = of_blocks.allocated_bytes;
        self.active_bytes = of_blocks.active_bytes;
        self.inactive_bytes =
            Gauge { current: now.inactive, peak: peaks.inactive, total: totals.freed };
        self.allocations = totals.allocations;
        self.frees = totals.frees;
        self.misses = misses;
        self.hits = totals.allocations.saturating_sub(misses);
        self.free_bytes = now.inactive;
    }

    /// Fills in the largest free block, and the ratios from everything else.
    pub fn finish(mut self, largest_free_bytes: u64) -> Self {
        self.largest_free_bytes = largest_free_bytes;
        self.hit_rate = ratio(self.hits, self.allocations);
        let reserved = self.reserved_bytes.current;
        let not_in_use = reserved.saturating_sub(self.allocated_bytes.current);
        self.fragmentation_ratio = ratio(not_in_use, reserved);
        let scattered = self.free_bytes.saturating_sub(largest_free_bytes);
        self.fragmentation_index = ratio(scattered, self.free_bytes);
        self
    }
}

/// The statistics of the blocks and segments of one pool of one device. Members have the names of
/// PyTorch's `memory_stats`; its "freed" is total − current.
///
/// Set `struct_size` to `sizeof(genesis_pool_stats)` before the call, as with `genesis_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatistics {
    /// The size of the struct as the caller knows it, in bytes.
    pub struct_size: usize,
    /// Bytes of live blocks.
    pub allocated_bytes: Gauge,
    /// Physical bytes held from the driver.
    pub reserved_bytes: Gauge,
    /// Bytes of blocks that are live, or freed while another stream may still use them.
    pub active_bytes: Gauge,
    /// Bytes of free blocks that are parts of segments. If several streams hold such blocks, the
    /// peak may be above the true one.
    pub inactive_split_bytes: Gauge,
    /// Live bytes as requested.
    pub requested_bytes: Gauge,
    /// Live blocks.
    pub allocation: Gauge,
    /// Segments held from the driver.
    pub segment: Gauge,
    /// Blocks that are live, or freed while another stream may still use them.
    pub active: Gauge,
    /// Free blocks that are parts of segments, like `inactive_split_bytes`.
    pub inactive_split: Gauge,
}

impl PoolStatistics {
    /// The counts of the lanes, without segments and free blocks.
    pub fn new(now: &Levels, peaks: &Levels, totals: Totals) -> Self {
        let gauge = |current, peak, total| Gauge { current, peak, total };
        Self {
            requested_bytes: gauge(now.requested, peaks.requested, totals.requested),
            allocated_bytes: gauge(now.allocated, peaks.allocated, totals.allocated),
            active_bytes: gauge(now.active, peaks.active, totals.allocated),
            allocation: gauge(now.blocks, peaks.blocks, totals.allocations),
            active: gauge(now.active_blocks, peaks.active_blocks, totals.allocations),
            ..Self::default()
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
