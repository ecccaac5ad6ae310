//! Errors: the thread's last one, names and texts.

use std::ffi::{c_char, c_int};

use crate::{code, current};

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> c_int {
    current::take_error()
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> c_int {
    current::peek_error()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(error: c_int) -> *const c_char {
    code::describe(error).map_or(c"unrecognized error code", |known| known.runtime_name).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(error: c_int) -> *const c_char {
    code::describe(error).map_or(c"unrecognized error code", |known| known.text).as_ptr()
}
