//! The process's environment, as the C library has it.

use std::ffi::{CStr, c_char};

/// The value of the variable `name`; `None` if it is not set.
pub(crate) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a NUL-terminated name; the text is the process's own. A program that changes its
    // environment on another thread meanwhile is in error with any library.
    unsafe {
        let value: *const c_char = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

/// Returns true if the variable `name` is `off`.
pub(crate) fn is_off(name: &CStr) -> bool {
    variable(name).is_some_and(|value| value.to_bytes().trim_ascii() == b"off")
}
