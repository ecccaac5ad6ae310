//! Statistics of a device, and its largest live blocks.

use std::ffi::c_int;

use super::allocation::BlockInfo;
use super::{boundary, ordinal, write_required};
use crate::base::size::SizeClass;
use crate::base::{Error, Gauge, Result, Status};
use crate::instance;
use crate::observe::{PoolStatistics, Statistics};

/// Writes the statistics of `device` to `stats`, whose `struct_size` the caller has set.
///
/// # Safety
/// `stats` is NULL, which is an error, or points to `stats->struct_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_stats_get(device: c_int, stats: *mut Statistics) -> Status {
    let get = || instance::heap()?.statistics(ordinal(device)?);
    // SAFETY: the caller's contract; the struct begins with its size.
    boundary::status(|| unsafe { write_sized(stats, get) })
}

/// The pools of PyTorch's allocator: the blocks that statistics count.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// All blocks.
    All = 0,
    /// Blocks of at most 1 MiB.
    Small = 1,
    /// Blocks above 1 MiB.
    Large = 2,
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
    stats: *mut PoolStatistics,
) -> Status {
    let get = || {
        let class = match pool {
            pool if pool == Pool::All as c_int => None,
            pool if pool == Pool::Small as c_int => Some(SizeClass::Small),
            pool if pool == Pool::Large as c_int => Some(SizeClass::Large),
            _ => return Err(Error::invalid_argument(format!("{pool} is not a genesis_pool"))),
        };
        instance::heap()?.pool_statistics(ordinal(device)?, class)
    };
    // SAFETY: the caller's contract; the struct begins with its size.
    boundary::status(|| unsafe { write_sized(stats, get) })
}

/// Resets every peak of `device` to its present level.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_stats_reset_peak(device: c_int) -> Status {
    boundary::status(|| instance::heap()?.reset_peaks(ordinal(device)?))
}

/// Writes the live blocks of `device` whose request was at least `least_bytes` to `blocks`, largest
/// first, at most `capacity` of them. Writes their total number to `count`.
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

/// Writes the result of `get` to the struct at `out`, up to the size with which the struct begins
/// and which the caller has set.
///
/// # Safety
/// `out` is null, or points to a size and as many writable bytes as that says. `T` begins with a
/// `usize` for the size.
pub(super) unsafe fn write_sized<T>(out: *mut T, get: impl FnOnce() -> Result<T>) -> Result<()> {
    if out.is_null() {
        return Err(Error::invalid_argument("stats is null"));
    }
    // SAFETY: not null; by the contract the size can be read.
    let struct_size = unsafe { out.cast::<usize>().read() };
    if struct_size < size_of::<usize>() + size_of::<Gauge>() {
        let message = format!("stats->struct_size is {struct_size}: set it to the struct's size");
        return Err(Error::invalid_argument(message));
    }
    let written = get()?;
    let bytes = struct_size.min(size_of::<T>()) - size_of::<usize>();
    // SAFETY: both structs are at least `bytes` longer than their size, the caller's by the
    // contract, and do not overlap. The size stays as the caller has set it.
    unsafe {
        let members = (&raw const written).cast::<usize>().add(1).cast::<u8>();
        std::ptr::copy_nonoverlapping(members, out.cast::<usize>().add(1).cast(), bytes);
    }
    Ok(())
}
