//! The library itself: version, devices, backend, options, the last error.

use std::ffi::{CStr, c_char, c_int};

use super::boundary::{self, text};
use super::{ordinal, write_required};
use crate::base::{Error, Result, Status};
use crate::driver::Backend;
use crate::instance;

/// Returns the library's version, such as "0.1.0". The text stays valid.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_version_get() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL in it"),
        };
    VERSION.as_ptr()
}

/// Writes the number of devices to `count`.
///
/// # Safety
/// `count` is NULL, which is an error, or points to a writable `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_device_count_get(count: *mut c_int) -> Status {
    let get = || Ok(instance::heap()?.device_count() as c_int);
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(count, get) })
}

/// Writes the name of `device` to `buffer`, NUL-terminated. Returns
/// `GENESIS_STATUS_INVALID_ARGUMENT` if it is longer than `capacity` bytes.
///
/// # Safety
/// `buffer` is NULL, which is an error, or points to `capacity` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_device_name_get(
    device: c_int,
    buffer: *mut c_char,
    capacity: usize,
) -> Status {
    boundary::status(|| {
        let name = instance::heap()?.device_name(ordinal(device)?)?;
        // SAFETY: the caller's contract.
        unsafe { write_text(&name, buffer, capacity) }
    })
}

/// Points `name` to the backend in use: "cuda", "host" or "sim". The text stays valid.
///
/// # Safety
/// `name` is NULL, which is an error, or points to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_backend_get(name: *mut *const c_char) -> Status {
    let get = || {
        let name = match instance::heap()?.backend() {
            Backend::Cuda => c"cuda",
            Backend::Host => c"host",
            Backend::Sim => c"sim",
        };
        Ok(name.as_ptr())
    };
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(name, get) })
}

/// Sets the option `name` like the environment variable of that name; an empty `value` restores the
/// default. Before the first allocation every option may be set and overrides the environment.
/// Afterwards only those that `genesis options` marks as changeable may, for all devices.
///
/// # Safety
/// Both arguments are NULL, which is an error, or NUL-terminated strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_option_set(name: *const c_char, value: *const c_char) -> Status {
    boundary::status(|| {
        // SAFETY: the caller's contract.
        let (name, value) = unsafe { (text(name, "name")?, text(value, "value")?) };
        instance::set_option(name, value)
    })
}

/// Writes the value of the option `name` to `buffer`, NUL-terminated. Returns
/// `GENESIS_STATUS_INVALID_ARGUMENT` if it is longer than `capacity` bytes.
///
/// # Safety
/// `name` is NULL, which is an error, or a NUL-terminated string; `buffer` is NULL, which is an
/// error, or points to `capacity` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_option_get(
    name: *const c_char,
    buffer: *mut c_char,
    capacity: usize,
) -> Status {
    boundary::status(|| {
        // SAFETY: the caller's contract.
        let value = instance::option(unsafe { text(name, "name")? })?;
        // SAFETY: the caller's contract.
        unsafe { write_text(&value, buffer, capacity) }
    })
}

/// Returns the status of this thread's last call that failed; `GENESIS_STATUS_SUCCESS` if none has
/// failed since the last clear.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_last_error_get() -> Status {
    boundary::last_status()
}

/// Returns one line about this thread's last call that failed; empty if none has. The text is valid
/// until the thread's next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_last_error_message_get() -> *const c_char {
    boundary::last_message()
}

/// Clears the thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_last_error_clear() {
    boundary::clear_last();
}

/// Returns a short text for a status; "unknown status" for any other number. The text stays valid.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_status_text_get(status: c_int) -> *const c_char {
    let known = Status::ALL.into_iter().find(|known| *known as c_int == status);
    known.map_or(c"unknown status", Status::text).as_ptr()
}

/// # Safety
/// `buffer` is null or points to `capacity` writable bytes.
unsafe fn write_text(text: &str, buffer: *mut c_char, capacity: usize) -> Result<()> {
    let text = boundary::to_c_string(text);
    let bytes = text.as_bytes_with_nul();
    if buffer.is_null() {
        return Err(Error::invalid_argument("the buffer is null"));
    }
    if bytes.len() > capacity {
        let message = format!("the buffer has {capacity} bytes, {} are needed", bytes.len());
        return Err(Error::invalid_argument(message));
    }
    // SAFETY: not null, `capacity` bytes long by the contract, and apart from our own text.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), buffer, bytes.len()) };
    Ok(())
}
