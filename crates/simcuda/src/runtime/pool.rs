//! Memory in stream order.

use std::ffi::{c_int, c_void};

use crate::answer::put;
use crate::call::runtime;
use crate::driver::{get_pool_attribute, set_pool_attribute};
use crate::{current, pools};

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMallocAsync(address: *mut u64, bytes: usize, stream: usize) -> c_int {
    runtime("cudaMallocAsync", format_args!("{bytes}, {stream:#x}"), |simulation| {
        let context = current::runtime_context();
        // SAFETY: see the head of `runtime`.
        unsafe {
            put(
                address,
                simulation.pools.allocate(&simulation.machine, context, bytes as u64, stream)?,
            )
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaFreeAsync(address: u64, stream: usize) -> c_int {
    runtime("cudaFreeAsync", format_args!("{address:#x}, {stream:#x}"), |simulation| {
        simulation.pools.free(&simulation.machine, current::runtime_context(), address, stream)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceGetDefaultMemPool(pool: *mut usize, device: c_int) -> c_int {
    runtime("cudaDeviceGetDefaultMemPool", format_args!("{device}"), |simulation| {
        // SAFETY: see the head of `runtime`.
        unsafe { put(pool, pools::handle(simulation.device(device)?)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolTrimTo(pool: usize, bytes: usize) -> c_int {
    runtime("cudaMemPoolTrimTo", format_args!("{pool:#x}, {bytes}"), |simulation| {
        pools::device(simulation.settings.devices, pool)?;
        simulation.pools.give_back(&simulation.machine, false)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemPoolGetAttribute(
    pool: usize,
    attribute: c_int,
    value: *mut c_void,
) -> c_int {
    runtime("cudaMemPoolGetAttribute", format_args!("{pool:#x}, {attribute}"), |simulation| {
        // SAFETY: see the head of `runtime`.
        unsafe { get_pool_attribute(simulation, pool, attribute, value) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemPoolSetAttribute(
    pool: usize,
    attribute: c_int,
    value: *mut c_void,
) -> c_int {
    runtime("cudaMemPoolSetAttribute", format_args!("{pool:#x}, {attribute}"), |simulation| {
        // SAFETY: see the head of `runtime`.
        unsafe { set_pool_attribute(simulation, pool, attribute, value) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaMemPoolSetAccess(pool: usize, _list: *const c_void, count: usize) -> c_int {
    runtime("cudaMemPoolSetAccess", format_args!("{pool:#x}, {count}"), |simulation| {
        // Blocks of a pool are plain allocations, which peers reach once they are enabled.
        pools::device(simulation.settings.devices, pool).map(|_| ())
    })
}
