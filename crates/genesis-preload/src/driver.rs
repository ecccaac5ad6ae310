//! The driver's functions that are served.
//!
//! They are called by programs with the runtime linked into them and by libraries that need no
//! runtime, through `dlsym` and `cuGetProcAddress`.
//!
//! SAFETY of the whole module: arguments are those of CUDA's function of the name, whose callers
//! promise the same; `memory` asks no more of them.

use std::ffi::{c_int, c_uint, c_void};

use crate::call::call;
use crate::driver_api::{SUCCESS, per_thread};
use crate::memory::{self, Order, Rows};
use crate::next::{pass, real};

/// `CU_POINTER_ATTRIBUTE_RANGE_START_ADDR` and `…_RANGE_SIZE`.
const RANGE_START: c_int = 11;
const RANGE_BYTES: c_int = 12;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    let pass = || pass!(cuMemAlloc_v2(address, bytes));
    // SAFETY: see the head of the file.
    unsafe { memory::malloc(call!(cuMemAlloc_v2), address, bytes, Order::Device, pass) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    memory::free(call!(cuMemFree_v2), address, || pass!(cuMemFree_v2(address)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocPitch_v2(
    address: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element_bytes: c_uint,
) -> c_int {
    let call = call!(cuMemAllocPitch_v2);
    let rows = Rows { width_bytes: width, count: height };
    let pass = || pass!(cuMemAllocPitch_v2(address, pitch, width, height, element_bytes));
    match element_bytes {
        // SAFETY: see the head of the file.
        4 | 8 | 16 => unsafe { memory::malloc_pitched(call, address, pitch, rows, pass) },
        // The driver allows no other sizes.
        _ => pass(),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocAsync(
    address: *mut u64,
    bytes: usize,
    stream: usize,
) -> c_int {
    let call = call!(cuMemAllocAsync);
    let pass = || pass!(cuMemAllocAsync(address, bytes, stream));
    // SAFETY: see the head of the file.
    unsafe { memory::malloc(call, address, bytes, Order::Stream(stream), pass) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocFromPoolAsync(
    address: *mut u64,
    bytes: usize,
    pool: usize,
    stream: usize,
) -> c_int {
    let call = call!(cuMemAllocFromPoolAsync);
    let pass = || pass!(cuMemAllocFromPoolAsync(address, bytes, pool, stream));
    // SAFETY: see the head of the file.
    unsafe { memory::malloc(call, address, bytes, Order::Pool(stream, pool), pass) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemFreeAsync(address: u64, stream: usize) -> c_int {
    let pass = || pass!(cuMemFreeAsync(address, stream));
    memory::free_async(call!(cuMemFreeAsync), address, stream, pass)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocAsync_ptsz(
    address: *mut u64,
    bytes: usize,
    stream: usize,
) -> c_int {
    let call = call!(cuMemAllocAsync_ptsz);
    let pass = || pass!(cuMemAllocAsync_ptsz(address, bytes, stream));
    // SAFETY: see the head of the file.
    unsafe { memory::malloc(call, address, bytes, Order::Stream(per_thread(stream)), pass) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocFromPoolAsync_ptsz(
    address: *mut u64,
    bytes: usize,
    pool: usize,
    stream: usize,
) -> c_int {
    let call = call!(cuMemAllocFromPoolAsync_ptsz);
    let pass = || pass!(cuMemAllocFromPoolAsync_ptsz(address, bytes, pool, stream));
    // SAFETY: see the head of the file.
    unsafe { memory::malloc(call, address, bytes, Order::Pool(per_thread(stream), pool), pass) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemFreeAsync_ptsz(address: u64, stream: usize) -> c_int {
    let pass = || pass!(cuMemFreeAsync_ptsz(address, stream));
    memory::free_async(call!(cuMemFreeAsync_ptsz), address, per_thread(stream), pass)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    let pass = || pass!(cuMemGetInfo_v2(free, total));
    // SAFETY: see the head of the file.
    unsafe { memory::info(call!(cuMemGetInfo_v2), free, total, pass) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemGetAddressRange_v2(
    base: *mut u64,
    bytes: *mut usize,
    address: u64,
) -> c_int {
    let Some((start, size_bytes)) = memory::range(address) else {
        return pass!(cuMemGetAddressRange_v2(base, bytes, address));
    };
    // SAFETY: null, or where CUDA's function would write.
    unsafe {
        if let Some(base) = base.as_mut() {
            *base = start;
        }
        if let Some(bytes) = bytes.as_mut() {
            *bytes = size_bytes;
        }
    }
    call!(cuMemGetAddressRange_v2).serve()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuIpcGetMemHandle(handle: *mut c_void, address: u64) -> c_int {
    let pass = || pass!(cuIpcGetMemHandle(handle, address));
    memory::ipc_handle(call!(cuIpcGetMemHandle), address, pass)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuPointerGetAttribute(
    data: *mut c_void,
    attribute: c_int,
    address: u64,
) -> c_int {
    let status = real!(cuPointerGetAttribute(data, attribute, address));
    if status == SUCCESS {
        // SAFETY: the driver has written there.
        unsafe { correct(data, attribute, address) };
    }
    status
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *const c_int,
    data: *const *mut c_void,
    address: u64,
) -> c_int {
    let status = real!(cuPointerGetAttributes(count, attributes, data, address));
    if status == SUCCESS {
        for index in 0..count as usize {
            // SAFETY: both arrays have `count` elements, and the driver has written to each place.
            unsafe { correct(*data.add(index), *attributes.add(index), address) };
        }
    }
    status
}

/// Replaces an attribute of the driver's allocation by that of the block of Genesis's in it.
///
/// # Safety
/// `data` is a place for the attribute.
unsafe fn correct(data: *mut c_void, attribute: c_int, address: u64) {
    if attribute != RANGE_START && attribute != RANGE_BYTES {
        return;
    }
    let Some((start, bytes)) = memory::range(address) else { return };
    // SAFETY: by this function's contract, as wide as `cuda.h` says.
    unsafe {
        match attribute {
            RANGE_START => data.cast::<u64>().write(start),
            _ => data.cast::<usize>().write(bytes),
        }
    }
}
