//! Host memory: pageable, and pinned for a GPU's own copies.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::statistics::write_sized;
use super::{boundary, pointer};
use crate::base::{Error, Result, Status};
use crate::config::HostKind;
use crate::instance::host;
use crate::observe::Statistics;

/// Allocates `size` bytes of host memory of `kind`, a `genesis_host_kind`.
///
/// Returns a pointer aligned to 512 bytes; NULL for size 0 (no error) or on failure (last error
/// set). Contents are undefined. Any thread. GENESIS_HOST_POOL_TYPE and GENESIS_PINNED_POOL_TYPE
/// choose the strategy; limits, profiles and traces of devices do not count host memory. Pinned
/// memory is locked by the driver of device 0, for all devices. With GENESIS_BACKEND=sim it is
/// addresses only, like all memory of that backend.
///
/// Pageable memory works without a device, and in a child after fork.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_malloc(size: usize, kind: c_int) -> *mut c_void {
    let allocated = boundary::call(|| {
        let kind = kind_of(kind)?;
        if size == 0 { Ok(0) } else { host::allocate(size as u64, kind) }
    });
    allocated.map_or(null_mut(), pointer)
}

/// Frees the block of host memory at `ptr`, of either kind; NULL does nothing. Any thread.
///
/// The memory is reused at once, so copies from and to it must have completed. A pointer that is
/// not a live block's changes nothing and sets the last error.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_free(ptr: *mut c_void) {
    let _ = boundary::call(|| host::free(ptr as u64, |heap, address| heap.free(address)));
}

/// Frees the block of host memory at `ptr`, which may be NULL, and returns the memory that this
/// leaves wholly free to the system at once, as `genesis_block_release` does to the driver.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_release(ptr: *mut c_void) -> Status {
    boundary::status(|| {
        host::free(ptr as u64, |heap, address| heap.free_directly(address).map(drop))
    })
}

/// Returns all cached host memory of `kind` to the system.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_cache_empty(kind: c_int) -> Status {
    boundary::status(|| host::heap(kind_of(kind)?)?.empty_cache(host::DEVICE).map(drop))
}

/// Writes the statistics of the host memory of `kind` to `stats`, whose `struct_size` the caller
/// has set. Driver calls count requests to the system, or to the driver for pinned memory.
///
/// # Safety
/// `stats` is NULL, which is an error, or points to `stats->struct_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_host_stats_get(kind: c_int, stats: *mut Statistics) -> Status {
    let get = || host::heap(kind_of(kind)?)?.statistics(host::DEVICE);
    // SAFETY: the caller's contract; the struct begins with its size.
    boundary::status(|| unsafe { write_sized(stats, get) })
}

/// Resets every peak of the host memory of `kind` to its present level.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_host_stats_reset_peak(kind: c_int) -> Status {
    boundary::status(|| host::heap(kind_of(kind)?)?.reset_peaks(host::DEVICE))
}

fn kind_of(number: c_int) -> Result<HostKind> {
    let kind = HostKind::ALL.into_iter().find(|kind| *kind as c_int == number);
    kind.ok_or_else(|| Error::invalid_argument(format!("{number} is not a genesis_host_kind")))
}
