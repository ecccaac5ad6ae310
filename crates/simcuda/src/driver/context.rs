//! `cuInit`, contexts and errors.

use std::ffi::{c_char, c_int, c_uint};

use simgpu::Code;

use crate::call::{driver, put, put_if};
use crate::streams::PRIORITIES;
use crate::{code, current, device, simulation};

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> c_int {
    if flags != 0 {
        return Code::INVALID_VALUE.0;
    }
    simulation::start().err().map_or(0, |code| code.0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { put(version, device::DRIVER_VERSION) }.err().map_or(0, |code| code.0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: c_int, name: *mut *const c_char) -> c_int {
    let known = code::describe(error).map(|known| known.driver_name.as_ptr());
    // SAFETY: see the head of `driver`.
    unsafe { put_if(name, known.unwrap_or(std::ptr::null())) };
    if known.is_some() { 0 } else { Code::INVALID_VALUE.0 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
    let known = code::describe(error).map(|known| known.text.as_ptr());
    // SAFETY: see the head of `driver`.
    unsafe { put_if(text, known.unwrap_or(std::ptr::null())) };
    if known.is_some() { 0 } else { Code::INVALID_VALUE.0 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) -> c_int {
    driver("cuDevicePrimaryCtxRetain", format_args!("{device}"), |simulation| {
        let device = simulation.device(device)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(context, current::context_handle(device))? };
        current::activate(device);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    driver("cuDevicePrimaryCtxRelease_v2", format_args!("{device}"), |simulation| {
        simulation.device(device).map(|_| ())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) -> c_int {
    driver("cuDevicePrimaryCtxSetFlags_v2", format_args!("{device}, {flags}"), |simulation| {
        simulation.device(device).map(|_| ())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: *mut c_uint,
    active: *mut c_int,
) -> c_int {
    driver("cuDevicePrimaryCtxGetState", format_args!("{device}"), |simulation| {
        let device = simulation.device(device)?;
        // SAFETY: see the head of `driver`.
        unsafe {
            put_if(flags, 0);
            put(active, c_int::from(current::is_active(device)))
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> c_int {
    driver("cuCtxGetCurrent", format_args!(""), |_| {
        // SAFETY: see the head of `driver`.
        unsafe { put(context, current::top().map_or(0, current::context_handle)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: usize) -> c_int {
    driver("cuCtxSetCurrent", format_args!("{context:#x}"), |simulation| {
        let devices = simulation.settings.devices;
        let device = (context != 0).then(|| current::context_device(context, devices));
        current::set(device.transpose()?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: usize) -> c_int {
    driver("cuCtxPushCurrent_v2", format_args!("{context:#x}"), |simulation| {
        current::push(current::context_device(context, simulation.settings.devices)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut usize) -> c_int {
    driver("cuCtxPopCurrent_v2", format_args!(""), |_| {
        let device = current::pop()?;
        // SAFETY: see the head of `driver`.
        unsafe { put_if(context, current::context_handle(device)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> c_int {
    driver("cuCtxGetDevice", format_args!(""), |_| {
        // SAFETY: see the head of `driver`.
        unsafe { put(device, current::driver_device()? as c_int) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetId(context: usize, id: *mut u64) -> c_int {
    driver("cuCtxGetId", format_args!("{context:#x}"), |simulation| {
        let device = match context {
            0 => current::driver_device()?,
            context => current::context_device(context, simulation.settings.devices)?,
        };
        // SAFETY: see the head of `driver`.
        unsafe { put(id, u64::from(device) + 1) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> c_int {
    driver("cuCtxSynchronize", format_args!(""), |simulation| {
        simulation.machine.synchronize(current::driver_device()?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int {
    driver("cuCtxGetStreamPriorityRange", format_args!(""), |_| {
        current::driver_device()?;
        // SAFETY: see the head of `driver`.
        unsafe {
            put_if(least, PRIORITIES.0);
            put_if(greatest, PRIORITIES.1);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(context: usize, flags: c_uint) -> c_int {
    driver("cuCtxEnablePeerAccess", format_args!("{context:#x}, {flags}"), |simulation| {
        let peer = current::context_device(context, simulation.settings.devices)?;
        simulation.enable_peer(current::driver_device()?, peer)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    driver("cuThreadExchangeStreamCaptureMode", format_args!(""), |_| {
        // SAFETY: see the head of `driver`.
        unsafe { crate::capture::exchange_mode(mode) }
    })
}
