//! The runtime's functions that are served.
//!
//! SAFETY of the whole module: arguments are those of CUDA's function of the name, whose callers
//! promise the same; `memory` asks no more of them.

use std::ffi::{c_int, c_void};

use crate::call::call;
use crate::driver_api::per_thread;
use crate::memory::{self, Order, Rows};
use crate::next::pass;

/// `cudaExtent`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    width: usize,
    height: usize,
    depth: usize,
}

/// `cudaPitchedPtr`.
#[repr(C)]
pub(crate) struct PitchedPointer {
    address: u64,
    pitch: usize,
    width: usize,
    height: usize,
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMalloc(address: *mut u64, bytes: usize) -> c_int {
    let pass = || pass!(cudaMalloc(address, bytes));
    // SAFETY: see the head of the file.
    unsafe { memory::malloc(call!(cudaMalloc), address, bytes, Order::Device, pass) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaFree(address: u64) -> c_int {
    memory::free(call!(cudaFree), address, || pass!(cudaFree(address)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMallocPitch(
    address: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> c_int {
    let rows = Rows { width_bytes: width, count: height };
    let pass = || pass!(cudaMallocPitch(address, pitch, width, height));
    // SAFETY: see the head of the file.
    unsafe { memory::malloc_pitched(call!(cudaMallocPitch), address, pitch, rows, pass) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMalloc3D(place: *mut PitchedPointer, extent: Extent) -> c_int {
    let Extent { width, height, depth } = extent;
    let (mut address, mut pitch) = (0, 0);
    let pass = || pass!(cudaMalloc3D(place, extent));
    let Some(count) = height.checked_mul(depth).filter(|_| !place.is_null()) else { return pass() };
    let rows = Rows { width_bytes: width, count };
    // SAFETY: both places are our own; `place` is not null, and by CUDA's contract writable.
    unsafe {
        let call = call!(cudaMalloc3D);
        let status = memory::malloc_pitched(call, &raw mut address, &raw mut pitch, rows, pass);
        // If the real function answered, it has written there itself.
        if address != 0 {
            place.write(PitchedPointer { address, pitch, width, height });
        }
        status
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMallocAsync(
    address: *mut u64,
    bytes: usize,
    stream: usize,
) -> c_int {
    let call = call!(cudaMallocAsync);
    let pass = || pass!(cudaMallocAsync(address, bytes, stream));
    // SAFETY: see the head of the file.
    unsafe { memory::malloc(call, address, bytes, Order::Stream(stream), pass) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMallocFromPoolAsync(
    address: *mut u64,
    bytes: usize,
    pool: usize,
    stream: usize,
) -> c_int {
    let call = call!(cudaMallocFromPoolAsync);
    let pass = || pass!(cudaMallocFromPoolAsync(address, bytes, pool, stream));
    // SAFETY: see the head of the file.
    unsafe { memory::malloc(call, address, bytes, Order::Pool(stream, pool), pass) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaFreeAsync(address: u64, stream: usize) -> c_int {
    let pass = || pass!(cudaFreeAsync(address, stream));
    memory::free_async(call!(cudaFreeAsync), address, stream, pass)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMallocAsync_ptsz(
    address: *mut u64,
    bytes: usize,
    stream: usize,
) -> c_int {
    let call = call!(cudaMallocAsync_ptsz);
    let pass = || pass!(cudaMallocAsync_ptsz(address, bytes, stream));
    // SAFETY: see the head of the file.
    unsafe { memory::malloc(call, address, bytes, Order::Stream(per_thread(stream)), pass) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMallocFromPoolAsync_ptsz(
    address: *mut u64,
    bytes: usize,
    pool: usize,
    stream: usize,
) -> c_int {
    let call = call!(cudaMallocFromPoolAsync_ptsz);
    let pass = || pass!(cudaMallocFromPoolAsync_ptsz(address, bytes, pool, stream));
    // SAFETY: see the head of the file.
    unsafe { memory::malloc(call, address, bytes, Order::Pool(per_thread(stream), pool), pass) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaFreeAsync_ptsz(address: u64, stream: usize) -> c_int {
    let pass = || pass!(cudaFreeAsync_ptsz(address, stream));
    memory::free_async(call!(cudaFreeAsync_ptsz), address, per_thread(stream), pass)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
    let pass = || pass!(cudaMemGetInfo(free, total));
    // SAFETY: see the head of the file.
    unsafe { memory::info(call!(cudaMemGetInfo), free, total, pass) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaIpcGetMemHandle(handle: *mut c_void, address: u64) -> c_int {
    let pass = || pass!(cudaIpcGetMemHandle(handle, address));
    memory::ipc_handle(call!(cudaIpcGetMemHandle), address, pass)
}
