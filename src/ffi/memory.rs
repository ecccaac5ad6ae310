//! Memory info, limits, taking memory beforehand, and releasing cached memory.

use std::cell::Cell;
use std::ffi::{c_char, c_int};

use super::boundary::{self, text};
use super::statistics::write_sized;
use super::{for_devices, genesis_stream, ordinal, stream_handle, write_optional, write_required};
use crate::base::{Result, Status};
use crate::heap::{Heap, Optimization};
use crate::instance::{self, plan};

/// Writes the free and total memory of `device` within its limits, in bytes. Cached memory counts
/// as free. Either output may be NULL.
///
/// Calls the driver, which takes microseconds.
///
/// # Safety
/// Each output is NULL or points to a writable `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_memory_info_get(
    device: c_int,
    free_bytes: *mut usize,
    total_bytes: *mut usize,
) -> Status {
    boundary::status(|| {
        let info = instance::heap()?.memory_info(ordinal(device)?)?;
        // SAFETY: the caller's contract.
        unsafe {
            write_optional(free_bytes, info.free_bytes as usize);
            write_optional(total_bytes, info.total_bytes as usize);
        }
        Ok(())
    })
}

/// Limits the physical memory held on `device` to `bytes`; 0 removes the limit.
///
/// Memory already held stays. Cached memory above the limit is released when more is needed.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_memory_limit_set(device: c_int, bytes: usize) -> Status {
    let limit = (bytes != 0).then_some(bytes as u64);
    boundary::status(|| instance::heap()?.set_memory_limit(ordinal(device)?, limit))
}

/// Writes the limit set for `device` to `bytes`; 0 if there is none.
///
/// # Safety
/// `bytes` is NULL, which is an error, or points to a writable `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_memory_limit_get(device: c_int, bytes: *mut usize) -> Status {
    let get = || {
        let limit = instance::heap()?.memory_limit(ordinal(device)?)?;
        Ok(limit.unwrap_or(0) as usize)
    };
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(bytes, get) })
}

/// Limits the physical memory held on `device` to the part `fraction`, in (0, 1], of all its
/// memory. The lower of this limit and that of `genesis_memory_limit_set` applies.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_memory_fraction_set(device: c_int, fraction: f64) -> Status {
    boundary::status(|| instance::heap()?.set_memory_fraction(ordinal(device)?, fraction))
}

/// Writes the fraction set for `device` to `fraction`.
///
/// # Safety
/// `fraction` is NULL, which is an error, or points to a writable `double`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_memory_fraction_get(device: c_int, fraction: *mut f64) -> Status {
    let get = || instance::heap()?.memory_fraction(ordinal(device)?);
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(fraction, get) })
}

/// Takes `bytes` of `device` from the driver beforehand, all of them or none: they are cached then,
/// for requests on `stream` and, as any cached memory, for those on others.
///
/// Returns `GENESIS_STATUS_OUT_OF_MEMORY` if there are not so many within the limits, and
/// `GENESIS_STATUS_NOT_SUPPORTED` under Naive, Round and Exact, which cut no cached memory.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_memory_preallocate(
    device: c_int,
    bytes: usize,
    stream: genesis_stream,
) -> Status {
    boundary::demanding(|| {
        let heap = instance::heap()?;
        heap.preallocate(ordinal(device)?, stream_handle(stream), bytes as u64)
    })
}

/// Waits until the memory that the plan of an earlier run names is ready, or as much of it as there
/// is; returns at once if there is no plan (`GENESIS_PLAN`). Requests need not wait for it.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_plan_wait() -> Status {
    boundary::status(plan::wait)
}

/// Writes what this run needs to the file at `path`, for `GENESIS_PLAN` of the next run of the
/// program: what is held now, or was when most was held. With `GENESIS_PLAN` this is done at exit.
///
/// Returns `GENESIS_STATUS_FILE_FAILED` if the file cannot be written. It is created or replaced as a
/// whole.
///
/// # Safety
/// `path` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_plan_write(path: *const c_char) -> Status {
    // SAFETY: the caller's contract.
    boundary::demanding(|| plan::write(unsafe { text(path, "path") }?))
}

/// Limits the memory that `device` keeps cached to `bytes`, and releases what is above the limit.
/// `SIZE_MAX` removes the limit; 0 keeps nothing.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_cache_limit_set(device: c_int, bytes: usize) -> Status {
    let limit = (bytes != usize::MAX).then_some(bytes as u64);
    boundary::status(|| instance::heap()?.set_cache_limit(ordinal(device)?, limit))
}

/// Writes the limit of the cache of `device` to `bytes`; `SIZE_MAX` if there is none.
///
/// # Safety
/// `bytes` is NULL, which is an error, or points to a writable `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_cache_limit_get(device: c_int, bytes: *mut usize) -> Status {
    let get = || {
        let limit = instance::heap()?.cache_limit(ordinal(device)?)?;
        Ok(limit.map_or(usize::MAX, |limit| limit as usize))
    };
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(bytes, get) })
}

/// Returns all cached memory of `device` (-1: of every device in use) to the driver.
///
/// May wait for the device. Live blocks stay, and so does memory that shares a segment with them.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_cache_empty(device: c_int) -> Status {
    boundary::status(|| empty_cache(device))
}

/// Releases all cached memory of `device`, or of every device if it is `ALL_DEVICES`.
pub(super) fn empty_cache(device: c_int) -> Result<()> {
    for_devices(device, Heap::empty_cache).map(drop)
}

/// Returns cached memory of `device` (-1: of every device in use) to the driver, what lay idle
/// most first (bytes × time since they were freed), until at most `target_bytes` are held. Writes the bytes released to `released_bytes`,
/// which may be NULL.
///
/// # Safety
/// `released_bytes` is NULL or points to a writable `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_cache_trim(
    device: c_int,
    target_bytes: usize,
    released_bytes: *mut usize,
) -> Status {
    boundary::status(|| {
        let released = for_devices(device, |heap, device| heap.trim(device, target_bytes as u64))?;
        // SAFETY: the caller's contract.
        unsafe { write_optional(released_bytes, released as usize) };
        Ok(())
    })
}

/// Returns cached memory of `device` (-1: of every device in use) to the driver if it is older than
/// GENESIS_GC_AGE_ALLOCATIONS or GENESIS_GC_AGE_SECONDS; if neither is set, if it was not used
/// since the previous collection. Writes the bytes released to `released_bytes`, which may be NULL.
///
/// # Safety
/// `released_bytes` is NULL or points to a writable `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_garbage_collect(
    device: c_int,
    released_bytes: *mut usize,
) -> Status {
    boundary::status(|| {
        let released = for_devices(device, |heap, device| heap.collect_garbage(device))?;
        // SAFETY: the caller's contract.
        unsafe { write_optional(released_bytes, released as usize) };
        Ok(())
    })
}

/// What `genesis_memory_optimize` did.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OptimizationDone {
    /// `sizeof(genesis_optimization)`, set by the caller.
    pub struct_size: usize,
    /// Bytes held before.
    pub reserved_bytes: u64,
    /// Bytes given back to the driver.
    pub released_bytes: u64,
    /// Freed bytes that other streams had finished with: they are usable again.
    pub compacted_bytes: u64,
    /// Calls of the driver meanwhile; also those of other threads.
    pub driver_calls: u64,
    /// Time in them, in nanoseconds.
    pub driver_nanoseconds: u64,
    /// Time of it all, in nanoseconds.
    pub nanoseconds: u64,
}

/// Puts the cache of `device` (-1: of every device in use) in order: makes what is free usable, as
/// `genesis_memory_compact` does, and gives back to the driver what was not used since the previous
/// call, and what is held beyond the most that was ever live. Writes what it did to `done`, whose
/// `struct_size` the caller has set.
///
/// May wait for the device; during a capture it gives nothing back. Any thread.
///
/// # Safety
/// `done` is NULL, which is an error, or points to `done->struct_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_memory_optimize(
    device: c_int,
    done: *mut OptimizationDone,
) -> Status {
    let optimize = || {
        let sum = Cell::new(Optimization::default());
        for_devices(device, |heap, device| {
            sum.set(sum.get().and(heap.optimize(device)?));
            Ok(0)
        })?;
        let sum = sum.get();
        Ok(OptimizationDone {
            struct_size: size_of::<OptimizationDone>(),
            reserved_bytes: sum.reserved_bytes,
            released_bytes: sum.released_bytes,
            compacted_bytes: sum.compacted_bytes,
            driver_calls: sum.driver_calls,
            driver_nanoseconds: sum.driver_nanoseconds,
            nanoseconds: sum.nanoseconds,
        })
    };
    // SAFETY: the caller's contract; the struct begins with its size.
    boundary::status(|| unsafe { write_sized(done, optimize) })
}

/// Makes freed blocks of `device` (-1: of every device in use) reusable if other streams have
/// finished with them, and joins free neighbours. Returns nothing to the driver and does not wait.
/// Writes the bytes that became reusable to `reusable_bytes`, which may be NULL.
///
/// # Safety
/// `reusable_bytes` is NULL or points to a writable `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_memory_compact(
    device: c_int,
    reusable_bytes: *mut usize,
) -> Status {
    boundary::status(|| {
        let reusable = for_devices(device, |heap, device| heap.compact(device))?;
        // SAFETY: the caller's contract.
        unsafe { write_optional(reusable_bytes, reusable as usize) };
        Ok(())
    })
}
