//! The runtime's functions that this library itself calls.
//!
//! They are the real ones (`next`). A process may have no runtime, or several copies of one.

use std::ffi::{CStr, c_int};

use crate::driver_api::{SUCCESS, driver};
use crate::{inside, next, symbols};

/// Has the runtime make a context, as its first call would; returns true if it did. A capture may
/// be under way on another device, and is not disturbed.
pub(crate) fn start() -> bool {
    type Free = unsafe extern "C" fn(u64) -> c_int;
    const FREE: usize = symbols::row("cudaFree");
    // SAFETY: the runtime's function of that name, for which a null pointer is always allowed.
    let make = || next::call(FREE, |free: Free| unsafe { free(0) }) == SUCCESS;
    driver().map_or_else(make, |driver| driver.relaxed(make))
}

/// The device that the runtime's calls of this thread are for.
pub(crate) fn current_device() -> Option<c_int> {
    number(c"cudaGetDevice")
}

/// The version of CUDA that the runtime is of; 0 if it does not say.
pub(crate) fn version() -> c_int {
    number(c"cudaRuntimeGetVersion").unwrap_or(0)
}

/// What the function `name`, whose only parameter is a place for one number, writes there.
fn number(name: &CStr) -> Option<c_int> {
    let function = next::find(name)?;
    let _inside = inside::enter();
    let mut number = 0;
    // SAFETY: the runtime's function of that name, which writes one number.
    let status = unsafe {
        let get: unsafe extern "C" fn(*mut c_int) -> c_int = std::mem::transmute(function);
        get(&raw mut number)
    };
    (status == SUCCESS).then_some(number)
}
