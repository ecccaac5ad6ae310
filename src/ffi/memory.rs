//! How much memory there is, how much may be held, and giving cached memory back.

use std::ffi::c_int;

use super::{boundary, for_devices, ordinal, write_optional, write_required};
use crate::base::{Result, Status};
use crate::heap::Heap;
use crate::instance;

/// Writes the free and total memory of `device`, in bytes, as a caller may count on it: within
/// the limits in force, with cached memory counted as free. Either output may be NULL.
///
/// Asks the driver: microseconds, not for a hot path.
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

/// Limits the physical memory held on `device` to `bytes`; 0 takes the limit away.
///
/// Memory held already stays; cached memory above the limit is released when more is needed.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_memory_limit_set(device: c_int, bytes: usize) -> Status {
    let limit = (bytes != 0).then_some(bytes as u64);
    boundary::status(|| instance::heap()?.set_memory_limit(ordinal(device)?, limit))
}

/// Writes the limit set for `device` to `bytes`; 0: none.
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
/// memory; the lower of this limit and that of `genesis_memory_limit_set` is in force.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_memory_fraction_set(device: c_int, fraction: f64) -> Status {
    boundary::status(|| instance::heap()?.set_memory_fraction(ordinal(device)?, fraction))
}

/// Writes the fraction in force for `device` to `fraction`.
///
/// # Safety
/// `fraction` is NULL, which is an error, or points to a writable `double`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_memory_fraction_get(device: c_int, fraction: *mut f64) -> Status {
    let get = || instance::heap()?.memory_fraction(ordinal(device)?);
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(fraction, get) })
}

/// Limits the memory that `device` keeps cached to `bytes`, and releases what is above;
/// `SIZE_MAX` takes the limit away, 0 keeps nothing.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_cache_limit_set(device: c_int, bytes: usize) -> Status {
    let limit = (bytes != usize::MAX).then_some(bytes as u64);
    boundary::status(|| instance::heap()?.set_cache_limit(ordinal(device)?, limit))
}

/// Writes the limit of the cache of `device` to `bytes`; `SIZE_MAX`: none.
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

/// Gives everything cached on `device` (−1: on every device in use) back to the driver.
///
/// May wait for the device. Live blocks stay, and so does what shares a segment with them.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_cache_empty(device: c_int) -> Status {
    boundary::status(|| empty_cache(device))
}

/// Gives everything cached on `device` back, or on every one if it is `ALL_DEVICES`.
pub(super) fn empty_cache(device: c_int) -> Result<()> {
    for_devices(device, Heap::empty_cache).map(drop)
}

/// Gives cached memory of `device` (−1: of every device in use) back, the longest unused
/// first, until at most `target_bytes` are held. Writes the bytes given back to
/// `released_bytes`, which may be NULL.
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

/// Gives back what `device` (−1: every device in use) has cached and not used for as long as
/// GENESIS_GC_AGE_ALLOCATIONS and GENESIS_GC_AGE_SECONDS say or, where they say nothing, since
/// the previous collection. Writes the bytes given back to `released_bytes`, which may be NULL.
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

/// Takes in the freed blocks of `device` (−1: of every device in use) whose streams have
/// finished with them, and joins free neighbours. Gives nothing back to the driver and does
/// not wait. Writes the bytes that became reusable to `reusable_bytes`, which may be NULL.
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
