//! Functions of the driver, by name.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use simgpu::Code;

use crate::answer::{put, put_if};
use crate::call::runtime;
use crate::code;
use crate::device::DRIVER_VERSION;
use crate::driver::{Lookup, look_up};

/// `cudaDriverEntryPointSuccess` and `cudaDriverEntryPointSymbolNotFound`.
const FOUND: c_int = 0;
const SYMBOL_NOT_FOUND: c_int = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_uint,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    runtime("cudaGetDriverEntryPointByVersion", format_args!("{version}, {flags}"), |_| {
        if name.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: see the head of `runtime`.
        unsafe {
            match look_up(CStr::from_ptr(name), version as c_int, flags) {
                Lookup::Found(address) => {
                    put_if(status, FOUND);
                    put(function, address)
                }
                Lookup::Absent => {
                    put(function, std::ptr::null_mut())?;
                    put_if(status, SYMBOL_NOT_FOUND);
                    if status.is_null() { Err(code::NOT_FOUND) } else { Ok(()) }
                }
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDriverEntryPoint(
    name: *const c_char,
    function: *mut *mut c_void,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    let version = DRIVER_VERSION as c_uint;
    // SAFETY: see the head of `runtime`.
    unsafe { cudaGetDriverEntryPointByVersion(name, function, version, flags, status) }
}
