//! Memory in stream order.

use std::ffi::{c_int, c_void};

use simgpu::Code;

use crate::answer::{Answer, put};
use crate::call::driver;
use crate::simulation::Simulation;
use crate::{current, pools};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: usize) -> c_int {
    driver("cuMemAllocAsync", format_args!("{bytes}, {stream:#x}"), |simulation| {
        let context = current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe {
            put(
                address,
                simulation.pools.allocate(&simulation.machine, context, bytes as u64, stream)?,
            )
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, stream: usize) -> c_int {
    driver("cuMemFreeAsync", format_args!("{address:#x}, {stream:#x}"), |simulation| {
        simulation.pools.free(&simulation.machine, current::driver_context()?, address, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolTrimTo(pool: usize, bytes: usize) -> c_int {
    driver("cuMemPoolTrimTo", format_args!("{pool:#x}, {bytes}"), |simulation| {
        pools::device(simulation.settings.devices, pool)?;
        simulation.pools.give_back(&simulation.machine, false)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolGetAttribute(
    pool: usize,
    attribute: c_int,
    value: *mut c_void,
) -> c_int {
    driver("cuMemPoolGetAttribute", format_args!("{pool:#x}, {attribute}"), |simulation| {
        // SAFETY: see the head of `driver`.
        unsafe { get_attribute(simulation, pool, attribute, value) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolSetAttribute(
    pool: usize,
    attribute: c_int,
    value: *const c_void,
) -> c_int {
    driver("cuMemPoolSetAttribute", format_args!("{pool:#x}, {attribute}"), |simulation| {
        // SAFETY: see the head of `driver`.
        unsafe { set_attribute(simulation, pool, attribute, value) }
    })
}

/// Writes an attribute of a pool, in its width.
///
/// # Safety
/// `value` is null or has room for it.
pub(crate) unsafe fn get_attribute(
    simulation: &Simulation,
    pool: usize,
    attribute: c_int,
    value: *mut c_void,
) -> Answer {
    let answer =
        simulation.pools.attribute(pools::device(simulation.settings.devices, pool)?, attribute);
    // SAFETY: by this function's contract.
    unsafe {
        if pools::is_wide(attribute) {
            put(value.cast(), answer)
        } else {
            put(value.cast(), answer as c_int)
        }
    }
}

/// Changes an attribute of a pool to the value at `value`.
///
/// # Safety
/// `value` is null or valid, as wide as the attribute is.
pub(crate) unsafe fn set_attribute(
    simulation: &Simulation,
    pool: usize,
    attribute: c_int,
    value: *const c_void,
) -> Answer {
    let device = pools::device(simulation.settings.devices, pool)?;
    if value.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid.
    let wanted = unsafe {
        if pools::is_wide(attribute) {
            value.cast::<u64>().read_unaligned()
        } else {
            value.cast::<c_int>().read_unaligned() as u64
        }
    };
    simulation.pools.set_attribute(device, attribute, wanted);
    Ok(())
}
