//! `cuGetProcAddress` and the runtime's functions around it.
//!
//! The real function answers first; where what it found is a function of the table, by its plain
//! name and the version of CUDA that was asked for, the caller gets the replacement. What is not
//! there stays so.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::driver_api::SUCCESS;
use crate::next::{self, real};
use crate::table::{self, ROWS};
use crate::{process, report};

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM`, and its like of the runtime's.
const LEGACY_STREAM: u64 = 1;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`, and its like of the runtime's.
const PER_THREAD_STREAM: u64 = 2;

/// Puts the replacement, if there is one, in the place of what a search that ended with `status`
/// has found.
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
        let row = table::find_plain(CStr::from_ptr(name), version, is_per_thread);
        if let Some(row) = row.filter(|_| !found.is_null()) {
            report::saw_cuda();
            next::learn(row, found);
            *function = ROWS[row].replacement.cast_mut();
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

/// The version of CUDA that the runtime is of, for searches that do not say one.
fn runtime_version() -> c_int {
    let mut version = 0;
    if let Some(function) = next::find(c"cudaRuntimeGetVersion") {
        // SAFETY: the runtime's function of that name, which writes one number.
        unsafe {
            let get: unsafe extern "C" fn(*mut c_int) -> c_int = std::mem::transmute(function);
            get(&raw mut version);
        }
    }
    version
}

/// The runtime's functions, for each of which 0 as `flags` means the streams that it is for.
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
            unsafe { replace(status, name, function, runtime_version(), is_per_thread(flags)) }
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
