//! The real driver: devices of `libcuda.so.1`.
//!
//! `loader` finds the library and its symbols at run time, so CUDA is needed neither to build nor
//! to load this library. `scope` changes the calling thread's driver state for the length of a
//! call, and `calling` makes calls in such scopes. With them `device` implements the contract. Nothing
//! happens before [`open`] is called, and nothing is undone at exit: the driver shuts itself down then,
//! perhaps before this library.
#![allow(unsafe_code)]

mod calling;
mod contexts;
mod device;
mod loader;
mod managed;
mod meter;
mod properties;
mod scope;
mod sharing;
mod virtual_memory;

use std::ffi::{CStr, c_int};
use std::sync::Arc;

pub use cudarc::driver::sys;

use self::device::CudaDevice;
use self::loader::Api;
pub use self::loader::Library;
pub use self::properties::{access, properties};
use super::{Backend, Call, Code, Device, Platform};
use crate::base::{DeviceOrdinal, Error, Result, Status};

/// The driver's library. Never `libcuda.so`: that may be a toolkit's stub without a driver.
const LIBRARY_NAME: &CStr = c"libcuda.so.1";

/// Starts the CUDA driver and counts its devices; makes no context yet.
///
/// Every failure is `DriverUnavailable`, with the driver's code and its name if there is one.
pub fn open() -> Result<Platform> {
    open_library(LIBRARY_NAME)
}

/// Returns true if the machine has a driver library, usable or not.
pub fn is_present() -> bool {
    Library::load(LIBRARY_NAME).is_ok()
}

/// [`open`] for a library of any name or path: for tests that bring their own driver.
pub fn open_library(name: &CStr) -> Result<Platform> {
    let unavailable = |message: String| Error::new(Status::DriverUnavailable, message);
    let library = Library::load(name).map_err(unavailable)?;
    let api = Arc::new(Api::find(&library));
    let count = start(&api).map_err(|message| {
        unavailable(format!("{} {}: {message}", name.to_string_lossy(), version(&api)))
    })?;
    let devices = (0..count)
        .map(|index| -> Arc<dyn Device> {
            Arc::new(CudaDevice::new(Arc::clone(&api), DeviceOrdinal(index)))
        })
        .collect();
    Ok(Platform { backend: Backend::Cuda, devices, notice: None })
}

/// Starts the driver and counts its devices, of which there is at least one.
fn start(api: &Api) -> std::result::Result<u32, String> {
    let initialize = api.initialize.ok_or("it has no cuInit")?;
    let device_count = api.device_count.ok_or("it has no cuDeviceGetCount")?;
    // SAFETY: `cuInit` may be called from any thread and any number of times; 0 is the only
    // value its flags may have.
    let code = Code(unsafe { initialize(0) });
    if code != Code::SUCCESS {
        return Err(failure(api, Call::Initialize.name(), code));
    }
    let mut count: c_int = 0;
    // SAFETY: the driver is started, and `count` is a live integer.
    let code = Code(unsafe { device_count(&mut count) });
    if code != Code::SUCCESS {
        return Err(failure(api, "cuDeviceGetCount", code));
    }
    match u32::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("it has no device".to_owned()),
    }
}

/// Describes a failed call, with the driver's name for the code if it has one.
fn failure(api: &Api, call: &str, code: Code) -> String {
    let mut name: *const std::ffi::c_char = std::ptr::null();
    let known = match api.error_name {
        // SAFETY: `name` is a live pointer; the driver points it at one of its constants or
        // returns an error.
        Some(error_name) => Code(unsafe { error_name(code.0, &mut name) }) == Code::SUCCESS,
        None => false,
    };
    if known && !name.is_null() {
        // SAFETY: the driver's names are NUL-terminated constants of a library that is never
        // unloaded.
        let name = unsafe { CStr::from_ptr(name) };
        format!("{call} failed with code {} ({})", code.0, name.to_string_lossy())
    } else {
        format!("{call} failed with code {}", code.0)
    }
}

/// The CUDA version that the driver supports, for messages; known before the start.
fn version(api: &Api) -> String {
    let mut version: c_int = 0;
    let known = match api.driver_version {
        // SAFETY: `version` is a live integer, and the call is valid before `cuInit`.
        Some(driver_version) => Code(unsafe { driver_version(&mut version) }) == Code::SUCCESS,
        None => false,
    };
    if known {
        format!("(CUDA {}.{})", version / 1000, version % 1000 / 10)
    } else {
        "(CUDA version unknown)".to_owned()
    }
}

#[cfg(test)]
mod tests;
