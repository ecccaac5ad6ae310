//! Statistics of a device, and its largest live blocks.

use std::ffi::c_int;

use super::allocation::BlockInfo;
use super::{boundary, ordinal, write_required};
use crate::base::size::SizeClass;
use crate::base::{Error, Gauge, Result, Status};
use crate::instance;
use crate::observe::{PoolStatistics, Statistics};

/// The statistics of one device.
///
/// Set `struct_size` to `sizeof(genesis_stats)` before the call: as many bytes are written, so
/// a program keeps working with a library whose struct has grown.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// The size of the struct as the caller knows it, in bytes.
    pub struct_size: usize,
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
    /// hits / allocations; 0 before the first allocation.
    pub hit_rate: f64,
    /// (reserved − allocated) / reserved: the part of the memory held that is not in use.
    pub fragmentation_ratio: f64,
    /// 1 − largest free block / all free bytes: how scattered free memory is.
    pub fragmentation_index: f64,
}

impl Stats {
    pub(super) fn new(struct_size: usize, statistics: &Statistics) -> Self {
        Self {
            struct_size,
            requested_bytes: statistics.requested_bytes,
            allocated_bytes: statistics.allocated_bytes,
            reserved_bytes: statistics.reserved_bytes,
            active_bytes: statistics.active_bytes,
            inactive_bytes: statistics.inactive_bytes,
            allocations: statistics.allocations,
            frees: statistics.frees,
            hits: statistics.hits,
            misses: statistics.misses,
            driver_calls: statistics.driver_calls,
            driver_memory_calls: statistics.driver_memory_calls,
            driver_nanoseconds: statistics.driver_nanoseconds,
            retries: statistics.retries,
            out_of_memory_events: statistics.out_of_memory_events,
            cross_stream_reuses: statistics.cross_stream_reuses,
            free_bytes: statistics.free_bytes,
            largest_free_bytes: statistics.largest_free_bytes,
            hit_rate: statistics.hit_rate(),
            fragmentation_ratio: statistics.fragmentation_ratio(),
            fragmentation_index: statistics.fragmentation_index(),
        }
    }
}

/// Writes the statistics of `device` to `stats`, whose `struct_size` the caller has set.
///
/// # Safety
/// `stats` is NULL, which is an error, or points to `stats->struct_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_stats_get(device: c_int, stats: *mut Stats) -> Status {
    let get = |struct_size| {
        let statistics = instance::heap()?.statistics(ordinal(device)?)?;
        Ok(Stats::new(struct_size, &statistics))
    };
    // SAFETY: the caller's contract; the struct begins with its size.
    boundary::status(|| unsafe { write_sized(stats, get) })
}

/// Which blocks statistics are of: the pools that PyTorch's allocator tells apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// All.
    All = 0,
    /// Those of at most 1 MiB.
    Small = 1,
    /// Those above 1 MiB.
    Large = 2,
}

/// The statistics of the blocks and segments of one pool of one device, each as PyTorch's
/// `memory_stats` names it; what it calls freed is total − current.
///
/// Set `struct_size` to `sizeof(genesis_pool_stats)` before the call, as with `genesis_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolStats {
    /// The size of the struct as the caller knows it, in bytes.
    pub struct_size: usize,
    /// Bytes of the blocks that callers hold.
    pub allocated_bytes: Gauge,
    /// Physical bytes held from the driver.
    pub reserved_bytes: Gauge,
    /// Bytes of blocks held, or freed while another stream may still use them.
    pub active_bytes: Gauge,
    /// Bytes of free blocks that are parts of segments. Where several streams hold such, the
    /// true peak is at most this one.
    pub inactive_split_bytes: Gauge,
    /// Bytes that callers asked for and hold.
    pub requested_bytes: Gauge,
    /// Blocks that callers hold.
    pub allocation: Gauge,
    /// Segments held from the driver.
    pub segment: Gauge,
    /// Blocks held, or freed while another stream may still use them.
    pub active: Gauge,
    /// Free blocks that are parts of segments, like `inactive_split_bytes`.
    pub inactive_split: Gauge,
}

impl PoolStats {
    fn new(struct_size: usize, statistics: &PoolStatistics) -> Self {
        Self {
            struct_size,
            allocated_bytes: statistics.allocated_bytes,
            reserved_bytes: statistics.reserved_bytes,
            active_bytes: statistics.active_bytes,
            inactive_split_bytes: statistics.inactive_split_bytes,
            requested_bytes: statistics.requested_bytes,
            allocation: statistics.allocation,
            segment: statistics.segment,
            active: statistics.active,
            inactive_split: statistics.inactive_split,
        }
    }
}

/// Writes the statistics of `pool`, a `genesis_pool`, of `device` to `stats`, whose
/// `struct_size` the caller has set.
///
/// # Safety
/// `stats` is NULL, which is an error, or points to `stats->struct_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_pool_stats_get(
    device: c_int,
    pool: c_int,
    stats: *mut PoolStats,
) -> Status {
    let get = |struct_size| {
        let class = match pool {
            pool if pool == Pool::All as c_int => None,
            pool if pool == Pool::Small as c_int => Some(SizeClass::Small),
            pool if pool == Pool::Large as c_int => Some(SizeClass::Large),
            _ => return Err(Error::invalid_argument(format!("{pool} is not a genesis_pool"))),
        };
        let statistics = instance::heap()?.pool_statistics(ordinal(device)?, class)?;
        Ok(PoolStats::new(struct_size, &statistics))
    };
    // SAFETY: the caller's contract; the struct begins with its size.
    boundary::status(|| unsafe { write_sized(stats, get) })
}

/// Makes every peak of `device` what is there now.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_stats_reset_peak(device: c_int) -> Status {
    boundary::status(|| instance::heap()?.reset_peaks(ordinal(device)?))
}

/// Writes the live blocks of `device` asked for with at least `least_bytes`, largest first, to
/// `blocks`, as many as `capacity` allows; and to `count` how many there are in all.
///
/// Linear in the number of blocks.
///
/// # Safety
/// `blocks` points to room for `capacity` elements, or `capacity` is 0; `count` is NULL, which
/// is an error, or points to a writable `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_largest_allocations_get(
    device: c_int,
    least_bytes: usize,
    blocks: *mut BlockInfo,
    capacity: usize,
    count: *mut usize,
) -> Status {
    boundary::status(|| {
        if blocks.is_null() && capacity > 0 {
            return Err(Error::invalid_argument("blocks is null though capacity is not 0"));
        }
        let get = || {
            let heap = instance::heap()?;
            let live = heap.largest_allocations(ordinal(device)?, least_bytes as u64)?;
            for (index, block) in live.iter().take(capacity).enumerate() {
                // SAFETY: `index < capacity`, and there is room for so many by the contract.
                unsafe { blocks.add(index).write((*block).into()) };
            }
            Ok(live.len())
        };
        // SAFETY: the caller's contract.
        unsafe { write_required(count, get) }
    })
}

/// Writes what `get` gives to the struct at `out`, as much of it as the caller knows. The struct
/// begins with its size, which the caller has set and `get` is told.
///
/// # Safety
/// `out` is null, or points to a size and as many writable bytes as that says.
pub(super) unsafe fn write_sized<T>(
    out: *mut T,
    get: impl FnOnce(usize) -> Result<T>,
) -> Result<()> {
    if out.is_null() {
        return Err(Error::invalid_argument("stats is null"));
    }
    // SAFETY: not null; by the contract the size can be read.
    let struct_size = unsafe { out.cast::<usize>().read() };
    if struct_size < size_of::<usize>() + size_of::<Gauge>() {
        let message = format!("stats->struct_size is {struct_size}: set it to the struct's size");
        return Err(Error::invalid_argument(message));
    }
    let written = get(struct_size)?;
    let bytes = struct_size.min(size_of::<T>());
    // SAFETY: both are at least `bytes` long, the caller's by the contract, and apart.
    unsafe { std::ptr::copy_nonoverlapping((&raw const written).cast::<u8>(), out.cast(), bytes) };
    Ok(())
}
