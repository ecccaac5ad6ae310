//! Modules, functions and launches. Code is not read; kernels are names.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use simgpu::Code;

use crate::answer::{Answer, put, put_if};
use crate::call::driver;
use crate::{current, kernels, launch};

/// The handle of every module and library: code is not read, so all are alike.
const MODULE: usize = 0x5a00_0000_0000;

/// `CUlaunchConfig`, up to the last field that is read.
#[repr(C)]
struct LaunchConfiguration {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: usize,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut usize, _image: *const c_void) -> c_int {
    driver("cuModuleLoadData", format_args!(""), |_| {
        current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe { put(module, MODULE) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut usize,
    _image: *const c_void,
    count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> c_int {
    driver("cuModuleLoadDataEx", format_args!("{count}"), |_| {
        current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe { put(module, MODULE) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoad(module: *mut usize, _path: *const c_char) -> c_int {
    driver("cuModuleLoad", format_args!(""), |_| {
        current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe { put(module, MODULE) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: usize) -> c_int {
    driver("cuModuleUnload", format_args!("{module:#x}"), |_| known_module(module))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: *mut usize,
    module: usize,
    name: *const c_char,
) -> c_int {
    driver("cuModuleGetFunction", format_args!("{module:#x}"), |_| {
        known_module(module)?;
        if name.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: see the head of `driver`.
        unsafe { put(function, kernels::named(CStr::from_ptr(name))) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, which: c_int, function: usize) -> c_int {
    driver("cuFuncGetAttribute", format_args!("{which}, {function:#x}"), |_| {
        kernels::check(function)?;
        let answer = match which {
            0 => launch::MOST_BLOCK_THREADS,
            4 => 32,
            5 | 6 => 90,
            _ => 0,
        };
        // SAFETY: see the head of `driver`.
        unsafe { put(value, answer) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: usize, which: c_int, value: c_int) -> c_int {
    driver("cuFuncSetAttribute", format_args!("{function:#x}, {which}, {value}"), |_| {
        kernels::check(function)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetCacheConfig(function: usize, preference: c_int) -> c_int {
    driver("cuFuncSetCacheConfig", format_args!("{function:#x}, {preference}"), |_| {
        kernels::check(function)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: usize,
    threads: c_int,
    shared_bytes: usize,
) -> c_int {
    let arguments = format_args!("{function:#x}, {threads}, {shared_bytes}");
    driver("cuOccupancyMaxActiveBlocksPerMultiprocessor", arguments, |_| {
        kernels::check(function)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(blocks, launch::blocks_per_processor(threads)?) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    stream: usize,
    parameters: *const *const c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    let arguments = format_args!("{}, {stream:#x}", kernels::Named(function));
    driver("cuLaunchKernel", arguments, |simulation| {
        let context = current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe { launch::kernel(simulation, context, stream, function, parameters) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchCooperativeKernel(
    function: usize,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    stream: usize,
    parameters: *const *const c_void,
) -> c_int {
    let arguments = format_args!("{}, {stream:#x}", kernels::Named(function));
    driver("cuLaunchCooperativeKernel", arguments, |simulation| {
        let context = current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe { launch::kernel(simulation, context, stream, function, parameters) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernelEx(
    configuration: *const LaunchConfiguration,
    function: usize,
    parameters: *const *const c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    driver("cuLaunchKernelEx", format_args!("{function:#x}"), |simulation| {
        // SAFETY: see the head of `driver`.
        let configuration = unsafe { configuration.as_ref() }.ok_or(Code::INVALID_VALUE)?;
        let context = current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe { launch::kernel(simulation, context, configuration.stream, function, parameters) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetGlobal_v2(
    address: *mut u64,
    bytes: *mut usize,
    module: usize,
    _name: *const c_char,
) -> c_int {
    driver("cuModuleGetGlobal_v2", format_args!("{module:#x}"), |_| {
        // SAFETY: see the head of `driver`.
        unsafe {
            put_if(address, 0);
            put_if(bytes, 0);
        }
        // Code is not read, so no module is known to have a variable.
        Err(crate::code::NOT_FOUND)
    })
}

fn known_module(module: usize) -> Answer {
    if module == MODULE { Ok(()) } else { Err(Code::INVALID_HANDLE) }
}
