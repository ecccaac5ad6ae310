//! `cuInit`, contexts and errors.

use std::ffi::{c_char, c_int, c_uint, c_void};

use simgpu::Code;

use crate::answer::{put, put_if};
use crate::call::driver;
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
extern "C" fn cuDevicePrimaryCtxReset_v2(device: c_int) -> c_int {
    driver("cuDevicePrimaryCtxReset_v2", format_args!("{device}"), |simulation| {
        simulation.reset(simulation.device(device)?)
    })
}

/// Makes a context and pushes it on the thread's stack, on behalf of the driver function `name`.
///
/// # Safety
/// `context` is null or valid.
unsafe fn create(name: &'static str, context: *mut usize, flags: c_uint, device: c_int) -> c_int {
    driver(name, format_args!("{flags}, {device}"), |simulation| {
        let made = simulation.machine.context_create(simulation.device(device)?)?;
        // SAFETY: by this function's contract.
        let stored = unsafe { put(context, current::context_handle(made)) };
        stored.and_then(|()| current::push(made)).inspect_err(|_| {
            // The context is empty yet, so destroying it cannot fail.
            let _ = simulation.machine.context_destroy(made);
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v2(context: *mut usize, flags: c_uint, device: c_int) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { create("cuCtxCreate_v2", context, flags, device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v3(
    context: *mut usize,
    _affinities: *const c_void,
    _count: c_int,
    flags: c_uint,
    device: c_int,
) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { create("cuCtxCreate_v3", context, flags, device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v4(
    context: *mut usize,
    _parameters: *const c_void,
    flags: c_uint,
    device: c_int,
) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe { create("cuCtxCreate_v4", context, flags, device) }
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(context: usize) -> c_int {
    driver("cuCtxDestroy_v2", format_args!("{context:#x}"), |simulation| {
        let context = simulation.context(context)?;
        simulation.machine.context_destroy(context)?;
        simulation.streams.forget(context);
        if current::top() == Some(context) {
            current::set(None);
        }
        Ok(())
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
        let context = (context != 0).then(|| simulation.context(context));
        current::set(context.transpose()?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: usize) -> c_int {
    driver("cuCtxPushCurrent_v2", format_args!("{context:#x}"), |simulation| {
        current::push(simulation.context(context)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut usize) -> c_int {
    driver("cuCtxPopCurrent_v2", format_args!(""), |_| {
        let popped = current::pop()?;
        // SAFETY: see the head of `driver`.
        unsafe { put_if(context, current::context_handle(popped)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> c_int {
    driver("cuCtxGetDevice", format_args!(""), |simulation| {
        let current = simulation.machine.context_device(current::driver_context()?)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(device, current as c_int) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetId(context: usize, id: *mut u64) -> c_int {
    driver("cuCtxGetId", format_args!("{context:#x}"), |simulation| {
        let context = match context {
            0 => current::driver_context()?,
            context => simulation.context(context)?,
        };
        // SAFETY: see the head of `driver`.
        unsafe { put(id, simulation.machine.context_id(context)?) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> c_int {
    driver("cuCtxSynchronize", format_args!(""), |simulation| {
        simulation.machine.synchronize(current::driver_context()?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int {
    driver("cuCtxGetStreamPriorityRange", format_args!(""), |_| {
        current::driver_context()?;
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
        let peer = simulation.machine.context_device(simulation.context(context)?)?;
        simulation.enable_peer(current::driver_context()?, peer)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    driver("cuThreadExchangeStreamCaptureMode", format_args!(""), |_| {
        // SAFETY: see the head of `driver`.
        unsafe { crate::capture::exchange_mode(mode) }
    })
}
