//! What programs get in place of CUDA's functions, and the functions that hand them out by name.
//!
//! Those are `cuGetProcAddress` and the runtime's around it, which stand here because they are
//! among the replacements themselves. The real function answers first. If what it found is one of
//! our symbols, by its plain name and the version of CUDA that was asked for, the caller gets the
//! replacement. An absent function stays absent.
//!
//! **Invariant**, checked when this is compiled: each symbol has one replacement.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use crate::driver_api::SUCCESS;
use crate::next::{self, real};
use crate::{
    driver, last_error, passed, peers, process, report, runtime, runtime_api, symbols, watched,
};

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM`, and the same of the runtime.
const LEGACY_STREAM: u64 = 1;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`, and the same of the runtime.
const PER_THREAD_STREAM: u64 = 2;

/// The replacements by row.
struct Replacements([*const c_void; symbols::COUNT]);

// SAFETY: the pointers are addresses of functions.
unsafe impl Sync for Replacements {}

impl Replacements {
    /// Puts each function into its row.
    const fn new(functions: &[(usize, *const c_void)]) -> Self {
        let mut rows = [ptr::null(); symbols::COUNT];
        let mut has_one = [false; symbols::COUNT];
        let mut index = 0;
        while index < functions.len() {
            let (row, function) = functions[index];
            assert!(!has_one[row], "a symbol with two replacements");
            (rows[row], has_one[row]) = (function, true);
            index += 1;
        }
        assert!(functions.len() == symbols::COUNT, "a symbol without a replacement");
        Self(rows)
    }
}

macro_rules! replacements {
    ($($module:ident: $($name:ident),*;)*) => {
        static REPLACEMENTS: Replacements = Replacements::new(&[
            $($((symbols::row(stringify!($name)), $module::$name as *const c_void),)*)*
        ]);
    };
}

replacements! {
    driver:
        cuIpcGetMemHandle, cuMemAllocAsync, cuMemAllocAsync_ptsz, cuMemAllocFromPoolAsync,
        cuMemAllocFromPoolAsync_ptsz, cuMemAllocPitch_v2, cuMemAlloc_v2, cuMemFreeAsync,
        cuMemFreeAsync_ptsz, cuMemFree_v2, cuMemGetAddressRange_v2, cuMemGetInfo_v2,
        cuPointerGetAttribute, cuPointerGetAttributes;
    runtime:
        cudaFree, cudaFreeAsync, cudaFreeAsync_ptsz, cudaIpcGetMemHandle, cudaMalloc,
        cudaMalloc3D, cudaMallocAsync, cudaMallocAsync_ptsz, cudaMallocFromPoolAsync,
        cudaMallocFromPoolAsync_ptsz, cudaMallocPitch, cudaMemGetInfo;
    passed:
        cuArray3DCreate_v2, cuArrayCreate_v2, cuMemAllocHost_v2, cuMemAllocManaged,
        cuMemFreeHost, cuMemHostAlloc, cuMipmappedArrayCreate, cudaFreeHost, cudaHostAlloc,
        cudaMalloc3DArray, cudaMallocArray, cudaMallocHost, cudaMallocManaged,
        cudaMallocMipmappedArray;
    watched:
        cuCtxDestroy, cuCtxDestroy_v2, cuCtxSynchronize, cuCtxSynchronize_v2,
        cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, cuDeviceSetMemPool,
        cuGreenCtxDestroy, cuMemSetMemPool, cuMemsetD8Async, cuStreamBeginCapture,
        cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCapture_ptsz,
        cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz, cuStreamBeginRecaptureToGraph,
        cuStreamBeginRecaptureToGraph_ptsz, cuStreamDestroy, cuStreamDestroy_v2,
        cuStreamEndCapture, cuStreamEndCapture_ptsz, cuStreamWaitEvent, cudaDeviceReset,
        cudaDeviceSetMemPool, cudaDeviceSynchronize, cudaMemSetMemPool, cudaStreamBeginCapture,
        cudaStreamBeginCaptureToGraph, cudaStreamBeginCaptureToGraph_ptsz,
        cudaStreamBeginCapture_ptsz, cudaStreamDestroy, cudaStreamEndCapture,
        cudaStreamEndCapture_ptsz;
    peers:
        cuCtxEnablePeerAccess, cuMemPoolSetAccess, cudaDeviceEnablePeerAccess,
        cudaMemPoolSetAccess;
    last_error:
        cudaGetLastError, cudaPeekAtLastError;
    self:
        cuGetProcAddress, cuGetProcAddress_v2, cudaGetDriverEntryPoint,
        cudaGetDriverEntryPointByVersion, cudaGetDriverEntryPointByVersion_ptsz,
        cudaGetDriverEntryPoint_ptsz;
}

/// What programs get in place of the function of row `row`.
pub(crate) fn of(row: usize) -> *mut c_void {
    REPLACEMENTS.0[row].cast_mut()
}

/// A lookup has led to `address` for row `row`: the real function, unless it is our own.
pub(crate) fn learn(row: usize, address: *mut c_void) {
    if !REPLACEMENTS.0.contains(&address.cast_const()) {
        next::learn(row, address);
    }
}

/// Puts the replacement, if there is one, in place of what a search has found.
///
/// # Safety
/// On success `name` is NUL-terminated and `function` what the search has written.
unsafe fn replace(
    status: c_int,
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    is_per_thread: bool,
) -> c_int {
    if status != SUCCESS || name.is_null() || function.is_null() || !process::may_serve() {
        return status;
    }
    // SAFETY: by this function's contract.
    unsafe {
        let found = *function;
        let row = symbols::find_plain(CStr::from_ptr(name), version, is_per_thread);
        if let Some(row) = row.filter(|_| !found.is_null()) {
            report::saw_cuda();
            learn(row, found);
            *function = of(row);
        }
    }
    status
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> c_int {
    let status = real!(cuGetProcAddress(name, function, version, flags));
    // SAFETY: the driver has answered.
    unsafe { replace(status, name, function, version, flags & PER_THREAD_STREAM != 0) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    found: *mut c_int,
) -> c_int {
    let status = real!(cuGetProcAddress_v2(name, function, version, flags, found));
    // SAFETY: the driver has answered.
    unsafe { replace(status, name, function, version, flags & PER_THREAD_STREAM != 0) }
}

/// The runtime's functions: 0 as `flags` means the streams that the function itself is for.
macro_rules! entry_points {
    ($plain:ident, $by_version:ident, $is_per_thread:expr) => {
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $plain(
            name: *const c_char,
            function: *mut *mut c_void,
            flags: u64,
            found: *mut c_int,
        ) -> c_int {
            let status = real!($plain(name, function, flags, found));
            let is_per_thread: fn(u64) -> bool = $is_per_thread;
            // SAFETY: the runtime has answered.
            unsafe { replace(status, name, function, runtime_api::version(), is_per_thread(flags)) }
        }

        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $by_version(
            name: *const c_char,
            function: *mut *mut c_void,
            version: c_uint,
            flags: u64,
            found: *mut c_int,
        ) -> c_int {
            let status = real!($by_version(name, function, version, flags, found));
            let is_per_thread: fn(u64) -> bool = $is_per_thread;
            // SAFETY: the runtime has answered.
            unsafe { replace(status, name, function, version as c_int, is_per_thread(flags)) }
        }
    };
}

entry_points!(cudaGetDriverEntryPoint, cudaGetDriverEntryPointByVersion, |flags| {
    flags & PER_THREAD_STREAM != 0
});
entry_points!(cudaGetDriverEntryPoint_ptsz, cudaGetDriverEntryPointByVersion_ptsz, |flags| {
    flags & LEGACY_STREAM == 0
});
