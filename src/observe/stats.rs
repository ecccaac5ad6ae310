//! A device's statistics, as everybody is shown them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::counters::{Levels, Snapshot, Totals};
use crate::base::Gauge;

/// What a device counts on its slow paths.
#[derive(Debug, Default)]
pub struct Tallies {
    /// Requests tried again after memory was found short.
    pub retries: AtomicU64,
    /// Requests that failed for want of memory.
    pub out_of_memory_events: AtomicU64,
    /// Segments that moved from one stream to another.
    pub cross_stream_reuses: AtomicU64,
}

impl Tallies {
    /// Counts one more of `tally`.
    pub fn count(tally: &AtomicU64) {
        tally.fetch_add(1, Relaxed);
    }
}

/// The statistics of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Bytes that callers asked for and hold.
    pub requested_bytes: Gauge,
    /// Bytes of the blocks that callers hold.
    pub allocated_bytes: Gauge,
    /// Physical bytes held from the driver.
    pub reserved_bytes: Gauge,
    /// Bytes of blocks held, or freed while another stream may still use them.
    pub active_bytes: Gauge,
    /// Bytes reserved and not active: cached, ready for reuse.
    pub inactive_bytes: Gauge,
    /// Blocks handed out.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Allocations served from free blocks of their own stream.
    pub hits: u64,
    /// All other allocations.
    pub misses: u64,
    /// Calls to the driver.
    pub driver_calls: u64,
    /// Those of them that allocate, free, create, map or reserve memory.
    pub driver_memory_calls: u64,
    /// Time spent in the driver, in nanoseconds: measured, or virtual on a simulated device.
    pub driver_nanoseconds: u64,
    /// Requests tried again after memory was found short.
    pub retries: u64,
    /// Requests that failed for want of memory.
    pub out_of_memory_events: u64,
    /// Segments that moved from one stream to another.
    pub cross_stream_reuses: u64,
    /// Bytes free in the cache now.
    pub free_bytes: u64,
    /// The largest free block in the cache now, in bytes.
    pub largest_free_bytes: u64,
}

impl Statistics {
    /// Fills in what the counters of the lanes say: levels now, their peaks, and totals.
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

    /// The part of allocations that were hits, in [0, 1]; 0 before the first.
    pub fn hit_rate(&self) -> f64 {
        ratio(self.hits, self.allocations)
    }

    /// (reserved − allocated) / reserved, in [0, 1]: the part of reserved memory not in use.
    pub fn fragmentation_ratio(&self) -> f64 {
        let reserved = self.reserved_bytes.current;
        ratio(reserved.saturating_sub(self.allocated_bytes.current), reserved)
    }

    /// 1 − largest free block / all free bytes, in [0, 1]: how scattered free memory is.
    pub fn fragmentation_index(&self) -> f64 {
        let scattered = self.free_bytes.saturating_sub(self.largest_free_bytes);
        ratio(scattered, self.free_bytes)
    }
}

/// The statistics of the blocks and segments of one size class, or of both, of one device: what
/// PyTorch's allocator counts of its small pool, its large pool, and all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatistics {
    /// Bytes that callers asked for and hold.
    pub requested_bytes: Gauge,
    /// Bytes of the blocks that callers hold.
    pub allocated_bytes: Gauge,
    /// Physical bytes held from the driver.
    pub reserved_bytes: Gauge,
    /// Bytes of blocks held, or freed while another stream may still use them.
    pub active_bytes: Gauge,
    /// Bytes of free blocks that are parts of segments. Where several streams hold such, the
    /// peak is at most what is said.
    pub inactive_split_bytes: Gauge,
    /// Blocks that callers hold.
    pub allocation: Gauge,
    /// Segments held from the driver.
    pub segment: Gauge,
    /// Blocks held, or freed while another stream may still use them.
    pub active: Gauge,
    /// Free blocks that are parts of segments, like `inactive_split_bytes`.
    pub inactive_split: Gauge,
}

impl PoolStatistics {
    /// What the counters of the lanes say; nothing of segments and free blocks yet.
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
