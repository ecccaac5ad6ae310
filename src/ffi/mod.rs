//! The C boundary.
//!
//! A function converts its arguments, calls one function of `heap` or `instance` inside
//! [`boundary`], and writes its outputs on success only. Names are `genesis_<noun>_<verb>`. A
//! function returns a [`Status`](crate::base::Status) unless it returns a pointer, cannot fail, or
//! has a type that PyTorch or another framework fixes. The introduction for C programmers is in
//! `cbindgen.toml`, from which it gets to the top of `include/genesis.h`.
//!
//! | file | functions |
//! |---|---|
//! | `allocation` | malloc, free, the block at an address |
//! | `host` | host memory |
//! | `arenas`, `fixed_pools`, `memory_managers` | those objects; `objects` is what they share |
//! | `memory` | memory info, limits, memory taken beforehand, releasing cached memory |
//! | `statistics` | statistics, largest allocations |
//! | `live` | the live blocks |
//! | `managed` | advice and prefetches of managed memory |
//! | `private_pools` | private pools and their blocks |
//! | `sharing` | blocks shared with other processes |
//! | `tags` | tags of allocations, pausing and resuming them |
//! | `streams` | ends of streams, captures, waits; access of other devices |
//! | `torch_memory_saver` | torch_memory_saver's C functions |
//! | `trace` | recording |
//! | `profile` | profiles, snapshots |
//! | `forecasts` | when memory will run out |
//! | `annotations` | ranges and marks |
//! | `callbacks` | out-of-memory and log callbacks |
//! | `library` | version, devices, backend, options, last error |
//! | `torch` | PyTorch's hooks and exceptions |
//! | `cupy` | malloc and free in CuPy's types |
//! | `onnxruntime` | malloc and free in ONNX Runtime's types |
//! | `dlpack` | DLPack tensors |
#![allow(unsafe_code)]

pub mod allocation;
pub mod annotations;
pub mod arenas;
mod boundary;
pub mod callbacks;
pub mod communication_pools;
pub mod cupy;
pub mod dlpack;
pub mod fixed_pools;
pub mod forecasts;
pub mod host;
pub mod library;
pub mod live;
pub mod managed;
pub mod memory;
pub mod memory_managers;
pub mod neighbours;
pub mod objects;
pub mod onnxruntime;
pub mod peers;
pub mod private_pools;
pub mod profile;
pub mod sharing;
pub mod statistics;
pub mod streams;
pub mod tags;
pub mod torch;
pub mod torch_memory_saver;
pub mod trace;

use std::ffi::{c_int, c_void};

use crate::base::{DeviceOrdinal, Error, Result, StreamHandle};
use crate::instance;

/// CUDA's stream object; only ever pointed to.
#[repr(C)]
pub struct CUstream_st {
    _opaque: [u8; 0],
}

/// A stream of CUDA: the same type as `cudaStream_t` and `CUstream`.
#[allow(non_camel_case_types)]
pub type genesis_stream = *mut CUstream_st;

/// Stands for all devices in functions that allow it.
const ALL_DEVICES: c_int = -1;

fn stream_handle(stream: genesis_stream) -> StreamHandle {
    StreamHandle(stream as usize)
}

#[inline]
fn ordinal(device: c_int) -> Result<DeviceOrdinal> {
    match u32::try_from(device) {
        Ok(number) => Ok(DeviceOrdinal(number)),
        Err(_) => Err(no_such_device(device)),
    }
}

#[cold]
fn no_such_device(device: c_int) -> Error {
    Error::new(crate::base::Status::InvalidDevice, format!("{device} is not a device ordinal"))
}

/// Calls `operation` for `device`, or for every device if it is [`ALL_DEVICES`]; returns the sum.
fn for_devices(
    device: c_int,
    operation: impl Fn(&crate::heap::Heap, DeviceOrdinal) -> Result<u64>,
) -> Result<u64> {
    let heap = instance::heap()?;
    if device != ALL_DEVICES {
        return operation(heap, ordinal(device)?);
    }
    let mut sum = 0u64;
    for index in 0..heap.device_count() as u32 {
        // A device that was never used holds nothing, so it is not opened.
        if heap.is_opened(DeviceOrdinal(index)) {
            sum = sum.saturating_add(operation(heap, DeviceOrdinal(index))?);
        }
    }
    Ok(sum)
}

/// Writes the result of `value` to `out`; a null `out` is an error.
///
/// # Safety
/// `out` is null or points to writable memory for a `T`.
unsafe fn write_required<T>(out: *mut T, value: impl FnOnce() -> Result<T>) -> Result<()> {
    if out.is_null() {
        return Err(Error::invalid_argument("an output pointer is null"));
    }
    let value = value()?;
    // SAFETY: not null, and writable by the caller's contract.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes `value` to `out` unless that is null.
///
/// # Safety
/// `out` is null or points to writable memory for a `T`.
unsafe fn write_optional<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: not null, and writable by the caller's contract.
        unsafe { out.write(value) };
    }
}

fn pointer(address: u64) -> *mut c_void {
    address as usize as *mut c_void
}
