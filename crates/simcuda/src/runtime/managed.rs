//! Managed memory.

use std::ffi::{c_int, c_uint};

use simgpu::Code;

use crate::answer::put;
use crate::call::runtime;
use crate::current;
use crate::driver::managed::{Location, advise, allocate, prefetch};

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMallocManaged(address: *mut u64, bytes: usize, flags: c_uint) -> c_int {
    runtime("cudaMallocManaged", format_args!("{bytes}, {flags}"), |simulation| {
        let allocated = allocate(simulation, current::runtime_context(), bytes, flags)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(address, allocated) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemAdvise(
    address: u64,
    bytes: usize,
    advice: c_uint,
    location: Location,
) -> c_int {
    let arguments = format_args!("{address:#x}, {bytes}, {advice}, {location:?}");
    runtime("cudaMemAdvise", arguments, |simulation| {
        advise(simulation, current::runtime_context(), (address, bytes), advice, location)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemPrefetchAsync(
    address: u64,
    bytes: usize,
    location: Location,
    flags: c_uint,
    stream: usize,
) -> c_int {
    let arguments = format_args!("{address:#x}, {bytes}, {location:?}, {flags}, {stream:#x}");
    runtime("cudaMemPrefetchAsync", arguments, |simulation| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        prefetch(simulation, current::runtime_context(), (address, bytes), location, stream)
    })
}
