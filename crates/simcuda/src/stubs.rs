//! Functions of other libraries that need a device: linear algebra, neural networks, transforms.
//!
//! Those libraries contain their own runtime, which cannot work here, so their functions are
//! replaced. All kernels here compute nothing, so a matrix product succeeds; a function that would
//! have to return data is refused and its name printed. The stubs are generated from the lists in
//! `symbols/` (see `build.rs`). They ignore their arguments, which the C calling convention allows.

use std::ffi::{c_char, c_int};

use crate::answer::put;
use crate::log;
use crate::simulation::existing;

/// The handle of everything created here: nothing lies there.
const HANDLE: usize = 0x5900_0000_0000;
/// `CUBLAS_STATUS_INVALID_VALUE`.
const INVALID_VALUE: c_int = 7;
/// Versions of cuBLAS and cuDNN whose interface this is.
const CUBLAS_VERSION: usize = 130_100;
const CUDNN_VERSION: usize = 91_900;

include!(concat!(env!("OUT_DIR"), "/stubs.rs"));

/// Prints that `name` is not implemented.
fn refuse(name: &str, status: c_int) -> c_int {
    note(name, status);
    log::missing(name);
    status
}

/// Does nothing.
fn succeed(name: &str) -> c_int {
    note(name, 0);
    0
}

/// Stores a handle.
///
/// # Safety
/// `place` is null or where the caller wants a handle stored.
unsafe fn create(name: &str, place: *mut usize) -> c_int {
    // SAFETY: by this function's contract.
    let status = unsafe { put(place, HANDLE) }.map_or(INVALID_VALUE, |()| 0);
    note(name, status);
    status
}

fn note(name: &str, status: c_int) {
    if let Some(simulation) = existing() {
        simulation.log.call(name, format_args!("…"), status);
    }
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Default)]
struct HeuristicResult {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

const _: () = assert!(size_of::<HeuristicResult>() == 96);

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: usize,
    _operation: usize,
    _a: usize,
    _b: usize,
    _c: usize,
    _d: usize,
    _preference: usize,
    wanted: c_int,
    results: *mut HeuristicResult,
    count: *mut c_int,
) -> c_int {
    note("cublasLtMatmulAlgoGetHeuristic", 0);
    if wanted < 1 {
        return INVALID_VALUE;
    }
    // SAFETY: the caller has room for `wanted` results, at least one, and for their number.
    let written = unsafe { put(results, HeuristicResult::default()).and_then(|()| put(count, 1)) };
    written.map_or(INVALID_VALUE, |()| 0)
}

/// Stores cuBLAS's default mode, 0.
///
/// # Safety
/// `place` is null or where the caller wants the mode stored.
unsafe fn default_mode(place: *mut c_int) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { put(place, 0) }.map_or(INVALID_VALUE, |()| 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetMathMode(_handle: usize, mode: *mut c_int) -> c_int {
    // SAFETY: by the library's own contract.
    unsafe { default_mode(mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetPointerMode_v2(_handle: usize, mode: *mut c_int) -> c_int {
    // SAFETY: by the library's own contract.
    unsafe { default_mode(mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetVersion_v2(_handle: usize, version: *mut c_int) -> c_int {
    // SAFETY: by the library's own contract.
    unsafe { put(version, CUBLAS_VERSION as c_int) }.map_or(INVALID_VALUE, |()| 0)
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    CUBLAS_VERSION
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetVersion() -> usize {
    CUDNN_VERSION
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetCudartVersion() -> usize {
    crate::device::DRIVER_VERSION as usize
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetErrorString(_status: c_int) -> *const c_char {
    c"cuDNN is not simulated".as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetLastErrorString(message: *mut c_char, size: usize) {
    if !message.is_null() && size > 0 {
        // SAFETY: there is room for at least one character.
        unsafe { message.write(0) };
    }
}
