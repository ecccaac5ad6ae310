//! Calls that CUDA answers and this library takes note of: waits for a device, captures, the
//! ends of streams and contexts, resets, the program's memory pools, and Genesis's waits.

use std::ffi::{c_int, c_uint, c_void};

use crate::call::Level;
use crate::capture;
use crate::device::{self, Device};
use crate::driver_api::{SUCCESS, per_thread};
use crate::fence::around_wait;
use crate::memory::{Order, device_for};
use crate::next::real;
use crate::{inside, process, report, runtime_api, streams, symbols};

/// The device that a wait made now is for; `None` in a call of our own, which handles it itself.
fn waited_for(level: Level) -> Option<&'static Device> {
    process::genesis_if_open().filter(|_| !inside::is_inside())?;
    device_for(level, Order::Device)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaDeviceSynchronize() -> c_int {
    report::served(const { symbols::row("cudaDeviceSynchronize") });
    let device = waited_for(Level::Runtime).map(Device::ordinal);
    around_wait(device, || real!(cudaDeviceSynchronize()))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxSynchronize() -> c_int {
    report::served(const { symbols::row("cuCtxSynchronize") });
    let device = waited_for(Level::Driver).map(Device::ordinal);
    around_wait(device, || real!(cuCtxSynchronize()))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxSynchronize_v2(context: usize) -> c_int {
    // Of the driver's version 13: any context, current or not.
    let is_ours = process::genesis_if_open().is_some() && !inside::is_inside();
    let device = is_ours.then(|| device::with_context(context)).flatten();
    around_wait(device.map(Device::ordinal), || real!(cuCtxSynchronize_v2(context)))
}

/// The functions that begin and end captures: the stream comes first, and 0 may mean the thread's.
macro_rules! captures {
    ($($step:ident$([$default:ident])?: fn $name:ident(
        $stream:ident: usize $(, $argument:ident: $type:ty)*
    );)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($stream: usize $(, $argument: $type)*) -> c_int {
            if inside::is_inside() || !process::may_serve() {
                return real!($name($stream $(, $argument)*));
            }
            let stream = captures!(@meant $($default)? $stream);
            capture::$step(stream, || real!($name($stream $(, $argument)*)))
        }
    )*};
    (@meant $stream:ident) => { $stream };
    (@meant per_thread $stream:ident) => { per_thread($stream) };
}

captures! {
    begin: fn cuStreamBeginCapture(stream: usize);
    begin[per_thread]: fn cuStreamBeginCapture_ptsz(stream: usize);
    begin: fn cuStreamBeginCapture_v2(stream: usize, mode: c_int);
    begin[per_thread]: fn cuStreamBeginCapture_v2_ptsz(stream: usize, mode: c_int);
    begin: fn cuStreamBeginCaptureToGraph(
        stream: usize, graph: usize, nodes: *const c_void, edges: *const c_void, count: usize,
        mode: c_int
    );
    begin[per_thread]: fn cuStreamBeginCaptureToGraph_ptsz(
        stream: usize, graph: usize, nodes: *const c_void, edges: *const c_void, count: usize,
        mode: c_int
    );
    begin: fn cuStreamBeginRecaptureToGraph(
        stream: usize, mode: c_int, graph: usize, callback: *const c_void, data: *mut c_void
    );
    begin[per_thread]: fn cuStreamBeginRecaptureToGraph_ptsz(
        stream: usize, mode: c_int, graph: usize, callback: *const c_void, data: *mut c_void
    );
    end: fn cuStreamEndCapture(stream: usize, graph: *mut usize);
    end[per_thread]: fn cuStreamEndCapture_ptsz(stream: usize, graph: *mut usize);
    begin: fn cudaStreamBeginCapture(stream: usize, mode: c_int);
    begin[per_thread]: fn cudaStreamBeginCapture_ptsz(stream: usize, mode: c_int);
    begin: fn cudaStreamBeginCaptureToGraph(
        stream: usize, graph: usize, nodes: *const c_void, edges: *const c_void, count: usize,
        mode: c_int
    );
    begin[per_thread]: fn cudaStreamBeginCaptureToGraph_ptsz(
        stream: usize, graph: usize, nodes: *const c_void, edges: *const c_void, count: usize,
        mode: c_int
    );
    end: fn cudaStreamEndCapture(stream: usize, graph: *mut usize);
    end[per_thread]: fn cudaStreamEndCapture_ptsz(stream: usize, graph: *mut usize);
}

/// The functions that destroy streams, or contexts with their streams.
macro_rules! ends {
    ($($step:ident: fn $name:ident($handle:ident: usize);)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($handle: usize) -> c_int {
            streams::$step($handle, || real!($name($handle)))
        }
    )*};
}

ends! {
    end_with: fn cuCtxDestroy(context: usize);
    end_with: fn cuCtxDestroy_v2(context: usize);
    end_with: fn cuGreenCtxDestroy(context: usize);
    destroy: fn cuStreamDestroy(stream: usize);
    destroy: fn cuStreamDestroy_v2(stream: usize);
    destroy: fn cudaStreamDestroy(stream: usize);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaDeviceReset() -> c_int {
    // The thread's device, which need not have a context yet.
    streams::reset(runtime_api::current_device(), || real!(cudaDeviceReset()))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDevicePrimaryCtxReset(device: c_int) -> c_int {
    streams::reset(Some(device), || real!(cuDevicePrimaryCtxReset(device)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDevicePrimaryCtxReset_v2(device: c_int) -> c_int {
    streams::reset(Some(device), || real!(cuDevicePrimaryCtxReset_v2(device)))
}

/// The device's memory pool was changed to `pool`, if `status` is success.
fn set_pool(device: c_int, pool: usize, status: c_int) -> c_int {
    if let Some(device) = device::get(device).filter(|_| status == SUCCESS) {
        device.set_pool(pool);
    }
    status
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaDeviceSetMemPool(device: c_int, pool: usize) -> c_int {
    set_pool(device, pool, real!(cudaDeviceSetMemPool(device, pool)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceSetMemPool(device: c_int, pool: usize) -> c_int {
    set_pool(device, pool, real!(cuDeviceSetMemPool(device, pool)))
}

/// `CUmemLocation`, and the same of the runtime.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Location {
    kind: c_int,
    ordinal: c_int,
}

/// [`set_pool`] for a place, which may be a device.
///
/// # Safety
/// `location` is null or valid.
unsafe fn set_pool_at(location: *const Location, pool: usize, status: c_int) -> c_int {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    const DEVICE: c_int = 1;
    // SAFETY: by this function's contract.
    match unsafe { location.as_ref() } {
        Some(&Location { kind: DEVICE, ordinal }) => set_pool(ordinal, pool, status),
        _ => status,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMemSetMemPool(
    location: *const Location,
    kind: c_int,
    pool: usize,
) -> c_int {
    let status = real!(cudaMemSetMemPool(location, kind, pool));
    // SAFETY: CUDA's own contract.
    unsafe { set_pool_at(location, pool, status) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemSetMemPool(
    location: *const Location,
    kind: c_int,
    pool: usize,
) -> c_int {
    let status = real!(cuMemSetMemPool(location, kind, pool));
    // SAFETY: CUDA's own contract.
    unsafe { set_pool_at(location, pool, status) }
}

/// As Genesis calls it: the stream waits for another one's work.
#[allow(non_snake_case)] // not exported, but its symbol and the driver's function have this name
pub(crate) unsafe extern "C" fn cuStreamWaitEvent(
    stream: usize,
    event: usize,
    flags: c_uint,
) -> c_int {
    let status = real!(cuStreamWaitEvent(stream, event, flags));
    device::note_queued(stream);
    status
}

/// As Genesis calls it: new memory is filled.
#[allow(non_snake_case)] // as above
pub(crate) unsafe extern "C" fn cuMemsetD8Async(
    address: u64,
    value: u8,
    bytes: usize,
    stream: usize,
) -> c_int {
    let status = real!(cuMemsetD8Async(address, value, bytes, stream));
    device::note_queued(stream);
    status
}
