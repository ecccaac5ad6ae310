//! Host memory: pageable, and pinned for a GPU's own copies.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::dlpack::DlpackBuffer;
use super::statistics::write_sized;
use super::{boundary, genesis_stream, pointer, stream_handle, write_required};
use crate::base::{Error, Result, Status};
use crate::config::HostKind;
use crate::instance::{host, host_growth};
use crate::observe::Statistics;

/// Allocates `size` bytes of host memory of `kind`, a `genesis_host_kind`.
///
/// Returns a pointer aligned to 512 bytes; NULL for size 0 (no error) or on failure (last error
/// set). Contents are undefined. Any thread. GENESIS_HOST_POOL_TYPE and GENESIS_PINNED_POOL_TYPE
/// choose the strategy; limits, profiles and traces of devices do not count host memory. Pinned
/// memory is locked by the driver of the first device in use (device 0 if none is), for all devices,
/// and lies near that one. With GENESIS_BACKEND=sim it is addresses only, like all memory of that
/// backend.
///
/// Pageable memory works without a device, and in a child after fork.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_malloc(size: usize, kind: c_int) -> *mut c_void {
    let allocated = boundary::call(|| {
        let kind = host_kind(kind)?;
        if size == 0 { Ok(0) } else { host::allocate(size as u64, kind) }
    });
    allocated.map_or(null_mut(), pointer)
}

/// Frees the block of host memory at `ptr`, of either kind; NULL does nothing. Any thread.
///
/// The memory is reused at once, or, if streams were recorded for it, once their work is complete.
/// Other copies from and to it must have completed. A pointer that is not a live block's changes
/// nothing and sets the last error.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_free(ptr: *mut c_void) {
    let _ = boundary::call(|| host::of_block(ptr as u64, |heap, address| heap.free(address)));
}

/// Frees the block of host memory at `ptr`, which may be NULL, and returns the memory that this
/// leaves wholly free to the system at once, as `genesis_block_release` does to the driver.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_release(ptr: *mut c_void) -> Status {
    boundary::status(|| {
        host::of_block(ptr as u64, |heap, address| heap.free_directly(address).map(drop))
    })
}

/// Records that a copy or a kernel on `stream` uses the block of host memory at `ptr`: once freed,
/// it is not reused before the work queued on `stream` until the free has completed. The stream must
/// outlive the block; a default stream is that of the context current in the calling thread. Any
/// thread. Records nothing for pageable memory, with which copies are done when their call returns,
/// and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_record_stream(ptr: *mut c_void, stream: genesis_stream) -> Status {
    boundary::status(|| host::record_stream(ptr as u64, stream_handle(stream)))
}

/// Returns 1 if the byte at `ptr` is of pinned memory that this process has from Genesis, in a live
/// block or not, and 0 if it is not. Calls no driver. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_is_pinned(ptr: *const c_void) -> c_int {
    boundary::call(|| Ok(c_int::from(host::is_pinned(ptr as u64)))).unwrap_or(0)
}

/// Takes `bytes` of host memory of `kind` beforehand, all of them or none: they are cached then.
///
/// With `in_background` other than 0 a thread of the library does so, which takes as long as locking
/// the pages does; what cannot be had is told by `genesis_host_preallocate_wait`. Otherwise returns
/// `GENESIS_STATUS_OUT_OF_MEMORY` if there are not so many, and in both cases
/// `GENESIS_STATUS_NOT_SUPPORTED` under Naive, Round and Exact, which cut no cached memory.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_preallocate(
    kind: c_int,
    bytes: usize,
    in_background: c_int,
) -> Status {
    boundary::demanding(|| {
        let (kind, bytes) = (host_kind(kind)?, bytes as u64);
        if in_background == 0 {
            host::preallocate(bytes, kind)
        } else {
            host_growth::begin(bytes, kind)
        }
    })
}

/// Waits until all that `genesis_host_preallocate` was asked for in the background is there. Returns
/// the first failure since the last such wait.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_preallocate_wait() -> Status {
    boundary::status(host_growth::wait)
}

/// Limits the host memory of `kind` held from the system to `bytes`; 0 removes the limit. Memory
/// already held stays. Cached memory above the limit is released when more is needed.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_memory_limit_set(kind: c_int, bytes: usize) -> Status {
    let limit = (bytes != 0).then_some(bytes as u64);
    boundary::status(|| host::heap(host_kind(kind)?)?.set_memory_limit(host::DEVICE, limit))
}

/// Writes the limit set for host memory of `kind` to `bytes`; 0 if there is none.
///
/// # Safety
/// `bytes` is NULL, which is an error, or points to a writable `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_host_memory_limit_get(kind: c_int, bytes: *mut usize) -> Status {
    let get = || {
        let limit = host::heap(host_kind(kind)?)?.memory_limit(host::DEVICE)?;
        Ok(limit.unwrap_or(0) as usize)
    };
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(bytes, get) })
}

/// Limits the host memory of `kind` that is kept cached to `bytes`, and releases what is above the
/// limit. `SIZE_MAX` removes the limit; 0 keeps nothing.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_cache_limit_set(kind: c_int, bytes: usize) -> Status {
    let limit = (bytes != usize::MAX).then_some(bytes as u64);
    boundary::status(|| host::heap(host_kind(kind)?)?.set_cache_limit(host::DEVICE, limit))
}

/// Writes the limit of the cache of host memory of `kind` to `bytes`; `SIZE_MAX` if there is none.
///
/// # Safety
/// `bytes` is NULL, which is an error, or points to a writable `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_host_cache_limit_get(kind: c_int, bytes: *mut usize) -> Status {
    let get = || {
        let limit = host::heap(host_kind(kind)?)?.cache_limit(host::DEVICE)?;
        Ok(limit.map_or(usize::MAX, |limit| limit as usize))
    };
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(bytes, get) })
}

/// Allocates `size` bytes of host memory of `kind`, a `genesis_host_kind`, and writes a buffer that
/// shares them with DLPack tensors to `buffer`.
///
/// # Safety
/// `buffer` is NULL, which is an error, or points to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_dlpack_host_buffer_create(
    size: usize,
    kind: c_int,
    buffer: *mut *mut DlpackBuffer,
) -> Status {
    let create = || {
        let (bytes, kind) = (size as u64, host_kind(kind)?);
        let address = if bytes == 0 { 0 } else { host::allocate(bytes, kind)? };
        Ok(DlpackBuffer::of_host(address, bytes))
    };
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(buffer, create) })
}

/// Returns all cached host memory of `kind` to the system.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_cache_empty(kind: c_int) -> Status {
    boundary::status(|| host::heap(host_kind(kind)?)?.empty_cache(host::DEVICE).map(drop))
}

/// Writes the statistics of the host memory of `kind` to `stats`, whose `struct_size` the caller
/// has set. Driver calls count requests to the system, or to the driver for pinned memory.
///
/// # Safety
/// `stats` is NULL, which is an error, or points to `stats->struct_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_host_stats_get(kind: c_int, stats: *mut Statistics) -> Status {
    let get = || host::heap(host_kind(kind)?)?.statistics(host::DEVICE);
    // SAFETY: the caller's contract; the struct begins with its size.
    boundary::status(|| unsafe { write_sized(stats, get) })
}

/// Resets every peak of the host memory of `kind` to its present level.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_stats_reset_peak(kind: c_int) -> Status {
    boundary::status(|| host::heap(host_kind(kind)?)?.reset_peaks(host::DEVICE))
}

/// The kind of that number.
pub(super) fn host_kind(number: c_int) -> Result<HostKind> {
    let kind = HostKind::ALL.into_iter().find(|kind| *kind as c_int == number);
    kind.ok_or_else(|| Error::invalid_argument(format!("{number} is not a genesis_host_kind")))
}
