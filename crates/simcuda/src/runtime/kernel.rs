//! Kernels: registration when libraries are loaded, launches, occupancy.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_void};

use simgpu::Code;

use crate::answer::{Answer, put, put_if};
use crate::call::runtime;
use crate::{current, kernels, launch};

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dimensions {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// `cudaLaunchConfig_t`, up to the last field that is read.
#[repr(C)]
struct LaunchConfiguration {
    grid: Dimensions,
    block: Dimensions,
    shared_bytes: usize,
    stream: usize,
}

/// `cudaFuncAttributes`.
#[repr(C)]
#[derive(Default)]
struct FunctionAttributes {
    shared_bytes: usize,
    constant_bytes: usize,
    local_bytes: usize,
    most_block_threads: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode: c_int,
    most_dynamic_shared_bytes: c_int,
    shared_carveout: c_int,
    cluster: [c_int; 6],
    reserved: [c_int; 16],
}

const _: () = assert!(size_of::<FunctionAttributes>() == 144);

/// A call configuration on its way from `<<<…>>>` to the stub.
#[derive(Clone, Copy)]
struct Configuration {
    grid: Dimensions,
    block: Dimensions,
    shared_bytes: usize,
    stream: usize,
}

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// The handle of every fat binary: its content is not read.
static FAT_BINARY: u64 = 0;

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(_binary: *const c_void) -> *const u64 {
    &FAT_BINARY
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_handle: *const u64) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaUnregisterFatBinary(_handle: *const u64) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaInitModule(_handle: *const u64) -> c_char {
    1
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterFunction(
    _handle: *const u64,
    stub: *const c_void,
    _device_function: *const c_char,
    name: *const c_char,
    _threads: c_int,
    _thread_id: *const c_void,
    _block_id: *const c_void,
    _block: *const c_void,
    _grid: *const c_void,
    _warp: *const c_int,
) {
    // SAFETY: the name is a constant of the library that registers its kernel.
    unsafe { kernels::register(stub, name) };
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterVar(
    _handle: *const u64,
    shadow: *const c_void,
    _address: *const c_char,
    _name: *const c_char,
    _is_external: c_int,
    bytes: usize,
    _is_constant: c_int,
    _is_global: c_int,
) {
    kernels::register_variable(shadow, bytes);
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(
    grid: Dimensions,
    block: Dimensions,
    shared_bytes: usize,
    stream: usize,
) -> c_uint {
    let pushed = CONFIGURATIONS.try_with(|stack| {
        stack.borrow_mut().push(Configuration { grid, block, shared_bytes, stream });
    });
    c_uint::from(pushed.is_err())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaPopCallConfiguration(
    grid: *mut Dimensions,
    block: *mut Dimensions,
    shared_bytes: *mut usize,
    stream: *mut usize,
) -> c_int {
    let popped = CONFIGURATIONS.try_with(|stack| stack.borrow_mut().pop()).ok().flatten();
    let Some(configuration) = popped else { return Code::INVALID_VALUE.0 };
    // SAFETY: see the head of `runtime`.
    unsafe {
        put_if(grid, configuration.grid);
        put_if(block, configuration.block);
        put_if(shared_bytes, configuration.shared_bytes);
        put_if(stream, configuration.stream);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaGetKernel(kernel: *mut usize, stub: usize) -> c_int {
    runtime("__cudaGetKernel", format_args!("{stub:#x}"), |_| {
        kernels::check(stub)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(kernel, stub) }
    })
}

/// Enqueues a kernel on behalf of the runtime function `name`.
///
/// # Safety
/// As for [`launch::kernel`].
unsafe fn launch(
    name: &'static str,
    kernel: usize,
    stream: usize,
    arguments: *const *const c_void,
) -> c_int {
    runtime(name, format_args!("{}, {stream:#x}", kernels::Named(kernel)), |simulation| {
        let context = current::runtime_context();
        // SAFETY: by this function's contract.
        unsafe { launch::kernel(simulation, context, stream, kernel, arguments) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaLaunchKernel(
    kernel: usize,
    _grid: Dimensions,
    _block: Dimensions,
    arguments: *const *const c_void,
    _shared_bytes: usize,
    stream: usize,
) -> c_int {
    // SAFETY: see the head of `runtime`.
    unsafe { launch("__cudaLaunchKernel", kernel, stream, arguments) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaLaunchKernel(
    kernel: usize,
    _grid: Dimensions,
    _block: Dimensions,
    arguments: *const *const c_void,
    _shared_bytes: usize,
    stream: usize,
) -> c_int {
    // SAFETY: see the head of `runtime`.
    unsafe { launch("cudaLaunchKernel", kernel, stream, arguments) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaLaunchCooperativeKernel(
    kernel: usize,
    _grid: Dimensions,
    _block: Dimensions,
    arguments: *const *const c_void,
    _shared_bytes: usize,
    stream: usize,
) -> c_int {
    // SAFETY: see the head of `runtime`.
    unsafe { launch("cudaLaunchCooperativeKernel", kernel, stream, arguments) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaLaunchKernelExC(
    configuration: *const LaunchConfiguration,
    kernel: usize,
    arguments: *const *const c_void,
) -> c_int {
    // SAFETY: see the head of `runtime`.
    let stream = unsafe { configuration.as_ref() }.map(|configuration| configuration.stream);
    runtime("cudaLaunchKernelExC", format_args!("{}", kernels::Named(kernel)), |simulation| {
        let stream = stream.ok_or(Code::INVALID_VALUE)?;
        let context = current::runtime_context();
        // SAFETY: see the head of `runtime`.
        unsafe { launch::kernel(simulation, context, stream, kernel, arguments) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaFuncGetAttributes(
    attributes: *mut FunctionAttributes,
    kernel: usize,
) -> c_int {
    runtime("cudaFuncGetAttributes", format_args!("{kernel:#x}"), |_| {
        kernels::check(kernel)?;
        let answer = FunctionAttributes {
            most_block_threads: launch::MOST_BLOCK_THREADS,
            registers: 32,
            ptx_version: 90,
            binary_version: 90,
            most_dynamic_shared_bytes: 49_152,
            shared_carveout: -1,
            ..FunctionAttributes::default()
        };
        // SAFETY: see the head of `runtime`.
        unsafe { put(attributes, answer) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaFuncSetAttribute(kernel: usize, which: c_int, value: c_int) -> c_int {
    runtime("cudaFuncSetAttribute", format_args!("{kernel:#x}, {which}, {value}"), |_| {
        kernels::check(kernel)
    })
}

fn occupancy(kernel: usize, threads: c_int, blocks: *mut c_int) -> Answer {
    kernels::check(kernel)?;
    // SAFETY: see the head of `runtime`.
    unsafe { put(blocks, launch::blocks_per_processor(threads)?) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    kernel: usize,
    threads: c_int,
    _shared_bytes: usize,
) -> c_int {
    let name = "cudaOccupancyMaxActiveBlocksPerMultiprocessor";
    runtime(name, format_args!("{kernel:#x}, {threads}"), |_| occupancy(kernel, threads, blocks))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    kernel: usize,
    threads: c_int,
    _shared_bytes: usize,
    _flags: c_uint,
) -> c_int {
    let name = "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags";
    runtime(name, format_args!("{kernel:#x}, {threads}"), |_| occupancy(kernel, threads, blocks))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetSymbolAddress(address: *mut u64, symbol: usize) -> c_int {
    runtime("cudaGetSymbolAddress", format_args!("{symbol:#x}"), |simulation| {
        let context = current::runtime_context();
        // SAFETY: see the head of `runtime`.
        unsafe { put(address, kernels::variable(&simulation.machine, context, symbol)?.0) }
    })
}
